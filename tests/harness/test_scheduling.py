from tests.harness.scheduling import SESSION, FilesAndSessions
from tests.harness.server import ROOT


def test_files_stay_together_and_the_session_has_one_worker() -> None:
    split = FilesAndSessions._split_scope
    scheduling = FilesAndSessions.__new__(FilesAndSessions)  # the question needs nothing of a run

    assert {split(scheduling, f"{file}::test_a[x::y]") for file in SESSION} == {SESSION[0]}
    assert split(scheduling, "tests/a/test_b.py::TestC::test_d") == "tests/a/test_b.py"


def test_every_test_of_the_session_is_in_these_files() -> None:
    using = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests" / "spark").rglob("test_*.py")
        if 'spark: "SparkSession"' in path.read_text(encoding="utf-8")
    }
    assert using == set(SESSION)
