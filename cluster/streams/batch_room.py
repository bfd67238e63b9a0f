"""How much batch publishing may hold: limits of a batch, of a stream and of a server, and what the server holds now.

Source of the limits: nats-server, stream.go and ADR-50, where nothing else is said.
"""

from typing import Final

import attrs

from jetraft.store.model.limits import BatchLimits

BATCH_ID_BYTES_MAX: Final = 64

# A batch becomes one entry of the log, and an entry travels in one frame of a link (raft/mesh/framing.py: 64 MiB, which
# is also all that may wait in a link), beside what other groups send. nats-server has no limit of bytes.
ATOMIC_BYTES_MAX: Final = 32 << 20
STAGED_BYTES_MAX: Final = 256 << 20  # of all batches of a server, in memory

FAST_PER_STREAM_MAX: Final = 1000
FAST_PER_SERVER_MAX: Final = 50_000


@attrs.define(eq=False)
class BatchRoom:
    """What the batches of all streams that a server leads take now, and what atomic ones may."""

    limits: BatchLimits = attrs.Factory(BatchLimits)
    atomic: int = 0
    staged_bytes: int = 0
    fast: int = 0
