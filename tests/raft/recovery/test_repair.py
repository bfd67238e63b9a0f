"""Damaged entries are fetched from a member that has the same ones; only a "no" of everybody ends the waiting."""

from array import array
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import msgpack
import pytest

from jetraft.raft.mesh.rpc import Handler, PeerUnavailableError, RemoteCallError
from jetraft.raft.recovery.repair import METHOD, OvertakenError, RepairPendingError, Repairs
from jetraft.raft.recovery.repair_pacing import rest_s
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    FileKind,
    Identity,
    Kind,
    checkpoint_name,
    pack_envelope,
    parity_name,
)
from jetraft.store.frames.placeholder import is_placeholder_frame
from jetraft.store.ledger.ledger_records import Point
from jetraft.store.log.compaction import Live, compact
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.repaired_group import Groups, GroupWithLog
from tests.harness.log_lines import kinds_in
from tests.store.ledgers import ledger_of

GROUP_ID = GroupId("S-R3F-abcdefgh")
GROUP = Path("/groups/S-R3F-abcdefgh")
BLOCK = GROUP / "log-00000001" / "00000000000000000001-00000001.blk"
A, B, C = (NodeId(letter * 8) for letter in "ABC")
FRAME_BYTES = 148
ENTRIES = 6


def entry(index: int, term: int = 1) -> Entry:
    frame = _frame.seal(Kind.NOOP, index=index, term=term, incarnation=7, body=b"%d" % term * 100)
    return Entry(index=index, term=term, kind=Kind.NOOP, frame=frame)


@attrs.define(eq=False)
class Node:
    """One node: a disk, and repairs over the wire of the test."""

    wire: "dict[NodeId, Node]"
    node_id: NodeId
    disk: LossyDisk = attrs.Factory(LossyDisk)
    manager: Groups = attrs.Factory(Groups)
    handler: Handler | None = None
    up: bool = True
    repairs: Repairs = attrs.field(init=False)
    heard: list[GroupId] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        manager: Any = self.manager
        self.repairs = Repairs(manager, self, on_heard=self.heard.append)
        self.wire[self.node_id] = self

    def serve(self, method: str, handler: Handler) -> None:
        assert method == METHOD
        self.handler = handler

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        del method, timeout_s, bulk
        node = self.wire[to]
        if not node.up or node.handler is None:
            raise PeerUnavailableError(to)
        try:
            return await node.handler(self.node_id, payload)
        finally:
            node.disk.finish()  # what it has promised is durable now, too late for this answer

    @property
    def identity(self) -> Identity:
        return Identity(node_id=self.node_id, group_id=GROUP_ID, incarnation=7)

    def write(self, entries: list[Entry], *, term: int = 0) -> None:
        log = open_log(ledger_of(self.disk, GROUP), GROUP, self.identity, BlockCache())
        if term:
            log.set_hard_state(HardState(term=term, vote=None))
        log.append(entries)
        log.submit()
        self.disk.finish()
        log.close()

    def damage(self, *indexes: int) -> None:
        for index in indexes:
            self.disk.flip_bit(BLOCK, BLOCK_HEAD_BYTES + (index - 1) * FRAME_BYTES + 60)

    def lead(self, commit_index: int = ENTRIES) -> None:
        """Run the group over the log, with so much committed."""
        log = open_log(
            ledger_of(self.disk, GROUP), GROUP, self.identity, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE)
        )
        self.manager.groups[GROUP_ID] = GroupWithLog(log, commit_index)

    def lead_trimmed(self, first_index: int) -> None:
        """The same with a log that begins at `first_index`."""
        self.disk = LossyDisk()
        small = LogOptions(block_bytes_first=BLOCK_HEAD_BYTES + FRAME_BYTES, block_bytes_max=1)
        log = open_log(ledger_of(self.disk, GROUP), GROUP, self.identity, BlockCache(), small)
        log.append([entry(index) for index in range(1, ENTRIES + 1)])
        log.save_checkpoint(ENTRIES, 1, b"", b"")
        log.submit()
        self.disk.finish()
        log.trim(1, first_index - 1)
        assert log.first_index == first_index
        self.manager.groups[GROUP_ID] = GroupWithLog(log, ENTRIES)

    def checkpoint(self, index: int) -> None:
        log = open_log(ledger_of(self.disk, GROUP), GROUP, self.identity, BlockCache())
        log.save_checkpoint(index, 1, b"", b"")
        log.submit()
        self.disk.finish()
        log.close()

    async def open_at_last(self) -> FileLog:
        """What is lost for ever is asked for twice, and once more when the promises are durable."""
        for _ in range(2):
            try:
                return await self.open()
            except RepairPendingError:
                continue
        return await self.open()

    async def open(self) -> FileLog:
        others = [node for node in self.wire if node != self.node_id]
        return await self.repairs.open(ledger_of(self.disk, GROUP), GROUP, self.identity, BlockCache(), others)


@pytest.fixture
def nodes() -> dict[NodeId, Node]:
    wire: dict[NodeId, Node] = {}
    for node_id in (A, B, C):
        Node(wire, node_id).write([entry(index) for index in range(1, ENTRIES + 1)])
    return wire


def frames(log: FileLog) -> list[Entry]:
    return log.entries(1, log.last_index, 1 << 20)


@pytest.mark.parametrize("indexes", [(1,), (2, 3), (2, 4), (5, 6), (6,), tuple(range(1, 7))])
async def test_damaged_entries_come_back_from_a_member_that_has_them(
    nodes: dict[NodeId, Node], indexes: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    nodes[A].damage(*indexes)
    nodes[C].lead()
    nodes[B].up = False

    log = await nodes[A].open()

    assert (log.damaged_entries, log.damaged_blocks, log.lost) == ((), (), ())
    assert frames(log) == [entry(index) for index in range(1, ENTRIES + 1)]
    assert nodes[A].repairs.statistics().entries_repaired == len(indexes)
    assert {"entries_damaged", "entries_repaired"} <= kinds_in(caplog)


async def test_a_member_that_is_silent_is_waited_for(nodes: dict[NodeId, Node]) -> None:
    nodes[A].damage(3)
    nodes[B].damage(3)
    nodes[B].lead()
    nodes[C].up = False
    with pytest.raises(RepairPendingError):
        await nodes[A].open()
    nodes[C].up = True
    with pytest.raises(RepairPendingError):  # C has not opened the log yet
        await nodes[A].open()
    nodes[C].lead()

    assert frames(await nodes[A].open())[2] == entry(3)


async def test_a_member_that_was_silent_and_is_heard_of_is_asked_at_once(nodes: dict[NodeId, Node]) -> None:
    heard = nodes[A].heard
    for node in (A, B):
        nodes[node].damage(3)
    nodes[C].up = False
    with pytest.raises(RepairPendingError):
        await nodes[A].open()
    with pytest.raises(RepairPendingError):
        await nodes[B].open()  # asks A, which had asked B before B had its log open
    assert heard == [GROUP_ID]
    with pytest.raises(RepairPendingError):
        await nodes[A].open()
    with pytest.raises(RepairPendingError):
        await nodes[B].open()
    assert heard == [GROUP_ID], "B has answered: that it waits is no news"

    stray = nodes[A].manager.take_stray
    assert stray is not None
    for sender, incarnation in ((B, 7), (C, 8), (C, 7), (C, 7)):  # messages of the group that C runs
        stray(sender, GROUP_ID, incarnation)
    assert heard == [GROUP_ID] * 2
    with pytest.raises(RepairPendingError):
        await nodes[A].open()
    stray(C, GROUP_ID, 7)
    assert heard == [GROUP_ID] * 2, "C talks and cannot be asked: its word counts no more until it has answered"

    nodes[C].up = True
    nodes[C].lead()
    assert not (await nodes[A].open()).damaged_entries
    stray(C, GROUP_ID, 7)
    assert heard == [GROUP_ID] * 2, "A waits no longer"


def test_the_others_are_asked_quickly_first() -> None:
    assert [rest_s(attempts) for attempts in range(1, 9)] == [0.1, 0.25, 0.5, 1, 2, 5, 5, 5]


async def test_two_damaged_members_repair_each_other(nodes: dict[NodeId, Node]) -> None:
    nodes[A].damage(2)
    nodes[B].damage(4)
    nodes[C].up = False
    with pytest.raises(RepairPendingError):
        await nodes[A].open()

    whole = await nodes[B].open()
    nodes[B].manager.groups[GROUP_ID] = GroupWithLog(whole, ENTRIES)

    assert frames(whole) == frames(await nodes[A].open())


async def test_what_came_back_is_kept_until_the_rest_of_its_block_comes(nodes: dict[NodeId, Node]) -> None:
    nodes[A].damage(2, 4)
    nodes[B].damage(4)
    nodes[B].lead()
    nodes[C].up = False
    with pytest.raises(RepairPendingError):
        await nodes[A].open()
    nodes[B].up, nodes[C].up = False, True
    nodes[C].damage(2)
    nodes[C].lead()

    log = await nodes[A].open()

    assert (log.damaged_entries, log.damaged_blocks) == ((), ())
    assert frames(log) == [entry(index) for index in range(1, ENTRIES + 1)]


async def test_only_a_no_of_every_member_ends_the_waiting(
    nodes: dict[NodeId, Node], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for node in nodes.values():
        node.damage(3)
    nodes[B].lead()
    nodes[C].lead()

    log = await nodes[A].open_at_last()

    assert log.lost == ((3, 3),)
    assert [found.index for found in frames(log) if is_placeholder_frame(found.frame)] == [3]
    assert frames(log)[2].term == 1
    assert nodes[A].repairs.statistics().entries_lost == 1
    assert {"entries_lost"} <= kinds_in(caplog)


async def test_an_end_that_is_not_committed_elsewhere_is_not_taken(nodes: dict[NodeId, Node]) -> None:
    nodes[A].damage(ENTRIES)
    nodes[B].lead(commit_index=ENTRIES - 1)
    nodes[C].up = False
    with pytest.raises(RepairPendingError):
        await nodes[A].open()


@pytest.mark.parametrize(
    ("own", "others", "term", "is_taken"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), 1, True),
        ((1, 1, 1, 2), (1, 1, 1, 2), 2, True),
        ((1, 1, 1, 1), (1, 1, 1, 2), 2, True),  # overruled by the leader of the term that this member is in
        ((1, 1, 1, 1), (1, 1, 1, 1), 2, False),  # the lost one may be of term 2, and committed
        ((1, 1, 2, 2), (1, 1, 1, 2), 2, False),  # another entry is before it
        ((1, 1, 1, 2), (1, 1, 1, 3), 2, False),  # of a leader that this member has not heard of
    ],
)
async def test_a_lost_end_is_taken_from_the_leader_of_the_present_term_through_others(
    *, own: tuple[int, ...], others: tuple[int, ...], term: int, is_taken: bool
) -> None:
    """Two of three have lost the end: nobody can be elected, and nobody knows what is committed."""
    wire: dict[NodeId, Node] = {}
    a, b, c = Node(wire, A), Node(wire, B), Node(wire, C)
    for node, terms in ((a, own), (b, others), (c, own)):
        node.write([entry(index, at) for index, at in enumerate(terms, 1)], term=max(term, *terms))
    a.damage(4)
    c.damage(4)
    b.lead(commit_index=0)
    for node in (a, c, a, c) if not is_taken else (a, c):
        if is_taken:
            assert frames(await node.open())[3] == entry(4, others[3])
        else:
            with pytest.raises(RepairPendingError):
                await node.open()


async def test_what_stands_before_something_sound_is_not_taken_from_a_leader_who_would_remove_that() -> None:
    wire: dict[NodeId, Node] = {}
    a, b = Node(wire, A), Node(wire, B)
    a.write([entry(1), entry(2), entry(3), entry(4)], term=2)
    b.write([entry(1), entry(2), entry(3, 2), entry(4, 2)], term=2)
    a.damage(3)
    b.lead(commit_index=0)
    with pytest.raises(RepairPendingError):
        await a.open()


async def test_an_entry_of_another_history_is_not_taken() -> None:
    wire: dict[NodeId, Node] = {}
    Node(wire, A).write([entry(index) for index in range(1, 5)])
    Node(wire, B).write([entry(1), entry(2), entry(3, term=2), entry(4, term=2)])
    wire[A].damage(3)
    wire[B].lead(commit_index=2)
    with pytest.raises(RepairPendingError):
        await wire[A].open()
    wire[B].manager.groups[GROUP_ID].commit_index = 4
    with pytest.raises(OvertakenError):  # 4 of term 1 cannot follow 3 of term 2
        await wire[A].open()


async def test_an_entry_that_others_have_trimmed_is_not_replaced_by_anything(nodes: dict[NodeId, Node]) -> None:
    for node in (nodes[B], nodes[C]):
        node.lead_trimmed(4)
    nodes[A].damage(3)
    with pytest.raises(OvertakenError, match="not to be had any more"):
        await nodes[A].open()


async def test_a_log_begins_behind_a_lost_entry_that_its_checkpoint_covers(nodes: dict[NodeId, Node]) -> None:
    nodes[A].checkpoint(5)
    for node in (nodes[B], nodes[C]):
        node.lead_trimmed(5)
    nodes[A].damage(2, 3)

    log = await nodes[A].open()

    assert (log.damaged_entries, log.lost, log.first_index, log.boundary) == ((), ((2, 3),), 4, (3, 1))
    assert log.entries(4, ENTRIES, 1 << 20) == [entry(index) for index in range(4, ENTRIES + 1)]
    assert log.term_at(3) == 1
    assert log.term_at(2) is None


async def test_one_member_that_has_trimmed_what_a_checkpoint_covers_is_enough(nodes: dict[NodeId, Node]) -> None:
    nodes[A].checkpoint(5)
    nodes[B].lead_trimmed(5)
    nodes[C].up = False
    nodes[A].damage(3)

    log = await nodes[A].open()

    assert (log.damaged_entries, log.first_index) == ((), 4)


async def test_what_stands_for_a_lost_entry_is_not_given_to_others(nodes: dict[NodeId, Node]) -> None:
    nodes[A].checkpoint(5)
    for node in (nodes[B], nodes[C]):
        node.lead_trimmed(5)
    nodes[A].damage(3)
    mended = await nodes[A].open()
    nodes[A].manager.groups[GROUP_ID] = GroupWithLog(mended, ENTRIES)
    late = Node(nodes, NodeId("D" * 8))
    late.write([entry(index) for index in range(1, ENTRIES + 1)])
    late.damage(3)
    with pytest.raises(OvertakenError):  # not repaired with a no-op
        await late.open()


def another_group(answer: list[Any]) -> None:
    answer[0][0] = _frame.seal(Kind.NOOP, index=3, term=1, incarnation=8, body=b"1" * 100)


def a_flipped_bit(answer: list[Any]) -> None:
    frame = bytearray(answer[0][0])
    frame[60] ^= 1
    answer[0][0] = bytes(frame)


def another_entry(answer: list[Any]) -> None:
    answer[0][0] = entry(4).frame


@pytest.mark.parametrize("spoil", [another_group, a_flipped_bit, another_entry])
async def test_what_does_not_hold_is_not_taken(nodes: dict[NodeId, Node], spoil: Callable[[list[Any]], None]) -> None:
    nodes[A].damage(3)
    nodes[B].lead()
    nodes[C].up = False
    honest = nodes[B].handler
    assert honest is not None

    async def liar(sender: NodeId, payload: bytes) -> bytes:
        answer = msgpack.unpackb(await honest(sender, payload))
        spoil(answer)
        return bytes(msgpack.packb(answer))

    nodes[B].handler = liar
    with pytest.raises(RepairPendingError):
        await nodes[A].open()


@pytest.mark.parametrize(
    "request_", [b"", b"\xc1", [GROUP_ID, 7, 0, 3], [GROUP_ID, 7, 3, 2], [1, 2, 3, 4], ["x", 7, 1, 1]]
)
async def test_a_request_that_is_none_is_refused(nodes: dict[NodeId, Node], request_: object) -> None:
    nodes[A].lead()
    payload = request_ if isinstance(request_, bytes) else bytes(msgpack.packb(request_))
    handler = nodes[A].handler
    assert handler is not None
    with pytest.raises(RemoteCallError):
        await handler(B, payload)


@pytest.mark.parametrize(
    "damaged",
    [
        {A: (3, 4), B: (4,), C: (4, 5)},
        {A: (4, 5), B: (2, 3, 4), C: (4,)},
        {A: (1, 2, 3, 4), B: (4, 5, 6), C: (4,)},
    ],
)
async def test_what_stands_for_a_lost_entry_is_the_same_on_every_member(damaged: dict[NodeId, tuple[int, ...]]) -> None:
    """Whatever else each of them had lost around it: what one knows of its term, all hear."""
    wire: dict[NodeId, Node] = {}
    whole = [entry(index, term) for index, term in enumerate((1, 1, 2, 3, 3, 4), 1)]
    for node_id, indexes in damaged.items():
        Node(wire, node_id).write(whole, term=4)
        wire[node_id].damage(*indexes)
        wire[node_id].lead()
    (lost,) = set.intersection(*(set(indexes) for indexes in damaged.values()))
    found: dict[NodeId, list[Entry]] = {}
    for node_id, node in wire.items():
        log = await node.open_at_last()
        assert log.lost in ((), ((lost, lost),))  # mended, or given up
        found[node_id] = frames(log)
        node.manager.groups[GROUP_ID] = GroupWithLog(log, ENTRIES)
        assert [log.term_at(held.index) for held in found[node_id]] == [held.term for held in found[node_id]]
        again = await node.open()
        assert frames(again) == found[node_id], "it was decided once for all openings"
    assert found[A] == found[B] == found[C]
    assert [held.index for held in found[A] if held not in whole] == [lost]


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_lost_end_is_given_up_only_by_who_knows_its_term(*, is_noted: bool) -> None:
    """It may be of the term of the entry before it or of the promised one, and elections depend on which."""
    wire: dict[NodeId, Node] = {}
    whole = [entry(index, term) for index, term in enumerate((1, 1, 2, 3, 3, 4), 1)]
    for node_id, indexes in {A: (5, 6), B: (6,), C: (4, 5, 6)}.items():
        Node(wire, node_id).write(whole, term=5)
        if is_noted and node_id == B:
            log = open_log(ledger_of(wire[B].disk, GROUP), GROUP, wire[B].identity, BlockCache())
            assert log.note_floor()
            wire[B].disk.finish()
            log.close()
        wire[node_id].damage(*indexes)
        wire[node_id].lead()
    if not is_noted:
        with pytest.raises(RepairPendingError):
            await wire[A].open_at_last()
        return

    log = await wire[A].open_at_last()

    assert log.lost == ((6, 6),)
    assert [log.term_at(index) for index in range(1, 7)] == [1, 1, 2, 3, 3, 4]


async def test_what_came_back_above_a_lost_entry_has_its_own_term() -> None:
    """The block is not written again, as its lost entry stays: the terms of the others are those of their frames."""
    wire: dict[NodeId, Node] = {}
    whole = [entry(index, term) for index, term in enumerate((1, 1, 1, 2, 3, 4), 1)]
    for node_id in (A, B):
        Node(wire, node_id).write(whole)
    wire[A].checkpoint(3)
    wire[A].damage(2, 4, 5)
    wire[B].damage(2)
    wire[B].lead()

    log = await wire[A].open()

    assert (log.lost, log.first_index) == (((2, 2),), 3)
    assert log.entries(3, ENTRIES, 1 << 20) == whole[2:]
    assert [log.term_at(index) for index in range(2, ENTRIES + 1)] == [1, 1, 2, 3, 4]


async def test_damage_that_comes_while_a_repair_waits_is_found_by_the_next_opening(nodes: dict[NodeId, Node]) -> None:
    nodes[A].damage(3)
    for node in (nodes[B], nodes[C]):
        node.damage(3)
        node.lead()
    nodes[C].up = False
    with pytest.raises(RepairPendingError):
        await nodes[A].open()
    nodes[C].up = True
    nodes[A].damage(2)
    with suppress(RepairPendingError):
        await nodes[A].open_at_last()
    log = await nodes[A].open_at_last()
    assert log.lost in ((), ((3, 3),))
    assert [found.index for found in frames(log) if is_placeholder_frame(found.frame)] == [3]
    assert frames(log)[1] == entry(2)


# A member without others.


def only_member(*checkpoints: int) -> Node:
    """A log of six entries with checkpoints at these."""
    wire: dict[NodeId, Node] = {}
    node = Node(wire, A)
    node.write([entry(index) for index in range(1, ENTRIES + 1)])
    for index in checkpoints:
        node.checkpoint(index)
    return node


def damage_checkpoint(node: Node, index: int) -> None:
    path = GROUP / "log-00000001" / checkpoint_name(index)
    node.disk.flip_bit(path, len(node.disk.read_whole(path)) - 1)


def misplace_checkpoint(node: Node, index: int) -> None:
    path = GROUP / "log-00000001" / checkpoint_name(index)
    foreign = attrs.evolve(node.identity, node_id=B)
    fd = node.disk.open_file(path)
    batch = node.disk.batch()
    batch.write(fd, [pack_envelope(FileKind.CHECKPOINT, foreign, b"")], 0)
    batch.sync(fd)
    node.disk.perform(batch)
    node.disk.close_file(fd)


@pytest.mark.parametrize("harm", [damage_checkpoint, misplace_checkpoint])
@pytest.mark.parametrize("damaged_entry", [0, 2])
async def test_an_only_member_without_a_readable_checkpoint_has_its_whole_log_to_replay(
    harm: Callable[[Node, int], None], damaged_entry: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = only_member(2, 4)
    harm(node, 2)
    harm(node, 4)
    if damaged_entry:
        node.damage(damaged_entry)

    log = await node.open()

    assert log.load_checkpoint() is None
    assert (log.first_index, log.last_index) == (1, ENTRIES)
    assert log.lost == (((damaged_entry, damaged_entry),) if damaged_entry else ())
    assert "no checkpoint can be read, so all 6 entries are replayed" in caplog.text
    log.save_checkpoint(0, 0, b"", b"begins again")
    log.submit()
    node.disk.finish()
    log.close()
    again = ledger_of(node.disk, GROUP).state((GROUP_ID, 7))
    assert again is not None
    assert again.checkpoints == (Point(0, 0),)
    assert again.floor.log_index >= 4, "what was durable is known all the same"


async def test_an_only_member_whose_newest_checkpoint_is_damaged_begins_with_the_older() -> None:
    node = only_member(2, 4)
    damage_checkpoint(node, 4)

    checkpoint = (await node.open()).load_checkpoint()

    assert checkpoint is not None
    assert checkpoint.index == 2


async def test_a_trimmed_log_without_a_readable_checkpoint_says_what_an_operator_does() -> None:
    node = Node({}, A)
    node.lead_trimmed(4)
    node.manager.groups[GROUP_ID].log.submit()
    node.disk.finish()
    node.manager.groups[GROUP_ID].log.close()
    damage_checkpoint(node, ENTRIES)

    with pytest.raises(StoreCorrupt, match=r"entries up to 3 .* are gone: .*checksum.*restore it from a backup"):
        await node.open()


async def test_a_member_with_others_whose_checkpoints_and_entries_are_damaged_is_filled_anew(
    nodes: dict[NodeId, Node],
) -> None:
    nodes[A].checkpoint(4)
    damage_checkpoint(nodes[A], 4)
    nodes[A].damage(2)

    with pytest.raises(OvertakenError, match="no checkpoint can be read"):
        await nodes[A].open()
    assert nodes[A].repairs.statistics().logs_waiting == 0


async def test_a_block_is_written_anew_though_only_what_stands_between_its_entries_is_damaged() -> None:
    """A compacted block: the 32 bytes in front of what is left of it say where readers find that."""
    wire: dict[NodeId, Node] = {}
    for node_id in (A, B, C):
        Node(wire, node_id)
    small = LogOptions(block_bytes_first=BLOCK_HEAD_BYTES + 2 * FRAME_BYTES, block_bytes_max=4096)
    log = open_log(ledger_of(wire[A].disk, GROUP), GROUP, wire[A].identity, BlockCache(), small)
    for index in range(1, ENTRIES + 1):
        log.append([entry(index)])
        log.submit()
        wire[A].disk.finish()
    for index in (ENTRIES - 1, ENTRIES):
        log.save_checkpoint(index, 1, b"", b"")
        log.submit()
        wire[A].disk.finish()
    nothing = Live(offsets=array("I"), counts=array("I"), seqs=array("Q"), message_bytes=0)
    source = log.upkeep.compaction_source(0, 2)
    assert source is not None
    assert log.upkeep.exchange(compact(log.place, source, nothing))
    log.submit()
    wire[A].disk.finish()
    log.close()
    wire[A].disk.unlink(GROUP / "log-00000001" / parity_name(BLOCK.name))
    wire[A].disk.flip_bit(BLOCK, BLOCK_HEAD_BYTES + 20)

    repaired = await wire[A].open()

    assert (repaired.damaged_entries, repaired.damaged_blocks, repaired.lost) == ((), (), ())
    assert repaired.entries(ENTRIES, ENTRIES, 0) == [entry(ENTRIES)]
