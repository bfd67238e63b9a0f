"""Run the tests that failed in the last run once more, alone (docs/decisions/0080-what-failed-beside-others.md)."""

import json
import sys
from pathlib import Path

import pytest

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
FILES_MAX = 5  # more are no coincidence; tests of a file share servers, so one cause may fail many of them
TESTS_MAX = 60  # as many as run alone in a few minutes


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
    files = {name.partition("::")[0] for name in failed}
    if len(files) > FILES_MAX or len(failed) > TESTS_MAX:
        most = f"more than {TESTS_MAX}, or of more than {FILES_MAX} files, are not repeated"
        return f"{len(failed)} tests of {len(files)} files failed; {most}"
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
