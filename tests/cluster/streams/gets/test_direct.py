"""Direct gets; the answers are nats-server 2.15.1's, beside the extensions named Jetraft."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.memory_budget import MemoryBudget
from jetraft.cluster.streams.gets import direct, get_places
from jetraft.cluster.streams.gets._direct import DirectEncoder
from jetraft.cluster.streams.gets.held_gets import HELD_NS
from jetraft.store.disk.cgroup import MemoryGroup
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import format_time
from jetraft.store.model.message import get
from tests.cluster.lab import Node, Sent, start_stream

if TYPE_CHECKING:
    from pathlib import Path

SUBJECTS = [b"s.a", b"s.b", b"s.a", b"s.b", b"s.a", b"s.b", b"s.h"]


class Reader:
    def __init__(self, subjects: list[bytes] = SUBJECTS, *, memory: MemoryBudget | None = None) -> None:
        self.node = Node()
        self.node.site = attrs.evolve(self.node.site, memory=memory)
        self.replica = start_stream(self.node, allow_direct=True)
        for subject in subjects:
            hdr = b"NATS/1.0\r\nX: y\r\n\r\n" if subject == b"s.h" else b""
            self.node.publish(subject, b"0123456789", hdr=hdr)
        self.node.turn()

    def ask(self, body: Any, *, subject: bytes = b"", hdr: bytes = b"") -> list[Sent]:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.node.publish(b"$JS.API.DIRECT.GET.S" + subject, payload, hdr=hdr, reply=b"_INBOX.r")
        return self.node.sleep(1000)


def seqs(sent: list[Sent]) -> list[int]:
    return [int(seq) for message in sent if (seq := get(message.hdr, b"Nats-Sequence"))]


def numbers(hdr: bytes) -> tuple[int, int]:
    return int(get(hdr, b"Nats-Num-Pending") or -1), int(get(hdr, b"Nats-Last-Sequence") or -1)


@pytest.mark.parametrize(
    ("body", "seq"),
    [
        ({"seq": 1}, 1),
        ({"last_by_subj": "s.a"}, 5),
        ({"last_by_subj": "s.*"}, 7),
        ({"next_by_subj": "s.a", "seq": 2}, 3),
        ({"next_by_subj": "s.b"}, 2),
        ({"start_time": "2020-01-01T00:00:00Z"}, 1),
        ({"seq": 1, "foo": 1}, 1),
        ({"seq": 1, "max_bytes": 1}, 1),
    ],
)
def test_one_message_is_found(body: dict[str, Any], seq: int) -> None:
    (message,) = Reader().ask(body)
    assert get(message.hdr, b"Nats-Sequence") == b"%d" % seq
    assert message.payload == b"0123456789"
    assert get(message.hdr, b"Nats-Num-Pending") is None


def test_headers_of_the_message_come_first_and_its_origin_after() -> None:
    reader = Reader()
    time = format_time(reader.replica.machine.last_ts_ns).encode()
    (message,) = reader.ask({"seq": 7})
    assert message.hdr == (
        b"NATS/1.0\r\nX: y\r\nNats-Stream: S\r\nNats-Subject: s.h\r\nNats-Sequence: 7\r\nNats-Time-Stamp: %s\r\n\r\n"
        % time
    )
    (bare,) = reader.ask({"seq": 7, "no_hdr": True})
    assert (bare.hdr, bare.payload) == (b"", b"0123456789")


def test_the_subject_form_gets_the_last_of_a_subject() -> None:
    assert seqs(Reader().ask(b"", subject=b".s.b")) == [6]


@pytest.mark.parametrize(
    ("body", "subject", "status"),
    [
        (b"", b"", b"408 Empty Request"),
        ({}, b"", b"408 Empty Request"),
        ({"batch": 2}, b"", b"408 Empty Request"),
        ({"multi_last": []}, b"", b"408 Empty Request"),
        (b"xx", b"", b"408 Malformed Request"),
        (b"[]", b"", b"408 Malformed Request"),
        (b"[" * 100_000, b"", b"408 Malformed Request"),
        ({"seq": "1"}, b"", b"408 Malformed Request"),
        ({"seq": -1}, b"", b"408 Malformed Request"),
        ({"multi_last": [1]}, b"", b"408 Malformed Request"),
        ({"start_time": "yesterday"}, b"", b"408 Malformed Request"),
        ({"seq": 1, "last_by_subj": "s.a"}, b"", b"408 Bad Request"),
        ({"seq": 1, "start_time": "2020-01-01T00:00:00Z"}, b"", b"408 Bad Request"),
        ({"last_by_subj": "s.a", "batch": 2}, b"", b"408 Bad Request"),
        ({"multi_last": ["s.a"], "last_by_subj": "s.a"}, b"", b"408 Bad Request"),
        ({"multi_last": ["s.a"], "up_to_seq": 1, "up_to_time": "2020-01-01T00:00:00Z"}, b"", b"408 Bad Request"),
        ({"seq": 1}, b".s.a", b"408 Bad Request"),
        (b"x", b".s.a", b"408 Malformed Request"),
        ({"seq": 99}, b"", b"404 Message Not Found"),
        ({"seq": 99, "batch": 2}, b"", b"404 Message Not Found"),
        ({"last_by_subj": "s.zz"}, b"", b"404 Message Not Found"),
        (b"", b".s.zz", b"404 Message Not Found"),
        ({"multi_last": ["zz"]}, b"", b"404 No Results"),
        ({"multi_last": ["s.>"], "up_to_time": "2020-01-01T00:00:00Z"}, b"", b"404 No Results"),
    ],
)
def test_what_cannot_be_answered_gets_the_reference_s_status(body: Any, subject: bytes, status: bytes) -> None:
    (answer,) = Reader().ask(body, subject=subject)
    assert (answer.hdr, answer.payload) == (b"NATS/1.0 %s\r\n\r\n" % status, b"")


@pytest.mark.parametrize(
    ("body", "expected", "end"),
    [
        ({"seq": 3, "batch": 3}, [3, 4, 5], (2, 5)),
        ({"seq": 3, "batch": 30}, [3, 4, 5, 6, 7], (0, 7)),
        ({"next_by_subj": "s.b", "batch": 2}, [2, 4], (1, 4)),
        ({"start_time": "2020-01-01T00:00:00Z", "batch": 2}, [1, 2], (5, 2)),
        ({"seq": 1, "batch": -1}, [], (7, 0)),
        ({"seq": 1, "batch": 9, "max_bytes": 1}, [1], (6, 1)),
        ({"seq": 1, "batch": 9, "max_bytes": 26}, [1, 2], (5, 2)),
        ({"seq": 1, "batch": 9, "max_bytes": 27}, [1, 2, 3], (4, 3)),
        ({"multi_last": ["s.a", "s.b"]}, [5, 6], (0, 6)),
        ({"multi_last": ["s.>"], "batch": 1}, [5], (2, 5)),
        ({"multi_last": ["s.>"], "up_to_seq": 4}, [3, 4], (0, 4)),
    ],
)
def test_a_batch_ends_with_its_place(body: dict[str, Any], expected: list[int], end: tuple[int, int]) -> None:
    *messages, last = Reader().ask(body)
    assert seqs(messages) == expected
    assert last.hdr.startswith(b"NATS/1.0 204 EOB\r\n")
    assert numbers(last.hdr) == end
    pending = end[0] + len(expected)
    places = [(pending - at, expected[at - 2] if at > 1 else 0) for at in range(1, len(expected) + 1)]
    assert [numbers(message.hdr) for message in messages] == places
    assert get(last.hdr, b"Jetraft-Last-Seq") == b"7"


def test_a_large_batch_is_served_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "SLICE_MESSAGES", 3)
    reader = Reader()
    reader.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":100}', reply=b"_INBOX.r")
    assert seqs(reader.node.turn()) == [1, 2, 3]
    rest = reader.node.sleep(1000)
    assert seqs(rest) == [4, 5, 6, 7]
    assert rest[-1].hdr.startswith(b"NATS/1.0 204 EOB")


def test_slices_by_size_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "SLICE_BYTES", 1)
    assert seqs(Reader().ask({"multi_last": ["s.>"]})) == [5, 6, 7]
    assert seqs(Reader().ask({"seq": 1, "batch": 4})) == [1, 2, 3, 4]


def test_a_client_that_left_is_not_served() -> None:
    reader = Reader()
    reader.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":100}', reply=b"gone")
    assert reader.node.sleep(1000) == []
    assert not reader.replica._direct._batches


def test_batches_pause_while_their_reader_is_behind_and_end_complete() -> None:
    reader = Reader()
    reader.node.unread[b"_INBOX.slow"] = direct.UNREAD_BYTES_MAX + 1
    for name in (b"slow", b"quick"):
        reader.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":100}', reply=b"_INBOX." + name)
    answers = reader.node.sleep(10 * direct.PAUSE_NS)
    assert {answer.subject for answer in answers} == {b"_INBOX.quick"}
    assert seqs(answers) == [1, 2, 3, 4, 5, 6, 7]
    reader.node.unread.clear()
    answers = reader.node.sleep(direct.PAUSE_NS)
    assert seqs(answers) == [1, 2, 3, 4, 5, 6, 7]
    assert answers[-1].hdr.startswith(b"NATS/1.0 204 EOB")


def test_a_paused_batch_whose_reader_left_ends() -> None:
    reader = Reader()
    reader.node.unread[b"_INBOX.slow"] = direct.UNREAD_BYTES_MAX + 1
    reader.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":100}', reply=b"_INBOX.slow")
    reader.node.sleep(direct.PAUSE_NS)
    assert len(reader.replica._direct._batches) == 1
    reader.node.subscriptions.clear()
    reader.node.unread.clear()
    assert reader.node.sleep(2 * direct.PAUSE_NS) == []
    assert not reader.replica._direct._batches
    assert not reader.replica._direct._of_client


def test_a_turn_serves_a_few_slices_however_many_batches_there_are() -> None:
    reader = Reader()
    asked = 3 * direct.SLICES_PER_TURN
    for number in range(asked):
        reader.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":100}', reply=b"_INBOX.%d" % number)
    assert len({answer.subject for answer in reader.node.turn()}) == direct.SLICES_PER_TURN
    assert len({answer.subject for answer in reader.node.sleep(1000)}) == asked - direct.SLICES_PER_TURN


def test_one_connection_has_so_many_batches_and_others_still_find_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "CLIENT_BATCHES_MAX", 2)
    reader = Reader()
    asked = []
    for number, client in enumerate((7, 7, 7, 8, 0, 0, 0)):
        reader.node.unread[b"_INBOX.%d" % number] = direct.UNREAD_BYTES_MAX + 1
        asked.append(
            encode_capture(b"$JS.API.DIRECT.GET.S", b"_INBOX.%d" % number, b"", b'{"seq":1,"batch":100}', origin=client)
        )
    reader.replica._direct.on_requests(b"".join(asked))
    assert [(sent.subject, sent.hdr) for sent in reader.node.turn()] == [(b"_INBOX.2", direct.BUSY)]
    reader.node.unread.clear()
    assert len(seqs(reader.node.sleep(10 * direct.PAUSE_NS))) == 6 * 7
    assert not reader.replica._direct._of_client


def test_too_many_subjects_are_refused() -> None:
    reader = Reader([b"s.%d" % number for number in range(1025)])
    (answer,) = reader.ask({"multi_last": ["s.>"]})
    assert answer.hdr == b"NATS/1.0 413 Too Many Results\r\n\r\n"
    assert len(reader.ask({"multi_last": ["s.>"], "up_to_seq": 1024})) == 1025


DEMAND = b"NATS/1.0\r\nJetraft-Min-Last-Seq: %d\r\n\r\n"
BEHIND = b"NATS/1.0 412 Replica Behind\r\nJetraft-Last-Seq: %d\r\n\r\n"


def test_a_replica_that_is_as_far_as_a_client_needs_answers_and_says_how_far_it_is() -> None:
    assert seqs(Reader().ask({"seq": 1, "batch": 2}, hdr=DEMAND % 7)) == [1, 2]
    (nothing,) = Reader().ask({"seq": 50, "batch": 2}, hdr=DEMAND % 7)
    assert nothing.hdr == b"NATS/1.0 404 Message Not Found\r\nJetraft-Last-Seq: 7\r\n\r\n"


def test_a_replica_that_stays_behind_says_so_after_a_moment() -> None:
    reader = Reader()
    reader.node.publish(b"$JS.API.DIRECT.GET.S.s.a", hdr=DEMAND % 8, reply=b"_INBOX.r")
    assert reader.node.sleep(HELD_NS - 1) == []
    (answer,) = reader.node.sleep(1)
    assert answer.hdr == BEHIND % 7
    assert reader.node.sleep(10 * HELD_NS) == []


@pytest.mark.parametrize(
    ("subject", "body"), [(b".s.a", b""), (b"", b'{"last_by_subj":"s.a"}'), (b"", b'{"seq":8,"batch":2}')]
)
def test_a_replica_that_gets_there_answers_with_what_it_has_then(subject: bytes, body: bytes) -> None:
    reader = Reader()
    reader.node.publish(b"$JS.API.DIRECT.GET.S" + subject, body, hdr=DEMAND % 8, reply=b"_INBOX.early")
    reader.node.publish(b"$JS.API.DIRECT.GET.S.s.a", hdr=DEMAND % 9, reply=b"_INBOX.late")
    assert reader.node.sleep(10) == []
    reader.node.publish(b"s.a", b"8")
    answers = [sent for sent in reader.node.sleep(10) if sent.subject == b"_INBOX.early"]
    assert seqs(answers) == [8]
    assert answers[0].payload == b"8"
    reader.node.publish(b"s.a", b"9")
    assert [sent.payload for sent in reader.node.sleep(10) if sent.subject == b"_INBOX.late"] == [b"9"]
    assert not reader.replica._direct._held


def test_what_may_be_held_is_bounded_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_places, "PLACES_MAX", 3)  # of which requests from elsewhere have two
    reader = Reader()
    for number in range(3):
        reader.node.publish(b"$JS.API.DIRECT.GET.S.s.a", hdr=DEMAND % 8, reply=b"_INBOX.%d" % number)
    assert [(sent.subject, sent.hdr) for sent in reader.node.sleep(1)] == [(b"_INBOX.2", BEHIND % 7)]
    monkeypatch.setattr(get_places, "BYTES_MAX", 1000)
    other = Reader()
    other.node.publish(b"$JS.API.DIRECT.GET.S", b" " * 1000, hdr=DEMAND % 8, reply=b"_INBOX.large")
    assert [sent.hdr for sent in other.node.sleep(1)] == [BEHIND % 7]


def test_a_replica_that_ends_tells_who_waits_once() -> None:
    reader = Reader()
    reader.node.publish(b"$JS.API.DIRECT.GET.S.s.a", hdr=DEMAND % 8, reply=b"_INBOX.r")
    assert reader.node.sleep(1) == []
    reader.replica._direct.end()
    assert [sent.hdr for sent in reader.node.sleep(1)] == [direct.NO_RESPONDERS]
    assert reader.node.sleep(10 * HELD_NS) == []


def test_a_client_of_a_later_api_is_refused() -> None:
    (answer,) = Reader().ask({"seq": 1}, hdr=b"NATS/1.0\r\nNats-Required-Api-Level: 9\r\n\r\n")
    assert answer.hdr == b"NATS/1.0 412 Required Api Level\r\n\r\n"


@given(
    st.integers(-(10**9), 4 * 10**9),
    st.integers(0, 10**9 - 1) | st.sampled_from([0, 1, 10, 120_000_000]),
    st.sampled_from([b"", b"NATS/1.0\r\nX: y\r\n\r\n"]),
    st.integers(-1, 2**62),
)
def test_the_encoder_writes_what_python_would(second: int, fraction: int, hdr: bytes, num_pending: int) -> None:
    ts_ns = second * 10**9 + fraction
    record = DirectEncoder(b"S").record(b"_INBOX.r", 2**63, ts_ns, b"s.a", hdr, b"data", num_pending, 2**64 - 1)
    place = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (num_pending, 2**64 - 1)
    expected = b"%sNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\n%s\r\n" % (
        hdr[:-2] or b"NATS/1.0\r\n",
        2**63,
        format_time(ts_ns).encode(),
        place if num_pending >= 0 else b"",
    )
    assert record == encode_capture(b"_INBOX.r", b"", expected, b"data")


def test_batches_pause_while_memory_is_short_and_none_begins(tmp_path: Path) -> None:
    used = tmp_path / "memory.current"
    used.write_text("0")
    group = MemoryGroup(directory=tmp_path, kind="cgroup2", limit_bytes=256 << 20)
    reader = Reader(memory=MemoryBudget((group,)))
    reader.node.unread[b"_INBOX.r"] = direct.UNREAD_BYTES_MAX + 1
    assert not reader.ask({"seq": 1, "batch": 5}), "its reader is behind"
    used.write_text(str((256 - 39) << 20))
    reader.node.sleep(NS_PER_S)
    reader.node.unread.clear()
    assert not reader.node.sleep(10 * NS_PER_S)
    (refused,) = reader.ask({"seq": 1, "batch": 5})
    assert refused.hdr == direct.BUSY
    assert len(seqs(reader.ask({"seq": 1}))) == 1, "one message is no batch"
    used.write_text("0")
    assert seqs(reader.node.sleep(NS_PER_S)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"multi_last": ["s.*.z", "s.*.y"]}, b"404 No Results"),
        ({"multi_last": ["s.*.z", "s.*.k"]}, b"413 Too Many Results"),
        ({"last_by_subj": "s.*.z"}, b"404 Message Not Found"),
        ({"next_by_subj": "s.*.z"}, b"404 Message Not Found"),
    ],
)
def test_a_search_among_very_many_subjects_takes_several_turns(
    body: Any, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it is asked, the job is told that its time has passed: it does one step a turn."""
    reader = Reader([b"s.%d.k" % number for number in range(30_000)])
    slices: list[bool] = []
    search = direct.DirectGets._search

    def hurried(gets: direct.DirectGets, sought: direct.Sought, client: int, _until_ns: int) -> bool:
        slices.append(search(gets, sought, client, -1))
        return slices[-1]

    monkeypatch.setattr(direct.DirectGets, "_search", hurried)
    monkeypatch.setattr(direct, "VISITS", 500)
    answers = reader.ask(body)
    assert [answer.hdr.startswith(b"NATS/1.0 " + status) for answer in answers] == [True]
    assert slices == [True] * (len(slices) - 1) + [False]
    assert len(slices) > 1
