"""Small makers that the tests of the meta group share."""

from jetraft.cluster.meta.commands import AssignStream, Command, encode
from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry

ACCOUNT = "$G"
N1, N2, N3 = (NodeId(f"node000{number}") for number in (1, 2, 3))


def config(name: str, *subjects: str, max_msgs: int = -1, max_bytes: int = -1) -> StreamConfig:
    return StreamConfig(name=name, subjects=subjects or (name,), num_replicas=1, max_msgs=max_msgs, max_bytes=max_bytes)


def assign(name: str, *subjects: str, group: str = "", peers: tuple[NodeId, ...] = (N1,)) -> AssignStream:
    return AssignStream(
        account=ACCOUNT,
        config=config(name, *subjects),
        group_id=GroupId(group or f"S-R1F-{name}"),
        peers=peers,
        preferred=peers[0],
        created_ns=1,
    )


def assignment(name: str, *subjects: str, incarnation: int = 1, peers: tuple[NodeId, ...] = (N1,)) -> StreamAssignment:
    return StreamAssignment(
        account=ACCOUNT,
        config=config(name, *subjects),
        group_id=GroupId(f"S-R1F-{name}{incarnation}"),
        incarnation=incarnation,
        revision=incarnation,
        peers=peers,
        preferred=peers[0],
        created_ns=1,
        founding=peers,
    )


def entry(index: int, command: Command | bytes) -> Entry:
    body = command if isinstance(command, bytes) else encode(command)
    frame = seal(Kind.META, index=index, term=1, incarnation=1, body=body)
    return Entry(index=index, term=1, kind=Kind.META, frame=frame)
