"""Deliveries encoded in C, against the same messages sent one by one."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.api.turns.outbox import PlaneOutbox
from jetraft.api.turns.reactor import NoGroups, Reactor
from jetraft.cluster.capture.reach import SinkKind
from jetraft.cluster.ports import DeliveryRun, deliver_one_by_one
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.clock import ManualClock
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.retention import StoreLimits
from jetraft.store.stream.stream_store import StreamStore
from tests.store.naive_stream import Message, append_messages

messages = st.builds(
    Message,
    st.sampled_from([b"a", b"orders.eu.1"]),
    st.sampled_from([b"", b"payload", b"x" * 300]),
    st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.integers(1, 2**62),
)
TO = b"_INBOX.r"
LISTENING = (
    b"SUB " + TO + b" 1\r\n",
    b"SUB " + TO + b" a-subscription-with-a-long-name\r\n",
    b"SUB " + TO + b" 1\r\nUNSUB 1 3\r\n",
    b"SUB " + TO + b" 1\r\nSUB _INBOX.* 2\r\n",
    b"SUB " + TO + b" workers 1\r\n",
    b"SUB elsewhere 1\r\n",
)


def make_outbox(listening: bytes = LISTENING[0], *, fd: int = -1, headers: bool = True) -> tuple[PlaneOutbox, int]:
    """A way out, and the connection of a client that listens."""
    plane = Plane(
        max_payload=1 << 20,
        max_control_line=4096,
        max_pending=64 << 20,
        max_subscriptions=0,
        connect_handler=lambda _cid, _text: ConnectOptions(verbose=False, headers=headers),
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda _cid, _kind, _subject, _queue, _sid: b"",
    )
    reactor = Reactor(plane, ManualClock(), lambda *_: None)
    cid = plane.open(fd, b"")
    plane.feed(cid, b"CONNECT {}\r\n" + listening)
    plane.take(cid)
    return PlaneOutbox(plane, plane.account("$G"), reactor), cid


def store_of(batches: list[list[Message]], first_seq: int) -> StreamStore:
    log = MemLog(block_bytes=20_000)
    store = StreamStore(log, StoreLimits(), first_seq=first_seq)
    for batch in batches:
        store.apply_messages(append_messages(log, store.last_seq + 1, batch))
    return store


@given(
    st.lists(st.lists(messages, min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from([1, 93, 995, 99_990, 2**40]),
    st.sampled_from([1, 2, 95, 9_990, 10**15]),
    st.sampled_from([0, 1, 3, 105, 2**50]),
    st.sampled_from([1, 2]),
    st.sampled_from(LISTENING),
    st.booleans(),
    st.data(),
)
@settings(deadline=None, max_examples=80)
def test_a_run_is_what_its_messages_are_one_by_one(  # noqa: PLR0913, PLR0917  (one for each column of a run)
    batches: list[list[Message]],
    first_seq: int,
    consumer_seq: int,
    num_pending: int,
    step: int,
    listening: bytes,
    headers: bool,  # noqa: FBT001  (what Hypothesis gives)
    data: st.DataObject,
) -> None:
    store = store_of(batches, first_seq)
    removed = data.draw(st.sets(st.integers(first_seq, store.last_seq)))
    store.remove(sorted(removed), erase=False)
    seqs = sorted(data.draw(st.sets(st.integers(first_seq, store.last_seq + 3), min_size=1)))
    count = len(seqs)
    first_deliveries = DeliveryRun(
        to=TO,
        ack_prefix=b"$JS.ACK.S.c.",
        stream_seqs=Runs(seqs),
        consumer_seqs=range(consumer_seq, consumer_seq + count * step, step),
        counts=b"\x01" * count,
        nums_pending=range(num_pending, num_pending - count * step, -step),
    )
    any_columns = DeliveryRun(
        to=TO,
        ack_prefix=b"$JS.ACK.S.c.",
        stream_seqs=seqs,
        consumer_seqs=list(first_deliveries.consumer_seqs),
        counts=[1] * count,
        nums_pending=[max(0, left) for left in first_deliveries.nums_pending],
    )
    plain, cid = make_outbox(listening, headers=headers)
    expected = deliver_one_by_one(plain, any_columns, store)
    text, figures = plain.plane.take(cid), plain.plane.statistics()
    for run in (first_deliveries, any_columns):
        outbox, cid = make_outbox(listening, headers=headers)
        assert outbox.deliver(run, store) == expected
        assert outbox.plane.take(cid) == text
        assert outbox.plane.statistics() == figures


def long_run(store: StreamStore, first_seq: int, count: int) -> DeliveryRun:
    """First deliveries of messages in a row, without headers."""
    return DeliveryRun(
        to=TO,
        ack_prefix=b"$JS.ACK.S.c.",
        stream_seqs=Runs(range(first_seq, first_seq + count)),
        consumer_seqs=range(first_seq, first_seq + count),
        counts=b"\x01" * count,
        nums_pending=range(store.last_seq - first_seq, store.last_seq - first_seq - count, -1),
    )


def test_a_long_run_is_sent_before_the_turn_ends() -> None:
    store = store_of([[Message(b"a", b"x" * 1000, b"", 1)] * 100], 1)
    ours, theirs = socket.socketpair()
    with theirs:
        ours.settimeout(0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        outbox, _cid = make_outbox(b"", fd=ours.detach())
        theirs.sendall(b"SUB " + TO + b" 1\r\n")
        outbox.plane.turn(10**9)
        outbox.deliver(long_run(store, 1, 3), store)
        theirs.settimeout(0)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        outbox.deliver(long_run(store, 1, 80), store)
        assert theirs.recv(100).startswith(b"MSG a 1 $JS.ACK.S.c.1.1.1.1.99 1000\r\nxxx")


class CountingLog(MemLog):
    """Counts how often a frame is asked for; with `damage` it cannot be read."""

    reads = 0
    damage: Exception | None = None

    def frame_at(self, block: int, offset: int) -> bytes:
        self.reads += 1
        if self.damage is not None:
            raise self.damage
        return super().frame_at(block, offset)


@pytest.mark.parametrize("damage", [None, StoreCorrupt("a bit"), OSError("the disk")])
def test_what_the_next_run_of_as_many_needs_is_read_when_a_long_one_was_sent(damage: Exception | None) -> None:
    log = CountingLog(block_bytes=1 << 20)
    store = StreamStore(log, StoreLimits())
    for _ in range(3):
        messages_in_row = [Message(b"a", b"x" * 1000, b"", 1)] * 100
        store.apply_messages(append_messages(log, store.last_seq + 1, messages_in_row))
    outbox, cid = make_outbox()
    outbox.deliver(long_run(store, 1, 10), store)
    assert log.reads == 1, "few are not read ahead"
    log.damage = damage
    assert outbox.deliver(long_run(store, 1, 70), store) == 70
    assert log.reads == 2
    log.damage = None
    text = outbox.plane.take(cid)
    assert text.count(b"MSG a 1 ") == 80
    outbox.deliver(long_run(store, 231, 70), store)
    assert log.reads == 3, "there is nothing behind the last message"


class RecordedGroups(NoGroups):
    """Notes the groups' part of each turn."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def flush(self) -> None:
        self._seen.append("end")


def test_what_is_put_off_comes_after_the_batches_of_the_turn_and_before_its_end() -> None:
    outbox, cid = make_outbox()
    seen: list[str] = []

    def put_off(_batch: bytes) -> None:
        outbox.later(lambda: seen.append("put off"))
        seen.append("a")

    outbox.add_sink(b"a", put_off, kind=SinkKind.REPLY)
    outbox.add_sink(b"b", lambda _batch: seen.append("b"), kind=SinkKind.REPLY)
    outbox.reactor.connect_groups(RecordedGroups(seen))
    outbox.plane.feed(cid, b"PUB a 0\r\n\r\nPUB b 0\r\n\r\n")
    outbox.reactor.end_turn()
    assert seen == ["a", "b", "put off", "end"]
