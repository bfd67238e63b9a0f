"""The bodies of API requests, except the two with a configuration (config.py). An empty body is the zero object.

`WireObject.from_json` reads each with Go's rules; the class names are nats-server's, because error texts show them.
Pull requests are not here: they are not API requests, and unknown fields in them are ignored.
Source: server/jetstream_api.go.
"""

# ruff: noqa: RUF009  (wire() declares a field, as attrs.field does)

import attrs

from jetraft.store.model.config import Placement, StreamConfig
from jetraft.store.model.encoding.fields import FLAG, INT, TEXT, UINT64, ListOf, Struct, Time, wire
from jetraft.store.model.encoding.jsoncodec import WireObject
from jetraft.store.model.state import StreamState

NAMES_PAGE: int = 1024  # JSApiNamesLimit
LIST_PAGE: int = 256  # JSApiListLimit
SUBJECTS_PAGE: int = 100_000  # JSMaxSubjectDetails


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamInfoRequest(WireObject):
    """STREAM.INFO: which details to add."""

    offset: int = wire(INT, 0)
    deleted_details: bool = wire(FLAG, default=False, omitempty=True)
    subjects_filter: str = wire(TEXT, "", omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamNamesRequest(WireObject):
    """STREAM.NAMES: a page of the streams that overlap a subject."""

    offset: int = wire(INT, 0)
    subject: str = wire(TEXT, "", omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamListRequest(WireObject):
    """STREAM.LIST: the same with details."""

    offset: int = wire(INT, 0)
    subject: str = wire(TEXT, "", omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiConsumersRequest(WireObject):
    """CONSUMER.NAMES and CONSUMER.LIST: a page."""

    offset: int = wire(INT, 0)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamPurgeRequest(WireObject):
    """STREAM.PURGE: everything, or up to a sequence, or all but the last `keep`, of a subject or of all."""

    seq: int = wire(UINT64, 0, omitempty=True)
    filter: str = wire(TEXT, "", omitempty=True)
    keep: int = wire(UINT64, 0, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiMsgDeleteRequest(WireObject):
    """STREAM.MSG.DELETE: erased unless `no_erase`."""

    seq: int = wire(UINT64, 0)
    no_erase: bool = wire(FLAG, default=False, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiMsgGetRequest(WireObject):
    """STREAM.MSG.GET and DIRECT.GET; the batch fields are served by DIRECT.GET only."""

    seq: int = wire(UINT64, 0, omitempty=True)
    last_by_subj: str = wire(TEXT, "", omitempty=True)
    next_by_subj: str = wire(TEXT, "", omitempty=True)
    batch: int = wire(INT, 0, omitempty=True)
    max_bytes: int = wire(INT, 0, omitempty=True)
    start_time: int | None = wire(Time(), omitempty=True)
    multi_last: tuple[str, ...] = wire(ListOf(TEXT, "[]string"), (), omitempty=True)
    up_to_seq: int = wire(UINT64, 0, omitempty=True)
    up_to_time: int | None = wire(Time(), omitempty=True)
    no_hdr: bool = wire(FLAG, default=False, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JetraftChainHeadRequest(WireObject):
    """JETRAFT.CHAIN.HEAD: the head when the chain had so many leaves; 0: the present one."""

    size: int = wire(UINT64, 0, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JetraftChainProofRequest(WireObject):
    """JETRAFT.CHAIN.PROOF: that a message is in the head of this size; 0: in the present one."""

    seq: int = wire(UINT64, 0)
    size: int = wire(UINT64, 0, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JetraftChainConsistencyRequest(WireObject):
    """JETRAFT.CHAIN.CONSISTENCY: that the head of one size is the beginning of that of another; 0: the present one."""

    older: int = wire(UINT64, 0, name="from")
    newer: int = wire(UINT64, 0, omitempty=True, name="to")


@attrs.frozen(kw_only=True, slots=True)
class JSApiLeaderStepdownRequest(WireObject):
    """*.LEADER.STEPDOWN: who should lead next."""

    placement: Placement | None = wire(Struct(Placement, "server.Placement"), omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamRemovePeerRequest(WireObject):
    """STREAM.PEER.REMOVE: the server that gives up its replica."""

    peer: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class StreamTemplateConfig(WireObject):
    """STREAM.TEMPLATE.CREATE (2020): what streams are made like, and how many; `config` has no name."""

    name: str = wire(TEXT, "")
    config: StreamConfig = wire(Struct(StreamConfig, "server.StreamConfig"), StreamConfig())
    max_streams: int = wire(UINT64, 0)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamTemplateNamesRequest(WireObject):
    """STREAM.TEMPLATE.NAMES: a page."""

    offset: int = wire(INT, 0)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamEvacuatePeerRequest(WireObject):
    """STREAM.PEER.EVACUATE: the server that gives up its replica when another one has everything."""

    peer: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class JSApiConsumerRemovePeerRequest(WireObject):
    """CONSUMER.PEER.REMOVE: the server that gives up its replica."""

    peer: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class JSApiConsumerEvacuatePeerRequest(WireObject):
    """CONSUMER.PEER.EVACUATE: the same."""

    peer: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class JSApiMetaServerStreamMoveRequest(WireObject):
    """ACCOUNT.STREAM.MOVE: the server to leave, and what those have that the stream goes to."""

    server: str = wire(TEXT, "", omitempty=True)
    cluster: str = wire(TEXT, "", omitempty=True)
    domain: str = wire(TEXT, "", omitempty=True)
    tags: tuple[str, ...] = wire(ListOf(TEXT, "[]string"), (), omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiMetaServerRemoveRequest(WireObject):
    """SERVER.REMOVE: the server that is removed permanently, by name or by id."""

    peer: str = wire(TEXT, "")
    peer_id: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class JSApiConsumerPauseRequest(WireObject):
    """CONSUMER.PAUSE: until when; absent or past resumes."""

    pause_until: int | None = wire(Time(), omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiConsumerResetRequest(WireObject):
    """CONSUMER.RESET: the next sequence to deliver; 0 is the one after the ack floor."""

    seq: int = wire(UINT64, 0, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiConsumerUnpinRequest(WireObject):
    """CONSUMER.UNPIN: the priority group whose client is pinned no longer."""

    group: str = wire(TEXT, "")


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamSnapshotRequest(WireObject):
    """STREAM.SNAPSHOT: the destination of the archive and its chunk size. `jsck`: verify first, always done."""

    deliver_subject: str = wire(TEXT, "")
    no_consumers: bool = wire(FLAG, default=False, omitempty=True)
    chunk_size: int = wire(INT, 0, omitempty=True)
    window_size: int = wire(INT, 0, omitempty=True)
    jsck: bool = wire(FLAG, default=False, omitempty=True)


@attrs.frozen(kw_only=True, slots=True)
class JSApiStreamRestoreRequest(WireObject):
    """STREAM.RESTORE: the configuration of the new stream, and the state of the stream in the backup."""

    config: StreamConfig = wire(Struct(StreamConfig, "server.StreamConfig"), StreamConfig())
    state: StreamState = wire(Struct(StreamState, "server.StreamState"), StreamState())
