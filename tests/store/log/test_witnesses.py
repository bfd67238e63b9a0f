"""Blocks, marks and checkpoints bear witness to what a ledger that was put back from a copy does not know.

Both copies are older than the log then, and agree. Taken alone they say that blocks were never finished, or that a
group was never here: its messages would go, and its sequences be given out again.
"""

from random import Random

import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import BlockHead, Identity, Kind, pack_block_head
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId
from jetraft.store.port import Entry, HardState, HardStateLost, StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.replica import GROUP, IDENTITY, Replica

ALONE = LogOptions(block_bytes_first=4096, block_bytes_max=4096, mode=RecoveryMode.SALVAGE, accept_lost_hard_state=True)
ROOT = GROUP.parent.parent
LEDGERS = (ROOT / "ledger.0", ROOT / "ledger.1")


def disk_with_ledger() -> LossyDisk:
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    return disk


def put_back(replica: Replica, copies: list[bytes]) -> None:
    """Stop, put older copies of the ledger in place, start."""
    replica.log.close()
    replica.log.place.ledger.close()
    for path, content in zip(LEDGERS, copies, strict=True):
        replica.disk.replace(path, content)
    replica.start()


def ledgers(disk: LossyDisk) -> list[bytes]:
    return [disk.read_whole(path) for path in LEDGERS]


@pytest.mark.parametrize("known", ["nothing", "a beginning", "a block", "a checkpoint"])
def test_a_log_counts_though_both_copies_of_the_ledger_are_older(known: str) -> None:
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    before = ledgers(disk)
    replica = Replica(disk, ALONE, StoreLimits(max_msgs=20))
    if known != "nothing":
        before = ledgers(disk)
    for number in range(60):
        replica.publish([(b"s.a", b"", b"message %d" % number + bytes(200))])
        if number % 20 == 10:
            replica.checkpoint()
        if (number, known) in {(1, "a block"), (35, "a checkpoint")}:
            before = ledgers(disk)
    expected, next_seq = replica.found(), replica.store.next_seq
    assert next_seq == 61

    put_back(replica, before)

    assert replica.store.next_seq == next_seq, "no sequence is given out again"
    assert replica.found() == expected
    replica.restart()
    assert replica.found() == expected


def test_a_member_of_a_group_does_not_vote_on_a_ledger_that_does_not_know_it() -> None:
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    with_peers = LogOptions(block_bytes_first=4096, block_bytes_max=4096, mode=RecoveryMode.SALVAGE)
    before = ledgers(disk)
    replica = Replica(disk, with_peers)
    for _ in range(2):
        replica.publish([(b"s.a", b"", b"acknowledged")])
    with pytest.raises(HardStateLost):
        put_back(replica, before)


def test_a_first_block_without_a_whole_entry_was_never_finished() -> None:
    disk = disk_with_ledger()
    replica = Replica(disk, ALONE)
    body = [make_record(b"s.a", b"", bytes(600), ts_ns=1)]
    frame = seal(Kind.MESSAGES, index=1, term=1, incarnation=7, body=body, first_seq=1, count=1)
    replica.log.append([Entry(index=1, term=1, kind=Kind.MESSAGES, frame=frame)])
    replica.log.set_hard_state(HardState(term=2, vote=None))
    replica.log.submit()
    while not any(name.endswith(".blk") for name in disk.list_directory(GROUP / "log-00000001")):
        disk.step()
    disk.kill()
    replica.start()
    assert replica.log.last_index == 0
    assert replica.store.next_seq == 1


def append(replica: Replica, term: int) -> None:
    """An entry of a term that the log has promised."""
    index = replica.log.last_index + 1
    frame = seal(Kind.NOOP, index=index, term=term, incarnation=7, body=[])
    replica.log.append([Entry(index=index, term=term, kind=Kind.NOOP, frame=frame)])
    replica.settle()


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_ledger_that_knows_a_lower_term_than_the_log_is_older(*, is_alone: bool) -> None:
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    with_peers = LogOptions(block_bytes_first=4096, block_bytes_max=4096, mode=RecoveryMode.SALVAGE)
    replica = Replica(disk, ALONE if is_alone else with_peers)
    append(replica, term=1)
    before = ledgers(disk)
    replica.log.set_hard_state(HardState(term=4, vote=None))
    append(replica, term=4)
    last_index = replica.log.last_index
    replica.log.close()
    replica.log.place.ledger.close()
    for path, content in zip(LEDGERS, before, strict=True):
        disk.replace(path, content)

    if not is_alone:
        with pytest.raises(HardStateLost):
            replica.opened()
        return
    log = replica.opened()
    assert (log.last_index, log.hard_state.term) == (last_index, 4)


@pytest.mark.parametrize("entries", ["of one block", "of the first block"])
def test_a_block_with_one_batch_counts_though_the_ledger_is_older_and_no_second_mark_says_so(entries: str) -> None:
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    replica = Replica(disk, ALONE)
    if entries == "of one block":
        for number in range(10):
            replica.publish([(b"s.a", b"", b"message %d" % number + bytes(300))])
    before, blocks = ledgers(disk), len(replica.block_files())
    while len(replica.block_files()) == blocks:
        before = ledgers(disk)
        replica.publish([(b"s.a", b"", b"message %d" % replica.store.next_seq + bytes(300))])
    expected, next_seq = replica.found(), replica.store.next_seq

    put_back(replica, before)

    assert replica.store.next_seq == next_seq, "no sequence is given out again"
    assert replica.found() == expected
    replica.publish([(b"s.a", b"", b"one more")])
    expected = replica.found()
    replica.restart()
    assert replica.found() == expected


def test_a_checkpoint_above_the_end_of_a_log_shows_what_its_ledger_and_its_blocks_have_lost() -> None:
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    replica = Replica(disk, ALONE)
    for number in range(3):
        replica.publish([(b"s.a", b"", b"message %d" % number)])
    before, blocks = ledgers(disk), replica.block_files()
    for number in range(3, 9):
        replica.publish([(b"s.a", b"", b"message %d" % number)])
    replica.checkpoint()
    next_seq = replica.store.next_seq
    for name, content in blocks.items():
        disk.replace(replica.log.place.log / name, content)

    put_back(replica, before)

    assert replica.store.next_seq >= next_seq, "no sequence is given out again"
    lost = {seq for low, high in replica.store.lost() for seq in range(low, min(high, 9) + 1)}
    assert replica.found().keys() | lost == set(range(1, 10))
    assert lost


@pytest.mark.parametrize("left", ["a checkpoint", "a block of another group", "nothing"])
def test_a_log_without_its_blocks_is_not_begun_again_on_a_ledger_that_does_not_know_it(left: str) -> None:
    disk = disk_with_ledger()
    ledger = ledger_of(disk, GROUP)
    before = ledgers(disk)
    ledger.close()
    replica = Replica(disk, ALONE)
    for number in range(3):
        replica.publish([(b"s.a", b"", b"message %d" % number)])
    if left == "a checkpoint":
        replica.checkpoint()
    replica.log.close()
    replica.log.place.ledger.close()
    for path, content in zip(LEDGERS, before, strict=True):
        disk.replace(path, content)
    for name in replica.block_files():
        disk.unlink(replica.log.place.log / name)
        if left == "a block of another group":
            foreign = Identity(node_id=IDENTITY.node_id, group_id=GroupId("S-R1F-elsewhere"), incarnation=9)
            head = pack_block_head(BlockHead(serial=1, first_index=1, boundary_term=0), foreign)
            disk.replace(replica.log.place.log / name, head + bytes(4096))

    if left == "a block of another group":  # what it had is not known, and so is lost
        assert replica.opened().lost
        return
    ledger = ledger_of(disk, GROUP)
    ledger.is_outdated = left == "nothing"  # as the log of another group has shown
    with pytest.raises(StoreCorrupt, match=r"no block exists|nothing here says|nothing says"):
        open_log(ledger, GROUP, IDENTITY, BlockCache(), ALONE)


def test_a_log_of_which_nothing_is_left_but_its_directory_is_not_begun_again_where_the_ledger_is_lost() -> None:
    disk = disk_with_ledger()
    replica = Replica(disk, ALONE)
    replica.publish([(b"s.a", b"", b"acknowledged")])
    replica.log.close()
    replica.log.place.ledger.close()
    for name in replica.block_files():
        disk.unlink(replica.log.place.log / name)
    for path in LEDGERS:
        disk.unlink(path)
    ledger = Ledger.open(disk, ROOT, [(IDENTITY.group_id, IDENTITY.incarnation)])
    with pytest.raises(StoreCorrupt, match="nothing says what it had"):
        open_log(ledger, GROUP, IDENTITY, BlockCache(), ALONE)


def test_a_block_that_counts_without_a_record_has_a_durable_name_when_it_is_served() -> None:
    disk = disk_with_ledger()
    replica = Replica(disk, ALONE)
    replica.publish([(b"s.a", b"", b"first")])
    replica.log.roll_early()
    record = make_record(b"s.a", b"", b"killed before it was acknowledged", ts_ns=9)
    frame = seal(Kind.MESSAGES, index=2, term=1, incarnation=7, body=[record], first_seq=2, count=1)
    replica.log.append([Entry(index=2, term=1, kind=Kind.MESSAGES, frame=frame)])
    replica.log.submit()
    while len(replica.block_files()) == 1:
        disk.step()
    for _ in range(3):
        disk.step()  # head and frame are written, the file is fsynced, its name is not
    disk.kill()
    replica.start()
    served = replica.found()
    assert set(served) == {1, 2}

    disk.crash(Random(1))
    replica.start()

    assert replica.found() == served


def test_a_floor_is_not_noted_ahead_of_the_record_of_the_block_in_which_it_is() -> None:
    """The block would count no more: entries up to the floor would have to be in blocks that the ledger knows."""
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    replica = Replica(disk, ALONE)
    blocks = 0
    while len(replica.block_files()) != 2:
        blocks, before = len(replica.block_files()), ledgers(disk)
        replica.publish([(b"s.a", b"", b"acknowledged" + bytes(300))])
    assert blocks == 1
    expected, next_seq = replica.found(), replica.store.next_seq
    put_back(replica, before)

    replica.log.note_floor()
    disk.finish()
    disk.kill()
    replica.start()

    assert not replica.log.lost
    assert replica.found() == expected
    assert replica.store.next_seq == next_seq


def test_a_floor_is_noted_once_the_facts_of_the_opening_are_durable() -> None:
    disk = disk_with_ledger()
    ledger_of(disk, GROUP).close()
    replica = Replica(disk, ALONE)
    while len(replica.block_files()) != 2:
        before = ledgers(disk)
        replica.publish([(b"s.a", b"", b"acknowledged" + bytes(300))])
    put_back(replica, before)
    assert not replica.log.note_floor()

    replica.publish([(b"s.a", b"", b"one more")])

    assert replica.log.note_floor()
