"""Runs tests while a rule is switched off (unit_mutations.py), each in a forked process, which ends with the patch."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

Patch = pytest.MonkeyPatch
TESTS = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's exit status
TEST_S = 20.0  # each takes a second or two


@attrs.frozen
class UnitMutation:
    """One rule switched off: `instead` happens, and each of `tests` (`path::name` below tests/) fails."""

    rule: int
    instead: str
    switch: Callable[[Patch], None]
    tests: tuple[str, ...]


def still_passing(mutation: UnitMutation) -> list[str]:
    """The tests of a mutation that do not notice it."""
    return [test for test in mutation.tests if not _notices(mutation, test)]


def _notices(mutation: UnitMutation, test: str) -> bool:
    process = multiprocessing.get_context("fork").Process(target=_run, args=(mutation, test))
    process.start()
    process.join(TEST_S)
    if process.exitcode is None:  # without the rule it does not end
        process.kill()
        process.join()
        return True
    return process.exitcode == TESTS_FAILED


def _run(mutation: UnitMutation, test: str) -> None:
    """In the child: exits with pytest's status."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115  (until the process ends)
    for fd in (1, 2):
        os.dup2(sys.stdout.fileno(), fd)
    sys.modules.pop("tests." + test.partition(".py::")[0].replace("/", "."), None)  # what it calls at its import
    mutation.switch(pytest.MonkeyPatch())
    os._exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / test)])))
