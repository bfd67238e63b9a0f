"""A node's clock for everything that is stored: wall time that advances with the time that passes, and never jumps.

The machine's wall clock can be set, by an operator or by NTP, while messages wait for their end and ids for theirs. So
wall time is read once, and from then on it is the time that has passed since. The difference to where the wall clocks
are by now is worked off slowly, one part in SLEW_PART, so that no age is ever wrong by more than that part.

Which wall clock is right is the majority's word. `adjust` is told what the peers' clocks say; more than half of the
nodes (this one included, those that are away counted) must lie within AGREE_NS of each other, or nothing is corrected.
A machine among them follows its own clock, any other follows theirs.

A node that has just started has measured no time yet. It takes over the clock of a peer that has, not any wall clock:
an hour by which all walls were set meanwhile must not pass with its first term of leadership. When all nodes start at
once the walls are all there is, and the last time in a stream's log bounds them (cluster/streams/stamps.py).

Pure, but for the two clocks that it is given. Source: the discipline of NTP (RFC 5905) with its step left out, and the
selection of agreeing clocks (Marzullo).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.store.model.clock import Clock

SLEW_PART: Final = 100  # 1 %: twenty times what NTP slews by itself; a step of a second is worked off in 100 s
SETTLE_NS: Final = 10 * NS_PER_S  # how long a start waits for those that could make a majority agree
AGREE_NS: Final = NS_PER_S  # clocks that are kept by anybody at all differ by less
APART_NS: Final = 2 * NS_PER_S  # worth telling: more than clocks that agree, and what a network adds


@attrs.frozen(kw_only=True, slots=True)
class Reading:
    """What the clocks of a peer say, as offsets: Unix time minus what this node's `elapsed_ns` counted then.

    `steady_ns` is None while the peer's clock is not set.
    """

    wall_ns: int
    steady_ns: int | None


@attrs.frozen(kw_only=True, slots=True)
class SteadyStatistics:
    """How far the clocks are apart, nanoseconds; positive: the other one is ahead of what is stored."""

    is_set: bool
    has_majority: bool  # as of the last adjustment: more than half of the nodes agree on the time
    own_wall_ns: int  # this machine's wall clock minus this clock
    correction_ns: int  # the majority's wall clock minus this clock: what is being worked off


class SteadyClock:
    """See the module. Implements Clock."""

    def __init__(self, machine: Clock, *, elapsed_ns: Callable[[], int] | None = None) -> None:
        """Begin with the machine's wall time. `elapsed_ns` counts time that passed, also while the machine slept."""
        self.mono_ns = machine.mono_ns
        self._machine = machine
        self._elapsed_ns = elapsed_ns or machine.mono_ns
        self._from_ns = self._elapsed_ns()  # where the present correction began
        self._offset_ns = machine.unix_ns() - self._from_ns  # Unix time minus what was counted, then
        self._correction_ns = 0
        self._settles_at_ns = self._from_ns + SETTLE_NS
        self._has_majority = False
        self.is_set = False

    def unix_ns(self) -> int:
        """Nanoseconds since the Unix epoch; never goes back, and never runs faster or slower by more than 1 %."""
        counted_ns = self._elapsed_ns()
        return counted_ns + self._offset_at(counted_ns)

    def reading(self) -> tuple[int, int | None]:
        """What a peer is told: Unix time by the machine's wall clock, and by this one when it is set."""
        return self._machine.unix_ns(), self.unix_ns() if self.is_set else None

    def elapsed_ns(self) -> int:
        """What readings are offsets to."""
        return self._elapsed_ns()

    def adjust(self, peers: Sequence[Reading], *, nodes: int) -> None:
        """Follow the clocks of a cluster of so many nodes, this one included; `peers` are those that have answered."""
        counted_ns = self._elapsed_ns()
        own_ns = self._machine.unix_ns() - counted_ns
        agreed_ns = agreed_offset(own_ns, [peer.wall_ns for peer in peers], nodes=max(nodes, len(peers) + 1))
        self._has_majority = agreed_ns is not None
        self._offset_ns, self._from_ns = self._offset_at(counted_ns), counted_ns
        if not self.is_set:
            self._set(own_ns, agreed_ns, peers, nodes=nodes)
        self._correction_ns = 0 if agreed_ns is None else agreed_ns - self._offset_ns

    def statistics(self) -> SteadyStatistics:
        """Return a snapshot."""
        counted_ns = self._elapsed_ns()
        offset_ns = self._offset_at(counted_ns)
        return SteadyStatistics(
            is_set=self.is_set,
            has_majority=self._has_majority,
            own_wall_ns=self._machine.unix_ns() - counted_ns - offset_ns,
            correction_ns=self._offset_ns + self._correction_ns - offset_ns,
        )

    def _offset_at(self, counted_ns: int) -> int:
        most_ns = (counted_ns - self._from_ns) // SLEW_PART
        return self._offset_ns + min(max(self._correction_ns, -most_ns), most_ns)

    def _set(self, own_ns: int, agreed_ns: int | None, peers: Sequence[Reading], *, nodes: int) -> None:
        """Begin: as peers that have begun, else with the wall time of the majority, else with the middle one."""
        steady = [peer.steady_ns for peer in peers if peer.steady_ns is not None]
        if steady:
            self._offset_ns = middle(steady)
        elif agreed_ns is not None:
            self._offset_ns = agreed_ns
        elif len(peers) + 1 >= nodes or (2 * (len(peers) + 1) > nodes and self._elapsed_ns() > self._settles_at_ns):
            self._offset_ns = middle([own_ns, *(peer.wall_ns for peer in peers)])
        else:  # the earliest: a stream's time is not before its last message, and what leaves late is not lost
            self._offset_ns = min([self._offset_ns, *(peer.wall_ns for peer in peers)])
            return
        self.is_set = True


def agreed_offset(own_ns: int, others_ns: Sequence[int], *, nodes: int) -> int | None:
    """What more than half of the nodes agree on: the own clock when it is among them; None when they do not agree."""
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
    """The median, the lower one of two."""
    return sorted(offsets_ns)[(len(offsets_ns) - 1) // 2]
