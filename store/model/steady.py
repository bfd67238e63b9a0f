"""A node's clock for stored times: wall time that never jumps (decision 59).

An operator or NTP may set the machine's wall clock while messages and ids wait to expire. So wall time is read once,
and then advances with the elapsed time. The difference to the current wall clocks is corrected gradually, one part in
SLEW_PART, so that an age is never wrong by more than that part.

The majority of the wall clocks is right. `adjust` receives the clocks of the peers; more than half of the nodes (with
this one, out of all nodes, reachable or not) must be within AGREE_NS of each other, or nothing is corrected. A node in
this majority follows its own wall clock, any other node follows the majority.

A node that has just started has not measured any time. It copies the clock of a peer that has, not a wall clock: if all
wall clocks were set forward by an hour meanwhile, messages must not age by an hour when this node becomes leader. When
all nodes start at once there are only the wall clocks; the last time in a stream's log is then a lower bound
(cluster/streams/stamps.py).

Pure, apart from the two clocks that it reads. Sources: the clock discipline of NTP (RFC 5905) without steps, and the
selection of agreeing clocks (Marzullo).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.store.model.clock import Clock

SLEW_PART: Final = 100  # 1 %: twenty times the slew rate of NTP; a step of a second is corrected in 100 s
MAJORITY_WAIT_NS: Final = 10 * NS_PER_S  # how long a starting node waits for a majority of clocks to agree
AGREE_NS: Final = NS_PER_S  # clocks that are synchronized at all differ by less
APART_NS: Final = 2 * NS_PER_S  # reported: more than agreeing clocks and the delay of a network can differ


@attrs.frozen(kw_only=True, slots=True)
class ClockReading:
    """The clocks of a peer, as offsets: Unix time minus this node's `elapsed_ns` at the same moment.

    `steady_ns` is None while the peer's clock is not set.
    """

    wall_ns: int
    steady_ns: int | None


@attrs.frozen(kw_only=True, slots=True)
class SteadyStatistics:
    """Differences between clocks in nanoseconds; positive: the other clock is ahead of this one."""

    is_set: bool
    has_majority: bool  # as of the last adjustment: more than half of the nodes agree on the time
    own_wall_ns: int  # this machine's wall clock minus this clock
    correction_ns: int  # the majority's wall clock minus this clock, being corrected


class SteadyClock:
    """See the module. Implements Clock."""

    def __init__(self, machine: Clock, *, elapsed_ns: Callable[[], int] | None = None) -> None:
        """Start with the machine's wall time. `elapsed_ns` counts elapsed time, with that of a suspended machine."""
        self.mono_ns = machine.mono_ns
        self._machine = machine
        self._elapsed_ns = elapsed_ns or machine.mono_ns
        self.elapsed_ns = self._elapsed_ns  # to which readings are relative
        self._from_ns = self._elapsed_ns()  # the start of the current correction
        self._offset_ns = machine.unix_ns() - self._from_ns  # Unix time minus elapsed time, at that start
        self._correction_ns = 0
        self._majority_wait_end_ns = self._from_ns + MAJORITY_WAIT_NS
        self._has_majority = False
        self.is_set = False

    def unix_ns(self) -> int:
        """Nanoseconds since the Unix epoch; never goes back, and never runs faster or slower by more than 1 %."""
        counted_ns = self._elapsed_ns()
        if not self._correction_ns:
            return counted_ns + self._offset_ns
        return counted_ns + self._offset_at(counted_ns)

    def moment(self) -> tuple[int, int]:
        """(`elapsed_ns`, `unix_ns`) of one moment."""
        counted_ns = self._elapsed_ns()
        offset_ns = self._offset_at(counted_ns) if self._correction_ns else self._offset_ns
        return counted_ns, counted_ns + offset_ns

    def reading(self) -> tuple[int, int | None]:
        """The clocks to send to a peer: Unix time by the machine's wall clock, and by this clock if it is set."""
        return self._machine.unix_ns(), self.unix_ns() if self.is_set else None

    def adjust(self, peers: Sequence[ClockReading], *, nodes: int) -> None:
        """Follow the clocks of a cluster of `nodes` nodes, with this one; `peers` are the clocks that are known."""
        counted_ns = self._elapsed_ns()
        own_ns = self._machine.unix_ns() - counted_ns
        agreed_ns = agreed_offset(own_ns, [peer.wall_ns for peer in peers], nodes=max(nodes, len(peers) + 1))
        self._has_majority = agreed_ns is not None
        self._offset_ns, self._from_ns = self._offset_at(counted_ns), counted_ns
        if not self.is_set:
            self._set(own_ns, agreed_ns, peers, nodes=nodes)
        self._correction_ns = 0 if agreed_ns is None else agreed_ns - self._offset_ns

    def statistics(self) -> SteadyStatistics:
        """Figures for monitoring and tests."""
        counted_ns = self._elapsed_ns()
        offset_ns = self._offset_at(counted_ns)
        return SteadyStatistics(
            is_set=self.is_set,
            has_majority=self._has_majority,
            own_wall_ns=self._machine.unix_ns() - counted_ns - offset_ns,
            correction_ns=self._offset_ns + self._correction_ns - offset_ns,
        )

    def _offset_at(self, counted_ns: int) -> int:
        most_ns, correction_ns = (counted_ns - self._from_ns) // SLEW_PART, self._correction_ns
        if -most_ns <= correction_ns <= most_ns:  # after a while
            return self._offset_ns + correction_ns
        return self._offset_ns + (most_ns if correction_ns > 0 else -most_ns)

    def _set(self, own_ns: int, agreed_ns: int | None, peers: Sequence[ClockReading], *, nodes: int) -> None:
        """Set the clock from peers whose clock is set, otherwise from the majority, otherwise to the median."""
        steady = [peer.steady_ns for peer in peers if peer.steady_ns is not None]
        if steady:
            self._offset_ns = middle(steady)
        elif agreed_ns is not None:
            self._offset_ns = agreed_ns
        elif len(peers) + 1 >= nodes or (
            2 * (len(peers) + 1) > nodes and self._elapsed_ns() > self._majority_wait_end_ns
        ):
            self._offset_ns = middle([own_ns, *(peer.wall_ns for peer in peers)])
        else:  # the earliest: stream times are bounded below by their last message, and late expiry loses nothing
            self._offset_ns = min([self._offset_ns, *(peer.wall_ns for peer in peers)])
            return
        self.is_set = True


def agreed_offset(own_ns: int, others_ns: Sequence[int], *, nodes: int) -> int | None:
    """The offset on which more than half of the nodes agree, `own_ns` if it is among them; None without agreement."""
    offsets = sorted([own_ns, *others_ns])
    best: list[int] = []
    for place, low_ns in enumerate(offsets):
        group = [offset_ns for offset_ns in offsets[place:] if offset_ns - low_ns <= AGREE_NS]
        if len(group) > len(best):
            best = group
    if 2 * len(best) <= nodes:
        return None
    return own_ns if best[0] <= own_ns <= best[-1] else middle(best)


def middle(offsets_ns: Sequence[int]) -> int:
    """The median; of an even number, the lower middle value."""
    return sorted(offsets_ns)[(len(offsets_ns) - 1) // 2]
