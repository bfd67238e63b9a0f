"""What seeds of mode "node" show of defects that are known and not mended yet. Whoever mends one takes its line out.

A problem that no line names fails the tests.
"""

import re
from collections.abc import Sequence

KNOWN = (  # (problem, the kind of fault that it needs, the defect)
    (r"liveness: M: .* are not acknowledged", "", "memory streams wait for ever when two of three have lost their memory"),
    (r"violation: M: \d+ of \d+ acknowledged are lost", "", "`/healthz` says ok before a memory stream is refilled"),
    (r"violation: \w+: a message is there twice", "clock", "a clock that jumps makes the leader forget message ids"),
    (r"violation: \w+: .* acknowledged at \d+ and at \d+", "clock", "the same"),
    (r"violation: \w+: raised out of a task: OSError\(5, 'read: .*", "unreadable", "a read error ends the process"),
    (r"violation: \('S-.*two leaders in a term.*", "", "a row of an old table begins a stream again"),
)


def known_reason(problem: str, kinds: Sequence[str]) -> str | None:
    """The defect that a problem shows in a run with these kinds of faults; None when nobody knows it."""
    return next(
        (reason for pattern, kind, reason in KNOWN if re.fullmatch(pattern, problem) and (not kind or kind in kinds)),
        None,
    )
