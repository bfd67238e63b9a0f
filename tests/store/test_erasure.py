"""Erased messages: gone from memory and disk, places unchanged, and no crash in between looks like damage."""

from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from jetraft.store import _frame
from jetraft.store.block_cache import BlockCache
from jetraft.store.erasure import erased
from jetraft.store.format import RECORD_HAS_MSG_ID, Identity, Kind
from jetraft.store.log import FileLog
from jetraft.store.log_open import open_log
from jetraft.store.lossy_disk import LossyDisk
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry
from jetraft.store.stream_store import StoreLimits, StreamStore
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R1F-abcdefgh")
LOG = GROUP / "log-00000001"
BLOCK = LOG / "00000000000000000001-00000001.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
HDR = b"NATS/1.0\r\nA: secret-header\r\n\r\n"


def secret(seq: int) -> bytes:
    return b"secret-%d-" % seq * 100  # longer than a sector, so that a rewrite can tear


def entry(index: int) -> Entry:
    first = 2 * index - 1
    body = [
        _frame.make_record(b"a", HDR, secret(first), ts_ns=index),
        _frame.make_record(b"b", HDR, secret(first + 1), ts_ns=index, flags=RECORD_HAS_MSG_ID),
    ]
    frame = _frame.seal(Kind.MESSAGES, index=index, term=1, incarnation=7, body=body, first_seq=first, count=2)
    return Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache())


def replayed(log: FileLog) -> StreamStore:
    store = StreamStore(log, StoreLimits())
    for found in log.entries(1, log.last_index, 1 << 20):
        store.apply_messages(found)
    return store


def written(disk: LossyDisk) -> tuple[FileLog, StreamStore]:
    log = opened(disk)
    log.append([entry(1), entry(2), entry(3)])
    log.submit()
    disk.finish()
    return log, replayed(log)


def test_an_erased_record_keeps_subject_time_and_place() -> None:
    frame = entry(1).frame
    changed = erased(frame, 48)
    assert len(changed) == len(frame)
    assert _frame.verify(changed)
    (one, two) = _frame.records(changed)
    assert one == (1, 1, b"a", bytes(len(HDR)), bytes(len(secret(1))))
    assert two == _frame.records(frame)[1]


def test_headers_that_a_replay_reads_are_kept() -> None:
    frame = entry(1).frame
    second = 48 + int.from_bytes(frame[48:52], "little")
    assert _frame.records(erased(frame, second))[1] == (2, 1, b"b", HDR, bytes(len(secret(2))))


def test_erased_messages_are_gone_from_memory_at_once_and_from_disk_when_durable() -> None:
    disk = LossyDisk()
    log, store = written(disk)
    assert secret(3) in disk.read_whole(BLOCK)

    assert store.remove([3, 4, 99], erase=True) == [3, 4]

    assert secret(3) not in log.entries(2, 2, 1 << 20)[0].frame
    log.submit()
    disk.finish()
    on_disk = disk.read_whole(BLOCK)
    assert (secret(3) in on_disk, secret(4) in on_disk, secret(2) in on_disk) == (False, False, True)
    assert "erase" not in disk.list_directory(LOG)
    assert [store.load(seq) is not None for seq in range(1, 7)] == [True, True, False, False, True, True]
    log.close()
    assert replayed(opened(disk)).messages == 6  # the entry that removes them is replayed by its owner


def test_a_message_that_is_not_on_disk_yet_is_erased_too() -> None:
    disk = LossyDisk()
    log, _ = written(disk)
    log.append([entry(4)])
    log.submit()
    log.append([entry(5)])
    store = replayed(log)
    store.remove([7, 9], erase=True)
    log.submit()
    disk.finish()
    on_disk = disk.read_whole(BLOCK)
    assert secret(7) not in on_disk
    assert secret(9) not in on_disk
    assert secret(8) in on_disk
    assert [found.index for _, found in log.frames(1, 9)] == [1, 2, 3, 4, 5]


def test_reads_while_a_frame_is_overwritten_never_see_half_of_it() -> None:
    disk = LossyDisk()
    log, store = written(disk)
    store.remove([3], erase=True)
    log.submit()
    while True:
        assert [found.index for found in log.entries(1, 3, 1 << 20)] == [1, 2, 3]
        if not disk.step():
            break


@pytest.mark.parametrize("steps", range(1, 11))
def test_a_crash_anywhere_leaves_a_sound_log(steps: int) -> None:
    disk = LossyDisk()
    log, store = written(disk)
    disk.sync_names()
    store.remove([3, 5], erase=True)
    log.submit()
    for _ in range(steps):
        disk.step()
    for seed in range(40):
        crashed = deepcopy(disk)
        crashed.crash(Random(seed))
        log = opened(crashed)
        assert [found.index for _, found in log.frames(1, 9)] == [1, 2, 3]
        assert "erase" not in crashed.list_directory(LOG)
        log.close()
