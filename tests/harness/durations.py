"""Where the time of a run goes: the slowest files and the most expensive tests, at the end of its report.

Wall time is no verdict, as a machine may have other work, so nothing fails here. A test is named under a heading of its
own when the processor worked for it, its children included, for more than SLOW_TEST_S, and it has no marker
`slow("why")`: it needs a reason, a short form (`forms.py`) or a shared fixture. The processor's time is nearly the same
on a busy machine. What a fixture of a file or of the session takes counts for the test that starts it, and what a
server has used for the test that ends it.
"""

import os
from collections import defaultdict
from collections.abc import Generator

import pytest

SLOW_TEST_S = 20.0
FILES_SHOWN = 20
TESTS_SHOWN = 30
MARKER = "slow"
PROPERTY = "slow"  # in which a worker tells the reason to the process that prints


def processor_s() -> float:
    """What this process and those of its children that have ended have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Durations:
    """A plugin that adds up what each phase of each test took: workers measure, the first process prints."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)
        self.explained: set[str] = set()
        self._used_s = processor_s()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Write down the reason that a test gives for being slow."""
        marker = item.get_closest_marker(MARKER)
        if marker is not None:
            item.user_properties.append((PROPERTY, str(marker.args[0])))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the report of a phase what the processor did since the one before."""
        report = yield
        before_s, self._used_s = self._used_s, processor_s()
        report.processor_s = self._used_s - before_s  # type: ignore[attr-defined]  # sent along with the report
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase."""
        self.tests[report.nodeid] += report.duration
        self.processor[report.nodeid] += getattr(report, "processor_s", 0)
        if any(name == PROPERTY for name, _ in report.user_properties):
            self.explained.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print both tables, when there was enough to be worth it."""
        if sum(self.tests.values()) >= SLOW_TEST_S:
            for line in self.lines():
                terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """The report."""
        files: dict[str, list[str]] = defaultdict(list)
        for test in self.tests:
            files[test.partition("::")[0]].append(test)
        took_s = {file: sum(self.tests[test] for test in tests) for file, tests in files.items()}
        used_s = {file: sum(self.processor[test] for test in tests) for file, tests in files.items()}
        slowest = sorted(files, key=lambda file: took_s[file], reverse=True)[:FILES_SHOWN]
        found = [
            f"{sum(took_s.values()):.0f} s in the tests of all workers, {sum(used_s.values()):.0f} s of processor time",
            "the slowest files, with their processor time:",
            *(f"{took_s[file]:7.1f} s {used_s[file]:7.1f} s {len(files[file]):5} tests {file}" for file in slowest),
        ]
        unexplained = [test for test in self.slow() if test not in self.explained]
        if unexplained:
            found.append(f"more than {SLOW_TEST_S:.0f} s of processor time without a marker slow(reason):")
            found += [f"{self.tests[test]:7.1f} s {self.processor[test]:7.1f} s {test}" for test in unexplained]
        return found

    def slow(self) -> list[str]:
        """The tests above the budget, the most expensive ones first."""
        found = [test for test, used_s in self.processor.items() if used_s > SLOW_TEST_S]
        return sorted(found, key=lambda test: self.processor[test], reverse=True)[:TESTS_SHOWN]
