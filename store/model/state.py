"""The API's views of streams, consumers, groups and accounts: snapshots with nats-server's JSON.

Attributes that carry a time or a duration end in `_ns`; their JSON names do not. Times are nanoseconds since the Unix
epoch, and 0 is "never" (Go's zero time on the wire). Source: stream.go (StreamInfo, ClusterInfo), store.go
(StreamState), consumer.go (ConsumerInfo), jetstream.go (JetStreamAccountStats).
"""

# ruff: noqa: RUF009  (wire() declares a field, as attrs.field does)

from collections.abc import Mapping
from typing import Final

import attrs

from jetraft.store.model.config import ConsumerConfig, ExternalStream, StreamConfig, SubjectTransform
from jetraft.store.model.encoding.fields import (
    DURATION,
    FLAG,
    INT,
    INT64,
    TEXT,
    UINT64,
    CountMap,
    ListOf,
    MapOf,
    Moment,
    Struct,
    Time,
    wire,
)
from jetraft.store.model.encoding.jsoncodec import WireObject


@attrs.frozen(kw_only=True, slots=True)
class LostStreamData(WireObject):
    """Messages that are damaged on every replica. Their bytes are not counted because they are unknown.

    `forgotten_ns` (not in nats-server): when a majority of the members had lost a stream in memory, so that an unknown
    number of messages may be lost (decision 55).
    """

    msgs: tuple[int, ...] = wire(ListOf(UINT64, "[]uint64"), ())
    bytes: int = wire(UINT64, 0)
    forgotten_ns: int | None = wire(Time(), omitempty=True, name="forgotten")


@attrs.frozen(kw_only=True, slots=True)
class StreamState(WireObject):
    """The size of a stream."""

    messages: int = wire(UINT64, 0)
    bytes: int = wire(UINT64, 0)
    first_seq: int = wire(UINT64, 0)
    first_ts_ns: int = wire(Moment(), 0, name="first_ts")
    last_seq: int = wire(UINT64, 0)
    last_ts_ns: int = wire(Moment(), 0, name="last_ts")
    num_subjects: int = wire(INT, 0, omitempty=True)
    subjects: Mapping[str, int] = wire(CountMap(), dict, omitempty=True)
    num_deleted: int = wire(INT, 0, omitempty=True)
    deleted: tuple[int, ...] = wire(ListOf(UINT64, "[]uint64"), (), omitempty=True)
    lost: LostStreamData | None = wire(Struct(LostStreamData, "server.LostStreamData"), omitempty=True)
    consumer_count: int = wire(INT, 0)


@attrs.frozen(kw_only=True, slots=True)
class PeerInfo(WireObject):
    """One replica as its leader sees it; `active_ns` is the time since it was last heard from."""

    name: str = wire(TEXT, "")
    current: bool = wire(FLAG, default=False)
    offline: bool = wire(FLAG, default=False, omitempty=True)
    active_ns: int = wire(DURATION, 0, name="active")
    lag: int = wire(UINT64, 0, omitempty=True)
    peer: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class DesiredPeer(WireObject):
    """One replica that there shall be."""

    name: str = wire(TEXT, "")
    peer: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class DesiredOrigin(WireObject):
    """The beginning of a change of replicas."""

    replicas: int = wire(INT, 0)


@attrs.frozen(kw_only=True, slots=True)
class DesiredStatus(WireObject):
    """The members that a change of replicas waits for."""

    description: str = wire(TEXT, "")
    type: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class DesiredInfo(WireObject):
    """A change of replicas that is not complete: since when it is known to the leader, and who shall have them."""

    created_ns: int | None = wire(Time(), omitempty=True, name="created")
    name: str = wire(TEXT, "", omitempty=True)
    replicas: tuple[DesiredPeer, ...] = wire(
        ListOf(Struct(DesiredPeer, "server.DesiredPeer"), "[]*server.DesiredPeer"), (), omitempty=True
    )
    origin: DesiredOrigin | None = wire(Struct(DesiredOrigin, "server.DesiredOrigin"), omitempty=True)
    status: DesiredStatus | None = wire(Struct(DesiredStatus, "server.DesiredStatus"), omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class ClusterInfo(WireObject):
    """The leader and the other replicas of a stream or consumer."""

    name: str = wire(TEXT, "", omitempty=True)
    raft_group: str = wire(TEXT, "", omitempty=True)
    leader: str = wire(TEXT, "", omitempty=True)
    leader_since_ns: int | None = wire(Time(), omitempty=True, name="leader_since")
    system_account: bool = wire(FLAG, default=False, omitempty=True)
    traffic_account: str = wire(TEXT, "", omitempty=True)
    replicas: tuple[PeerInfo, ...] = wire(
        ListOf(Struct(PeerInfo, "server.PeerInfo"), "[]*server.PeerInfo"), (), omitempty=True
    )
    desired: DesiredInfo | None = wire(Struct(DesiredInfo, "server.DesiredInfo"), omitempty=True)

    def of_consumer(self, name: str) -> "ClusterInfo":
        """The same as a consumer of the stream shows it."""
        return attrs.evolve(self, raft_group=group_of_consumer(self.raft_group, name)) if self.raft_group else self


def group_of_consumer(group: str, name: str) -> str:
    """The name of a consumer's part of its stream's group. Tools tell consumers apart by their groups."""
    return f"{group}.{name}"


@attrs.frozen(kw_only=True, slots=True)
class StreamAlternate(WireObject):
    """A mirror that can serve instead of a stream."""

    name: str = wire(TEXT, "")
    domain: str = wire(TEXT, "", omitempty=True)
    cluster: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class ErrorView(WireObject):
    """An error inside an answer that is none."""

    code: int = wire(INT, 0)
    err_code: int = wire(UINT64, 0, omitempty=True)
    description: str = wire(TEXT, "", omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class StreamSourceInfo(WireObject):
    """An origin, as its mirror or the stream that sources it sees it.

    `lag` is how many messages are still to come, `seq` the last that is stored (not of a mirror), `active_ns` the time
    since the origin was last heard of, -1 for never.
    """

    name: str = wire(TEXT, "")
    external: ExternalStream | None = wire(Struct(ExternalStream, "server.ExternalStream"), omitempty=True)
    lag: int = wire(UINT64, 0)
    seq: int = wire(UINT64, 0, omitempty=True)
    active_ns: int = wire(DURATION, 0, name="active")
    error: ErrorView | None = wire(Struct(ErrorView, "server.ApiError"), omitempty=True)
    filter_subject: str = wire(TEXT, "", omitempty=True)
    subject_transforms: tuple[SubjectTransform, ...] = wire(
        ListOf(Struct(SubjectTransform, "server.SubjectTransformConfig"), "[]server.SubjectTransformConfig"),
        (),
        omitempty=True,
    )


_ORIGIN = Struct(StreamSourceInfo, "server.StreamSourceInfo")


@attrs.frozen(kw_only=True, slots=True)
class StreamInfo(WireObject):
    """A stream: its configuration, its state, its group. `ts_ns` is the time of the snapshot."""

    config: StreamConfig = wire(Struct(StreamConfig, "server.StreamConfig"), StreamConfig())
    created_ns: int = wire(Moment(), 0, name="created")
    state: StreamState = wire(Struct(StreamState, "server.StreamState"), StreamState())
    domain: str = wire(TEXT, "", omitempty=True)
    cluster: ClusterInfo | None = wire(Struct(ClusterInfo, "server.ClusterInfo"), omitempty=True)
    mirror: StreamSourceInfo | None = wire(_ORIGIN, omitempty=True)
    sources: tuple[StreamSourceInfo, ...] = wire(ListOf(_ORIGIN, "[]*server.StreamSourceInfo"), (), omitempty=True)
    alternates: tuple[StreamAlternate, ...] = wire(
        ListOf(Struct(StreamAlternate, "server.StreamAlternate"), "[]server.StreamAlternate"), (), omitempty=True
    )
    ts_ns: int = wire(Moment(), 0, name="ts")


@attrs.frozen(kw_only=True, slots=True)
class SequencePair(WireObject):
    """A position of a consumer: its consumer sequence and the stream sequence."""

    consumer_seq: int = wire(UINT64, 0)
    stream_seq: int = wire(UINT64, 0)
    last_active_ns: int | None = wire(Time(), omitempty=True, name="last_active")


@attrs.frozen(kw_only=True, slots=True)
class PriorityGroupState(WireObject):
    """The pinned client of a priority group."""

    group: str = wire(TEXT, "")
    pinned_client_id: str = wire(TEXT, "", omitempty=True)
    pinned_ts_ns: int = wire(Moment(), 0, name="pinned_ts")


_PAIR = Struct(SequencePair, "server.SequenceInfo")


@attrs.frozen(kw_only=True, slots=True)
class ConsumerInfo(WireObject):
    """A consumer and its state; `num_ack_pending` are unacked deliveries, `num_pending` messages not yet delivered."""

    stream_name: str = wire(TEXT, "")
    name: str = wire(TEXT, "")
    created_ns: int = wire(Moment(), 0, name="created")
    config: ConsumerConfig | None = wire(Struct(ConsumerConfig, "server.ConsumerConfig"), omitempty=True)
    delivered: SequencePair = wire(_PAIR, SequencePair())
    ack_floor: SequencePair = wire(_PAIR, SequencePair())
    num_ack_pending: int = wire(INT, 0)
    num_redelivered: int = wire(INT, 0)
    num_waiting: int = wire(INT, 0)
    num_pending: int = wire(UINT64, 0)
    cluster: ClusterInfo | None = wire(Struct(ClusterInfo, "server.ClusterInfo"), omitempty=True)
    push_bound: bool = wire(FLAG, default=False, omitempty=True)
    paused: bool = wire(FLAG, default=False, omitempty=True)
    pause_remaining_ns: int = wire(DURATION, 0, omitempty=True, name="pause_remaining")
    ts_ns: int = wire(Moment(), 0, name="ts")
    priority_groups: tuple[PriorityGroupState, ...] = wire(
        ListOf(Struct(PriorityGroupState, "server.PriorityGroupState"), "[]server.PriorityGroupState"),
        (),
        omitempty=True,
    )


@attrs.frozen(kw_only=True, slots=True)
class AccountLimits(WireObject):
    """The limits of an account; -1 is no limit."""

    max_memory: int = wire(INT64, -1)
    max_storage: int = wire(INT64, -1)
    max_streams: int = wire(INT, -1)
    max_consumers: int = wire(INT, -1)
    max_ack_pending: int = wire(INT, -1)
    memory_max_stream_bytes: int = wire(INT64, -1)
    storage_max_stream_bytes: int = wire(INT64, -1)
    max_bytes_required: bool = wire(FLAG, default=False)


NOTHING_ALLOWED: Final = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)  # as nats-server shows that there are no limits of this kind


@attrs.frozen(kw_only=True, slots=True)
class TierUsage(WireObject):
    """Usage and limits of streams with one number of replicas; sizes in bytes."""

    memory: int = wire(UINT64, 0)
    storage: int = wire(UINT64, 0)
    reserved_memory: int = wire(UINT64, 0)
    reserved_storage: int = wire(UINT64, 0)
    streams: int = wire(INT, 0)
    consumers: int = wire(INT, 0)
    limits: AccountLimits = wire(Struct(AccountLimits, "server.JetStreamAccountLimits"), NOTHING_ALLOWED)


@attrs.frozen(kw_only=True, slots=True)
class ApiStats(WireObject):
    """The API level, and the numbers of requests and errors."""

    level: int = wire(INT, 0)
    total: int = wire(UINT64, 0)
    errors: int = wire(UINT64, 0)
    inflight: int = wire(UINT64, 0, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class AccountInfo(WireObject):
    """Usage and limits of an account; sizes in bytes. With `tiers` the limits are theirs, and all is the sum."""

    memory: int = wire(UINT64, 0)
    storage: int = wire(UINT64, 0)
    reserved_memory: int = wire(UINT64, 0)
    reserved_storage: int = wire(UINT64, 0)
    streams: int = wire(INT, 0)
    consumers: int = wire(INT, 0)
    limits: AccountLimits = wire(Struct(AccountLimits, "server.JetStreamAccountLimits"), AccountLimits())
    domain: str = wire(TEXT, "", omitempty=True)
    api: ApiStats = wire(Struct(ApiStats, "server.JetStreamAPIStats"), ApiStats())
    tiers: Mapping[str, TierUsage] = wire(
        MapOf(Struct(TierUsage, "server.JetStreamTier"), "map[string]server.JetStreamTier"), dict, omitempty=True
    )


@attrs.frozen(kw_only=True, slots=True)
class StoredMessageView(WireObject):
    """A message as STREAM.MSG.GET answers it; `hdrs` and `data` are base64, absent when empty."""

    subject: str = wire(TEXT, "")
    seq: int = wire(UINT64, 0)
    hdrs: str = wire(TEXT, "", omitempty=True)
    data: str = wire(TEXT, "", omitempty=True)
    time_ns: int = wire(Moment(), 0, name="time")


@attrs.frozen(kw_only=True, slots=True)
class PubAck(WireObject):
    """The acknowledgement of a publish; `val` is the value of a counter, `batch` and `count` name an atomic batch."""

    stream: str = wire(TEXT, "")
    seq: int = wire(UINT64, 0)
    domain: str = wire(TEXT, "", omitempty=True)
    duplicate: bool = wire(FLAG, default=False, omitempty=True)
    val: str = wire(TEXT, "", omitempty=True)
    batch: str = wire(TEXT, "", omitempty=True)
    count: int = wire(INT, 0, omitempty=True)
