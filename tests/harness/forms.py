"""Two forms of a test: a short one for every run of the suite, and a long one for `make test-long`.

A test of many examples of one kind (seeds, moments, places of damage) has the marker `long_form`, and takes its number
of examples from here. Both forms make the same claim.
"""

import os
from typing import Final

IS_LONG: Final = os.environ.get("JETRAFT_LONG", "") not in {"", "0"}


def examples(short: int, *, long: int) -> int:
    """How many examples this run has."""
    assert 0 < short < long
    return long if IS_LONG else short
