"""A damaged entry keeps its identity: no guess of its term reaches a boundary, an election or another member."""

import random
from typing import Any

import attrs
import pytest

from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.member import Member
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Append, AppendAccepted, Role, TermNotice
from jetraft.raft.engine.port import CoreSetup
from jetraft.raft.outbox import RaftOutbox
from jetraft.raft.recovery.repair import OvertakenError, RepairPendingError
from jetraft.raft.replay import recover
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES
from jetraft.store.frames.placeholder import is_placeholder_frame
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog, HardState, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.repaired_group import GroupWithLog
from tests.raft.lab import ListMachine
from tests.raft.recovery.test_repair import FRAME_BYTES, GROUP, GROUP_ID, A, B, C, Node, entry
from tests.store.ledgers import ledger_of

VOTERS = Configuration(voters=(A, B, C))
TURN_NS = 5_000_000
TURNS = 400  # two seconds: several elections


def write(node: Node, entries: list[Entry], term: int, *, checkpoint: tuple[int, int] | None = None) -> None:
    log = open_log(ledger_of(node.disk, GROUP), GROUP, node.identity, BlockCache())
    log.set_hard_state(HardState(term=term, vote=None))
    log.append(entries)
    if checkpoint is not None:
        log.save_checkpoint(*checkpoint, VOTERS.encode(), ListMachine().snapshot())
    log.submit()
    node.disk.finish()
    log.close()


def core_over(node_id: NodeId, log: GroupLog, commit_index: int = 0) -> Member:
    setup = CoreSetup(node_id=node_id, incarnation=7, seal=_frame.seal, rng=random.Random(1))
    core = create_engine(
        setup,
        log=log,
        configurations=ConfigurationHistory(VOTERS),
        commit_index=commit_index,
        snapshot_offer=lambda _term: None,
    )
    core.start(1)
    return core


def in_memory(entries: list[Entry], term: int) -> MemLog:
    log = MemLog()
    log.append(entries)
    log.set_hard_state(HardState(term=term, vote=None))
    log.submit()
    return log


def talk(cores: dict[NodeId, Member], disk: LossyDisk) -> None:
    """Let the members elect whom they will."""
    now_ns = 10**9
    outboxes = {node: RaftOutbox() for node in cores}
    for core in cores.values():
        for other in cores:
            core.peer_up(other, now_ns)
    for _ in range(TURNS):
        now_ns += TURN_NS
        for node, core in cores.items():
            if core.deadline_ns is not None and core.deadline_ns <= now_ns:
                core.tick(now_ns)
            outboxes[node].put(core.take_ready())
            core.log.submit()
            disk.finish()
            outboxes[node].release(core.log.durable_token)
            core.persisted(now_ns)
            core.flush(now_ns)
        for node, core in cores.items():
            outboxes[node].put(core.take_ready())
            for to, message in outboxes[node].take_sends():
                if to in cores:
                    cores[to].step(node, message, now_ns)


@attrs.define(eq=False)
class CountingNode(Node):
    """Remembers whom it has asked."""

    asked: list[NodeId] = attrs.Factory(list)

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        self.asked.append(to)
        return await super().call(to, method, payload, timeout_s=timeout_s, bulk=bulk)


@attrs.define(eq=False)
class CoreGroup(GroupWithLog):
    """A group that runs: what repairs read and ask of it."""

    core: Any = None

    def promise(self, term: int) -> int:
        if term > self.core.term:
            self.core.step(self.core.node_id, TermNotice(term=term), 1)
        log = self.core.log
        durable = log.durable_token >= log.hard_state_token
        log.submit()
        return log.hard_state.term if durable else 0


async def test_a_voter_with_a_damaged_last_entry_does_not_elect_who_lacks_it() -> None:
    """(6, term 7) is committed by A and B; C has led term 6 and has three entries that are committed nowhere."""
    wire: dict[NodeId, Node] = {}
    a, b = Node(wire, A), Node(wire, B)
    history = [entry(index, 6) for index in range(1, 6)] + [entry(6, 7)]
    write(a, history, 7, checkpoint=(6, 7))
    a.damage(6)
    small = LogOptions(block_bytes_first=BLOCK_HEAD_BYTES + FRAME_BYTES, block_bytes_max=1)
    trimmed = open_log(ledger_of(b.disk, GROUP), GROUP, b.identity, BlockCache(), small)
    trimmed.append([*history, entry(7, 7)])
    trimmed.save_checkpoint(7, 7, b"", b"")
    trimmed.submit()
    b.disk.finish()
    trimmed.trim(1, 6)
    b.manager.groups[GROUP_ID] = GroupWithLog(trimmed, 7)
    Node(wire, C).up = False

    log = await a.open()  # one member that has trimmed what the checkpoint covers is enough
    c = in_memory([entry(index, 6) for index in range(1, 9)], 7)
    cores = {A: core_over(A, log, 6), C: core_over(C, c)}
    talk(cores, a.disk)  # B is down by now

    assert log.boundary == (6, 7), "as its own checkpoint says"
    assert cores[C].role is not Role.LEADER
    assert cores[A].role is Role.LEADER


async def test_a_member_that_waits_does_not_serve_the_term_that_it_guesses() -> None:
    """R lacks 9 (term 6); X was cut off with 9 and 10 of term 5, and has heard of term 7, and lacks its last entry."""
    wire: dict[NodeId, Node] = {}
    x, r, z = Node(wire, A), Node(wire, B), Node(wire, C)
    base = [entry(index, 5) for index in range(1, 9)]
    write(r, [*base, entry(9, 6), entry(10, 7)], 7)
    r.damage(9)
    write(x, [*base, entry(9, 5), entry(10, 5)], 7)
    x.damage(10)
    z.up = False
    with pytest.raises(RepairPendingError):
        await r.open()

    with pytest.raises(RepairPendingError):  # (10, term 7) does not stand behind (9, term 5) anywhere
        await x.open()


async def test_an_end_that_most_members_never_had_is_given_up_and_not_replaced() -> None:
    """An append with it may still be on its way to one of them."""
    wire: dict[NodeId, Node] = {}
    x, f, leader = Node(wire, A), Node(wire, B), Node(wire, C)
    history = [entry(index) for index in range(1, 6)]
    write(x, [*history, entry(6)], 1)
    x.damage(6)
    for node in (f, leader):
        write(node, history, 1)
        node.lead(5)

    with pytest.raises(OvertakenError, match="never committed"):
        await x.open()
    assert x.repairs.statistics().logs_waiting == 0


async def test_who_has_said_that_an_entry_is_lost_does_not_take_it_from_a_late_append() -> None:
    """X and the leader of term 1 have lost entry 6; the leader's append with it is still on its way to F."""
    wire: dict[NodeId, Node] = {}
    x, f, leader = Node(wire, A), Node(wire, B), Node(wire, C)
    history = [entry(index) for index in range(1, 6)]
    late = entry(6)
    for node in (x, leader):
        write(node, [*history, late], 1)
        node.damage(6)
    following = core_over(B, in_memory(history, 1), 5)
    following.peer_up(C, 1)
    f.manager.groups[GROUP_ID] = CoreGroup(following.log, 5, core=following)
    with pytest.raises(RepairPendingError):
        await leader.open()

    log = await x.open_at_last()
    following.step(C, Append(term=1, prev_index=5, prev_term=1, commit_index=5, entries=[late]), 2)
    following.log.submit()
    following.persisted(2)

    assert log.lost == ((6, 6),)
    assert is_placeholder_frame(log.entries(6, 6, 1)[0].frame)
    assert following.log.last_index == 5, "its leader of term 1 is heard no more"
    ready = following.take_ready()
    assert not any(isinstance(message, AppendAccepted) for _, message in ready.send_now)
    assert not any(isinstance(message, AppendAccepted) for _, _, message in ready.send_when_durable)
    x.manager.groups[GROUP_ID] = GroupWithLog(log, 5)
    assert (await leader.open_at_last()).entries(6, 6, 1) == log.entries(6, 6, 1)


async def test_a_promise_that_is_not_durable_yet_decides_nothing() -> None:
    wire: dict[NodeId, Node] = {}
    x, f = Node(wire, A), Node(wire, B)
    history = [entry(index) for index in range(1, 6)]
    for node in (x, f):
        write(node, [*history, entry(6)], 1)
        node.damage(6)
    with pytest.raises(RepairPendingError):
        await f.open()
    for _ in range(2):  # they say no; they promise
        with pytest.raises(RepairPendingError):
            await x.open()

    assert (await x.open()).lost == ((6, 6),)


def test_a_log_with_damaged_entries_gets_no_group() -> None:
    node = Node({}, A)
    write(node, [entry(index) for index in range(1, 7)], 1)
    node.damage(3)
    log = open_log(
        ledger_of(node.disk, GROUP), GROUP, node.identity, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE)
    )

    with pytest.raises(StoreCorrupt, match="not repaired yet"):
        recover(log, ListMachine(), VOTERS)


async def test_a_member_that_is_away_is_waited_for_once_and_not_for_every_entry() -> None:
    wire: dict[NodeId, Node] = {}
    x, b, c = CountingNode(wire, A), Node(wire, B), Node(wire, C)
    whole = [entry(index) for index in range(1, 7)]
    for node in (x, b):
        write(node, whole, 1)
    x.damage(1, 3, 5)
    b.damage(3, 5)
    b.lead()
    c.up = False

    with pytest.raises(RepairPendingError):
        await x.open()

    assert x.asked.count(C) == 1
    assert x.asked.count(B) == 3, "entries 1, 3 and 5 are apart"


async def test_the_term_before_an_election_is_kept_beside_the_last_entry() -> None:
    """The last entry of term 1 is damaged after term 2 was promised: without that note it could be of term 2."""
    wire: dict[NodeId, Node] = {}
    x = Node(wire, A)
    write(x, [entry(index) for index in range(1, 7)], 1)
    log = open_log(ledger_of(x.disk, GROUP), GROUP, x.identity, BlockCache())
    log.set_hard_state(HardState(term=2, vote=None))
    log.submit()
    x.disk.finish()
    log.close()
    x.damage(6)
    Node(wire, B).up = False
    with pytest.raises(RepairPendingError):
        await x.open()

    waiting = x.repairs._pending.waiting[GROUP_ID, 7]

    assert waiting.term_bounds(6) == (1, 1)


async def test_what_is_committed_elsewhere_is_not_put_below_an_entry_that_may_be_of_another_branch() -> None:
    """4 may be of term 2 or 3 here: only who has the same entry behind it can tell."""
    wire: dict[NodeId, Node] = {}
    a, b = Node(wire, A), Node(wire, B)
    history = [entry(1), entry(2), entry(3, 2)]
    write(a, [*history, entry(4, 3), entry(5, 3)], 3)
    a.damage(4)
    write(b, [*history, entry(4, 2)], 2)
    b.lead(commit_index=4)

    with pytest.raises(RepairPendingError):
        await a.open()


async def test_a_log_that_waits_does_not_call_its_end_committed() -> None:
    """X may have had (6, term 2), committed with C; W has (6, term 1), which its leader has told nobody else."""
    wire: dict[NodeId, Node] = {}
    x, w, c = Node(wire, A), Node(wire, B), Node(wire, C)
    history = [entry(index) for index in range(1, 6)]
    write(x, [*history, entry(6, 2)], 2)
    x.damage(6)
    write(w, [*history, entry(6)], 1)
    w.damage(2)
    c.up = False
    with pytest.raises(RepairPendingError):
        await w.open()

    with pytest.raises(RepairPendingError):
        await x.open()
