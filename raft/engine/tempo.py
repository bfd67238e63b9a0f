"""How quick this node's disk and its peers are, as its own elections measure it. Pure: the clock's time comes in.

All groups of a node share one `Tempo`: what the first group of a thousand has found out, the others need not find out
again. Three waits are measured: until an own term and vote are durable, from a pre-vote's request to its grant (the
round trip, with what the processors add), and from a vote's request to its grant (the round trip and the voter's disk).
Election timers follow them, so that on slow disks, or between continents, an election is slow and not impossible.

Each is a peak that halves every `HALF_LIFE_NS`: one good sample proves little when every fifth is bad, and what a disk
did an hour ago proves nothing. Source of the idea: TCP's retransmission timer (RFC 6298), with the peak in place of
mean and variance, as elections are rare.
"""

from typing import Final

from jetraft.store.model.clock import NS_PER_S

HALF_LIFE_NS: Final = 30 * NS_PER_S
SAMPLE_NS_MAX: Final = 10 * NS_PER_S  # a disk that takes longer does not serve: nothing waits for it


class Peak:
    """The largest of the recent samples, in nanoseconds."""

    __slots__ = ("_at_ns", "_value_ns")

    def __init__(self) -> None:
        self._value_ns = self._at_ns = 0

    def note(self, now_ns: int, elapsed_ns: int) -> None:
        """It took so long just now."""
        known_ns = self.read(now_ns)
        if elapsed_ns >= known_ns:
            self._value_ns, self._at_ns = min(elapsed_ns, SAMPLE_NS_MAX), now_ns

    def read(self, now_ns: int) -> int:
        """0 when nothing was measured lately."""
        return self._value_ns >> min(62, max(0, now_ns - self._at_ns) // HALF_LIFE_NS)


class Tempo:
    """The measured waits of a node's elections."""

    __slots__ = ("answer", "disk", "round_trip")

    def __init__(self) -> None:
        self.disk = Peak()  # an own term and vote
        self.round_trip = Peak()  # a pre-vote and its grant
        self.answer = Peak()  # a vote and its grant

    def vote_ns(self, now_ns: int) -> int:
        """How long a ballot takes: this node's disk, then a voter's, and the way there and back."""
        return self.disk.read(now_ns) + max(self.answer.read(now_ns), self.round_trip.read(now_ns))
