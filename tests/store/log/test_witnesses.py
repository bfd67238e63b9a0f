"""Blocks, marks and checkpoints bear witness to what a ledger that was put back from a copy does not know.

Both copies are older than the log then, and agree. Taken alone they say that blocks were never finished, or that a
group was never here: its messages would go, and its sequences be given out again.
"""

import pytest

from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.port import Entry, HardState, HardStateLost
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.replica import GROUP, Replica

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
