"""Messages with a time to live of their own (`Nats-TTL`), and those that never expire. Pure; part of applied state.

Every replica keeps the table; only the leader looks at a clock and proposes the removal of what is due. A message that
never expires is exempt from the stream's max_age too; any other TTL only shortens a life. What is gone for another
reason stays in the table until it comes up.

With `subject_delete_marker_ttl` the last message of a subject does not expire without a trace: a marker takes its place
and says why, rolls the subject up, and has a TTL of its own. A marker that expires leaves nothing. So that a marker
does not outlive its reason for long, a TTL shorter than that of markers is lengthened when a message comes in, unless
the stream keeps one message a subject. Source: ADR-43; values that are refused, and markers, were observed on 2.15.1.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model import message
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import format_duration, parse_duration
from jetraft.store.stream._ends import EndCopy, EndHeap

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.model.config import StreamConfig
    from jetraft.store.stream.stream_store import Liveness

SWEPT: Final = (
    2  # places looked at for each message that is added: no more is kept of what is gone than of what is live
)
LOOKS_MAX: Final = 1_000  # at what is due, or gone, in one step: 2 us each, with what follows
PAIR_BYTES: Final = 16  # in a snapshot, about
NEVER_NS: Final = 0  # the TTL of a message that never expires
TTL_NS_MIN: Final = NS_PER_S
TTL_NS_MAX: Final = 2**62  # longer is cut: it is centuries
NONE: Final = array("Q")  # of most streams
END_NS_MAX: Final = 2**63 - 1  # likewise of a message from the far future


def parse_ttl(text: bytes) -> int | None:
    """A `Nats-TTL` in nanoseconds: seconds, a Go duration, or `never` (NEVER_NS); None for anything else."""
    if text.lower() == b"never":
        return NEVER_NS
    if text.isdigit():
        ttl_ns: int | None = min(int(text[:20]) * NS_PER_S, TTL_NS_MAX)
    else:
        ttl_ns = parse_duration(text.decode(errors="replace"))
    return ttl_ns if ttl_ns is not None and ttl_ns >= TTL_NS_MIN else None


MARKER_REASON: Final = b"Nats-Marker-Reason"  # the only one that nats-server gives is MaxAge, for TTLs too

KV_OPERATION: Final = b"KV-Operation"


def is_marker(hdr: bytes) -> bool:
    """True for the header block of a marker, and of a purge of a key, after which nothing more is to be said."""
    return message.get(hdr, MARKER_REASON) is not None or message.get(hdr, KV_OPERATION) == b"PURGE"


def marker_hdr(marker_ttl_ns: int) -> bytes:
    """The header block of a marker."""
    ttl = format_duration(marker_ttl_ns).encode()
    return b"NATS/1.0\r\n%s: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n" % (MARKER_REASON, ttl)


def lengthened(hdr: bytes, ttl_ns: int, config: StreamConfig) -> bytes:
    """The header block with the TTL that a message gets in this stream; the same block when it keeps its own.

    Whole seconds are compared, as nats-server does.
    """
    least_s = config.subject_delete_marker_ttl // NS_PER_S
    if ttl_ns == NEVER_NS or ttl_ns // NS_PER_S >= least_s or config.max_msgs_per_subject == 1:
        return hdr
    return message.append(message.strip(hdr, b"Nats-TTL"), b"Nats-TTL", b"%d" % least_s)


class TtlTable:
    """Which messages expire when."""

    def __init__(self) -> None:
        self._ends = EndHeap()
        self._never = NONE  # ascending; what is gone stays until it is swept
        self._swept = NONE  # what was live of those before `_sweep_at`
        self._sweep_at = 0

    def __len__(self) -> int:
        return len(self._ends) + len(self._never)

    @property
    def has_never(self) -> bool:
        """Whether there may be messages that never expire."""
        return bool(self._never)

    def is_never(self, seq: int) -> bool:
        """Whether a live message never expires."""
        place = bisect_left(self._never, seq)
        return place < len(self._never) and self._never[place] == seq

    def add(self, seq: int, ttl_ns: int, ts_ns: int, is_live: Callable[[int], bool]) -> None:
        """A stored message with a TTL, above all others."""
        if ttl_ns != NEVER_NS:
            self._ends.push(min(ts_ns + ttl_ns, END_NS_MAX), seq)
            self._ends.sweep(is_live, SWEPT)
            return
        if self._never is NONE:
            self._never, self._swept = array("Q"), array("Q")
        self._never.append(seq)
        for one in self._never[self._sweep_at : self._sweep_at + SWEPT]:
            self._sweep_at += 1
            if is_live(one):
                self._swept.append(one)
        if self._sweep_at == len(self._never):
            self._never, self._swept, self._sweep_at = self._swept, array("Q"), 0

    def deadline_ns(self, is_live: Callable[[int], bool]) -> int | None:
        """When the next live message expires, or earlier; drops LOOKS_MAX of those that are gone."""
        for _ in range(LOOKS_MAX):
            first = self._ends.first()
            if first is None or is_live(first[1]):
                break
            self._ends.pop()
        first = self._ends.first()
        return None if first is None else first[0]

    def due(self, now_unix_ns: int, is_live: Callable[[int], bool], count_max: int) -> list[int]:
        """Live messages that have expired, ascending; they stay in the table until they are gone.

        LOOKS_MAX are looked at, and `count_max` returned at most.
        """
        found: list[tuple[int, int]] = []
        for _ in range(LOOKS_MAX):
            first = self._ends.first()
            if first is None or first[0] > now_unix_ns or len(found) == count_max:
                break
            self._ends.pop()
            if is_live(first[1]):
                found.append(first)
        for end_ns, seq in found:
            self._ends.push(end_ns, seq)
        return sorted(seq for _, seq in found)

    def copy(self) -> TtlCopy:
        """The part of a snapshot that is the table as it is now."""
        return TtlCopy(self._never[:], self._ends.copy())

    def restore(self, packed: bytes | memoryview) -> None:
        """The inverse of `TtlCopy.pack`. Raises ValueError."""
        found = self._ends.restore(packed)
        self._never, self._swept, self._sweep_at = NONE, NONE, 0
        if found:
            self._never, self._swept = array("Q", found), array("Q")


@attrs.frozen(slots=True)
class TtlCopy:
    """The table at one moment. A million messages are sorted and written in 0.1 s: in any thread, once."""

    never: array[int]
    ends: EndCopy

    @property
    def bytes_about(self) -> int:
        """The size of what `pack` returns, roughly."""
        return PAIR_BYTES * (len(self.never) + len(self.ends))

    def pack(self, liveness: Liveness) -> memoryview:
        """The table for a snapshot, without what is gone: pairs (end, sequence) in msgpack, an end of 0 for never."""
        return self.ends.pack(self.never, liveness.dead, liveness.first_seq, liveness.last_seq)
