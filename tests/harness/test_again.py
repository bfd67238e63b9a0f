"""What is repeated after a run that failed, and what is not."""

import json
from pathlib import Path

from tests.harness.again import FILES_MAX, TESTS_MAX, names, refusal


def test_the_names_are_those_that_pytest_wrote_down(tmp_path: Path) -> None:
    cache = tmp_path / "lastfailed"
    assert names(cache) == []
    cache.write_text(json.dumps({"b.py::test": True, "a.py::test[x]": True}))
    assert names(cache) == ["a.py::test[x]", "b.py::test"]


def test_a_few_tests_are_repeated() -> None:
    assert refusal([f"{number}.py::test" for number in range(FILES_MAX)]) is None


def test_those_of_one_file_may_have_one_cause() -> None:
    assert refusal([f"a.py::test[{number}]" for number in range(TESTS_MAX)]) is None


def test_many_failures_a_run_that_broke_and_a_file_that_cannot_be_read_are_failures() -> None:
    assert refusal([f"{number}.py::test" for number in range(FILES_MAX + 1)]) is not None
    assert refusal([f"a.py::test[{number}]" for number in range(TESTS_MAX + 1)]) is not None
    assert refusal([]) is not None
    assert refusal(["a.py"]) is not None
