"""Direct gets that are to be linearizable: answered when the replica has what was committed when they came."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from jetraft.cluster.streams.gets import direct, get_places
from jetraft.cluster.streams.gets.read_wish import UNCONFIRMED
from jetraft.store.model.clock import NS_PER_S
from tests.cluster.lab import Node, Sent, start_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.state.assignment import StreamAssignment

WISH = b"NATS/1.0\r\nJetraft-Consistency: linearizable\r\n\r\n"
GET = b"$JS.API.DIRECT.GET.S"


class Reader:
    """A replica, and the questions that it has asked."""

    def __init__(self, **config: Any) -> None:
        self.asked: list[Callable[[bool], None]] = []
        self.node = Node()
        self.node.site = attrs.evolve(self.node.site, confirm_read=self._confirm)
        self.replica = start_stream(self.node, allow_direct=True, **config)
        self.write(b"1")

    def _confirm(self, _row: StreamAssignment, told: Callable[[bool], None]) -> None:
        self.asked.append(told)

    def write(self, payload: bytes) -> None:
        self.node.publish(b"s.a", payload)
        self.node.turn()

    def ask(
        self, number: int, *, subject: bytes = GET + b".s.a", hdr: bytes = WISH, body: bytes = b"", origin: int = 0
    ) -> list[Sent]:
        self.node.publish(subject, body, hdr=hdr, reply=b"_INBOX.%d" % number, origin=origin)
        return self.node.sleep(1000)

    def confirm(self, *, is_confirmed: bool = True) -> list[tuple[bytes, bytes]]:
        """What is answered when the oldest question is."""
        self.asked.pop(0)(is_confirmed)
        return [(sent.subject, sent.payload or sent.hdr) for sent in self.node.sleep(1000)]


def test_a_read_waits_until_it_is_confirmed_and_then_has_what_came_meanwhile() -> None:
    reader = Reader()
    assert reader.ask(1) == []
    reader.write(b"2")
    assert reader.confirm() == [(b"_INBOX.1", b"2")]
    assert not reader.asked


@pytest.mark.parametrize("body", [{"last_by_subj": "s.a", "consistency": "linearizable"}, {"seq": 1}])
def test_the_body_and_the_stream_can_ask_for_it_too(body: dict[str, Any]) -> None:
    metadata = {} if "consistency" in body else {"jetraft.linearizable_reads": "true"}
    reader = Reader(metadata=metadata)
    assert reader.ask(1, subject=GET, hdr=b"", body=json.dumps(body).encode()) == []
    assert reader.confirm() == [(b"_INBOX.1", b"1")]


def test_a_read_that_asks_for_nothing_does_not_wait() -> None:
    assert [sent.payload for sent in Reader().ask(1, hdr=b"")] == [b"1"]


def test_what_is_not_confirmed_is_refused() -> None:
    reader = Reader()
    reader.ask(1)
    assert reader.confirm(is_confirmed=False) == [(b"_INBOX.1", UNCONFIRMED)]


def test_one_question_serves_all_that_came_before_it_and_none_that_came_after() -> None:
    reader = Reader()
    for number in (1, 2, 3):
        reader.node.publish(GET + b".s.a", hdr=WISH, reply=b"_INBOX.%d" % number)
    assert reader.node.sleep(1000) == []
    assert len(reader.asked) == 1
    assert reader.ask(4) == []
    assert len(reader.asked) == 1, "one at a time"
    assert [to for to, _ in reader.confirm()] == [b"_INBOX.1", b"_INBOX.2", b"_INBOX.3"]
    reader.write(b"2")
    assert reader.confirm() == [(b"_INBOX.4", b"2")]


def test_what_may_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_places, "PLACES_MAX", 3)  # of which requests from elsewhere have two
    reader = Reader()
    assert reader.ask(1) == []
    assert reader.ask(2) == []
    assert [(sent.subject, sent.hdr) for sent in reader.ask(3)] == [(b"_INBOX.3", direct.BUSY)]
    assert len(reader.confirm() + reader.confirm()) == 2
    assert reader.ask(4) == []


def test_one_connection_does_not_have_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_places, "PLACES_MAX", 8)
    reader = Reader()
    said = [reader.ask(number, origin=7) for number in range(3)]
    assert said[:2] == [[], []]
    assert [(sent.subject, sent.hdr) for sent in said[2]] == [(b"_INBOX.2", direct.BUSY)]
    assert reader.ask(10, origin=8) == []
    assert [reader.ask(number) != [] for number in range(20, 28)] == [False] * 5 + [True] * 3  # eight places in all
    reader.confirm()
    reader.confirm()
    assert reader.ask(30, origin=7) == []


def test_a_replica_that_ends_tells_who_waits_once() -> None:
    reader = Reader()
    reader.ask(1)
    reader.replica._direct.end()
    assert reader.confirm() == [(b"_INBOX.1", direct.NO_RESPONDERS)]
    assert reader.node.sleep(NS_PER_S) == []


def test_a_sequence_can_be_asked_for_in_the_body() -> None:
    reader = Reader()
    body = partial(json.dumps, {"last_by_subj": "s.a", "min_seq": 2})
    assert reader.ask(1, subject=GET, hdr=b"", body=body().encode()) == []
    reader.node.publish(b"s.a", b"2")
    assert [sent.payload for sent in reader.node.sleep(1000) if sent.subject == b"_INBOX.1"] == [b"2"]


@pytest.mark.parametrize(
    "body",
    [
        {"seq": 1, "min_seq": "1"},
        {"seq": 1, "min_seq": -1},
        {"seq": 1, "min_seq": 1 << 63},
        {"seq": 1, "min_seq": True},
        {"seq": 1, "consistency": "strong"},
        {"seq": 1, "consistency": ["linearizable"]},
    ],
)
def test_a_wish_that_cannot_be_is_refused(body: dict[str, Any]) -> None:
    (answer,) = Reader().ask(1, subject=GET, hdr=b"", body=json.dumps(body).encode())
    assert answer.hdr == b"NATS/1.0 408 Malformed Request\r\n\r\n"


def test_a_header_that_cannot_be_is_refused() -> None:
    (answer,) = Reader().ask(1, hdr=WISH.replace(b"linearizable", b"strong"))
    assert answer.hdr == b"NATS/1.0 408 Malformed Request\r\n\r\n"
