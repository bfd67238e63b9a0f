"""How fast something may be sent: a bucket that fills at a constant rate. Pure: the clock's time comes in.

A piece is taken out of the bucket after it was sent, so a piece larger than the bucket is sent whole and paid for
before the next one. A bucket that was idle holds one burst at most: what was not used long ago is not made up for.
"""

from typing import Final

from jetraft.store.model.clock import NS_PER_S

BURST_BYTES: Final = 1 << 20  # one piece of a snapshot: smaller transfers are not slowed down at all


class TokenBucket:
    """A rate in bytes per second, and what may be sent by now."""

    __slots__ = ("_burst", "_bytes_per_s", "_credit", "_filled_ns")

    def __init__(self, bytes_per_s: int, *, now_ns: int, burst_bytes: int = BURST_BYTES) -> None:
        assert bytes_per_s > 0
        self._bytes_per_s = bytes_per_s
        self._burst = self._credit = burst_bytes * NS_PER_S  # in bytes times nanoseconds, so that nothing is rounded
        self._filled_ns = now_ns

    def spend(self, count: int) -> None:
        """So many bytes were sent."""
        self._credit -= count * NS_PER_S

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait before anything more is sent; 0 when something may be sent now."""
        self._credit = min(self._burst, self._credit + (now_ns - self._filled_ns) * self._bytes_per_s)
        self._filled_ns = now_ns
        return 0 if self._credit > 0 else 1 + -self._credit // self._bytes_per_s
