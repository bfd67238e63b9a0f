"""Messages of an interest stream that no consumer wants any more, after a change that may have left many of them.

When filters, retention or consumers change, any of the messages may be left over, however many there are. Applying
the change removes none of them: the leader looks through the messages in slices (cluster/turn_work.py) and proposes
what is to go, as it proposes deletions. A leader of a new term looks again, as the one before may not have finished.
A leftover that was not wanted when it was looked at may go whatever comes later: a consumer that is created after that
has never had it. Source: stream.go, checkInterestState; consumer.go, cleanupNoInterestMessages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_deletion import APPLIED_AT_ONCE_MAX
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.config import RetentionPolicy

if TYPE_CHECKING:
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group

REMOVALS_MAX: Final = 2_000  # named in one entry
RETRY_NS: Final = NS_PER_S  # where there was no place for the search
LOOKS_MAX: Final = 256  # messages between two looks at the clock, under 0.5 ms


class Leftovers:
    """The search of one term of leadership."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine) -> None:
        self._site = site
        self._group = group
        self._machine = machine
        self._next_seq: int | None = None  # where a search goes on; None: there is none
        self._found: list[int] = []
        self._ended = False

    def look(self) -> None:
        """Look through all messages; from the first one again where a search is under way."""
        if not self._keeps_by_interest or not self._machine.messages:
            return
        is_new = self._next_seq is None
        self._next_seq = self._machine.store.first_seq
        if self._machine.messages <= LOOKS_MAX:
            self._search(0)
        elif is_new and not self._site.work.add(self, self._search):
            self._next_seq = None
            self._look_later()

    def look_after_deletion(self) -> None:
        """A consumer is gone: look where applying that has not."""
        if self._machine.messages > APPLIED_AT_ONCE_MAX:
            self.look()

    def end(self) -> None:
        """Leadership is over."""
        self._ended = True

    def _look_later(self) -> None:
        at_ns = self._site.clock.mono_ns() + RETRY_NS
        self._site.timers.call_at(at_ns, self.look)

    @property
    def _keeps_by_interest(self) -> bool:
        config = self._machine.config
        return not self._ended and config is not None and config.retention is RetentionPolicy.INTEREST

    def _search(self, until_ns: int) -> bool:
        store = self._machine.store
        while self._keeps_by_interest and self._next_seq is not None:
            seqs = store.next_matches(store.visible(()), self._next_seq, LOOKS_MAX)
            self._found += self._machine.interest.unneeded(seqs)
            self._next_seq = seqs[-1] + 1 if seqs else None
            if len(self._found) >= REMOVALS_MAX or (self._found and not seqs):
                self._propose()
            if len(seqs) == LOOKS_MAX and self._site.clock.mono_ns() >= until_ns:
                return True
        self._found.clear()
        self._next_seq = None
        return False

    def _propose(self) -> None:
        seqs, self._found = sorted(set(self._found)), []
        body = commands.encode_stream_command(commands.Remove(seqs=commands.to_runs(seqs), erase=False))
        self._group.propose(Proposal(kind=Kind.STREAM_OP, body=body))
