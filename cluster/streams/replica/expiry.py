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
from jetraft.cluster.state.ttl import LOOKS_MAX, is_marker
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
MARKED_MAX: Final = 200  # that markers replace in one round, 15 us each; the next one follows when they are stored
AGED_MAX: Final = 10_000  # that one entry removes below a sequence, up to 0.2 us each; the next one follows at once


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
        self._marking = 0  # the last message of a round that a marker replaces; 0: no round waits for that
        self._mortal_from = 0  # all live messages below never expire
        self._ended = False

    def arm(self) -> None:
        """Set the timer to the next moment at which something expires; one that is earlier stays, and asks again."""
        try:
            ttl_deadline_ns = self._machine.ttl.deadline_ns(self._machine.is_live)
            deadlines = [at for at in (self._age_deadline_ns(), ttl_deadline_ns) if at is not None]
        except StoreCorrupt:
            return  # as in `_expire`
        if self._marking and not self._machine.is_live(self._marking):  # all markers of the round are stored
            self._is_behind, self._marking = True, 0
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
            outlived = self._machine.ttl.due(now_unix_ns, self._machine.is_live, self._count_max)
            due = self._due(outlived) or self._aged(now_unix_ns)
            if not due.replaced:
                is_full = len(outlived) == min(self._count_max, LOOKS_MAX)
                self._is_behind |= is_full or (not due and self._has_more(now_unix_ns))
        except StoreCorrupt:
            return  # the store has said so: the replica stops, and the next leader looks again
        if due.removal is not None:
            self._is_removing = True
            body = commands.encode_stream_command(due.removal)
            self._group.propose(Proposal(kind=Kind.STREAM_OP, body=body), self._removed)
        if due.replaced:
            self._marking = due.replaced[-1][1]
            self._place_markers(due.replaced)
        self.arm()

    def _has_more(self, now_unix_ns: int) -> bool:
        """Whether ends that are due were not looked at, behind those of what is gone."""
        end_ns = self._machine.ttl.deadline_ns(self._machine.is_live)
        return end_ns is not None and end_ns <= now_unix_ns

    def _removed(self, outcome: Outcome, _result: object) -> None:
        self._is_removing = False
        if outcome is Outcome.OK:
            self.arm()

    def _aged(self, now_unix_ns: int) -> Due:
        """Everything below the cut-off goes in one step, or one by one around what stays or leaves a marker."""
        cutoff_ns = age_cutoff_ts_ns(now_ts_ns=now_unix_ns, max_age_ns=self._max_age_ns)
        if cutoff_ns is None:
            return Due()
        store, ttl = self._machine.store, self._machine.ttl
        end_seq = store.seq_at_time(cutoff_ns)
        if not ttl.has_never and not self._leaves_markers:
            if end_seq - store.first_seq > AGED_MAX:
                some = store.next_matches((), store.first_seq, AGED_MAX + 1)
                self._is_behind = len(some) > AGED_MAX and some[-1] < end_seq
                end_seq = some[-1] if self._is_behind else end_seq
            return Due(removal=commands.RemoveBelow(end_seq) if end_seq > store.first_seq else None)
        found = self._next_mortals()
        due = self._due([seq for seq in found if seq < end_seq][: self._count_max])
        self._is_behind = bool(due) and not due.replaced and found[-1] < end_seq
        return due

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
    def _count_max(self) -> int:
        """How many messages end in one round."""
        return MARKED_MAX if self._leaves_markers else REMOVALS_MAX

    @property
    def _leaves_markers(self) -> bool:
        return self._machine.config is not None and self._machine.config.subject_delete_marker_ttl > 0

    def _age_deadline_ns(self) -> int | None:
        if not self._max_age_ns:
            return None
        store = self._machine.store
        oldest_ns = store.oldest_ts_ns()
        if self._machine.ttl.has_never and oldest_ns is not None:
            first = self._first_mortal()
            message = None if first is None else store.load(first)
            oldest_ns = None if message is None else message.ts_ns
        return age_deadline_ts_ns(oldest_ts_ns=oldest_ns, max_age_ns=self._max_age_ns)

    def _first_mortal(self) -> int | None:
        """The oldest message that the stream's age ends; where it is not found at once, the look goes on in a round."""
        store = self._machine.store
        first = store.next_match((), max(self._mortal_from, store.first_seq))
        if first is not None and self._machine.ttl.is_never(first):
            found = self._next_mortals()
            self._is_behind = self._is_behind or not found
            first = found[0] if found else first
        return first

    def _next_mortals(self) -> list[int]:
        """The oldest messages that the stream's age ends, of the next LOOKS_MAX."""
        store, ttl = self._machine.store, self._machine.ttl
        seqs = store.next_matches((), max(self._mortal_from, store.first_seq), LOOKS_MAX)
        found = [seq for seq in seqs if not ttl.is_never(seq)]
        if found:
            self._mortal_from = found[0]
        elif seqs:
            self._mortal_from = seqs[-1] + 1
        return found

    @property
    def _max_age_ns(self) -> int:
        return 0 if self._machine.config is None else self._machine.config.max_age

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
