"""A log copied to another member, between files and between memories."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.snapshot import InstallRefusedError
from jetraft.store.log.start import LogOptions
from jetraft.store.model.files.manifest import Manifest, Part
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, Entry, GroupLog, HardState, Staging, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R3F-abcdefgh")
NO_MESSAGES = 1 << 63


class Member:
    """A log in files and its disk."""

    def __init__(self, name: str) -> None:
        self.disk = LossyDisk()
        self.identity = Identity(node_id=NodeId(name), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
        self.log: GroupLog = self.open()

    def open(self) -> GroupLog:
        return open_log(
            ledger_of(self.disk, GROUP),
            GROUP,
            self.identity,
            BlockCache(),
            LogOptions(block_bytes_first=1000, block_bytes_max=1000),
        )

    def settle(self) -> None:
        self.log.submit()
        self.disk.finish()


class MemMember:
    """A log in memory."""

    def __init__(self, _name: str) -> None:
        self.log: GroupLog = MemLog(block_bytes=1000)

    def settle(self) -> None:
        self.log.submit()


Kinds = Callable[[str], Member] | Callable[[str], MemMember]


def messages(first: int, last: int, *, term: int = 1, size: int = 100) -> list[Entry]:
    found = []
    for index in range(first, last + 1):
        record = _frame.make_record(b"a.b", b"", bytes([index % 256]) * size, ts_ns=index)
        frame = _frame.seal(Kind.MESSAGES, index=index, term=term, incarnation=7, body=record, first_seq=index, count=1)
        found.append(Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame))
    return found


def copy(sender: GroupLog, staging: Staging, *, piece: int = 300) -> None:
    while (wanted := staging.missing()) is not None:
        block, offset, size = wanted
        staging.put_chunk(block, offset, sender.read_chunk(block, offset, min(size, piece)))


def kept(log: GroupLog) -> list[int]:
    return [entry.index for _, entry in log.frames(1, 10**6)]


@pytest.fixture(params=[Member, MemMember])
def kind(request: pytest.FixtureRequest) -> Kinds:
    found: Kinds = request.param
    return found


def leader_with(kind: Kinds, batches: Sequence[list[Entry]], checkpoint_index: int) -> Member | MemMember:
    leader = kind("LEADER00")
    for batch in batches:
        leader.log.append(batch)
        leader.settle()
    term = leader.log.term_at(checkpoint_index)
    assert term is not None
    leader.log.save_checkpoint(checkpoint_index, term, b"members", b"state")
    leader.settle()
    return leader


def install(leader: Member | MemMember, follower: Member | MemMember, first_live_seq: int) -> None:
    offer = leader.log.manifest(first_live_seq)
    assert offer is not None
    manifest, checkpoint = offer
    staging = follower.log.begin_install(Manifest.from_bytes(manifest.to_bytes()), checkpoint)
    copy(leader.log, staging)
    follower.settle()
    follower.log.close()
    follower.log = staging.finish()
    follower.settle()


def test_installed_log_reads_like_the_senders_up_to_the_checkpoint(kind: Kinds) -> None:
    leader = leader_with(kind, [messages(1, 12), messages(13, 30, term=3)], 20)
    follower = kind("FOLLOWER")
    follower.log.append(messages(1, 3, term=2))
    follower.log.set_hard_state(HardState(term=9, vote=NodeId("LEADER00")))

    install(leader, follower, first_live_seq=1)

    assert follower.log.last_index == 20
    assert follower.log.entries(1, 20, 1 << 20) == leader.log.entries(1, 20, 1 << 20)
    assert [follower.log.term_at(index) for index in (0, 1, 12, 13, 20, 21)] == [0, 1, 1, 3, 3, None]
    assert follower.log.load_checkpoint() == Checkpoint(index=20, term=3, members=b"members", state=b"state")
    assert follower.log.hard_state == HardState(term=9, vote=NodeId("LEADER00"))


def test_installed_log_goes_on(kind: Kinds) -> None:
    leader = leader_with(kind, [messages(1, 30)], 20)
    follower = kind("FOLLOWER")
    install(leader, follower, first_live_seq=1)

    follower.log.append(leader.log.entries(21, 30, 1 << 20))
    follower.settle()

    assert follower.log.durable_index == 30
    assert follower.log.entries(15, 30, 1 << 20) == leader.log.entries(15, 30, 1 << 20)


def test_blocks_without_live_messages_are_not_sent(kind: Kinds) -> None:
    leader = leader_with(kind, [messages(1, 30)], 25)
    follower = kind("FOLLOWER")

    install(leader, follower, first_live_seq=20)

    assert kept(follower.log)[-1] == 25
    assert set(range(20, 26)) <= set(kept(follower.log))
    assert kept(follower.log)[0] > 5
    assert follower.log.first_index == kept(follower.log)[0]


def test_a_state_without_messages_needs_no_block(kind: Kinds) -> None:
    leader = leader_with(kind, [messages(1, 30, term=4)], 25)
    follower = kind("FOLLOWER")

    install(leader, follower, first_live_seq=NO_MESSAGES)

    assert kept(follower.log) == []
    assert (follower.log.first_index, follower.log.last_index, follower.log.boundary) == (26, 25, (25, 4))
    follower.log.append(leader.log.entries(26, 30, 1 << 20))
    assert follower.log.last_index == 30


def test_no_manifest_before_a_checkpoint_is_durable() -> None:
    leader = Member("LEADER00")
    leader.log.append(messages(1, 3))
    leader.log.save_checkpoint(2, 1, b"", b"")
    assert leader.log.manifest(1) is None
    leader.settle()
    assert leader.log.manifest(1) is not None


def test_installed_files_survive_another_opening() -> None:
    leader = leader_with(Member, [messages(1, 30)], 20)
    follower = Member("FOLLOWER")
    install(leader, follower, first_live_seq=8)
    before = kept(follower.log)
    follower.log.close()
    follower.log = follower.open()
    assert kept(follower.log) == before
    assert follower.log.boundary[0] == follower.log.first_index - 1


def test_damaged_part_leaves_the_old_log_alone() -> None:
    leader = leader_with(Member, [messages(1, 30)], 20)
    follower = Member("FOLLOWER")
    follower.log.append(messages(1, 3, term=1))
    follower.settle()
    offer = leader.log.manifest(1)
    assert offer is not None
    staging = follower.log.begin_install(*offer)
    block, offset, size = staging.missing() or (0, 0, 0)
    chunk = bytearray(leader.log.read_chunk(block, offset, size))
    chunk[100] ^= 1
    staging.put_chunk(block, offset, bytes(chunk))
    copy(leader.log, staging)
    follower.log.close()

    with pytest.raises(StoreCorrupt, match="damaged or missing"):
        staging.finish()

    follower.log = follower.open()
    assert kept(follower.log) == [1, 2, 3]


@pytest.mark.parametrize(
    "parts",
    [
        [Part(0, 1, 10, 0, 100), Part(1, 10, 12, 0, 100)],
        [Part(0, 5, 4, 0, 100)],
        [Part(0, 1, 21, 0, 100)],
        [Part(0, 1, 2, 0, 0)],
    ],
)
def test_impossible_manifest_is_refused(parts: list[Part]) -> None:
    with pytest.raises(ValueError, match="expected a part of entries"):
        Manifest.from_bytes(Manifest(index=20, term=1, parts=tuple(parts)).to_bytes())


def test_chunk_that_was_not_asked_for_is_refused(kind: Kinds) -> None:
    leader = leader_with(kind, [messages(1, 30)], 20)
    offer = leader.log.manifest(1)
    assert offer is not None
    staging = kind("FOLLOWER").log.begin_install(*offer)
    with pytest.raises(ValueError, match="chunk: expected"):
        staging.put_chunk(0, 5, b"abc")


@pytest.mark.parametrize("piece", [1, 31, 33, 300, 5000])
def test_the_tag_of_a_block_stays_with_its_member(piece: int) -> None:
    leader = leader_with(Member, [messages(1, 3), messages(4, 4), messages(5, 20), messages(21, 22)], 20)
    assert isinstance(leader, Member)
    assert isinstance(leader.log, FileLog)
    for number, file in leader.log._reader.files.items():
        sent = b"".join(leader.log.read_chunk(number, at, piece) for at in range(0, file.written - 128, piece))
        shown = bytearray(leader.disk.read_whole(file.path))
        at = _frame.find_mark(shown, offset=128, incarnation=7, tag=file.head.tag)
        assert at >= 0
        while at >= 0:
            next_index = int.from_bytes(shown[at + 24 : at + 32], "little")
            shown[at : at + 32] = _frame.make_mark(incarnation=7, offset=at, next_index=next_index)
            at = _frame.find_mark(shown, offset=at, incarnation=7, tag=file.head.tag)
        assert sent == shown[128 : 128 + len(sent)]


@pytest.mark.parametrize("last_index", [60, 70])
def test_a_log_that_has_come_as_far_by_itself_is_not_replaced(kind: Kinds, last_index: int) -> None:
    """Whoever asks for it may have decided so a while ago; nothing acknowledged since may go (rule 35)."""
    sender, receiver = kind("a"), kind("b")
    sender.log.append(messages(1, 60))
    sender.settle()
    sender.log.save_checkpoint(60, 1, b"members", b"state")
    sender.settle()
    found = sender.log.manifest(1)
    assert found is not None
    receiver.log.append(messages(1, 50))
    receiver.settle()
    staging = receiver.log.begin_install(*found)
    copy(sender.log, staging)

    receiver.log.append(messages(51, last_index))
    receiver.settle()
    if isinstance(receiver, Member):
        receiver.log.close()
    with pytest.raises(InstallRefusedError):
        staging.finish()
    log = receiver.open() if isinstance(receiver, Member) else receiver.log
    assert kept(log) == list(range(1, last_index + 1))


def test_entries_that_were_never_committed_give_way_to_a_snapshot(kind: Kinds) -> None:
    sender, receiver = kind("a"), kind("b")
    sender.log.append(messages(1, 60, term=2))
    sender.settle()
    sender.log.save_checkpoint(60, 2, b"members", b"state")
    sender.settle()
    found = sender.log.manifest(1)
    assert found is not None
    receiver.log.append(messages(1, 70))
    receiver.settle()
    staging = receiver.log.begin_install(*found)
    copy(sender.log, staging)
    receiver.log.close()
    assert staging.finish().last_index == 60
