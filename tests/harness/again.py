"""Run the tests that failed in the last run once more, alone (docs/decisions/0080-what-failed-beside-others.md)."""

import json
import sys
from pathlib import Path

import pytest

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
FAILED_MAX = 5  # more are no coincidence


def names(cache: Path = LAST_FAILED) -> list[str]:
    """The tests that failed; none when the run did not come as far as writing them down."""
    try:
        return sorted(json.loads(cache.read_text()))
    except FileNotFoundError:
        return []


def refusal(failed: list[str]) -> str | None:
    """Why these are not repeated."""
    if not failed:
        return "no test failed: the run itself did"
    if len(failed) > FAILED_MAX:
        return f"{len(failed)} tests failed; more than {FAILED_MAX} are not repeated"
    broken = [name for name in failed if "::" not in name]
    return f"{', '.join(broken)}: could not be read" if broken else None


def main() -> int:
    failed = names()
    if why := refusal(failed):
        print(why)  # noqa: T201  (a command)
        return 1
    print("Failed beside others:", *failed, sep="\n  ")  # noqa: T201
    return int(pytest.main(["-q", "-n", "0", *failed]))


if __name__ == "__main__":
    sys.exit(main())
