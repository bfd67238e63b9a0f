"""The leader's clock over a stream: proposes the removal of what is older than max_age or has outlived its own TTL.

Nothing expires by itself on a replica: the leader decides, and the removal is an entry. One timer stands at the next
moment at which something expires; after a round of removals is applied the timer is set again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.streams import commands
from jetraft.raft.engine import Proposal
from jetraft.raft.group import Outcome
from jetraft.store.format import Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreCorrupt
from jetraft.store.retention import age_cutoff_ts_ns, age_deadline_ts_ns

if TYPE_CHECKING:
    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.streams.machine import StreamMachine
    from jetraft.cluster.streams.site import Site
    from jetraft.raft.group import Group

ROUND_NS_MIN: Final = NS_PER_S // 4  # expiry works in rounds, at most so often
REMOVALS_MAX: Final = 10_000  # named in one entry


class Expiry:
    """Expiry for one term of leadership."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine) -> None:
        self._site = site
        self._group = group
        self._machine = machine
        self._timer: TimerHandle | None = None
        self._at_ns = 0  # when it is due, monotonic
        self._is_removing = False
        self._ended = False
        self.arm()

    def arm(self) -> None:
        """Set the timer to the next moment at which something expires; one that is earlier stays, and asks again."""
        deadlines = [at for at in (self._age_deadline_ns(), self._ttl_deadline_ns()) if at is not None]
        if deadlines and not self._is_removing and not self._ended:
            clock = self._site.clock
            at_ns = clock.mono_ns() + max(min(deadlines) - clock.unix_ns(), ROUND_NS_MIN)
            if self._timer is None or at_ns < self._at_ns:
                self._cancel()
                self._at_ns = at_ns
                self._timer = self._site.timers.call_at(at_ns, self._expire)

    def messages_added(self) -> None:
        """New messages: they expire after the old ones, unless they have a TTL."""
        if self._timer is None or len(self._machine.ttl):
            self.arm()

    def end(self) -> None:
        """Leadership is over."""
        self._ended = True
        self._cancel()

    def _expire(self) -> None:
        self._timer = None
        now_unix_ns = self._site.clock.unix_ns()
        try:
            command = self._ttl_removal(now_unix_ns) or self._age_removal(now_unix_ns)
            if command is None:
                self.arm()
                return
        except StoreCorrupt:
            return  # the store has said so: the replica stops, and the next leader looks again
        self._is_removing = True
        self._group.propose(Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(command)), self._removed)

    def _removed(self, outcome: Outcome, _result: object) -> None:
        self._is_removing = False
        if outcome is Outcome.OK:
            self.arm()

    def _ttl_removal(self, now_unix_ns: int) -> commands.StreamCommand | None:
        due = self._machine.ttl.due(now_unix_ns, self._machine.is_live, REMOVALS_MAX)
        return commands.Remove(commands.to_runs(due), erase=False) if due else None

    def _age_removal(self, now_unix_ns: int) -> commands.StreamCommand | None:
        """Everything below the cut-off goes in one step, or one by one around messages that never expire."""
        cutoff_ns = age_cutoff_ts_ns(now_ts_ns=now_unix_ns, max_age_ns=self._max_age_ns)
        if cutoff_ns is None:
            return None
        store, never = self._machine.store, self._machine.ttl.never
        end_seq = store.seq_at_time(cutoff_ns)
        if not never:
            return commands.RemoveBelow(end_seq) if end_seq > store.first_seq else None
        found = store.next_matches((), store.first_seq, REMOVALS_MAX + len(never))
        due = [seq for seq in found if seq < end_seq and seq not in never][:REMOVALS_MAX]
        return commands.Remove(commands.to_runs(due), erase=False) if due else None

    def _age_deadline_ns(self) -> int | None:
        store, never = self._machine.store, self._machine.ttl.never
        oldest_ns = store.oldest_ts_ns()
        if never and oldest_ns is not None:
            found = store.next_matches((), store.first_seq, len(never) + 1)
            first = next((seq for seq in found if seq not in never), None)
            message = None if first is None else store.load(first)
            oldest_ns = None if message is None else message.ts_ns
        return age_deadline_ts_ns(oldest_ts_ns=oldest_ns, max_age_ns=self._max_age_ns)

    def _ttl_deadline_ns(self) -> int | None:
        return self._machine.ttl.deadline_ns(self._machine.is_live)

    @property
    def _max_age_ns(self) -> int:
        return 0 if self._machine.config is None else self._machine.config.max_age

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
