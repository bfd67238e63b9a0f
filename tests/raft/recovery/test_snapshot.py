from collections.abc import Callable

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.messages import SnapshotOffer
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.recovery.snapshot import (
    CHUNK,
    OPEN,
    STATE,
    SnapshotFetch,
    SnapshotGoneError,
    SnapshotRequest,
    answer,
    check_part,
)
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.snapshot import PartDamagedError
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, Entry, StoreCorrupt
from tests.raft.rig import INCARNATION

GROUP, SENDER = GroupId("S-R3F-test0000"), NodeId("n1")


def messages(count: int) -> list[Entry]:
    body = make_record(b"a.b", b"", b"payload", ts_ns=1)
    return [
        Entry(
            index=index,
            term=1,
            kind=Kind.MESSAGES,
            frame=seal(
                Kind.MESSAGES, index=index, term=1, incarnation=INCARNATION, body=body, first_seq=index, count=1
            ),
        )
        for index in range(1, count + 1)
    ]


def source() -> tuple[MemLog, Manifest, Checkpoint]:
    log = MemLog(block_bytes=1000)
    log.append(messages(100))
    log.save_checkpoint(90, 1, b"members", b"state" * 1000)
    log.submit()
    found = log.manifest(40)
    assert found is not None
    return log, *found


def fetch_into(log: MemLog) -> SnapshotFetch:
    offer = SnapshotOffer(term=2, index=90, index_term=1, members=b"members")
    return SnapshotFetch(
        group_id=GROUP, incarnation=INCARNATION, sender=SENDER, offer=offer, members=offer.members, log=log
    )


def test_a_snapshot_is_the_state_and_the_live_blocks() -> None:
    log, manifest, checkpoint = source()
    fetch = fetch_into(MemLog())
    while (request := fetch.next_request()) is not None:
        fetch.received(answer(log, manifest, checkpoint, SnapshotRequest.unpack(request.pack())))
    assert fetch.staging is not None
    installed = fetch.staging.finish()
    assert (installed.last_index, installed.term_at(90)) == (90, 1)
    assert installed.load_checkpoint() == checkpoint
    kept = [entry.index for _, entry in installed.frames(1, 90)]
    assert kept[-1] == 90
    assert 1 < kept[0] <= 40


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    log, manifest, checkpoint = source()
    fetch = fetch_into(MemLog())
    while (request := fetch.next_request()) is not None:
        assert fetch.next_request() == request
        fetch.received(answer(log, manifest, checkpoint, request))
    assert fetch.staging is not None


def fetched(fetch: SnapshotFetch, log: MemLog, manifest: Manifest, checkpoint: Checkpoint, *, pieces: int) -> list[str]:
    """Take so many pieces at most; returns what they were."""
    asked: list[str] = []
    while len(asked) < pieces and (request := fetch.next_request()) is not None:
        asked.append(request.what)
        fetch.received(answer(log, manifest, checkpoint, request))
    return asked


def test_an_interrupted_fetch_goes_on_where_it_was() -> None:
    log, manifest, checkpoint = source()
    fetch = fetch_into(MemLog())
    fetched(fetch, log, manifest, checkpoint, pieces=4)
    fetch.resume()
    assert fetched(fetch, log, manifest, checkpoint, pieces=2) == [OPEN, CHUNK]
    fetched(fetch, log, manifest, checkpoint, pieces=1000)
    assert fetch.staging is not None
    assert fetch.staging.finish().last_index == 90


def test_a_fetch_begins_anew_when_the_sender_has_numbered_its_blocks_anew() -> None:
    """A restarted process may: with pieces of both nothing could be installed."""
    log, manifest, checkpoint = source()
    fetch = fetch_into(MemLog())
    fetched(fetch, log, manifest, checkpoint, pieces=4)
    restarted = MemLog(block_bytes=700)
    restarted.append(messages(100))
    restarted.save_checkpoint(90, 1, b"members", b"state" * 1000)
    restarted.submit()
    again = restarted.manifest(40)
    assert again is not None
    fetch.resume()
    assert fetched(fetch, restarted, *again, pieces=3) == [OPEN, STATE, CHUNK]
    fetched(fetch, restarted, *again, pieces=1000)
    assert fetch.staging is not None
    assert fetch.staging.finish().load_checkpoint() == checkpoint


def test_another_checkpoint_than_the_one_asked_for_is_gone() -> None:
    log, manifest, checkpoint = source()
    request = SnapshotRequest(group_id=GROUP, incarnation=INCARNATION, index=80, what="open")
    with pytest.raises(SnapshotGoneError):
        answer(log, manifest, checkpoint, request)
    chunk = SnapshotRequest(group_id=GROUP, incarnation=INCARNATION, index=90, what="chunk", block=9999, size=10)
    with pytest.raises(SnapshotGoneError):
        answer(log, manifest, checkpoint, chunk)


def test_nothing_is_sent_that_is_not_in_the_snapshot() -> None:
    log, manifest, checkpoint = source()
    log.append(messages(150)[100:])
    last = manifest.parts[-1]
    other = SnapshotRequest(
        group_id=GROUP, incarnation=INCARNATION, index=90, what="chunk", block=last.block + 1, size=10
    )
    assert log.read_chunk(other.block, 0, other.size)
    with pytest.raises(SnapshotGoneError):
        answer(log, manifest, checkpoint, other)
    whole = attrs.evolve(other, block=last.block, size=1 << 20)
    assert len(answer(log, manifest, checkpoint, whole)) == last.body_bytes


def test_a_state_with_a_wrong_checksum_is_refused() -> None:
    log, manifest, checkpoint = source()
    fetch = fetch_into(MemLog())
    opening = fetch.next_request()
    assert opening is not None
    fetch.received(answer(log, manifest, checkpoint, opening))
    fetch.next_request()
    with pytest.raises(RemoteProtocolError, match="checksum"):
        fetch.received(b"x" * 5000)


def test_a_damaged_block_is_refused_before_the_old_log_is_touched() -> None:
    log, manifest, checkpoint = source()
    old = MemLog()
    old.append(messages(3))
    fetch = fetch_into(old)
    while (request := fetch.next_request()) is not None:
        piece = bytearray(answer(log, manifest, checkpoint, request))
        if request.what == "chunk":
            piece[-1] ^= 1
        fetch.received(bytes(piece))
    assert fetch.staging is not None
    with pytest.raises(PartDamagedError) as failure:
        fetch.staging.finish()
    assert failure.value.block == manifest.parts[0].block
    assert old.last_index == 3


def test_a_sender_finds_damage_of_its_own_in_what_it_sends() -> None:
    log, manifest, _ = source()
    complaint = fetch_into(MemLog()).spoilt(manifest.parts[1].block)
    check_part(log, manifest, SnapshotRequest.unpack(complaint.pack()))()  # it is sound: the damage is elsewhere
    log.read_chunk = flipped(log.read_chunk)  # type: ignore[method-assign, assignment]  # a log in memory does not rot
    with pytest.raises(StoreCorrupt, match="damaged"):
        check_part(log, manifest, complaint)()


def flipped(read: Callable[[int, int, int], bytes]) -> Callable[[int, int, int], bytes]:
    def read_damaged(block: int, offset: int, size: int) -> bytes:
        data = bytearray(read(block, offset, size))
        data[-1] ^= 1
        return bytes(data)

    return read_damaged


def test_a_complaint_of_a_block_that_is_not_in_the_snapshot_is_nothing() -> None:
    log, manifest, _ = source()
    with pytest.raises(SnapshotGoneError):
        check_part(log, manifest, fetch_into(MemLog()).spoilt(9999))


@pytest.mark.parametrize(
    "fields",
    [
        [b"", b"members", 1, 1],
        [Manifest(index=91, term=1, parts=()).to_bytes(), b"members", 1, 1],
        [Manifest(index=90, term=1, parts=()).to_bytes(), b"others", 1, 1],
        [Manifest(index=90, term=1, parts=()).to_bytes(), b"members", 1 << 40, 1],
        [Manifest(index=90, term=1, parts=()).to_bytes(), b"members", "many", 1],
        [1],
    ],
)
def test_an_opening_that_is_not_what_was_offered_is_refused(fields: list[object]) -> None:
    fetch = fetch_into(MemLog())
    fetch.next_request()
    with pytest.raises(RemoteProtocolError):
        fetch.received(bytes(msgpack.packb(fields)))


@given(st.binary(max_size=60))
def test_garbage_is_no_request(data: bytes) -> None:
    try:
        SnapshotRequest.unpack(data)
    except RemoteProtocolError:
        return
