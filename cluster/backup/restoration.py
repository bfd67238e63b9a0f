"""The leader of a stream while the stream is being restored: takes steps into the log, and nothing else.

A stream that is being restored carries a mark in its configuration (mark.py). While it is there the stream has no
`Leadership`: it takes no publishes, delivers nothing, expires nothing. The last act of a restore takes the mark away.
When no step comes for a while the node that restored it is gone, and the stream is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from jetraft.cluster.backup.step_batch import RestoreStep, StepKind
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group

STALE_NS: Final = 30 * NS_PER_S  # a batch of steps takes milliseconds; an election in between, a second

_KINDS: Final = {
    StepKind.CONSUMER: Kind.CONSUMER_OP,
    StepKind.MESSAGES: Kind.MESSAGES,
    StepKind.SKIP: Kind.STREAM_OP,
    StepKind.REMOVE: Kind.STREAM_OP,
}


class OutOfStepError(Exception):
    """A step that does not follow what the stream has: two restore the same one."""


class Restoration:
    """One term of leading a stream that is being restored. `abandoned` is called when nothing comes any more."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine, *, abandoned: Callable[[], None]) -> None:
        self._site = site
        self._group = group
        self._machine = machine
        self._abandoned = abandoned
        self._timer: TimerHandle | None = None

    @classmethod
    def start(cls, site: Site, group: Group, machine: StreamMachine, *, abandoned: Callable[[], None]) -> Self:
        """Lead the stream, and wait for the first steps."""
        restoration = cls(site, group, machine, abandoned=abandoned)
        restoration._arm()
        return restoration

    async def carry_out(self, steps: Sequence[RestoreStep]) -> None:
        """Take the steps into the log; committed when this returns. Those that were taken before are passed over.

        Raises OutOfStepError, NotLeaderError or OutcomeUnknownError.
        """
        self._arm()
        await self._group.confirm_leadership()
        last_seq = self._machine.last_seq
        proposals = []
        for step in steps:
            end_seq = step.first_seq + step.count
            if step.count:
                if end_seq <= last_seq + 1:
                    continue
                if step.first_seq != last_seq + 1:
                    raise OutOfStepError(f"sequence {step.first_seq} after {last_seq}")
                last_seq = end_seq - 1
            is_messages = step.kind is StepKind.MESSAGES
            first_seq, count = (step.first_seq, step.count) if is_messages else (0, 0)
            proposals.append(Proposal(kind=_KINDS[step.kind], first_seq=first_seq, count=count, body=step.body))
        for proposal in proposals[:-1]:
            self._group.propose(proposal)
        if proposals:  # the last is committed after all others, or nothing is known of any
            await self._group.propose_and_wait(proposals[-1])

    def end(self) -> None:
        """The term, or the restore, is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.end()
        self._timer = self._site.timers.call_at(self._site.clock.mono_ns() + STALE_NS, self._stale)

    def _stale(self) -> None:
        self._timer = None
        self._abandoned()
        self._arm()
