"""What today's encoders write, one of each command and message, for the readers of earlier versions."""

import typing
from collections.abc import Iterator
from typing import Any, Final

import attrs
import msgpack

from jetraft.cluster.meta import commands as meta
from jetraft.cluster.meta.profile import KEY, NodeProfile
from jetraft.cluster.meta.table import MetaTable
from jetraft.cluster.meta.templates import StreamTemplate
from jetraft.cluster.state import commands
from jetraft.cluster.state.assignment import Former, StreamAssignment
from jetraft.cluster.state.snapshot import encode_config
from jetraft.raft.engine.messages import Message as RaftMessage
from jetraft.raft.engine.messages import Removed
from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.gossip import About
from jetraft.raft.mesh.messages import PROTOCOLS
from jetraft.raft.wire import _CODES, encode
from jetraft.store.model.config import AckPolicy, StorageType, StreamConfig
from jetraft.store.model.feature_level import FIRST, LEVEL
from jetraft.store.model.forms import FORMS
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.stream._runs import Runs
from tests.cluster.calls.test_messages import GOLDEN as CALLS
from tests.cluster.lab import Node, add_consumer, start_stream
from tests.cluster.meta.makers import N1, N2, N3, assignment
from tests.raft.mesh.test_handshake import ONE
from tests.raft.recovery.test_messages import GOLDEN as RECOVERY
from tests.raft.rig import INCARNATION
from tests.raft.test_wire import MESSAGES
from tests.releases.probe import names

Sample = tuple[str, str, bytes]  # the form without its fields, the kind of reader, what was written
CONFIG: Final = StreamConfig(name="S", subjects=("s.>",), num_replicas=3, max_msgs=5, metadata={"a": "b"})
ROW: Final = attrs.evolve(assignment("S", "s.>", peers=(N1, N2)), leaving=(N3,), newcomers=(N2,))
MOVED: Final = attrs.evolve(ROW, former=Former(peers=(N3,), replicas=1, placement=None))
VALUES: Final[dict[Any, Any]] = {
    int: 7,
    int | None: 7,
    str: "text",
    bytes: encode_config(CONFIG),
    bytes | None: b"s.a",
    bool: True,
    Runs: commands.to_runs([1, 2, 3, 9]),
    commands.Pairs: ((1, 2), (3, 4)),
    StreamConfig: CONFIG,
    StreamAssignment: ROW,
    GroupId: GroupId("S-R3F-abcdefgh"),
    NodeId: N1,
    tuple[NodeId, ...]: (N1, N2),
}


def _built(cls: type, module: Any) -> Any:
    """A command, each of whose fields has the value of its type."""
    hints = typing.get_type_hints(cls, vars(module))
    return cls(**{field.name: VALUES[hints[field.name]] for field in attrs.fields(cls)})


def stream_samples(level: int) -> Iterator[Sample]:
    """Commands of streams as they are written at a feature level."""
    for tag, kind in commands.STREAM_TAGS.items():
        command = commands.at_level(_built(kind, commands), level)
        if command is not None:
            yield f"stream {tag} {kind.__name__}", "stream", commands.encode_stream_command(command, level)
    for tag, consumer_kind in commands.CONSUMER_TAGS.items():
        written = commands.encode_consumer_commands([_built(consumer_kind, commands)], level)
        yield f"consumer {tag} {consumer_kind.__name__}", "consumer", written


def meta_samples(level: int) -> Iterator[Sample]:
    """Commands of the meta group that may be proposed at a feature level."""
    for kind in typing.get_args(meta.Command):
        if FORMS[f"meta {kind.__name__}: {names(kind)}"] <= level:
            yield f"meta {kind.__name__}", "meta", meta.encode(_built(kind, meta))


def tables(level: int) -> Iterator[Sample]:
    """The table of the meta group, and what only higher levels have in it."""
    table = MetaTable()
    table.feature_level = level
    table.put(ROW if level == FIRST else MOVED)
    table.name_node(N1, "one")
    table.settle(ROW)
    if level > FIRST:
        table.put(attrs.evolve(MOVED, config=attrs.evolve(CONFIG, name="T"), group_id=GroupId("g")))
        template = attrs.evolve(CONFIG, name="", subjects=("t.*",))
        row = StreamTemplate(account="A", name="T", config=template, max_streams=3, incarnation=5)
        table.templates.put(row)
    yield f"table at {level}", "table", table.pack()


def snapshots() -> Iterator[Sample]:
    """The state of a stream with consumers that wait for acks; one that has a chain."""
    chained: dict[str, Any] = {"metadata": {"jetraft.chain": "sha256"}, "deny_delete": True, "deny_purge": True}
    for fields in ({}, chained):
        node = Node()
        replica = start_stream(node, **fields)
        for number in range(3):
            node.publish(b"s.a", b"x", hdr=b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number, reply=b"_INBOX.p")
        node.turn()
        add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
        node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"2", reply=b"_INBOX.r")
        node.turn()
        yield "snapshot", "snapshot", replica.machine.snapshot()


def between_nodes(level: int) -> Iterator[Sample]:
    """Messages of Raft and of calls, and what the mesh says."""
    raft: list[RaftMessage] = [*MESSAGES, Removed(term=1)]
    for message in raft:
        number = _CODES[type(message)][0]
        written = b"".join(encode(b"S-R3F-abcdefgh", INCARNATION, message))
        yield f"raft {number} {type(message).__name__}", "raft", written
    for called, _ in (*CALLS, *RECOVERY):
        name = type(called).__name__
        if name in PROTOCOLS and FORMS[f"message {name}: {names(type(called))}"] <= level:
            yield f"message {name}", f"message {name}", called.pack()
    yield "handshake", "hello", ONE.encode()
    about = About(metadata={"a": 1}, address=Address("h", 1), peers={N2: Address("g", 2)}, links=(N2, N3))
    yield "gossip About", "about", about.encode()
    told = NodeProfile(
        tags=frozenset({"ssd"}), capacity={StorageType.FILE: 1 << 40}, held={StorageType.MEMORY: 7}, level=LEVEL
    )
    yield "gossip NodeProfile", "profile", msgpack.packb({KEY: told.pack()})


def samples(level: int = LEVEL) -> list[Sample]:
    """Everything that is written at a feature level."""
    logs = (*stream_samples(level), *meta_samples(level), *tables(level))
    return [*logs, *(() if level == FIRST else (*snapshots(), *between_nodes(level)))]
