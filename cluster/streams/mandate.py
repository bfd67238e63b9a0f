"""On what a replica serves: the evidence, and what may be done on it. Pure.

| Right | Asked by | Evidence |
|---|---|---|
| to lead | admission, acknowledgements, deliveries, the sinks' interest, infos | the row is current, the log is sound |
| to answer reads | direct gets: single, batch, multi, columns | the same, and the member is fresh |

- The row is current: the meta group's present table has this incarnation of the stream, with this node among its
  holders. The evidence behind that is for cluster/meta to give.
- The log is sound: it is open, and neither a write of it nor apply has failed (raft/turns.py, `fail`).
- The member is fresh: raft/freshness.py. It moves with every entry, so it is not copied here but looked at.

The replica weighs the evidence whenever some of it may have changed, and begins and ends in that one place what rests
on it. A get that comes when the right is over, or before there was one, is refused: it looks at the clock itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.raft.freshness import Freshness


@attrs.frozen(kw_only=True, slots=True)
class Evidence:
    """The evidence of one moment. The member's freshness is known by itself."""

    is_row_current: bool
    is_sound: bool


@attrs.frozen(kw_only=True, slots=True)
class MandateStatistics:
    """The rights of a replica, and else why it has none."""

    may_lead: bool
    may_read: bool
    why_not: str


NOTHING_KNOWN: Final = Evidence(is_row_current=False, is_sound=False)


class Mandate:
    """See the module."""

    __slots__ = ("_evidence", "_freshness", "lapsed", "may_lead")

    def __init__(self, freshness: Freshness, *, lapsed: Callable[[], None]) -> None:
        """`lapsed` is called by those who were asked for what they may not do any more: it weighs the evidence."""
        self.lapsed = lapsed
        self._freshness = freshness
        self._evidence = NOTHING_KNOWN
        self.may_lead = False

    def weigh(self, evidence: Evidence) -> bool:
        """Go by this evidence from now on. Returns whether the right to lead has begun or ended."""
        had, self._evidence = self.may_lead, evidence
        self.may_lead = evidence.is_row_current and evidence.is_sound
        return had is not self.may_lead

    def may_read(self, now_ns: int) -> bool:
        """Whether a read that comes at this moment (mono) may be answered."""
        return self.may_lead and now_ns <= self._freshness.until_ns

    def statistics(self, now_ns: int) -> MandateStatistics:
        """The rights, and the first reason for those that are missing."""
        may_read, evidence = self.may_read(now_ns), self._evidence
        why_not = ""
        if not evidence.is_sound:
            why_not = "its log has failed"
        elif not evidence.is_row_current:
            why_not = "the meta group has not confirmed that it is assigned here"
        elif not may_read and not self._freshness.until_ns:
            why_not = "it has not had all that its leader has committed yet"
        elif not may_read:
            why_not = "it has been behind, or without a leader, for too long"
        return MandateStatistics(may_lead=self.may_lead, may_read=may_read, why_not=why_not)
