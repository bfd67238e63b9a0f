"""Limits of the server's configuration and of the protocol, for validation."""

from typing import Final

import attrs

from jetraft.store.model.gotime import NS_PER_MINUTE, NS_PER_MS, NS_PER_S

# nats-server: jetstream_api.go
NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4 * 1024
METADATA_BYTES_MAX: Final = 128 * 1024
MAX_WAITING_DEFAULT: Final = 512

# nats-server: stream.go
REPLICAS_MAX: Final = 5
DUPLICATE_WINDOW_DEFAULT_NS: Final = 2 * NS_PER_MINUTE
AGE_MIN_NS: Final = 100 * NS_PER_MS  # for max_age and duplicate_window
MARKER_TTL_MIN_NS: Final = NS_PER_S

# nats-server: consumer.go
ACK_WAIT_DEFAULT_NS: Final = 30 * NS_PER_S
INACTIVE_THRESHOLD_DEFAULT_NS: Final = 5 * NS_PER_S
MAX_ACK_PENDING_DEFAULT: Final = 1000
PINNED_TTL_DEFAULT_NS: Final = 2 * NS_PER_MINUTE
HEARTBEAT_MIN_NS: Final = 100 * NS_PER_MS
REQUEST_EXPIRES_MIN_NS: Final = NS_PER_MS
SOURCE_HEARTBEAT_NS: Final = NS_PER_S


# nats-server: stream.go and ADR-50
ATOMIC_MESSAGES_MAX: Final = 1000
ATOMIC_PER_STREAM_MAX: Final = 50
ATOMIC_PER_SERVER_MAX: Final = 1000
# A batch becomes one entry of the log, and an entry travels in one frame of a link (raft/mesh/framing.py: 64 MiB, which
# is also all that may wait in a link), beside what other groups send. nats-server has no limit of bytes.
ATOMIC_BYTES_MAX: Final = 32 << 20
STAGED_BYTES_MAX: Final = 256 << 20  # of all batches of a server, in memory
BATCH_IDLE_NS_MAX: Final = 10 * NS_PER_S  # a batch without a message for so long is abandoned


@attrs.frozen(kw_only=True, slots=True)
class BatchLimits:
    """`jetstream { limits { batch { ... } } }`: of atomic batches."""

    messages: int = ATOMIC_MESSAGES_MAX
    per_stream: int = ATOMIC_PER_STREAM_MAX
    per_server: int = ATOMIC_PER_SERVER_MAX
    idle_ns: int = BATCH_IDLE_NS_MAX
    bytes_max: int = ATOMIC_BYTES_MAX  # of one; no option sets it, a memory limit lowers it
    staged_bytes: int = STAGED_BYTES_MAX  # of all; the same


@attrs.frozen(kw_only=True, slots=True)
class QueueLimits:
    """The most that waits in the `jetstream` block's queues, before more is refused."""

    requests: int = 10_000  # of the API that change something, or read a message
    infos: int = 10_000  # of the API that ask how something is
    messages: int = 100_000  # of a stream, published and not applied yet
    bytes: int = 128 << 20  # of these


@attrs.frozen(kw_only=True, slots=True)
class ServerLimits:
    """`jetstream { limits { ... } }`, and of its queues; 0 is no limit."""

    max_request_batch: int = 0
    max_ack_pending: int = 0
    duplicate_window_ns: int = 0
    default_max_consumers: int = 0  # of a stream, where neither it nor its account has a limit
    max_ha_assets: int = 0  # streams with several replicas that are placed on one server
    batch: BatchLimits = BatchLimits()
    queues: QueueLimits = QueueLimits()


NO_LIMITS: Final = ServerLimits()
