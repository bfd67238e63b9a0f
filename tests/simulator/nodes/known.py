"""What seeds of mode "node" show of defects that are known and not fixed yet. A fix takes its line out.

A problem that no line names fails the tests.
"""

import re
from collections.abc import Sequence

KNOWN: tuple[tuple[str, str, str], ...] = (  # (problem, the kind of fault that it needs, the defect)
)


def known_reason(problem: str, kinds: Sequence[str]) -> str | None:
    """The defect that a problem shows in a run with these kinds of faults; None when nobody knows it."""
    return next(
        (reason for pattern, kind, reason in KNOWN if re.fullmatch(pattern, problem) and (not kind or kind in kinds)),
        None,
    )
