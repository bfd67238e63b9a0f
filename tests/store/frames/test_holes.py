"""One flipped bit in a frame whose records have checksums of their own costs the message that it hits, and no other."""

import struct
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames._holes import holes, salvage
from jetraft.store.frames._thin import expand, thin
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_HEADER_BYTES,
    Identity,
    Kind,
)
from jetraft.store.log.erasure import erased, invalidated
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreCorrupt, StoreRefused
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

INCARNATION = 7
INDEX = 3
FIRST_SEQ = 11
SUM_BYTES = 4

MESSAGES = st.lists(
    st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=12), st.binary(max_size=60)),
    min_size=1,
    max_size=12,
)
Record = tuple[int, int, bytes, bytes, bytes]


def summed(messages: list[tuple[bytes, bytes, bytes]], *, index: int = INDEX, first_seq: int = FIRST_SEQ) -> bytes:
    body = [_frame.make_record(*message, ts_ns=number + 5) for number, message in enumerate(messages)]
    return _frame.seal(
        Kind.MESSAGES,
        index=index,
        term=2,
        incarnation=INCARNATION,
        body=body,
        first_seq=first_seq,
        count=len(body),
        summed=True,
    )


def flipped(frame: bytes, bit: int) -> bytes:
    changed = bytearray(frame)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def salvaged(damaged: bytes, *, end: int | None = None) -> bytes | None:
    return salvage(damaged, offset=0, end=len(damaged) if end is None else end, incarnation=INCARNATION, index=INDEX)


def places(frame: bytes) -> list[tuple[int, int]]:
    """Where each record of a sound frame begins and ends."""
    found, at = [], FRAME_HEADER_BYTES
    for _ in range(_frame.parse_header(frame).record_count):
        length = struct.unpack_from("<I", frame, at)[0]
        found.append((at, at + length))
        at += length
    return found


@given(messages=MESSAGES, data=st.data())
def test_a_flipped_bit_costs_at_most_the_record_that_it_hits(
    messages: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    """In the length, and in checksums: nothing. In the rest of the header: all of them."""
    frame = summed(messages)
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))

    found = salvaged(flipped(frame, bit))

    hit = [number for number, (start, end) in enumerate(places(frame)) if start <= bit // 8 < end]
    if FRAME_CRC_FROM <= bit // 8 < FRAME_HEADER_BYTES or len(hit) == len(messages):
        assert found is None
        return
    assert found is not None
    assert _frame.verify(found)
    assert holes(found) == hit
    assert places(found) == places(frame) or (hit and len(places(found)) == len(messages))
    kept = [record for number, record in enumerate(_frame.records(found)) if number not in hit]
    assert kept == [record for number, record in enumerate(_frame.records(frame)) if number not in hit]
    if not hit:
        assert found == frame
    assert salvaged(flipped(frame, bit)) == found


@given(messages=MESSAGES, data=st.data())
def test_nothing_is_believed_that_was_not_written(
    messages: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    frame = summed(messages)
    start = data.draw(st.integers(0, len(frame) - 1))
    garbage = data.draw(st.one_of(st.binary(min_size=1, max_size=200), st.integers(1, 4096).map(bytes)))
    damaged = (frame[:start] + garbage + frame[start + len(garbage) :])[: len(frame)]

    found = salvaged(damaged)

    if found is None:
        return
    assert _frame.verify(found)
    written, gone = _frame.records(frame), holes(found)
    assert len(_frame.records(found)) == len(written)
    assert all(record == written[number] for number, record in enumerate(_frame.records(found)) if number not in gone)


def test_damage_over_many_records_costs_these_and_what_is_behind_a_lost_length() -> None:
    frame = summed([(b"s", b"", b"%03d" % number * 10) for number in range(40)])
    (start, _), (_, end) = places(frame)[10], places(frame)[14]
    contents = frame[:start] + bytes(byte ^ 1 if at % 9 == 8 else byte for at, byte in enumerate(frame[start:end]))

    lengths_kept = salvaged(contents + frame[end:])
    zeroed = salvaged(frame[:start] + bytes(end - start) + frame[end:])

    assert lengths_kept is not None
    assert zeroed is not None
    assert set(holes(lengths_kept)) >= set(range(10, 15))
    assert holes(zeroed) == list(range(10, 40))
    assert _frame.records(zeroed)[:10] == _frame.records(frame)[:10]


def test_a_frame_of_others_and_one_that_was_disowned_are_not_believed() -> None:
    frame = summed([(b"s", b"", b"one"), (b"s", b"", b"two")])
    damaged = flipped(frame, 8 * places(frame)[0][1] - 1)
    assert salvaged(damaged) is not None
    for incarnation, index in ((INCARNATION + 1, INDEX), (INCARNATION, INDEX + 1)):
        assert salvage(damaged, offset=0, end=len(damaged), incarnation=incarnation, index=index) is None
    assert salvaged(invalidated(frame)) is None
    plain = _frame.seal(
        Kind.MESSAGES, index=INDEX, term=2, incarnation=INCARNATION, body=frame[48 : places(frame)[-1][1]], count=2
    )
    assert salvaged(flipped(plain, 8 * 70)) is None, "without sums a frame is whole or nothing"


@given(messages=MESSAGES, data=st.data())
def test_sums_survive_erasing_and_thinning(messages: list[tuple[bytes, bytes, bytes]], data: st.DataObject) -> None:
    frame = summed(messages)
    number = data.draw(st.integers(0, len(messages) - 1))
    live = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(messages), max_size=len(messages))))

    changed = erased(frame, places(frame)[number][0])

    assert _frame.resummed(changed) == changed
    assert len(changed) == len(frame)
    small = thin(changed, live)
    whole = changed if small is None else expand(small)
    assert _frame.resummed(whole) == whole
    assert len(whole) == len(frame)
    kept = [record for record, lives in zip(_frame.records(changed), live, strict=True) if lives or small is None]
    assert kept == [record for record, lives in zip(_frame.records(whole), live, strict=True) if lives or small is None]


def test_a_frame_that_is_sealed_without_sums_is_as_it_always_was() -> None:
    body = [_frame.make_record(b"s", b"", b"one", ts_ns=1)]
    frame = _frame.seal(Kind.MESSAGES, index=1, term=1, incarnation=1, body=body, first_seq=1, count=1)
    assert _frame.parse_header(frame).version == 1
    assert frame[FRAME_HEADER_BYTES:] == body[0]
    with pytest.raises(ValueError, match="does not contain 2 records"):
        _frame.seal(Kind.MESSAGES, index=1, term=1, incarnation=1, body=body, first_seq=1, count=2, summed=True)
    crc = _frame.crc32c(frame[FRAME_CRC_FROM:])
    assert frame[FRAME_CRC_AT:FRAME_CRC_FROM] == crc.to_bytes(4, "little")


GROUP = Path("/groups/S-R1F-abcdefgh")
BLOCK = GROUP / "log-00000001" / "00000000000000000001-00000001.blk"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=INCARNATION)
ENTRIES, EACH = 4, 25


def entry(index: int) -> Entry:
    messages = [(b"s.%d" % (number % 5), b"", b"message %d.%d" % (index, number)) for number in range(EACH)]
    frame = summed(messages, index=index, first_seq=EACH * (index - 1) + 1)
    return Entry(index=index, term=2, kind=Kind.MESSAGES, frame=frame)


def opened(disk: LossyDisk) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE))


def written(checkpoint: int) -> tuple[LossyDisk, bytes]:
    """A log of summed entries on a disk, and the state after one of them."""
    disk = LossyDisk()
    log = opened(disk)
    store, state = StreamStore(log, StoreLimits()), b""
    for index in range(1, ENTRIES + 1):
        log.append([entry(index)])
        store.apply_messages(entry(index))
        log.submit()
        disk.finish()
        state = store.snapshot() if index == checkpoint else state
    log.close()
    return disk, state


def replayed(disk: LossyDisk, checkpoint: int, state: bytes) -> StreamStore:
    """The store of a member that is alone, after a restart."""
    log = opened(disk)
    log.repair.salvage()
    log.repair.give_up(log.damaged_entries)
    store = StreamStore(log, StoreLimits())
    if checkpoint:
        store.restore(state)
    for found in log.entries(checkpoint + 1, ENTRIES, 1 << 20):
        store.apply_messages(found)
    return store


@pytest.mark.parametrize("checkpoint", [0, 2, 3])
@pytest.mark.parametrize("hits", [[1], [25], [26, 40], [50, 51], [75], [76], [100], [99, 100]])
def test_the_only_replica_loses_the_messages_that_are_hit_and_lists_exactly_these(
    hits: list[int], checkpoint: int
) -> None:
    disk, state = written(checkpoint)
    data = disk.read_whole(BLOCK)
    for seq in hits:
        text = b"message %d.%d" % ((seq - 1) // EACH + 1, (seq - 1) % EACH)
        disk.flip_bit(BLOCK, data.index(text) + 4)

    store = replayed(disk, checkpoint, state)

    assert [seq for low, high in store.lost() for seq in range(low, high + 1)] == hits
    assert (store.messages, store.last_seq, store.next_seq) == (ENTRIES * EACH - len(hits), 100, 101)
    for seq in range(1, ENTRIES * EACH + 1):
        if seq in hits:
            with pytest.raises(StoreCorrupt, match=f"sequence {seq}"):
                store.load(seq)
        else:
            message = store.load(seq)
            assert message is not None
            assert message.payload == b"message %d.%d" % ((seq - 1) // EACH + 1, (seq - 1) % EACH)
    assert replayed(disk, checkpoint, state).snapshot() == store.snapshot(), "the next start comes to the same"


def test_holes_are_written_where_the_head_of_the_block_was_damaged_too_and_are_listed_from_there() -> None:
    disk, state = written(3)
    disk.flip_bit(BLOCK, disk.read_whole(BLOCK).index(b"message 4.7") + 4)
    disk.flip_bit(BLOCK, 20)
    log = opened(disk)
    assert log.damaged_blocks[0].head_damaged
    assert log.repair.salvage() == [4]

    log = repair(log, {4: log.repair.substitute(4)})

    assert (log.damaged_entries, log.damaged_blocks, log.lost) == ((), (), ())
    for checkpoint in (0, 3):
        log.close()
        log = log.reopen()
        store = StreamStore(log, StoreLimits())
        if checkpoint:
            store.restore(state)
        for found in log.entries(checkpoint + 1, ENTRIES, 1 << 20):
            store.apply_messages(found)
        assert (store.lost(), store.messages) == ([(83, 83)], ENTRIES * EACH - 1)
    mask = bytes(number % 2 == 0 for number in range(EACH))
    small = thin(log.entries(4, 4, 1)[0].frame, mask)
    assert small is not None
    assert _frame.records(expand(small))[::2] == _frame.records(entry(4).frame)[::2]


def test_another_member_gets_the_frame_with_its_holes() -> None:
    disk, _ = written(0)
    log = opened(disk)
    store = StreamStore(log, StoreLimits())
    for found in log.entries(1, ENTRIES, 1 << 20):
        store.apply_messages(found)
    log.save_checkpoint(ENTRIES, 2, b"", store.snapshot())
    log.submit()
    disk.finish()
    log.close()
    disk.flip_bit(BLOCK, disk.read_whole(BLOCK).index(b"message 2.7") + 4)
    sender = opened(disk)
    sender.repair.salvage()
    sender.repair.give_up(sender.damaged_entries)
    offered = sender.manifest(0)
    assert offered is not None
    empty = LossyDisk()
    target = opened(empty)
    target.submit()
    empty.finish()
    staging = target.begin_install(Manifest.from_bytes(offered[0].to_bytes()), offered[1])
    while (wanted := staging.missing()) is not None:
        block, offset, size = wanted
        staging.put_chunk(block, offset, sender.read_chunk(block, offset, size))
    target.close()

    copy = StreamStore(staging.finish(), StoreLimits())
    copy.restore(offered[1].state)

    assert copy.lost() == [(33, 33)]
    assert copy.messages == ENTRIES * EACH - 1
    assert [message.payload for message in copy.load_many((32, 33, 34))] == [b"message 2.6", b"message 2.8"]


@pytest.mark.parametrize("index", [1, ENTRIES])
def test_a_frame_of_a_newer_version_is_refused_and_not_taken_for_damage(index: int) -> None:
    """In a block that grows, and in one that other blocks follow."""
    disk = LossyDisk()
    log = open_log(
        ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(block_bytes_first=2000, block_bytes_max=2000)
    )
    for number in range(1, ENTRIES + 1):
        frame = bytearray(entry(number).frame)
        frame[8] += number == index
        frame[FRAME_CRC_AT:FRAME_CRC_FROM] = _frame.crc32c(frame[FRAME_CRC_FROM:]).to_bytes(4, "little")
        log.append([Entry(index=number, term=2, kind=Kind.MESSAGES, frame=bytes(frame))])
        log.submit()
        disk.finish()
    assert log.statistics().blocks > 1
    log.close()

    for mode in RecoveryMode:
        with pytest.raises(StoreRefused, match=f"entry {index} has a newer format"):
            open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=mode))


@given(data=st.data())
def test_any_flipped_bit_of_a_block_serves_nothing_wrong_and_what_is_missing_is_listed(data: st.DataObject) -> None:
    disk, _ = written(0)
    used = disk.read_whole(BLOCK).rindex(b"message 4.24") + len(b"message 4.24") + SUM_BYTES * (EACH + 1)
    place = data.draw(st.integers(BLOCK_HEAD_BYTES, used - 1))
    fd = disk.open_file(BLOCK)
    batch = disk.batch()
    batch.write(fd, [flipped(disk.read(fd, 1, place), data.draw(st.integers(0, 7)))], place)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)

    store = replayed(disk, 0, b"")

    held = {message.seq: message.payload for message in store.load_many(range(1, ENTRIES * EACH + 1))}
    for seq, payload in held.items():
        assert payload == b"message %d.%d" % ((seq - 1) // EACH + 1, (seq - 1) % EACH)
    missing = [seq for seq in range(1, ENTRIES * EACH + 1) if seq not in held]
    assert all(store.is_lost(seq) for seq in missing)
    assert len(missing) in {0, 1, EACH}
