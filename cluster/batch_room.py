"""How much batch publishing may hold: limits of a batch, of a stream and of a server, and what the server holds now.

Source of the limits: nats-server, stream.go and ADR-50, where nothing else is said.
"""

from typing import Final

import attrs

from jetraft.store.model.limits import BatchLimits

BATCH_ID_BYTES_MAX: Final = 64

FAST_PER_STREAM_MAX: Final = 1000
FAST_PER_SERVER_MAX: Final = 50_000


@attrs.define(eq=False)
class BatchRoom:
    """The bytes that batches of all streams that a server leads take now, and that atomic ones may."""

    limits: BatchLimits = attrs.Factory(BatchLimits)
    atomic: int = 0
    staged_bytes: int = 0
    fast: int = 0
