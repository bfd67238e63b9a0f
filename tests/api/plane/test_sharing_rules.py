"""Imports, exports, mappings and limits of accounts: one rule each."""

from collections import Counter

import attrs
import pytest

from jetraft.api.exchange.setup import SharedAccounts, set_up
from jetraft.api.exchange.values import (
    RESPONSE_THRESHOLD_NS,
    ClientLimits,
    Destination,
    Export,
    Import,
    Mapping,
    ServiceResponseType,
    Sharing,
    SharingKind,
)
from jetraft.api.plane._plane import Plane
from tests.api.plane.test_accounts import client, make_plane
from tests.api.plane.test_sharing import received

STREAM, SERVICE = SharingKind.STREAM, SharingKind.SERVICE


def shared(
    many: ServiceResponseType = ServiceResponseType.SINGLE, *, threshold_ns: int = RESPONSE_THRESHOLD_NS
) -> dict[str, Sharing]:
    """B imports the service `s` and the stream `e` of A."""
    exports = (
        Export(kind=SERVICE, subject="s", response_type=many, threshold_ns=threshold_ns),
        Export(kind=STREAM, subject="e"),
    )
    imports = (Import(kind=SERVICE, account="A", subject="s"), Import(kind=STREAM, account="A", subject="e"))
    return {"A": Sharing(exports=exports), "B": Sharing(imports=imports)}


@attrs.define
class Pair:
    """A responder in A and a requester in B at one node."""

    plane: Plane = attrs.field(factory=make_plane)
    held: SharedAccounts = attrs.field(init=False)
    responder: int = 0
    requester: int = 0

    def start(self, sharing: dict[str, Sharing]) -> None:
        self.held = set_up(self.plane, sharing, "")
        self.responder, self.requester = client(self.plane, "A"), client(self.plane, "B")
        self.plane.feed(self.responder, b"SUB s 1\r\n")
        self.plane.feed(self.requester, b"SUB inbox 1\r\n")

    def ask(self) -> str:
        """Ask; returns the reply subject that the responder sees."""
        self.plane.feed(self.requester, b"PUB s inbox 1\r\nq\r\n")
        (got,) = received(self.plane, self.responder)
        return got.reply

    def answer(self, reply: str, payload: bytes = b"a") -> list[bytes]:
        """Answer; returns what the requester gets."""
        self.plane.feed(self.responder, b"PUB %s %d\r\n%s\r\n" % (reply.encode(), len(payload), payload))
        return [got.payload for got in received(self.plane, self.requester)]


def test_an_answer_comes_once() -> None:
    pair = Pair()
    pair.start(shared())
    first, second = pair.ask(), pair.ask()
    assert first != second
    assert pair.answer(second) == [b"a"]
    assert pair.answer(first) == [b"a"]
    assert pair.answer(first) == pair.answer(second) == []


def test_several_answers_come_until_an_empty_one() -> None:
    pair = Pair()
    pair.start(shared(ServiceResponseType.STREAM))
    reply = pair.ask()
    assert [pair.answer(reply, payload) for payload in (b"1", b"2", b"", b"3")] == [[b"1"], [b"2"], [b""], []]


def test_an_answer_after_the_threshold_is_dropped_and_the_request_forgotten() -> None:
    pair = Pair()
    pair.start(shared(threshold_ns=1))
    replies = [pair.ask() for _ in range(3)]
    assert pair.plane.statistics()["answers_waiting"] == 3
    assert pair.answer(replies[0]) == []
    assert pair.plane.statistics()["answers_waiting"] == 2
    pair.plane.housekeeping(0, 2, 1 << 60)
    assert pair.plane.statistics()["answers_waiting"] == 0


def test_a_request_that_nobody_received_waits_for_no_answer() -> None:
    pair = Pair()
    pair.start(shared())
    pair.plane.feed(pair.responder, b"UNSUB 1\r\n")
    pair.plane.feed(pair.requester, b"PUB s inbox 0\r\n\r\n")
    assert [got.hdr for got in received(pair.plane, pair.requester)] == [b"NATS/1.0 503\r\nNats-Subject: s\r\n\r\n"]
    assert pair.plane.statistics()["answers_waiting"] == 0


def test_an_answer_for_a_requester_that_left_is_forgotten() -> None:
    pair = Pair()
    pair.start(shared(ServiceResponseType.STREAM))
    reply = pair.ask()
    pair.plane.feed(pair.requester, b"UNSUB 1\r\n")
    assert pair.answer(reply) == []
    assert pair.plane.statistics()["answers_waiting"] == 0


@pytest.mark.parametrize("change", ["short", "long", "other account", "bad digit"])
def test_only_a_reply_subject_that_was_given_leads_to_the_requester(change: str) -> None:
    pair = Pair()
    pair.start(shared())
    reply = pair.ask()
    wrong = {"short": reply[:-1], "long": reply + "x", "bad digit": reply[:-1] + "-", "other account": reply}[change]
    plane = pair.plane
    sender = client(plane, "B" if change == "other account" else "A")
    plane.feed(sender, f"PUB {wrong} 0\r\n\r\n".encode())
    assert received(plane, pair.requester) == []
    assert pair.answer(reply) == [b"a"]


def test_a_shadow_counts_for_its_subscription_and_ends_with_it() -> None:
    pair = Pair()
    pair.start(shared())
    plane = pair.plane
    exporter = plane.account("A")
    plane.feed(pair.requester, b"UNSUB 1\r\nSUB > 1\r\nUNSUB 1 3\r\n")
    plane.feed(pair.requester, b"PUB x 1\r\n0\r\n")
    for number in range(4):
        plane.feed(pair.responder, b"PUB e 1\r\n%d\r\n" % number)
    assert [got.payload for got in received(plane, pair.requester)] == [b"0", b"0", b"1"]
    assert not plane.has_interest(exporter, b"e")
    plane.feed(pair.requester, b"SUB e 1\r\n")
    assert plane.has_interest(exporter, b"e")
    plane.close(pair.requester, 1)
    plane.flush()
    assert not plane.has_interest(exporter, b"e")


def test_weights_are_kept_and_what_is_left_is_lost_if_the_source_is_named() -> None:
    plane = make_plane()
    chosen = (Destination(subject="x", weight=20), Destination(subject="m", weight=30))
    held = set_up(plane, {"A": Sharing(mappings=(Mapping(source="m", destinations=chosen),))}, "")
    listener = client(plane, "A")
    plane.feed(listener, b"SUB > 1\r\n" + b"PUB m 0\r\n\r\n" * 2000)
    counts = Counter(got.subject for got in received(plane, listener))
    assert counts.keys() == {"x", "m"}
    assert 250 < counts["x"] < 550
    assert 400 < counts["m"] < 800
    assert held


def test_a_mapping_of_a_cluster_counts_there_alone() -> None:
    chosen = (Destination(subject="east", cluster="E"), Destination(subject="any"))
    for cluster, subject in (("E", "east"), ("W", "any"), ("", "any")):
        plane = make_plane()
        held = set_up(plane, {"A": Sharing(mappings=(Mapping(source="m", destinations=chosen),))}, cluster)
        listener = client(plane, "A")
        plane.feed(listener, b"SUB > 1\r\nPUB m 0\r\n\r\n")
        assert [got.subject for got in received(plane, listener)] == [subject]
        assert held


def test_an_account_has_as_many_connections_as_it_may() -> None:
    plane = make_plane()
    held = set_up(plane, {"A": Sharing(limits=ClientLimits(max_connections=1))}, "")
    first = client(plane, "A")
    plane.feed(first, b'CONNECT {"user":"A"}\r\n')
    assert b"-ERR" not in plane.take(first)
    second = client(plane, "A")
    assert plane.take(second) == b"-ERR 'maximum account active connections exceeded'\r\n"
    plane.close(first, 1)
    plane.flush()
    assert b"-ERR" not in plane.take(client(plane, "A"))
    assert held


def test_a_page_of_subscriptions_shows_shadows_and_services() -> None:
    pair = Pair()
    pair.start(shared())
    pair.plane.feed(pair.requester, b"SUB e 2\r\n")
    exporter, importer = pair.plane.account("A"), pair.plane.account("B")
    for account, subject, expected in (
        (exporter, b"e", [(b"A", b"e", b"", b"2", 0, 0, pair.requester)]),
        (importer, b"s", [(b"B", b"s", b"", b"", 0, 0, 0)]),
    ):
        assert pair.plane.receivers(account, subject, 0, 10) == (1, expected)
