"""Deliveries encoded in C, against the same messages sent one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.api.outbox import PlaneOutbox
from jetraft.api.reactor import Reactor
from jetraft.api.routing._plane import Plane
from jetraft.api.session import ConnectOptions
from jetraft.cluster.ports import DeliveryRun, deliver_one_by_one
from jetraft.store._runs import Runs
from jetraft.store.mem_log import MemLog
from jetraft.store.model.clock import ManualClock
from jetraft.store.retention import StoreLimits
from jetraft.store.stream_store import StreamStore
from tests.store.naive_stream import Message, append_messages

messages = st.builds(
    Message,
    st.sampled_from([b"a", b"orders.eu.1"]),
    st.sampled_from([b"", b"payload", b"x" * 300]),
    st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.integers(1, 2**62),
)
TO = b"_INBOX.r"


def make_outbox() -> tuple[PlaneOutbox, int]:
    """A way out, and the connection of a client that listens on TO."""
    plane = Plane(
        max_payload=1 << 20,
        max_control_line=4096,
        max_pending=64 << 20,
        max_subscriptions=0,
        connect_handler=lambda _cid, _text: ConnectOptions(verbose=False, headers=True),
        first_ping_handler=lambda _cid: b"",
    )
    reactor = Reactor(plane, ManualClock(), lambda *_: None, lambda *_: None)
    cid = plane.open(-1, b"")
    plane.feed(cid, b"CONNECT {}\r\nSUB " + TO + b" 1\r\n")
    plane.take(cid)
    return PlaneOutbox(plane, reactor), cid


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
    st.data(),
)
@settings(deadline=None, max_examples=80)
def test_a_run_is_what_its_messages_are_one_by_one(  # noqa: PLR0913, PLR0917  (one for each column of a run)
    batches: list[list[Message]], first_seq: int, consumer_seq: int, num_pending: int, step: int, data: st.DataObject
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
    outbox, cid = make_outbox()
    expected = deliver_one_by_one(outbox, any_columns, store)
    text = outbox.plane.take(cid)
    for run in (first_deliveries, any_columns):
        assert outbox.deliver(run, store) == expected
        assert outbox.plane.take(cid) == text


def test_what_is_put_off_comes_after_the_batches_of_the_turn_and_before_its_end() -> None:
    outbox, cid = make_outbox()
    seen: list[str] = []

    def put_off(_batch: bytes) -> None:
        outbox.later(lambda: seen.append("put off"))
        seen.append("a")

    outbox.add_sink(b"a", put_off)
    outbox.add_sink(b"b", lambda _batch: seen.append("b"))
    outbox.reactor.hooks.append(lambda: seen.append("end"))
    outbox.plane.feed(cid, b"PUB a 0\r\n\r\nPUB b 0\r\n\r\n")
    outbox.reactor.end_turn()
    assert seen == ["a", "b", "put off", "end"]
