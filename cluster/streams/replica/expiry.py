"""The leader's clock over a stream: proposes the removal of what is older than max_age or has outlived its own TTL.

Nothing expires by itself on a replica: the leader decides, and the removal is an entry. It measures against the clock
that gave the messages their times (stamps.py): setting a wall clock does not make a message older. One timer stands
at the next moment at which something expires; after a round of removals is applied the timer is set again. Where a
stream wants markers the last message of a subject is not removed but replaced (ttl.py): the marker's own entry removes
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.state import commands
from jetraft.cluster.state.ttl import is_marker
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.retention import age_cutoff_ts_ns, age_deadline_ts_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.cluster.streams.stamps import StampClock
    from jetraft.raft.group import Group

ROUND_NS_MIN: Final = NS_PER_S // 4  # expiry works in rounds, at most so often
REMOVALS_MAX: Final = 10_000  # named in one entry
AGED_MAX: Final = 50_000  # that one entry removes below a sequence, 0.1 us each; the next one follows at once


@attrs.frozen(kw_only=True, slots=True)
class Due:
    """The outcome of a round: a command for what just goes, and the subjects and sequences of what leaves a marker."""

    removal: commands.StreamCommand | None = None
    replaced: Sequence[tuple[bytes, int]] = ()

    def __bool__(self) -> bool:
        return self.removal is not None or bool(self.replaced)


class Expiry:
    """Expiry for one term of leadership. `arm` starts it."""

    def __init__(
        self,
        site: Site,
        group: Group,
        machine: StreamMachine,
        *,
        stamps: StampClock,
        place_markers: Callable[[Sequence[tuple[bytes, int]]], None],
    ) -> None:
        """`stamps` is the clock that messages get their times from.

        `place_markers` gets subjects with the sequence of their last message, which a marker is to replace.
        """
        self._place_markers = place_markers
        self._site = site
        self._stamps = stamps
        self._group = group
        self._machine = machine
        self._timer: TimerHandle | None = None
        self._at_ns = 0  # when it is due, monotonic
        self._is_removing = False
        self._is_behind = False  # more is due than the entry removes that is under way
        self._ended = False

    def arm(self) -> None:
        """Set the timer to the next moment at which something expires; one that is earlier stays, and asks again."""
        try:
            ttl_deadline_ns = self._machine.ttl.deadline_ns(self._machine.is_live)
            deadlines = [at for at in (self._age_deadline_ns(), ttl_deadline_ns) if at is not None]
        except StoreCorrupt:
            return  # as in `_expire`
        if deadlines and not self._is_removing and not self._ended:
            pause_ns = 0 if self._is_behind else ROUND_NS_MIN
            at_ns = self._site.clock.mono_ns() + max(min(deadlines) - self._stamps.now_ns(), pause_ns)
            if self._timer is None or at_ns < self._at_ns:
                self._cancel()
                self._at_ns = at_ns
                self._timer = self._site.timers.call_at(at_ns, self._expire)

    def messages_added(self) -> None:
        """New messages: they expire after the old ones, unless they have a TTL."""
        config = self._machine.config
        if (self._timer is None and config is not None and config.max_age > 0) or len(self._machine.ttl):
            self.arm()

    def end(self) -> None:
        """Leadership is over."""
        self._ended = True
        self._cancel()

    def _expire(self) -> None:
        self._timer, self._is_behind = None, False
        now_unix_ns = self._stamps.now_ns()
        try:
            outlived = self._machine.ttl.due(now_unix_ns, self._machine.is_live, REMOVALS_MAX)
            due = self._due(outlived) or self._aged(now_unix_ns)
        except StoreCorrupt:
            return  # the store has said so: the replica stops, and the next leader looks again
        if due.removal is not None:
            self._is_removing = True
            body = commands.encode_stream_command(due.removal)
            self._group.propose(Proposal(kind=Kind.STREAM_OP, body=body), self._removed)
        if due.replaced:
            self._place_markers(due.replaced)
        self.arm()

    def _removed(self, outcome: Outcome, _result: object) -> None:
        self._is_removing = False
        if outcome is Outcome.OK:
            self.arm()

    def _aged(self, now_unix_ns: int) -> Due:
        """Everything below the cut-off goes in one step, or one by one around what stays or leaves a marker."""
        cutoff_ns = age_cutoff_ts_ns(now_ts_ns=now_unix_ns, max_age_ns=self._max_age_ns)
        if cutoff_ns is None:
            return Due()
        store, never = self._machine.store, self._machine.ttl.never
        end_seq = store.seq_at_time(cutoff_ns)
        if not never and not self._leaves_markers:
            if end_seq - store.first_seq > AGED_MAX:
                some = store.next_matches((), store.first_seq, AGED_MAX + 1)
                self._is_behind = len(some) > AGED_MAX and some[-1] < end_seq
                end_seq = some[-1] if self._is_behind else end_seq
            return Due(removal=commands.RemoveBelow(end_seq) if end_seq > store.first_seq else None)
        found = store.next_matches((), store.first_seq, REMOVALS_MAX + len(never))
        return self._due([seq for seq in found if seq < end_seq and seq not in never][:REMOVALS_MAX])

    def _due(self, seqs: Sequence[int]) -> Due:
        """Tell those that are removed from those that a marker replaces."""
        replaced = []
        if self._leaves_markers:
            replaced = [(subject, seq) for seq in seqs if (subject := self._subject_to_mark(seq)) is not None]
            kept = {seq for _, seq in replaced}
            seqs = [seq for seq in seqs if seq not in kept]
        removal = commands.Remove(commands.to_runs(seqs), erase=False) if seqs else None
        return Due(removal=removal, replaced=replaced)

    def _subject_to_mark(self, seq: int) -> bytes | None:
        """The subject whose last message this is; None for any other, and for a marker, which leaves nothing.

        A purge of a key-value bucket is a marker itself, as in nats-server (isSubjectDeleteMarker); a delete is not.
        """
        store = self._machine.store
        subject = store.subject_of(seq)
        if subject is None or store.last_for(subject) != seq:
            return None
        message = store.load(seq)
        return None if message is None or is_marker(message.hdr) else subject

    @property
    def _leaves_markers(self) -> bool:
        return self._machine.config is not None and self._machine.config.subject_delete_marker_ttl > 0

    def _age_deadline_ns(self) -> int | None:
        store, never = self._machine.store, self._machine.ttl.never
        oldest_ns = store.oldest_ts_ns()
        if never and oldest_ns is not None:
            found = store.next_matches((), store.first_seq, len(never) + 1)
            first = next((seq for seq in found if seq not in never), None)
            message = None if first is None else store.load(first)
            oldest_ns = None if message is None else message.ts_ns
        return age_deadline_ts_ns(oldest_ts_ns=oldest_ns, max_age_ns=self._max_age_ns)

    @property
    def _max_age_ns(self) -> int:
        return 0 if self._machine.config is None else self._machine.config.max_age

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
