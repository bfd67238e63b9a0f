"""Messages for which a new configuration leaves no room: they go before it is in force, a bounded number in each entry.

Applying a configuration drops what is above its limits, on all replicas and in one step: 0.2 s for a million messages.
So the leader proposes the removal of most of it first, as it proposes what has become too old, and the configuration
last. Messages that are published meanwhile under the former limits are removed likewise; applying drops the rest, which
is small. The row of the configuration is committed when this begins, so nothing goes that would stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.state import commands
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.stream.retention import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.stream.retention import StoreLimits

REMOVED_MAX: Final = 5_000  # messages that are named in one entry: up to 0.3 us each on every replica
AT_ONCE_MAX: Final = 5_000  # messages of a stream whose limits may be changed in one step
VISITS_MAX: Final = 20_000  # subjects and messages between two looks at the clock, under 1 ms


def is_tighter(limits: StoreLimits, before: StoreLimits) -> tuple[bool, bool]:
    """Whether (totals, limits of subjects) may leave less room than those before."""
    totals = ((limits.max_msgs, before.max_msgs), (limits.max_bytes, before.max_bytes))
    subjects = (
        (limits.max_msgs_per_subject, before.max_msgs_per_subject),
        (limits.max_bytes_per_subject, before.max_bytes_per_subject),
    )
    of_totals, of_subjects = (
        any(limit != UNLIMITED and (other == UNLIMITED or limit < other) for limit, other in pairs)
        for pairs in (totals, subjects)
    )
    return of_totals, of_subjects


class Surplus:
    """The removal of what is above some limits, in one term of leadership. `ended` is called once, unless `end` is."""

    def __init__(
        self, site: Site, group: Group, machine: StreamMachine, limits: StoreLimits, ended: Callable[[Outcome], None]
    ) -> None:
        self._site = site
        self._group = group
        self._machine = machine
        self._limits = limits
        self._ended = ended
        self._next_subject = 0  # where the look at subjects goes on; 0: there is none, or no more
        self._is_over = False

    def begin(self) -> bool:
        """Begin, and say so; False when there is so little that it needs no entries of its own."""
        of_totals, of_subjects = is_tighter(self._limits, self._machine.store.limits)
        if self._machine.messages <= AT_ONCE_MAX or not (of_totals or of_subjects):
            return False
        self._next_subject = int(of_subjects)
        if not of_subjects and len(self._above_totals()) <= AT_ONCE_MAX:
            return False
        return self._site.work.add(self, self._work)

    def end(self) -> None:
        """Leadership is over."""
        self._is_over = True

    def _above_totals(self) -> list[int]:
        return self._machine.store.above_totals(self._limits, REMOVED_MAX + 1)

    def _work(self, until_ns: int) -> bool:
        """Look for the next messages; True when the look is to go on in the next turn."""
        while not self._is_over:
            seqs = self._above_totals()
            if len(seqs) <= AT_ONCE_MAX and self._next_subject:
                seqs, self._next_subject = self._machine.store.above_subjects(
                    self._limits, self._next_subject, visits=VISITS_MAX, count_max=REMOVED_MAX
                )
            elif len(seqs) <= AT_ONCE_MAX:
                self._end(Outcome.OK)
                return False
            if seqs:
                self._propose(sorted(seqs)[:REMOVED_MAX])
                return False
            if self._site.clock.mono_ns() >= until_ns:
                return True
        return False

    def _propose(self, seqs: list[int]) -> None:
        command = commands.Remove(seqs=commands.to_runs(seqs), erase=False)
        self._group.propose(Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(command)), self._removed)

    def _removed(self, outcome: Outcome, _result: object) -> None:
        if self._is_over:
            return
        if outcome is not Outcome.OK or not self._site.work.add(self, self._work):
            self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        self._is_over = True
        self._ended(outcome)
