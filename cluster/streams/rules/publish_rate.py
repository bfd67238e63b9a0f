"""How fast a stream takes publishes (`jetraft.rate_msgs_per_s`, `jetraft.rate_bytes_per_s`). Pure.

A token bucket for messages and one for bytes, each a single time: when everything that was taken would be through at
the given rate. A message is taken while that is no more than a second ahead of the clock, whatever its size; so a burst
of one second passes, and a large message delays those that follow. Of the leader's monotonic clock, and of its term: a
new leader begins with a full second. Source: the generic cell rate algorithm (ITU-T I.371).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.capture._capture import captures
from jetraft.store.model import errors
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.extensions import stream_extensions
from jetraft.store.model.gotime import format_duration

if TYPE_CHECKING:
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig

BURST_NS: Final = NS_PER_S


@attrs.define
class PublishRate:
    """The buckets of one stream; 0 is no limit."""

    msgs_per_s: int
    bytes_per_s: int
    _msgs_ns: int = 0
    _bytes_ns: int = 0

    @classmethod
    def of(cls, config: StreamConfig, before: PublishRate | None = None) -> PublishRate | None:
        """The rate of a configuration, as full as it was `before`; None without a limit."""
        wanted = stream_extensions(config)
        if not wanted.rate_msgs_per_s and not wanted.rate_bytes_per_s:
            return None
        msgs_ns, bytes_ns = (0, 0) if before is None else (before._msgs_ns, before._bytes_ns)  # noqa: SLF001  (its own)
        return cls(wanted.rate_msgs_per_s, wanted.rate_bytes_per_s, msgs_ns, bytes_ns)

    def take(self, batch: bytes, now_ns: int) -> tuple[int, int]:
        """The offset in a capture batch of the first message that is not taken now, and how long it has to wait.

        The end of the batch and 0 when all are taken.
        """
        start = 0
        for message in captures(batch):
            wait_ns = max(self._msgs_ns, self._bytes_ns) - BURST_NS - now_ns
            if wait_ns > 0:
                return start, wait_ns
            start = message.end
            if self.msgs_per_s:
                self._msgs_ns = max(self._msgs_ns, now_ns) + NS_PER_S // self.msgs_per_s
            if self.bytes_per_s:
                size = len(message.hdr) + message.payload_len
                self._bytes_ns = max(self._bytes_ns, now_ns) + size * NS_PER_S // self.bytes_per_s
        return start, 0


def too_fast(wait_ns: int) -> ApiError:
    """The answer to a message that comes too early, with the wait in whole milliseconds."""
    error = errors.STREAM_TOO_MANY_REQUESTS.with_values()
    wait = format_duration(-(-wait_ns // NS_PER_MS) * NS_PER_MS)
    return errors.ApiError(code=error.code, err_code=error.err_code, description=f"{error.description}: wait {wait}")
