"""What an archive says is believed only as far as it is sound."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import attrs
import orjson
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.backup import consumers
from jetraft.cluster.backup.archive import END, MAGIC, ArchiveEntry, ArchiveReader, pack_entry
from jetraft.cluster.backup.consumers import ROWS_PER_STEP, UnfinishedConsumer, pack_consumer
from jetraft.cluster.backup.contents import ArchiveEnd, Contents, Item
from jetraft.cluster.backup.reading import items_of
from jetraft.cluster.backup.sliced_json import STEP_CHARS
from jetraft.store.model.config import AckPolicy, ConsumerConfig, StreamConfig
from jetraft.store.model.validation.validate import normalise_stream
from jetraft.store.model.validation.validate_consumer import normalise_consumer
from jetraft.store.s2.framing import Compressor, CorruptArchiveError
from jetraft.store.stream._runs import Runs
from jetraft.store.stream._unacked import UnackedTable
from jetraft.store.stream.consumer_state import ConsumerState
from jetraft.store.stream.dead_letter import DeadLetter

CONFIG = normalise_stream(StreamConfig(name="S", subjects=("s.>",)))
STATE = {"messages": 2, "bytes": 100, "first_seq": 1, "last_seq": 5, "consumer_count": 0}
CONSUMER = normalise_consumer(ConsumerConfig(durable_name="d", name="d", ack_policy=AckPolicy.EXPLICIT), CONFIG)
MESSAGE = ArchiveEntry(b"s.a", 7, 2, b"", b"hello")


def state_entry(**changes: Any) -> ArchiveEntry:
    return ArchiveEntry(b"state.json", 1, 0, b"", orjson.dumps({**STATE, **changes}))


def consumer_entry(name: bytes = b"d", **state: Any) -> ArchiveEntry:
    kept = {"delivered": {"consumer_seq": 3, "stream_seq": 4}, "ack_floor": {}, **state}
    body = orjson.dumps({"config": CONSUMER.to_json_dict(), "state": kept})
    return ArchiveEntry(b"consumers/" + name, 1, 0, b"", body)


def finished(consumer: UnfinishedConsumer) -> ConsumerState:
    for _ in consumer.parse():
        pass
    consumer.configure()
    for _ in consumer.build():
        pass
    return consumer.state


def unpacked(name: str, body: bytes, stream: StreamConfig, now_unix_ns: int) -> ConsumerState:
    return finished(UnfinishedConsumer(name, stream, now_unix_ns, body))


def read(*entries: ArchiveEntry, config: StreamConfig = CONFIG) -> list[Item]:
    contents = Contents(config, 1)
    found = [contents.take(entry) for entry in entries]
    items = [finished(one) if isinstance(one, UnfinishedConsumer) else one for one in found]
    contents.finish()
    return items


ENTRIES = st.builds(
    ArchiveEntry,
    st.binary(max_size=20),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 64) - 1),
    st.binary(max_size=20),
    st.binary(max_size=300),
)


@given(st.lists(ENTRIES, max_size=8), st.integers(1, 40))
def test_entries_come_back_whatever_the_pieces(entries: list[ArchiveEntry], piece: int) -> None:
    data = MAGIC + b"".join(map(pack_entry, entries))
    reader = ArchiveReader()
    found = [one for at in range(0, len(data), piece) for one in reader.add(data[at : at + piece])]
    assert found == entries
    assert reader.is_at_an_end


@pytest.mark.parametrize(
    "data",
    [
        b"NATSARC2" + pack_entry(END),
        MAGIC + b"\x00\x00\x00\x00" + b"\xff" * 9 + b"\x7f",  # a body of 2**70 bytes
        MAGIC + b"\x80" * 11,
        MAGIC + b"\x80\x80\x80\x08" + b"\x00" * 4,  # a name of 16 MiB
    ],
)
def test_entries_larger_than_any_are_refused_before_memory_is_taken(data: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        list(ArchiveReader().add(data))


def test_a_whole_archive_is_read() -> None:
    items = read(state_entry(consumer_count=1), consumer_entry(), MESSAGE, END)
    assert items[2] == MESSAGE
    assert items[3] == ArchiveEnd(5, 0)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ((END,), "state missing"),
        ((MESSAGE,), "state missing"),
        ((state_entry(),), "unexpected EOF"),
        ((state_entry(), MESSAGE), "unexpected EOF"),
        ((state_entry(), END, MESSAGE), "invalid archive"),
        ((ArchiveEntry(b"state.json", 1, 0, b"", b"{"),), "state corrupt"),
        ((state_entry(messages=9),), "state corrupt"),
        ((state_entry(first_seq=9),), "state corrupt"),
        ((state_entry(consumer_count=-1),), "state corrupt"),
        ((state_entry(consumer_count=1 << 40),), "state corrupt"),
        ((state_entry(last_seq=1 << 63),), "state corrupt"),
        ((state_entry(), MESSAGE, MESSAGE, END), "out of order"),
        ((state_entry(), MESSAGE._replace(seq=6), END), "out of order"),
        ((state_entry(), MESSAGE._replace(name=b"s.*"), END), "invalid message"),
        ((state_entry(), MESSAGE._replace(name=b"s..a"), END), "invalid message"),
        ((state_entry(), MESSAGE._replace(ts_ns=-1), END), "invalid message"),
        ((state_entry(), MESSAGE._replace(hdr=b"A: b\r\n"), END), "invalid header"),
        ((state_entry(), MESSAGE._replace(body=bytes(200)), END), "message bytes"),
        ((state_entry(messages=1), MESSAGE, MESSAGE._replace(seq=3), END), "message bytes"),
        ((state_entry(consumer_count=1), MESSAGE, END), "invalid consumer"),
        ((state_entry(consumer_count=1), consumer_entry(b"../d"), END), "invalid consumer"),
        ((state_entry(consumer_count=1), consumer_entry(b"a\\b"), END), "invalid consumer"),
        ((state_entry(consumer_count=1), consumer_entry(b""), END), "invalid consumer"),
        ((state_entry(consumer_count=2), consumer_entry(), consumer_entry(), END), "twice"),
        ((state_entry(consumer_count=1), consumer_entry(b"e"), END), "another name"),
        ((state_entry(consumer_count=1), consumer_entry(pending={"1": 1}), END), "failed to decode"),
        ((state_entry(consumer_count=1), ArchiveEntry(b"consumers/d", 1, 0, b"", b"[]"), END), "failed to decode"),
        ((state_entry(consumer_count=1), consumer_entry(delivered={"stream_seq": -1}), END), "failed to decode"),
        ((state_entry(consumer_count=1), consumer_entry(pending={"x": {}}), END), "failed to decode"),
        ((state_entry(consumer_count=1), consumer_entry(pending=[1]), END), "failed to decode"),
    ],
)
def test_what_is_not_sound_is_refused(entries: tuple[ArchiveEntry, ...], reason: str) -> None:
    with pytest.raises(CorruptArchiveError, match=reason):
        read(*entries)


def test_a_message_larger_than_the_stream_takes_is_refused() -> None:
    with pytest.raises(CorruptArchiveError, match="message size exceeds maximum"):
        read(state_entry(), MESSAGE, END, config=attrs.evolve(CONFIG, max_msg_size=4))


def test_a_consumer_comes_back_as_it_was() -> None:
    pending = UnackedTable()
    pending.put(4, 2, 1_000_000_000, 1)
    pending.put(9, 5, 2_000_000_000, 3)
    state = ConsumerState(
        name="d",
        config=CONSUMER,
        created_ns=5,
        start_seq=3,
        initial=Runs((3, 7)),
        resume_seq=10,
        delivered_consumer=6,
        delivered_stream=11,
        delivered_ns=3_000_000_000,
        pending=pending,
        acked_ahead={14},
    )
    assert unpacked("d", pack_consumer(state), CONFIG, 99) == state


def test_a_consumer_of_another_server_keeps_what_it_tells() -> None:
    body = consumer_entry(pending={"3": {"Sequence": 2, "Timestamp": 77}}, redelivered={"3": 2}).body
    state = unpacked("d", body, CONFIG, 99)
    assert (state.delivered_consumer, state.delivered_stream, state.ack_floor) == (3, 4, (1, 2))
    assert state.pending.rows() == [(3, 2, 77, 3)]
    assert state.created_ns == 99


def test_pending_rows_that_could_never_be_acknowledged_are_left_out() -> None:
    rows = {"9": {"Sequence": 1, "Timestamp": 1}, "3": {"Sequence": 9, "Timestamp": 1}, "0": {"Sequence": 1}}
    assert len(unpacked("d", consumer_entry(pending=rows).body, CONFIG, 99).pending) == 0


def test_dead_letters_come_back_and_odd_ones_are_refused() -> None:
    config = attrs.evolve(CONSUMER, metadata={"jetraft.dead_letter": "dlq"}, max_ack_pending=2)
    dead = {3: DeadLetter(2, 10**18, "term", "no use"), 4: DeadLetter(5, 10**18, "max_deliver", "")}
    state = ConsumerState(name="d", config=config, created_ns=1, start_seq=1, delivered_stream=9, dead=dead)
    body = pack_consumer(state)
    assert unpacked("d", body, CONFIG, 1).dead == dead
    for change in ({"cause": "x"}, {"reason": 1}, {"deliveries": -1}, {"given_up_ns": "1"}):
        whole = orjson.loads(body)
        whole["jetraft"]["dead"]["3"] |= change
        with pytest.raises(CorruptArchiveError):
            unpacked("d", orjson.dumps(whole), CONFIG, 1)
    whole["jetraft"]["dead"] = {str(seq): attrs.asdict(dead[3]) for seq in range(1, 100)}
    assert len(unpacked("d", orjson.dumps(whole), CONFIG, 1).dead) == 2, "no more than a consumer could have"


def test_a_large_consumer_is_read_and_made_in_small_steps() -> None:
    """Rows in the order of their keys as texts, as nats-server writes them."""
    count = 60_000
    numbers = sorted(range(1, count + 1), key=str)
    rows = {str(seq): {"Sequence": seq, "Timestamp": seq} for seq in numbers}
    again = {str(seq): 2 for seq in numbers[::7]}
    delivered = {"consumer_seq": count, "stream_seq": count}
    body = consumer_entry(delivered=delivered, pending=rows, redelivered=again).body
    consumer = UnfinishedConsumer("d", CONFIG, 1, body)

    steps = sum(1 for _ in consumer.parse())
    consumer.configure()
    assert steps >= len(body) // STEP_CHARS - 10
    assert sum(1 for _ in consumer.build()) == count // ROWS_PER_STEP

    twice = set(numbers[::7])
    expected = [(seq, seq, seq, 3 if seq in twice else 1) for seq in range(1, count + 1)]
    assert consumer.state.pending.rows() == expected


@pytest.mark.parametrize("kind", ["pending", "redelivered"])
def test_a_consumer_with_more_rows_than_any_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "ROWS_MAX", 3)
    row: Any = {"Sequence": 1, "Timestamp": 1} if kind == "pending" else 1
    state: dict[str, Any] = {kind: {str(seq): row for seq in range(1, 5)}}
    with pytest.raises(CorruptArchiveError, match="more than 3 messages"):
        unpacked("d", consumer_entry(b"d", **state).body, CONFIG, 1)


def test_of_a_row_that_comes_twice_the_last_counts() -> None:
    first, last = b'"3":{"Sequence":1,"Timestamp":5}', b'"3":{"Sequence":2,"Timestamp":6}'
    body = consumer_entry(pending={}).body.replace(b'"pending":{}', b'"pending":{%s,%s}' % (first, last))
    assert unpacked("d", body, CONFIG, 1).pending.rows() == [(3, 2, 6, 1)]


def test_others_have_their_turns_while_a_large_consumer_is_read() -> None:
    rows = {str(seq): {"Sequence": seq, "Timestamp": seq} for seq in range(1, 30_001)}
    entry = consumer_entry(delivered={"consumer_seq": 30_000, "stream_seq": 30_000}, pending=rows)
    compressor = Compressor()
    archive = compressor.add(MAGIC + b"".join(map(pack_entry, (state_entry(consumer_count=1), entry, MESSAGE, END))))
    archive += compressor.flush()

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield archive

    async def run() -> tuple[int, list[Item]]:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            async with aclosing(items_of(pieces(), CONFIG, 1, room_bytes=1 << 20, turn=trio.Lock())) as items:
                found = [item async for item in items]
            nursery.cancel_scope.cancel()
        return turns, found

    turns, found = trio.run(run)
    assert isinstance(found[1], ConsumerState)
    assert len(found[1].pending) == 30_000
    assert turns > 100
