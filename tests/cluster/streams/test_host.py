"""A log without its promises is given up, and its node is admitted again before it takes part."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from jetraft.cluster.meta.assignment import StreamAssignment
from jetraft.cluster.streams.host import StreamHost
from jetraft.cluster.streams.memory_groups import MemoryGroups
from jetraft.raft.joining import Admission
from jetraft.raft.membership import Configuration
from jetraft.raft.repair import OvertakenError, Repairs
from jetraft.store.block_cache import BlockCache
from jetraft.store.format import HARD_STATE_NAMES
from jetraft.store.io import LocalDisk, Writer
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import HardState
from tests.cluster.lab import stream_config

A, B, C = (NodeId(letter * 8) for letter in "ABC")
GROUP = GroupId("S-R3F-abcdefgh")
ADMISSION = Admission(configuration=Configuration(voters=(B, C), learners=(A,)), term=9, vote=B)


@attrs.define(eq=False)
class Dir:
    """What the host needs of a node's directory."""

    root: Path
    node_id: NodeId = A
    kept: int = 0

    def group(self, group_id: GroupId, incarnation: int) -> Path:
        return self.root / "groups" / f"{group_id}-{incarnation}"

    def set_aside(self, group_id: GroupId, incarnation: int) -> None:
        self.kept += 1
        self.group(group_id, incarnation).rename(self.root / f"kept-{self.kept}")

    def file(self, name: str) -> Any:
        return Record(self.root / name)


@attrs.define(eq=False)
class Record:
    path: Path

    def load(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None

    def save(self, content: bytes) -> None:
        self.path.write_bytes(content)


@attrs.define(eq=False)
class Node:
    """A host over a real directory; who asks for an admission gets ADMISSION, or an error."""

    root: Path
    writer: Writer
    asked: int = 0
    refuse: Exception | None = None
    repairs: Any = attrs.field(factory=lambda: Repairs(None, None))  # type: ignore[arg-type]  # nothing is damaged

    async def admit(self, _assignment: StreamAssignment) -> Admission:
        self.asked += 1
        if self.refuse is not None:
            raise self.refuse
        return ADMISSION

    def host(self) -> StreamHost:
        node_dir: Any = Dir(self.root)
        return StreamHost(
            site=None,  # type: ignore[arg-type]  # no replica is started
            node_dir=node_dir,
            disk=LocalDisk(self.writer),
            cache=BlockCache(1 << 20),
            repairs=self.repairs,
            memory_groups=MemoryGroups(node_dir),
            admit=self.admit,
            joined_index=lambda: 0,
        )


def assignment(*peers: NodeId) -> StreamAssignment:
    return StreamAssignment(
        account="$G",
        config=stream_config(),
        group_id=GROUP,
        incarnation=7,
        revision=7,
        peers=peers,
        preferred=peers[0],
        created_ns=1,
        founding=peers,
    )


@pytest.fixture
def node(tmp_path: Path) -> Any:
    (tmp_path / "groups").mkdir()
    writer = Writer(1)
    yield Node(tmp_path, writer)
    writer.stop()


async def write_log(node: Node) -> None:
    """A log of a founder, with a vote in it."""
    host = node.host()
    log: Any = await host._open(assignment(A, B, C))
    log.set_hard_state(HardState(term=3, vote=C))
    log.save_checkpoint(0, 0, Configuration(voters=(A, B, C)).encode(), b"")
    log.submit()
    while log.durable_token < log.token():
        node.writer.drain()
    log.close()


def lose_hard_state(node: Node) -> None:
    for name in HARD_STATE_NAMES:
        path = Dir(node.root).group(GROUP, 7) / name
        data = bytearray(path.read_bytes())
        data[40] ^= 1
        path.write_bytes(data)


async def opened(node: Node) -> Any:
    """The log of a restarted process; the writer's callbacks run while it is opened."""
    ended: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def drain() -> None:
            while True:
                await trio.lowlevel.wait_readable(node.writer.fileno())
                node.writer.drain()

        nursery.start_soon(drain)
        try:
            ended.append(await node.host()._open(assignment(A, B, C)))
        except OSError as error:
            ended.append(error)
        nursery.cancel_scope.cancel()
    if isinstance(ended[0], OSError):
        raise ended[0]
    return ended[0]


async def test_a_member_without_its_vote_is_admitted_before_it_takes_part(node: Node) -> None:
    await write_log(node)
    lose_hard_state(node)

    log = await opened(node)

    assert (log.hard_state, log.last_index, node.asked) == (HardState(term=9, vote=B), 0, 1)
    assert list((node.root / "kept-1").iterdir()), "nothing is deleted"
    assert Configuration.decode(log.load_checkpoint().members).learners == (A,)
    log.close()


async def test_a_crash_before_the_admission_does_not_make_a_founder_again(node: Node) -> None:
    await write_log(node)
    lose_hard_state(node)
    node.refuse = OSError("the process ends here")
    with pytest.raises(OSError, match="ends here"):
        await opened(node)
    node.refuse = None

    log = await opened(node)

    assert (log.hard_state, node.asked) == (HardState(term=9, vote=B), 2)
    log.close()


async def test_a_log_that_the_group_has_gone_on_without_is_given_up_too(node: Node) -> None:
    await write_log(node)
    real = node.repairs

    class Overtaken:
        """The first opening finds damage that nobody can mend."""

        calls = 0

        async def open(self, *arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise OvertakenError("entries are trimmed elsewhere")
            return await real.open(*arguments, **options)

    node.repairs = Overtaken()
    log = await opened(node)
    assert (log.hard_state, node.asked) == (HardState(term=9, vote=B), 1)
    log.close()


async def test_a_group_of_one_has_nobody_whom_it_could_contradict_and_goes_on_with_its_log(node: Node) -> None:
    await write_log(node)
    lose_hard_state(node)
    log: Any = await node.host()._open(assignment(A))
    assert log.hard_state_lost
    assert node.asked == 0
    assert log.load_checkpoint() is not None
    log.close()


async def test_lost_checkpoints_of_a_newcomer_are_no_new_log(node: Node) -> None:
    await write_log(node)
    path = Dir(node.root).group(GROUP, 7)
    for checkpoint in path.rglob("*.ckpt"):
        checkpoint.write_bytes(b"damaged")

    log = await opened(node)

    assert (log.hard_state, node.asked) == (HardState(term=9, vote=B), 1)
    log.close()
