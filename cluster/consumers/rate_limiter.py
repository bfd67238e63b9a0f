"""When the next delivery may leave: replay at the original speed, and a limit of bits per second. Pure.

Replay `original`: between two deliveries passes what passed between the two messages when they were stored, until the
consumer has caught up with its stream once. Gaps of a millisecond and less are not waited for.

`rate_limit_bps`: a bucket that holds one message of the largest size and fills at the rate. It is kept as the moment at
which it will be full, so there are no fractions (the generic cell rate algorithm).

Source: consumer.go (loopAndGatherMsgs, setRateLimit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.config import ReplayPolicy

if TYPE_CHECKING:
    from jetraft.store.model.config import ConsumerConfig

BURST_BYTES: Final = 1 << 20  # nats-server's default max_payload, for streams without max_msg_size
BITS_PER_BYTE: Final = 8
GAP_NS_MIN: Final = NS_PER_MS  # as nats-server


class RateLimiter:
    """The state of both brakes. Times are monotonic nanoseconds, except those of messages."""

    def __init__(self, config: ConsumerConfig, burst_bytes: int) -> None:
        self._rate_bytes = config.rate_limit_bps // BITS_PER_BYTE
        self._burst_bytes = burst_bytes
        self._is_replaying = config.replay_policy is ReplayPolicy.ORIGINAL
        self._full_at_ns = 0
        self._last_ts_ns = 0  # Unix time of the last message delivered, 0 for none
        self._last_ns = 0  # when it was delivered

    @property
    def is_free(self) -> bool:
        """True when nothing is held back any more: deliveries need no look at each message."""
        return not self._rate_bytes and not self._is_replaying

    def due_ns(self, ts_ns: int, size: int, now_ns: int) -> int:
        """When a message of this time and size may leave; `now_ns` or before means at once."""
        due_ns = now_ns
        gap_ns = ts_ns - self._last_ts_ns
        if self._is_replaying and self._last_ts_ns and gap_ns > GAP_NS_MIN:
            due_ns = self._last_ns + gap_ns
        if self._rate_bytes:
            room_ns = self._fill_ns(max(0, self._burst_bytes - size))
            due_ns = max(due_ns, self._full_at_ns - room_ns)
        return due_ns

    def delivered(self, ts_ns: int, size: int, now_ns: int) -> None:
        """A message has left."""
        self._last_ts_ns, self._last_ns = ts_ns, now_ns
        if self._rate_bytes:
            self._full_at_ns = max(self._full_at_ns, now_ns) + self._fill_ns(size)

    def returned(self, size: int) -> None:
        """Messages that were counted did not leave."""
        if self._rate_bytes:
            self._full_at_ns -= self._fill_ns(size)

    def caught_up(self) -> None:
        """The stream has nothing more: what comes from now on is delivered as it comes."""
        self._is_replaying = False

    def _fill_ns(self, size: int) -> int:
        """How long the bucket takes to fill by so many bytes."""
        return size * NS_PER_S // self._rate_bytes
