"""The meta group's entries: msgpack of small tagged tuples, decoded strictly.

An entry states facts that the leader decided (who holds the replicas, when the stream was created); nothing in it is
left to be computed from a clock or from randomness when it is applied. The tag is the first element, so a later
version can add commands, above the feature level of this one (feature_level.py); longer tuples are refused, not half
understood.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, get_args

import attrs
import msgpack

from jetraft.cluster.state.assignment import Former, StreamAssignment
from jetraft.store.model.config import Placement, StreamConfig, stored_stream_config
from jetraft.store.model.encoding.jsoncodec import encode as encode_json
from jetraft.store.model.errors import ApiError
from jetraft.store.model.feature_level import FIRST, LEVEL_MAX
from jetraft.store.model.forms import FORMS
from jetraft.store.model.ids import GroupId, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TEXT_BYTES_MAX: Final = 1024  # account, stream and node names are at most 255 bytes on the wire
CONFIG_BYTES_MAX: Final = 4 << 20  # description 4 KiB, metadata 128 KiB; the rest is subjects
PEERS_MAX: Final = 5


class BadCommandError(Exception):
    """The body of a META entry does not decode: written by a newer version, or damaged before it was proposed."""


@attrs.frozen(kw_only=True, slots=True)
class AssignStream:
    """Create a stream; its incarnation is the log index of this entry. Without effect when the name is taken."""

    account: str
    config: StreamConfig
    group_id: GroupId
    peers: tuple[NodeId, ...]
    preferred: NodeId
    created_ns: int


@attrs.frozen(kw_only=True, slots=True)
class ReconfigureStream:
    """Replace the config of this incarnation of a stream, and its peers unless `peers` is empty.

    New peers were chosen with a row in mind: without effect when that row's revision is not `based_on` any more.
    """

    account: str
    incarnation: int
    config: StreamConfig
    peers: tuple[NodeId, ...] = ()
    based_on: int = 0


@attrs.frozen(kw_only=True, slots=True)
class SettleStream:
    """The group's members are the peers of this revision of the row: those that were leaving may go."""

    account: str
    name: str
    incarnation: int
    revision: int


@attrs.frozen(kw_only=True, slots=True)
class RemoveStream:
    """Delete this incarnation of a stream. This entry is the positive record that allows its data to be deleted."""

    account: str
    name: str
    incarnation: int


@attrs.frozen(kw_only=True, slots=True)
class NameNode:
    """Note the name of a node, so that it can be shown while the node is away."""

    node_id: NodeId
    name: str


@attrs.frozen(kw_only=True, slots=True)
class AdoptStream:
    """Put a row into the table that the log has lost, or lost a change of. Only a server that stands alone does that.

    Without effect when the table has the stream's row as new or newer, or another stream in its place.
    """

    row: StreamAssignment


@attrs.frozen(kw_only=True, slots=True)
class RaiseLevel:
    """Every member knows this feature level: entries may use it from here on. Without effect when it is in use."""

    level: int


@attrs.frozen(kw_only=True, slots=True)
class AddTemplate:
    """Have streams made like this for subjects that it takes; without effect when the name or a subject is taken."""

    account: str
    name: str
    config: StreamConfig
    max_streams: int


@attrs.frozen(kw_only=True, slots=True)
class RemoveTemplate:
    """Delete a template of this incarnation, and in the same moment the streams that were made by it."""

    account: str
    name: str
    incarnation: int


Command = (
    AssignStream
    | ReconfigureStream
    | SettleStream
    | RemoveStream
    | NameNode
    | AdoptStream
    | AddTemplate
    | RemoveTemplate
    | RaiseLevel
)


_LEVELS: Final[dict[type[Command], int]] = {
    kind: FORMS[f"meta {kind.__name__}: {' '.join(field.name for field in attrs.fields(kind))}"]
    for kind in get_args(Command)
}


def level_needed_by(command: Command) -> int:
    """The feature level that the command itself needs; what is in it may need more (frontend.py)."""
    return _LEVELS[type(command)]


def encode(command: Command) -> bytes:
    """Return the body of a META entry."""
    body: bytes = msgpack.packb(_fields(command))
    return body


def decode(body: bytes) -> Command:
    """Return the command of a META entry. Raises BadCommandError."""
    try:
        fields = msgpack.unpackb(body, max_bin_len=CONFIG_BYTES_MAX, max_str_len=TEXT_BYTES_MAX)
        tag, *rest = fields
        return _DECODERS[tag](rest)
    except (ValueError, TypeError, KeyError, ApiError, msgpack.UnpackException) as error:
        raise BadCommandError(f"META entry of {len(body)} bytes: {error}") from error


def pack_config(config: StreamConfig) -> bytes:
    """Return the config as the JSON that clients see; metadata and unknown-to-others extensions survive in it."""
    return encode_json(config)


def unpack_config(packed: bytes) -> StreamConfig:
    """Return the config of `pack_config`. Raises ApiError (invalid JSON): a newer version wrote fields unknown here."""
    return stored_stream_config(packed)


def _fields(command: Command) -> Sequence[object]:  # noqa: PLR0911  (one for each kind)
    match command:
        case AssignStream():
            peers = list(command.peers)
            packed = pack_config(command.config)
            return ["assign", command.account, packed, command.group_id, peers, command.preferred, command.created_ns]
        case ReconfigureStream():
            packed = pack_config(command.config)
            return ["reconfigure", command.account, command.incarnation, packed, list(command.peers), command.based_on]
        case SettleStream():
            return ["settle", command.account, command.name, command.incarnation, command.revision]
        case RemoveStream():
            return ["remove", command.account, command.name, command.incarnation]
        case AdoptStream():
            return ["adopt", *row_fields(command.row)]
        case AddTemplate():
            return ["template", command.account, command.name, pack_config(command.config), command.max_streams]
        case RemoveTemplate():
            return ["untemplate", command.account, command.name, command.incarnation]
        case NameNode() | RaiseLevel():
            return _note_fields(command)


def _note_fields(command: NameNode | RaiseLevel) -> Sequence[object]:
    if isinstance(command, NameNode):
        return ["name", command.node_id, command.name]
    return ["level", command.level]


def _assign(fields: list[Any]) -> AssignStream:
    account, packed, group_id, peers, preferred, created_ns = fields
    return AssignStream(
        account=text(account),
        config=unpack_config(blob(packed)),
        group_id=GroupId(text(group_id)),
        peers=peers_of(peers),
        preferred=NodeId(sys.intern(text(preferred))),
        created_ns=number(created_ns),
    )


def _reconfigure(fields: list[Any]) -> ReconfigureStream:
    account, incarnation, packed, peers, based_on = fields
    return ReconfigureStream(
        account=text(account),
        incarnation=number(incarnation),
        config=unpack_config(blob(packed)),
        peers=peers_of(peers) if peers else (),
        based_on=number(based_on),
    )


def _settle(fields: list[Any]) -> SettleStream:
    account, name, incarnation, revision = fields
    return SettleStream(
        account=text(account), name=text(name), incarnation=number(incarnation), revision=number(revision)
    )


def _remove(fields: list[Any]) -> RemoveStream:
    account, name, incarnation = fields
    return RemoveStream(account=text(account), name=text(name), incarnation=number(incarnation))


def _name(fields: list[Any]) -> NameNode:
    node_id, name = fields
    return NameNode(node_id=NodeId(text(node_id)), name=text(name))


def _add_template(fields: list[Any]) -> AddTemplate:
    account, name, packed, max_streams = fields
    return AddTemplate(
        account=text(account), name=text(name), config=unpack_config(blob(packed)), max_streams=number(max_streams)
    )


def _remove_template(fields: list[Any]) -> RemoveTemplate:
    account, name, incarnation = fields
    return RemoveTemplate(account=text(account), name=text(name), incarnation=number(incarnation))


_DECODERS: Final[dict[str, Callable[[list[Any]], Command]]] = {
    "assign": _assign,
    "reconfigure": _reconfigure,
    "settle": _settle,
    "remove": _remove,
    "name": _name,
    "template": _add_template,
    "untemplate": _remove_template,
    "adopt": lambda fields: AdoptStream(row=row_of(fields)),
    "level": lambda fields: RaiseLevel(level=level_of(*fields)),
}


def text(value: object) -> str:
    """Return a short string of a decoded message. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def number(value: object) -> int:
    """Return a natural number of a decoded message. Raises TypeError or ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    if value < 0:
        raise ValueError(f"expected a natural number, got {value}")
    return value


def level_of(value: object) -> int:
    """Return a feature level of a decoded message. Raises TypeError or ValueError."""
    if not FIRST <= (level := number(value)) <= LEVEL_MAX:
        raise ValueError(f"expected a feature level, got {level}")
    return level


def blob(value: object) -> bytes:
    """Return a byte string of a decoded message. Raises TypeError."""
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value


def nodes_of(value: object) -> tuple[NodeId, ...]:
    """Return any number of nodes of a decoded message, all different. Raises TypeError or ValueError."""
    if not isinstance(value, list):
        raise TypeError(f"expected a list of nodes, got {type(value).__name__}")
    nodes = tuple(NodeId(sys.intern(text(node))) for node in value)  # a few names, in a thousand rows
    if len(set(nodes)) != len(nodes):
        raise ValueError(f"expected different nodes, got {nodes}")
    return nodes


def peers_of(value: object) -> tuple[NodeId, ...]:
    """Return the nodes of a replica set: one to five, all different. Raises TypeError or ValueError."""
    peers = nodes_of(value)
    if not 1 <= len(peers) <= PEERS_MAX:
        raise ValueError(f"expected one to {PEERS_MAX} different nodes, got {peers}")
    return peers


def row_fields(assignment: StreamAssignment) -> list[object]:
    """Return a row of the table for a message; its last field is there only while its peers change."""
    fields = [
        assignment.account,
        pack_config(assignment.config),
        assignment.group_id,
        assignment.incarnation,
        assignment.revision,
        list(assignment.peers),
        assignment.preferred,
        assignment.created_ns,
        list(assignment.founding),
        list(assignment.leaving),
        list(assignment.newcomers),
    ]
    if assignment.former is not None:
        fields.append(_former_fields(assignment.former))
    return fields


def row_of(fields: list[Any]) -> StreamAssignment:
    """Return the row of `row_fields`. Raises TypeError, ValueError or ApiError."""
    account, packed, group_id, incarnation, revision, peers, preferred, created_ns, *members = fields
    founding, leaving, newcomers, *former = members
    return StreamAssignment(
        account=text(account),
        config=unpack_config(blob(packed)),
        group_id=GroupId(text(group_id)),
        incarnation=number(incarnation),
        revision=number(revision),
        peers=peers_of(peers),
        preferred=NodeId(text(preferred)),
        created_ns=number(created_ns),
        founding=peers_of(founding),
        leaving=nodes_of(leaving),
        newcomers=nodes_of(newcomers),
        former=_former_of(*former) if former else None,
    )


def _former_fields(former: Former) -> list[object]:
    placement = None if former.placement is None else encode_json(former.placement)
    return [list(former.peers), former.replicas, placement]


def _former_of(fields: list[Any]) -> Former:
    peers, replicas, placement = fields
    return Former(
        peers=peers_of(peers),
        replicas=number(replicas),
        placement=None if placement is None else Placement.from_json(blob(placement)),
    )
