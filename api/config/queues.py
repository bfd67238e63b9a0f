"""How much of what waits the `jetstream` block takes: requests of the API, and messages of a stream."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from jetraft.store.model.limits import NO_LIMITS, QueueLimits, ServerLimits

SIZES: Final = ("max_buffered_size",)  # in bytes; a string may have a unit
KEYS: Final = ("request_queue_limit", "info_queue_limit", "max_buffered_msgs", "max_buffered_size")


def server_limits(settings: Mapping[str, Any]) -> ServerLimits:
    """Those of the block, and of queues where they are positive. Information waits in as many places as changes."""
    limits: ServerLimits = settings.get("jetstream_limits") or NO_LIMITS
    requests, infos, messages, size_bytes = (max(0, settings.get(key) or 0) for key in KEYS)
    found = {"requests": requests, "infos": infos or requests, "messages": messages, "bytes": size_bytes}
    return attrs.evolve(limits, queues=QueueLimits(**{name: limit for name, limit in found.items() if limit}))
