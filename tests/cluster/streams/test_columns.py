"""Direct gets answered in columns: what they have is what rows have, whatever is stored and however it is kept."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.streams.gets import column_gets
from jetraft.cluster.streams.gets._column_record import columns_record
from jetraft.cluster.streams.gets.batch_get import NO_LIMIT, BatchGet
from jetraft.cluster.streams.gets.column_gets import column_slice
from jetraft.cluster.streams.gets.column_request import (
    MEDIA_TYPE,
    MESSAGE_BYTES_MAX,
    ColumnRequest,
    parse_column_request,
)
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.start import LogOptions
from jetraft.store.model.message import get, status
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits
from pyspark_jetstream.columns import parse_columns
from pyspark_jetstream.rows import to_batches
from pyspark_jetstream.wire import Frame, Rows, append_message
from tests.cluster.lab import Node, Sent, start_stream
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Replica

ACCEPT: Final = b"NATS/1.0\r\nAccept: %s\r\n\r\n" % MEDIA_TYPE


@attrs.frozen
class Stored:
    """A message to publish."""

    subject: bytes
    payload: bytes
    hdr: bytes = b""


class Reader:
    """A replica, asked in both ways."""

    def __init__(self, messages: list[Stored], deleted: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.node = Node()
        self.replica = start_stream(self.node, allow_direct=True)
        for number, message in enumerate(messages):
            self.node.publish(message.subject, message.payload, hdr=message.hdr)
            if number % 3 == 2:
                self.node.turn()
        self.node.turn()
        self.replica.machine.store.remove(sorted(deleted))

    def ask(self, body: dict[str, Any], hdr: bytes = b"") -> list[Sent]:
        self.node.publish(b"$JS.API.DIRECT.GET.S", json.dumps(body).encode(), hdr=hdr, reply=b"_INBOX.r")
        return self.node.sleep(10**9)

    def columns(self, body: dict[str, Any], **wish: Any) -> list[Sent]:
        return self.ask({**body, "columns": wish}, ACCEPT)


def table(sent: list[Sent]) -> list[dict[str, Any]]:
    """The rows of an answer, in either form, as the connector makes them."""
    found: list[dict[str, Any]] = []
    for message in sent:
        if not message.hdr:
            found += parse_columns(message.payload).batch.to_pylist()
        elif get(message.hdr, b"Nats-Sequence"):
            rows = Rows()
            append_message(Frame(verb=b"MSG", header=message.hdr, payload=message.payload), rows)
            found += [row for batch in to_batches(rows) for row in batch.to_pylist()]
    return found


SUBJECTS = st.sampled_from([b"s.a", b"s.b", "s.\u00e9\u20ac".encode(), b"s.\xff", b"s." + b"long" * 30])
TEXT = st.sampled_from([b"", b" x ", b"y", b"\tz\x0b", "\u00fc".encode(), b"\xfe", b"a:b", b"lone\rreturn"])
NAMES = st.sampled_from([b"A", b"a", b" A ", b"B", b"", "\u00fc".encode(), b"\xfe", b"Nats-Subject"])
LINES = st.lists(st.tuples(NAMES, TEXT).map(lambda pair: b"%s:%s\r\n" % pair) | st.just(b"no colon\r\n"), max_size=4)
BLOCKS = st.none() | LINES.map(lambda lines: b"NATS/1.0\r\n%s\r\n" % b"".join(lines))
MESSAGES = st.builds(
    lambda subject, payload, hdr: Stored(subject, payload, hdr or b""), SUBJECTS, st.binary(max_size=40), BLOCKS
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(MESSAGES, min_size=1, max_size=25),
    st.sets(st.integers(1, 25), max_size=8),
    st.integers(4096, 6000),
    st.data(),
)
def test_columns_have_what_rows_have(messages: list[Stored], deleted: set[int], room: int, data: st.DataObject) -> None:
    reader = Reader(messages, {seq for seq in deleted if seq <= len(messages)})
    first, last = data.draw(st.integers(1, len(messages))), data.draw(st.integers(1, len(messages) + 3))
    rows = [row for row in table(reader.ask({"seq": first, "batch": 1000})) if row["stream_seq"] <= last]
    assert table(reader.columns({"seq": first, "batch": 1}, up_to_seq=last, message_bytes=room)) == rows


@pytest.mark.parametrize("room", [4096, 5000, 20_000, 10**7])
def test_no_message_is_larger_than_the_reader_takes(room: int) -> None:
    messages = [Stored(b"s.%d" % number, b"x" * (number * 7 % 900), block(number)) for number in range(300)]
    reader = Reader(messages)
    *sent, end = reader.columns({"seq": 1, "batch": 1000}, message_bytes=room)
    assert end.hdr.startswith(b"NATS/1.0 204 EOB\r\n")
    assert all(not message.hdr and len(message.payload) <= min(room, MESSAGE_BYTES_MAX) for message in sent)
    assert table(sent) == table(reader.ask({"seq": 1, "batch": 1000}))
    parts = [parse_columns(message.payload) for message in sent]
    assert [part.from_seq for part in parts] == [1, *(part.to_seq + 1 for part in parts[:-1])]
    assert parts[-1].to_seq == 300
    assert [part.num_pending for part in parts] == [300 - part.to_seq for part in parts]
    least = min(len(message.payload) for message in sent[:-1]) if len(sent) > 1 else room
    assert least > min(room, MESSAGE_BYTES_MAX) // 2, "they are filled"


def block(number: int) -> bytes:
    return b"NATS/1.0\r\nN: %d\r\n\r\n" % number if number % 2 else b""


@pytest.mark.parametrize(
    "odd",
    [
        Stored(b"s.large", b"x" * 5000),
        Stored(b"s.\xff", b"not UTF-8"),
        Stored(b"s.h", b"", b"NATS/1.0\r\nA: \xff\r\n\r\n"),
        Stored(b"s.h", b"", b"NATS/1.0\r\n" + b"A: b\r\n" * 65 + b"\r\n"),
    ],
    ids=["large", "subject", "header", "many headers"],
)
def test_what_columns_cannot_hold_is_sent_as_a_row_between_them(odd: Stored) -> None:
    reader = Reader([Stored(b"s.a", b"before"), odd, Stored(b"s.a", b"after")])
    sent = reader.columns({"seq": 1, "batch": 10}, up_to_seq=3, message_bytes=4096)
    assert [bool(message.hdr) for message in sent] == [False, True, False, True]
    assert table(sent) == table(reader.ask({"seq": 1, "batch": 10}))
    assert sent[-1].hdr.startswith(b"NATS/1.0 204 EOB\r\n")


def test_an_answer_says_what_it_covers_and_what_its_replica_has() -> None:
    reader = Reader([Stored(b"s.a", b"1")] * 9, {1, 2, 5, 8})
    (message, end) = reader.columns({"seq": 2, "batch": 1}, up_to_seq=8)
    part = parse_columns(message.payload)
    assert list(part.stream_seqs) == [3, 4, 6, 7]
    assert (part.from_seq, part.to_seq, part.num_pending, part.applied_seq, part.first_seq) == (2, 8, 1, 9, 3)
    assert part.created_ns == reader.replica.assignment.created_ns
    created = b"%d" % reader.replica.assignment.created_ns
    names = (b"Jetraft-Last-Seq", b"Jetraft-First-Seq", b"Jetraft-Created", b"Nats-Last-Sequence")
    assert [get(end.hdr, name) for name in names] == [b"9", b"3", created, b"7"]


def test_a_range_without_messages_has_an_end_only() -> None:
    reader = Reader([Stored(b"s.a", b"1")] * 9, {4, 5, 6})
    (end,) = reader.columns({"seq": 4, "batch": 1}, up_to_seq=6)
    assert end.hdr.startswith(b"NATS/1.0 204 EOB\r\n")
    (end,) = reader.columns({"seq": 4, "batch": 1}, up_to_seq=2)
    assert end.hdr.startswith(b"NATS/1.0 204 EOB\r\n")


def test_without_an_end_the_limits_of_rows_hold() -> None:
    reader = Reader([Stored(b"s.a", b"0123456789")] * 9)
    assert len(table(reader.columns({"seq": 2, "batch": 3}))) == 3
    assert len(table(reader.columns({"seq": 2, "batch": 9, "max_bytes": 26}))) == 2
    assert len(table(reader.columns({"seq": 2, "batch": 9, "max_bytes": 27}))) == 3


def test_columns_that_were_not_asked_for_are_not_sent() -> None:
    reader = Reader([Stored(b"s.a", b"x" * 500, block(1))] * 20)
    whole, _ = reader.columns({"seq": 1, "batch": 20}, up_to_seq=20)
    lean, _ = reader.columns({"seq": 1, "batch": 20}, up_to_seq=20, select=["subject"])
    assert len(lean.payload) < len(whole.payload) / 10
    (row, *_) = table([lean])
    assert row == {"stream_seq": 1, "time": None, "subject": "s.a", "headers": None, "data": None}


def test_filters_admit_any_of_several_subjects() -> None:
    reader = Reader([Stored(b"s.%d" % (number % 5), b"") for number in range(20)])
    sent = reader.columns({"seq": 1, "batch": 1}, up_to_seq=18, filters=["s.1", "s.3"])
    assert [row["stream_seq"] for row in table(sent)] == [2, 4, 7, 9, 12, 14, 17]
    assert parse_columns(sent[0].payload).to_seq == 18


def test_few_subjects_are_sent_once() -> None:
    few = Reader([Stored(b"s." + b"long" * 30 + b"%d" % (number % 3), b"") for number in range(300)])
    many = Reader([Stored(b"s." + b"long" * 30 + b"%d" % number, b"") for number in range(300)])
    sizes = [len(reader.columns({"seq": 1, "batch": 1}, up_to_seq=300)[0].payload) for reader in (few, many)]
    assert sizes[0] < 300 * 40 < sizes[1]
    assert len({row["subject"] for row in table(many.columns({"seq": 1, "batch": 1}, up_to_seq=300))}) == 300


def damaged_reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader of nine messages, one of which cannot be read."""
    reader = Reader([Stored(b"s.a", b"%d" % number) for number in range(9)])
    store = reader.replica.machine.store
    load, place = store._log.frame_at, store.place(7)
    assert place is not None

    def damaged(number: int, offset: int) -> bytes:
        if (number, offset) == place[:2]:
            raise StoreCorrupt("damaged")
        return load(number, offset)

    monkeypatch.setattr(store._log, "frame_at", damaged)
    store.records.forget()
    return reader


def test_a_damaged_message_ends_an_answer_as_it_ends_one_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = damaged_reader(monkeypatch).ask({"seq": 1, "batch": 9})  # the replica stops: the other answer is another's
    columns = damaged_reader(monkeypatch).columns({"seq": 1, "batch": 9}, up_to_seq=9)
    assert table(columns) == table(rows) != []
    assert [columns[-1].hdr, rows[-1].hdr] == [status(500, b"Message Damaged")] * 2


def test_a_replica_that_met_damage_answers_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = damaged_reader(monkeypatch)
    assert reader.ask({"seq": 1, "batch": 9}) != []
    assert reader.ask({"seq": 1, "batch": 1}) == reader.columns({"seq": 1, "batch": 1}, up_to_seq=3) == []


def test_an_answer_holds_few_frames_however_little_of_them_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader([Stored(b"s.a", b"")] * 2000)  # frames of three
    sent = reader.columns({"seq": 1, "batch": 1}, up_to_seq=2000, message_bytes=MESSAGE_BYTES_MAX)
    assert [len(parse_columns(message.payload)) for message in sent[:-1]] == [1536, 464]
    monkeypatch.setattr(column_gets, "ROWS_MAX", 100)
    sent = reader.columns({"seq": 1, "batch": 1}, up_to_seq=250, message_bytes=MESSAGE_BYTES_MAX)
    assert [len(parse_columns(message.payload)) for message in sent[:-1]] == [100, 100, 50]


@pytest.mark.parametrize(
    "wish",
    [[], {"up_to_seq": "1"}, {"up_to_seq": -1}, {"message_bytes": True}, {"filters": "s.a"}, {"filters": [1]},
     {"filters": ["a"] * 257}, {"select": ["payload"]}, {"select": [["data"]]}, {"up_to_seq": 2**63}],
)  # fmt: skip
def test_a_wish_that_is_not_understood_is_refused(wish: Any) -> None:
    (answer,) = Reader([Stored(b"s.a", b"")]).ask({"seq": 1, "batch": 1, "columns": wish}, ACCEPT)
    assert answer.hdr == b"NATS/1.0 408 Malformed Request\r\n\r\n"


@pytest.mark.parametrize(
    ("hdr", "wish"),
    [
        (b"", {"select": 5}),
        (b"NATS/1.0\r\nAccept: text/plain\r\n\r\n", {}),
        (ACCEPT, {"message_bytes": 100}),
    ],
    ids=["not asked for", "another form", "too little room"],
)
def test_others_are_answered_in_rows(hdr: bytes, wish: Any) -> None:
    sent = Reader([Stored(b"s.a", b"")] * 3).ask({"seq": 1, "batch": 2, "columns": wish}, hdr)
    assert [get(message.hdr, b"Nats-Sequence") for message in sent] == [b"1", b"2", None]


def test_one_of_several_accepted_forms_is_enough() -> None:
    assert parse_column_request(b"NATS/1.0\r\nAccept: text/plain, %s;q=1\r\n\r\n" % MEDIA_TYPE, None) is not None


def test_a_paused_answer_continues_where_it_was() -> None:
    reader = Reader([Stored(b"s.a", b"x" * 1000)] * 50)
    reader.node.unread[b"_INBOX.r"] = 1 << 30
    assert reader.columns({"seq": 1, "batch": 1}, up_to_seq=50, message_bytes=4096) == []
    reader.node.unread.clear()
    assert [row["stream_seq"] for row in table(reader.node.sleep(10**9))] == list(range(1, 51))


def test_the_hottest_frame_is_read_once() -> None:
    """Many messages of one frame do not hold it many times."""
    node = Node()
    replica = start_stream(node, allow_direct=True)
    for _ in range(500):
        node.publish(b"s.a", b"")
    node.turn()
    store = replica.machine.store
    seqs = store.next_runs((), 1, 500)
    record, rows, *_ = columns_record(
        store.records, seqs, b"r", room=100_000, wanted=15, content_max=1 << 40, from_seq=1, to_seq=500,
        num_pending=500, applied_seq=500, first_seq=1, created_ns=1,
    )  # fmt: skip
    assert rows == 500
    assert record


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("secrets", [None, Secrets(key=b"k")], ids=["open", "encrypted"])
@pytest.mark.parametrize("seed", range(3))
def test_columns_are_the_same_however_messages_are_kept(
    seed: int, secrets: Secrets | None, *, compressed: bool
) -> None:
    if secrets is not None:
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    rng = Random(seed)
    replica = kept(LogOptions(block_bytes_first=4096, block_bytes_max=4096, secrets=secrets))
    replica.compressed = compressed
    for round_number in range(30):
        replica.publish(
            [
                (
                    b"k.%d" % rng.randrange(12),
                    block(rng.randrange(4)),
                    rng.choice((b"", b"p" * 300, b"%d" % round_number)),
                )
            ]
            * rng.randint(1, 4)
        )
        if rng.random() < 0.3:
            live = list(replica.found())
            replica.command("remove", sorted(rng.sample(live, min(3, len(live)))), rng.random() < 0.5)
        if rng.random() < 0.2:
            replica.plan()
            for _ in range(2):
                replica.publish([(b"k.0", b"", b"x" * 200)])
                replica.checkpoint()
            replica.carry_out()
    for restarted in (False, True):
        if restarted:
            replica.restart()
        expected = replica.found()
        assert stored_columns(replica) == expected
        assert len(expected) > 20


def kept(options: LogOptions) -> Replica:
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    return Replica(disk, options, StoreLimits(max_msgs_per_subject=5))


def stored_columns(replica: Replica) -> dict[int, tuple[bytes, bytes, bytes]]:
    """Every live message by columns, with its headers as a block."""
    found: dict[int, tuple[bytes, bytes, bytes]] = {}
    batch = BatchGet(
        reply=b"_INBOX.r", filters=(), next_seq=1, left=NO_LIMIT, bytes_left=NO_LIMIT, num_pending=0,
        columns=ColumnRequest(message_bytes=4096, up_to_seq=replica.store.last_seq),
    )  # fmt: skip
    is_over = False
    while not is_over:
        made = column_slice(replica.store, batch, 1)
        is_over = made.is_over
        assert not made.is_row_next
        for captured in captures(made.record):
            for row in parse_columns(captured.payload).batch.to_pylist():
                lines = b"".join(
                    b"%b: %b\r\n" % (name.encode(), values[0].encode()) for name, values in row["headers"] or ()
                )
                hdr = b"NATS/1.0\r\n%b\r\n" % lines if lines else b""
                found[row["stream_seq"]] = row["subject"].encode(), hdr, row["data"]
    return found
