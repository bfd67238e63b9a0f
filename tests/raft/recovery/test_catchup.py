"""Catching up over real links, with logs in files: a member that was away while the others trimmed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
import trio

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.manager import Manager
from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.peers import Mesh, MeshSetting
from jetraft.raft.recovery.catchup import Catchup
from jetraft.raft.recovery.swap import Swap
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, node_id_of
from jetraft.store.port import GroupLog, StoreCorrupt, StoreError
from tests.doubles.real_clock import RealClock
from tests.harness.log_lines import kinds_in
from tests.harness.patience import PATIENCE_S
from tests.raft.lab import ListMachine
from tests.raft.meshes import LOOPBACK

NAME = GroupId("S-R3F-test0000")
MEMBERS = tuple(sorted(node_id_of(name) for name in ("a", "b", "c")))


class Server:
    """A mesh, a manager and one replica; a turn ends whenever something happened."""

    def __init__(self, name: str, directory: Path, routes: tuple[Address, ...]) -> None:
        clock = RealClock()
        mesh_setting = MeshSetting(cluster="c", server_name=name, listen=LOOPBACK, routes=routes)
        self.mesh = Mesh(mesh_setting, clock=clock, after_frames=self._wake_up)
        setting = GroupSetting(
            node_id=self.mesh.node_id,
            seal=seal,
            rng=Random(name),
            checkpoints=CheckpointPolicy(applied_entries_min=50, applied_bytes_min=1 << 40, state_bytes_factor=0),
        )
        self.manager = Manager(setting, links=self.mesh, clock=clock, on_dirty=self._wake_up)
        self.catchup = Catchup(self.manager, self.mesh, clock=clock, reopen=self._reopen)
        self.machine = ListMachine()
        self.writer = Writer(threads=1)
        self._disk = LocalDisk(self.writer)
        self._cache = BlockCache(1 << 20)
        self._directory = directory / "groups" / name
        self._ledger = Ledger.open(self._disk, directory / f"ledger-{name}")
        self._clock = clock
        self._wake = trio.Event()
        self.turned = trio.Event()

    @property
    def group(self) -> Group:
        return self.manager.groups[NAME]

    def open_log(self) -> GroupLog:
        identity = Identity(node_id=self.mesh.node_id, group_id=NAME, incarnation=7)
        options = LogOptions(block_bytes_first=4096, block_bytes_max=4096)
        return open_log(self._ledger, self._directory, identity, self._cache, options)

    def start_replica(self, log: GroupLog) -> None:
        self.machine = ListMachine()
        self.machine.first_live_seq = 150
        self.manager.create(GroupSpec(group_id=NAME, incarnation=7, members=MEMBERS), log, self.machine)

    async def _reopen(self, swap: Swap) -> None:
        swap.check(self.manager.groups.get(NAME))
        self.manager.remove(NAME)
        try:
            self.start_replica(await swap.carry_out())
        except StoreError:
            self.start_replica(self.open_log())
            raise

    def _wake_up(self) -> None:
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.mesh.run)
                await nursery.start(self.catchup.run)
                nursery.start_soon(self._turns)
                nursery.start_soon(self._drain)
                task_status.started()
        finally:
            if NAME in self.manager.groups:
                log = self.group.log
                self.manager.remove(NAME)
                log.close()
            self.writer.stop()

    async def _turns(self) -> None:
        while True:
            self._wake = trio.Event()
            now_ns = self._clock.mono_ns()
            self.manager.tick(now_ns)
            self.manager.flush()
            self.mesh.flush()
            self.turned.set()
            self.turned = trio.Event()
            due_ns = self.manager.next_deadline_ns
            with trio.move_on_after(60 if due_ns is None else max(0, due_ns - now_ns) / 1e9):
                await self._wake.wait()

    async def _drain(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self.writer.fileno())
            self.writer.drain()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await self.turned.wait()


def command(seq: int) -> Proposal:
    record = make_record(b"a", b"", b"message %d" % seq, ts_ns=seq)
    return Proposal(kind=Kind.MESSAGES, first_seq=seq, count=1, body=record)


async def two_that_have_trimmed(nursery: trio.Nursery, tmp_path: Path) -> tuple[Server, Server, Server]:
    """Two of three members run; 300 messages are in, those below 150 trimmed. Returns them, the leader first, and c."""
    first = Server("a", tmp_path, ())
    await nursery.start(first.run)
    assert first.mesh.listen_address is not None
    second, third = (Server(name, tmp_path, (first.mesh.listen_address,)) for name in ("b", "c"))
    await nursery.start(second.run)
    for server in (first, second):
        server.start_replica(server.open_log())
    await first.until(lambda: first.group.leader is not None)
    leader, follower = (first, second) if first.group.leader == first.mesh.node_id else (second, first)
    await leader.until(lambda: leader.group.is_leader)
    for start in range(1, 301, 10):
        for seq in range(start, start + 10):
            leader.group.propose(command(seq))
        await leader.until(partial(_has_applied, leader, start + 9))
    assert leader.group.log.first_index > 100, "the log was trimmed"
    return leader, follower, third


async def test_a_member_that_was_away_fetches_the_state_and_the_live_blocks(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        leader, _, third = await two_that_have_trimmed(nursery, tmp_path)
        await nursery.start(third.run)
        third.start_replica(third.open_log())
        await third.until(lambda: NAME in third.manager.groups and len(third.machine.bodies) == 300)
        assert third.machine.bodies == leader.machine.bodies
        # Two, or one after a vain question, when the next checkpoint came while the first was being fetched.
        assert third.catchup.statistics().fetches_done in (1, 2)
        assert third.group.log.first_index > 100
        kept = [entry.index for _, entry in third.group.log.frames(1, third.group.log.last_index)]
        assert kept[0] > 1, "blocks without live messages are not fetched"
        leader.group.propose(command(301))
        await third.until(lambda: len(third.machine.bodies) == 301)
        nursery.cancel_scope.cancel()


async def test_a_leader_with_a_damaged_block_hands_over_instead_of_offering_it_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it sends cannot be installed: who notices says so, and the leader looks at its block and stops."""
    async with trio.open_nursery() as nursery:
        leader, follower, third = await two_that_have_trimmed(nursery, tmp_path)
        await follower.until(partial(_has_applied, follower, 300))
        log = leader.group.log
        assert isinstance(log, FileLog)
        damage(log)
        await nursery.start(third.run)
        third.start_replica(third.open_log())
        await leader.until(lambda: leader.group.failed is not None)
        assert isinstance(leader.group.failed, StoreCorrupt)
        await third.until(lambda: NAME in third.manager.groups and len(third.machine.bodies) == 300)
        await third.until(lambda: third.group.leader == follower.mesh.node_id)
        assert third.machine.bodies == follower.machine.bodies
        assert follower.group.failed is None
        assert leader.catchup.statistics().damage_found == 1
        assert "replica_catchup_failed" in kinds_in(caplog)
        nursery.cancel_scope.cancel()


def damage(log: FileLog) -> None:
    """Flip a bit in the oldest block that a snapshot takes along."""
    found = log.manifest(150)
    assert found is not None
    oldest = found[0].parts[0]
    path = next(target.path for target in log.upkeep.scrub_targets() if target.first_index == oldest.first_index)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def _has_applied(server: Server, count: int) -> bool:
    return len(server.machine.bodies) == count
