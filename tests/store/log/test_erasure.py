"""Erased messages: gone from memory and disk, places unchanged, and no crash in between looks like damage."""

import contextlib
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.state.headers import nats_headers
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.files import replace_file
from jetraft.store.frames import _frame
from jetraft.store.frames.format import FORMAT_VERSION, RECORD_HAS_MSG_ID, FileKind, Identity, Kind, pack_envelope
from jetraft.store.log.erasure import Rewrite, erased, finish, pack
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreNewer
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.crash_states.crash_models import MODELS
from tests.crash_states.machine import PowerCutError, WatchedDisk
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.lossy_tree import LossyFile
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R1F-abcdefgh")
LOG = GROUP / "log-00000001"
BLOCK = LOG / "00000000000000000001-00000001.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
WRITES_ALONE = next(model for model in MODELS if model.name == "writes alone")
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


def test_headers_that_a_replay_reads_are_kept_and_no_others() -> None:
    frame = entry(1).frame
    second = 48 + int.from_bytes(frame[48:52], "little")
    kept = b"NATS/1.0\r\n" + b"x" * len(b"A: secret-header") + b"\r\n\r\n"
    assert _frame.records(erased(frame, second))[1] == (2, 1, b"b", kept, bytes(len(secret(2))))


OWN_LINES = (b"Nats-Msg-Id: id-1", b"Nats-TTL: 10s", b"Nats-Rollup: sub", b"KV-Operation: DEL", b"Jetraft-Acked: C 1 1")
FOREIGN_LINES = (b"Authorization: Bearer foreign", b"foreign", b"X-Nats-Msg-Id: foreign", b" foreign: folded", b"")


@given(lines=st.lists(st.sampled_from(OWN_LINES + FOREIGN_LINES), max_size=8))
def test_what_a_replay_reads_of_headers_is_the_same_after_an_erasure(lines: list[bytes]) -> None:
    hdr = b"\r\n".join([b"NATS/1.0", *lines, b"", b""])
    record = _frame.make_record(b"a", hdr, b"payload", ts_ns=1, flags=RECORD_HAS_MSG_ID)
    frame = _frame.seal(Kind.MESSAGES, index=1, term=1, incarnation=7, body=[record], first_seq=1, count=1)
    ((_, _, _, after, payload),) = _frame.records(erased(frame, 48))
    assert (len(after), payload) == (len(hdr), bytes(len(b"payload")))
    assert nats_headers(after) == nats_headers(hdr)
    assert [line for line in after.split(b"\r\n") if line in OWN_LINES] == [line for line in lines if line in OWN_LINES]
    assert b"foreign" not in after
    assert erased(erased(frame, 48), 48) == erased(frame, 48)


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


@pytest.mark.parametrize("steps", range(1, 12))
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


@pytest.mark.parametrize("operations", range(1, 8))
def test_a_second_attempt_survives_the_loss_of_a_name_that_a_killed_process_gave(operations: int) -> None:
    """It finds the journal, whose name is not durable, and overwrites frames: a power cut may take the name alone."""
    disk = LossyDisk()
    log, store = written(disk)
    disk.sync_names()
    store.remove([3, 5], erase=True)
    log.submit()
    while "erase" not in disk.list_directory(LOG):
        disk.step()
    disk.kill()
    again = WatchedDisk(disk._root)
    again.cut_after(operations)  # a write counts as two: a process can be killed in the middle of one
    with contextlib.suppress(PowerCutError):
        finish(again, LOG / "erase", again.read_whole(LOG / "erase"), IDENTITY)
    again.on_operation = None
    again.crash(Random(1), WRITES_ALONE)

    reopened = opened(again)

    assert [found.index for found in reopened.entries(1, 3, 1 << 20)] == [1, 2, 3]
    assert reopened.damaged_entries == ()


def torn(disk: LossyDisk, places: list[int], damage: list[tuple[int, int]]) -> LossyDisk:
    """A power cut while frames at these places are overwritten, and bytes of the block that it leaves as garbage.

    The journal is durable, the frames in place and what follows are not.
    """
    last = places[-1]
    while (operation := disk._queue[0][0].operations[0])[0] != "write" or operation[1][2] != last:
        disk.step()
    disk.step()
    crashed = deepcopy(disk)
    crashed.kill()
    crashed._root.crash(Random(1))
    file = crashed._directory(LOG).names[BLOCK.name]
    assert isinstance(file, LossyFile)
    for start, end in damage:
        file.durable[start:end] = b"\xa5" * (end - start)
    file.data = bytearray(file.durable)
    assert "erase" in crashed.list_directory(LOG)
    return crashed


@pytest.mark.parametrize("piece", [(0, 4), (0, 48), (4, 8), (8, 24), (16, 24), (24, 32), (32, 48), (0, 300), (47, 400)])
@pytest.mark.parametrize("erases", [[3], [1], [5], [3, 5], [1, 3, 5], [5, 1]])
def test_what_the_power_cut_leaves_of_a_torn_frame_is_never_asked(erases: list[int], piece: tuple[int, int]) -> None:
    disk = LossyDisk()
    log, store = written(disk)
    disk.sync_names()
    store.remove(erases, erase=True)
    log.submit()
    places = [ref.offset for ref, entry in log.frames(1, 3) if 2 * entry.index - 1 in erases]

    crashed = torn(disk, places, [(place + piece[0], place + piece[1]) for place in places])
    reopened = opened(crashed)

    assert [entry.index for entry in reopened.entries(1, 3, 1 << 20)] == [1, 2, 3]
    on_disk = crashed.read_whole(BLOCK)
    assert [secret(seq) in on_disk for seq in range(1, 7)] == [seq not in erases for seq in range(1, 7)]
    assert "erase" not in crashed.list_directory(LOG)


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_frame_is_not_overwritten_before_it_is_proven_to_be_no_torn_tail(index: int) -> None:
    disk = LossyDisk()
    log, _ = written(disk)
    disk.sync_names()
    ref = log.locate(index)
    assert ref is not None
    log.upkeep.invalidate(ref.block, ref.offset)
    log.submit()

    crashed = torn(disk, [ref.offset], [(ref.offset, ref.offset + 300)])
    reopened = open_log(ledger_of(crashed, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE))

    assert reopened.last_index == 3
    assert reopened.damaged_entries == ((index, index),)


def left_journal(disk: LossyDisk, data: bytes) -> None:
    fd = disk.open_file(LOG / "erase", create=True)
    batch = disk.batch()
    batch.write(fd, [data], 0)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)
    disk.sync_names()


@pytest.mark.parametrize("shift", [32, -32, 48, 100, -100])
def test_a_journal_of_a_block_that_was_written_anew_since_changes_nothing(shift: int) -> None:
    disk = LossyDisk()
    log, _ = written(disk)
    ref = log.locate(2)
    assert ref is not None
    log.close()
    before = disk.read_whole(BLOCK)
    frame = erased(entry(2).frame, 48)
    data = pack([Rewrite(name=BLOCK.name, offset=ref.offset + shift, frame=frame)], IDENTITY)
    left_journal(disk, data)

    assert finish(disk, LOG / "erase", data, IDENTITY) == 0

    assert disk.read_whole(BLOCK) == before
    assert disk.list_directory(LOG) == [BLOCK.name]


def test_a_journal_writes_nothing_over_a_sound_frame_of_another_entry() -> None:
    disk = LossyDisk()
    log, _ = written(disk)
    ref = log.locate(2)
    assert ref is not None
    log.close()
    data = pack([Rewrite(name=BLOCK.name, offset=ref.offset, frame=erased(entry(3).frame, 48))], IDENTITY)
    left_journal(disk, data)

    assert [found.index for found in opened(disk).entries(1, 3, 1 << 20)] == [1, 2, 3]


@pytest.mark.parametrize("instead", [b"", b"garbage", pack_envelope(FileKind.TRIMMED, IDENTITY, b"")])
def test_a_journal_that_is_not_what_was_written_does_not_stop_the_opening(instead: bytes) -> None:
    disk = LossyDisk()
    written(disk)[0].close()
    left_journal(disk, instead)

    assert [found.index for found in opened(disk).entries(1, 3, 1 << 20)] == [1, 2, 3]
    assert "erase" not in disk.list_directory(LOG)


def test_a_journal_of_a_newer_server_is_left_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LossyDisk()
    written(disk)[0].close()
    monkeypatch.setattr("jetraft.store.frames.format.FORMAT_VERSION", FORMAT_VERSION + 1)
    left_journal(disk, pack([], IDENTITY))
    monkeypatch.undo()

    with pytest.raises(StoreNewer):
        opened(disk)

    assert "erase" in disk.list_directory(LOG)


def keep_a_copy(disk: LossyDisk, name: str) -> None:
    disk.make_directory(GROUP / name)
    replace_file(disk, GROUP / name / "copy", secret(2))


def copies(disk: LossyDisk) -> list[str]:
    return [name for kind in ("quarantine", "unrecorded") for name in disk.list_directory(GROUP / kind)]


def test_what_is_erased_does_not_stay_in_copies_of_damaged_bytes() -> None:
    disk = LossyDisk()
    log, store = written(disk)
    keep_a_copy(disk, "quarantine")
    keep_a_copy(disk, "unrecorded")
    store.remove([3])
    log.submit()
    disk.finish()
    assert copies(disk) == ["copy", "copy"], "nothing was to be erased"
    store.remove([2], erase=True)
    log.submit()
    disk.finish()
    assert copies(disk) == []
    disk.crash(Random(1))
    assert copies(disk) == [], "names that were removed are removed for good"


def test_a_lost_message_is_erased_too_from_what_is_kept_of_its_bytes() -> None:
    """It has no frame any more that could be overwritten; its bytes are in the copy."""
    disk = LossyDisk()
    log, store = written(disk)
    keep_a_copy(disk, "quarantine")
    assert store.remove([99], erase=True) == []
    log.submit()
    disk.finish()
    assert copies(disk) == []
