"""The configurations of streams and consumers, field by field as nats-server 2.15 names, orders and omits them.

Attribute names are JSON names. Durations are integer nanoseconds, times integer nanoseconds since the Unix epoch,
lists are tuples, a missing object is None. Every default is Go's zero value; the functions of `validation` fill in the
server's defaults. Instances are values: change one with `attrs.evolve`.
Source: server/stream.go (StreamConfig), server/consumer.go (ConsumerConfig), server/jetstream_cluster.go (Placement).
"""

# ruff: noqa: RUF009  (wire() declares a field, as attrs.field does)

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import attrs

from jetraft.store.model._patterns import PatternTree
from jetraft.store.model.encoding.fields import (
    DURATION,
    FLAG,
    INT,
    INT32,
    INT64,
    TEXT,
    UINT64,
    Choice,
    ListOf,
    Struct,
    TextMap,
    Time,
    wire,
)
from jetraft.store.model.encoding.jsoncodec import WireObject
from jetraft.store.model.gosyntax import go_quote

STORED_KEPT: Final = 64  # decoded configurations


class RetentionPolicy(StrEnum):
    """When a message may be removed."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class DiscardPolicy(StrEnum):
    """The policy of a full stream: remove the oldest message, or refuse the new one."""

    OLD = "old"
    NEW = "new"


class StorageType(StrEnum):
    """The kind of storage of messages; cannot be changed."""

    FILE = "file"
    MEMORY = "memory"


class StoreCompression(StrEnum):
    """How blocks are compressed on disk."""

    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    """Whether an acknowledgement waits for the disk."""

    DEFAULT = "default"
    ASYNC = "async"


class DeliverPolicy(StrEnum):
    """The place in the stream at which a consumer starts."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"


class AckPolicy(StrEnum):
    """The acknowledgements that a consumer asks for."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(StrEnum):
    """The speed at which stored messages are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(StrEnum):
    """How pull requests of priority groups are chosen."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class ConsumerAction(StrEnum):
    """The purpose of a consumer create request."""

    CREATE_OR_UPDATE = ""
    UPDATE = "update"
    CREATE = "create"


def _cannot_unmarshal(json_text: str) -> str:
    return f"can not unmarshal {go_quote(json_text)}"


def _unknown_compression(_json_text: str) -> str:
    return "unknown compression algorithm"


def _unknown_priority_policy(json_text: str) -> str:
    return f"unknown priority policy: {json_text}"


def _unknown_action(json_text: str) -> str:
    return f"unknown consumer action: {json_text}"


_RETENTION = Choice(RetentionPolicy, _cannot_unmarshal)
_DISCARD = Choice(DiscardPolicy, _cannot_unmarshal, ignores_case=True)
_STORAGE = Choice(StorageType, _cannot_unmarshal)
_COMPRESSION = Choice(StoreCompression, _unknown_compression, reads_text=True)
_PERSIST_MODE = Choice(PersistMode, _cannot_unmarshal, aliases=("",))
_DELIVER = Choice(DeliverPolicy, _cannot_unmarshal, aliases=("undefined",))
_ACK = Choice(AckPolicy, _cannot_unmarshal)
_REPLAY = Choice(ReplayPolicy, _cannot_unmarshal)
_PRIORITY = Choice(PriorityPolicy, _unknown_priority_policy)
_ACTION = Choice(ConsumerAction, _unknown_action)
_TEXTS = ListOf(TEXT, "[]string")


@attrs.frozen(kw_only=True, slots=True)
class Placement(WireObject):
    """The servers that replicas may be placed on."""

    cluster: str = wire(TEXT, "", omitempty=True)
    tags: tuple[str, ...] = wire(_TEXTS, (), omitempty=True)
    preferred: str = wire(TEXT, "", omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class SubjectTransform(WireObject):
    """A mapping of subjects from a pattern to a template."""

    src: str = wire(TEXT, "")
    dest: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class Republish(WireObject):
    """A rule by which stored messages are republished under another subject."""

    src: str = wire(TEXT, "", omitempty=True)
    dest: str = wire(TEXT, "")
    headers_only: bool = wire(FLAG, default=False, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class ExternalStream(WireObject):
    """A stream in another account or domain."""

    api: str = wire(TEXT, "")
    deliver: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class StreamConsumerSource(WireObject):
    """The durable consumer through which a source is read."""

    name: str = wire(TEXT, "", omitempty=True)
    deliver_subject: str = wire(TEXT, "", omitempty=True)


_TRANSFORMS = ListOf(Struct(SubjectTransform, "server.SubjectTransformConfig"), "[]server.SubjectTransformConfig")


@attrs.frozen(kw_only=True, slots=True)
class StreamSource(WireObject):
    """The origin of a mirror, or one origin of a sourced stream."""

    name: str = wire(TEXT, "")
    opt_start_seq: int = wire(UINT64, 0, omitempty=True)
    opt_start_time: int | None = wire(Time(), omitempty=True)
    filter_subject: str = wire(TEXT, "", omitempty=True)
    subject_transforms: tuple[SubjectTransform, ...] = wire(_TRANSFORMS, (), omitempty=True)
    external: ExternalStream | None = wire(Struct(ExternalStream, "server.ExternalStream"), omitempty=True)
    consumer: StreamConsumerSource | None = wire(
        Struct(StreamConsumerSource, "server.StreamConsumerSource"), omitempty=True
    )


_SOURCE = Struct(StreamSource, "server.StreamSource")


@attrs.frozen(kw_only=True, slots=True)
class ConsumerLimits(WireObject):
    """Limits and defaults that a stream sets for its consumers."""

    inactive_threshold: int = wire(DURATION, 0, omitempty=True)
    max_ack_pending: int = wire(INT, 0, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class StreamConfig(WireObject):
    """The configuration of a stream: as requested, or, after `normalise_stream`, as stored."""

    name: str = wire(TEXT, "")
    description: str = wire(TEXT, "", omitempty=True)
    subjects: tuple[str, ...] = wire(_TEXTS, (), omitempty=True)
    retention: RetentionPolicy = wire(_RETENTION, RetentionPolicy.LIMITS)
    max_consumers: int = wire(INT, 0)
    max_msgs: int = wire(INT64, 0)
    max_bytes: int = wire(INT64, 0)
    max_age: int = wire(DURATION, 0)
    max_msgs_per_subject: int = wire(INT64, 0)
    max_msg_size: int = wire(INT32, 0, omitempty=True)
    discard: DiscardPolicy = wire(_DISCARD, DiscardPolicy.OLD)
    storage: StorageType = wire(_STORAGE, StorageType.FILE)
    num_replicas: int = wire(INT, 0)
    no_ack: bool = wire(FLAG, default=False, omitempty=True)
    duplicate_window: int = wire(DURATION, 0, omitempty=True)
    placement: Placement | None = wire(Struct(Placement, "server.Placement"), omitempty=True)
    mirror: StreamSource | None = wire(_SOURCE, omitempty=True)
    sources: tuple[StreamSource | None, ...] = wire(ListOf(_SOURCE, "[]*server.StreamSource"), (), omitempty=True)
    compression: StoreCompression = wire(_COMPRESSION, StoreCompression.NONE)
    first_seq: int = wire(UINT64, 0, omitempty=True)
    subject_transform: SubjectTransform | None = wire(
        Struct(SubjectTransform, "server.SubjectTransformConfig"), omitempty=True
    )
    republish: Republish | None = wire(Struct(Republish, "server.RePublish"), omitempty=True)
    allow_direct: bool = wire(FLAG, default=False)
    mirror_direct: bool = wire(FLAG, default=False)
    discard_new_per_subject: bool = wire(FLAG, default=False, omitempty=True)
    sealed: bool = wire(FLAG, default=False)
    deny_delete: bool = wire(FLAG, default=False)
    deny_purge: bool = wire(FLAG, default=False)
    allow_rollup_hdrs: bool = wire(FLAG, default=False)
    consumer_limits: ConsumerLimits = wire(Struct(ConsumerLimits, "server.StreamConsumerLimits"), ConsumerLimits())
    allow_msg_ttl: bool = wire(FLAG, default=False)
    subject_delete_marker_ttl: int = wire(DURATION, 0, omitempty=True)
    allow_msg_counter: bool = wire(FLAG, default=False, omitempty=True)
    allow_atomic: bool = wire(FLAG, default=False, omitempty=True)
    allow_msg_schedules: bool = wire(FLAG, default=False, omitempty=True)
    persist_mode: PersistMode = wire(_PERSIST_MODE, PersistMode.DEFAULT, omitempty=True)
    allow_batched: bool = wire(FLAG, default=False, omitempty=True)
    metadata: Mapping[str, str] = wire(TextMap(), dict, omitempty=True)

    @property
    def subject_filters(self) -> tuple[bytes, ...]:
        """The subjects as bytes, for routing and the store."""
        return tuple(subject.encode() for subject in self.subjects)

    @cached_property
    def subject_tree(self) -> PatternTree[bool]:
        """The subjects as one tree, for questions about many subjects."""
        return PatternTree(self.subject_filters)


@lru_cache(maxsize=STORED_KEPT)
def stored_stream_config(body: bytes) -> StreamConfig:
    """The configuration of a JSON text that this program has written. Raises ApiError as `from_json`.

    A creation meets the same text in the table's entry, when that is proposed and when it is applied, and in the
    stream's own. The newest ones are kept: each is decoded once, and all parts share one object.
    """
    return StreamConfig.from_json(body)


@attrs.frozen(kw_only=True, slots=True)
class ConsumerConfig(WireObject):
    """The configuration of a consumer: as requested, or, after `normalise_consumer`, as stored."""

    durable_name: str = wire(TEXT, "", omitempty=True)
    name: str = wire(TEXT, "", omitempty=True)
    description: str = wire(TEXT, "", omitempty=True)
    deliver_policy: DeliverPolicy = wire(_DELIVER, DeliverPolicy.ALL)
    opt_start_seq: int = wire(UINT64, 0, omitempty=True)
    opt_start_time: int | None = wire(Time(), omitempty=True)
    ack_policy: AckPolicy = wire(_ACK, AckPolicy.NONE)
    ack_wait: int = wire(DURATION, 0, omitempty=True)
    max_deliver: int = wire(INT, 0, omitempty=True)
    backoff: tuple[int, ...] = wire(ListOf(DURATION, "[]time.Duration"), (), omitempty=True)
    filter_subject: str = wire(TEXT, "", omitempty=True)
    filter_subjects: tuple[str, ...] = wire(_TEXTS, (), omitempty=True)
    replay_policy: ReplayPolicy = wire(_REPLAY, ReplayPolicy.INSTANT)
    rate_limit_bps: int = wire(UINT64, 0, omitempty=True)
    sample_freq: str = wire(TEXT, "", omitempty=True)
    max_waiting: int = wire(INT, 0, omitempty=True)
    max_ack_pending: int = wire(INT, 0, omitempty=True)
    flow_control: bool = wire(FLAG, default=False, omitempty=True)
    headers_only: bool = wire(FLAG, default=False, omitempty=True)
    max_batch: int = wire(INT, 0, omitempty=True)
    max_expires: int = wire(DURATION, 0, omitempty=True)
    max_bytes: int = wire(INT, 0, omitempty=True)
    deliver_subject: str = wire(TEXT, "", omitempty=True)
    deliver_group: str = wire(TEXT, "", omitempty=True)
    idle_heartbeat: int = wire(DURATION, 0, omitempty=True)
    inactive_threshold: int = wire(DURATION, 0, omitempty=True)
    num_replicas: int = wire(INT, 0)
    mem_storage: bool = wire(FLAG, default=False, omitempty=True)
    direct: bool = wire(FLAG, default=False, omitempty=True)
    sourcing: bool = wire(FLAG, default=False, omitempty=True)
    metadata: Mapping[str, str] = wire(TextMap(), dict, omitempty=True)
    pause_until: int | None = wire(Time(), omitempty=True)
    priority_groups: tuple[str, ...] = wire(_TEXTS, (), omitempty=True)
    priority_policy: PriorityPolicy = wire(_PRIORITY, PriorityPolicy.NONE, omitempty=True)
    priority_timeout: int = wire(DURATION, 0, omitempty=True)

    @property
    def filters(self) -> tuple[bytes, ...]:
        """All subject filters, from either field; none means every subject of the stream."""
        one = (self.filter_subject,) if self.filter_subject else ()
        return tuple(subject.encode() for subject in one + self.filter_subjects)

    @property
    def is_durable(self) -> bool:
        """True when the consumer has a durable name."""
        return bool(self.durable_name)

    @property
    def is_pull(self) -> bool:
        """True when clients ask for messages, False when they are pushed to a subject."""
        return not self.deliver_subject


@attrs.frozen(kw_only=True, slots=True)
class StreamConfigRequest(WireObject):
    """The body of a stream create or update request."""

    config: StreamConfig = wire(Struct(StreamConfig, "server.StreamConfig"), StreamConfig(), embedded=True)
    pedantic: bool = wire(FLAG, default=False, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class CreateConsumerRequest(WireObject):
    """The body of a consumer create request."""

    stream_name: str = wire(TEXT, "")
    config: ConsumerConfig = wire(Struct(ConsumerConfig, "server.ConsumerConfig"), ConsumerConfig())
    action: ConsumerAction = wire(_ACTION, ConsumerAction.CREATE_OR_UPDATE)
    pedantic: bool = wire(FLAG, default=False, omitempty=True)
