"""The report of a run names what is slow, and what says why it is."""

from typing import Any

import pytest

from tests.harness.durations import PROPERTY, SLOW_TEST_S, Durations


def report(nodeid: str, duration: float, *, processor_s: float = 0.0, reason: str | None = None) -> pytest.TestReport:
    properties: list[tuple[str, Any]] = [(PROPERTY, reason)] if reason is not None else []
    return pytest.TestReport(
        nodeid,
        (nodeid, 1, nodeid),
        {},
        "passed",
        None,
        "call",
        user_properties=properties,
        duration=duration,
        processor_s=processor_s,
    )


def test_files_are_added_up_and_only_what_gives_no_reason_is_named() -> None:
    durations = Durations()
    durations.pytest_runtest_logreport(report("a.py::one", 20.0, processor_s=SLOW_TEST_S + 1))
    durations.pytest_runtest_logreport(report("a.py::two", 20.0, processor_s=SLOW_TEST_S + 1, reason="it is long"))
    durations.pytest_runtest_logreport(report("b.py::three", 60.0, processor_s=1.0))
    durations.pytest_runtest_logreport(report("b.py::four", 1.0, processor_s=SLOW_TEST_S + 2))

    lines = durations.lines()

    assert [line.split()[-1] for line in lines[2:4]] == ["b.py", "a.py"]
    assert [line.split()[-1] for line in lines[5:]] == ["b.py::four", "a.py::one"]


def test_a_run_in_which_nothing_is_slow_names_nothing() -> None:
    durations = Durations()
    for phase_s in (0.5, 1.0):
        durations.pytest_runtest_logreport(report("a.py::one", phase_s, processor_s=phase_s))

    assert durations.slow() == []
    assert durations.tests == {"a.py::one": 1.5}
    assert len(durations.lines()) == 3
