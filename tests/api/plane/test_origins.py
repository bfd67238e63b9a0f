"""What reaches which sink, by who sent it: each origin and kind, in one account, over an import and over a link."""

from collections.abc import Iterator
from itertools import product
from typing import Final, Literal

import pytest

from jetraft.api.plane._plane import Plane, RouteFormatError
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import REACHES, MessageOrigin, SinkKind, admitted_by
from tests.api.plane.test_accounts import HEAD, Link, client, make_plane, payloads
from tests.api.plane.test_leafs import Lab

Where = Literal["here", "imported", "linked"]
KINDS: Final = ("API", "STREAM", "ACK", "SYSTEM", "REPLY", "DELIVERIES", "SERVICE")
TABLE: Final = {  # written down a second time, so that a row cannot change unnoticed
    "CLIENT": "API STREAM ACK SYSTEM REPLY DELIVERIES SERVICE",
    "LEAF": "API STREAM ACK SYSTEM REPLY DELIVERIES SERVICE",
    "LINK": "API STREAM ACK SYSTEM REPLY DELIVERIES SERVICE",
    "DELIVERY": "DELIVERIES",
    "ANSWER": "REPLY DELIVERIES",
    "REPUBLISH": "STREAM",
    "ADVISORY": "STREAM",
    "TRACE": "STREAM SERVICE",
    "EXTENSION": "STREAM",
    "SERVER": "API ACK SYSTEM REPLY SERVICE",
}
SENT: Final = tuple(MessageOrigin)[3:]  # what Python sends
ROUTE_MESSAGE, ROUTE_INTEREST = 1, 2
REQUESTS: Final = (
    b"$JS.API.STREAM.DELETE.V", b"$JS.hub.API.INFO", b"$JS.ACK.S.c.1.1.1.1.1", b"$JS.FC.S.c.1", b"$SYS.REQ.X",
)  # fmt: skip


def expected(origin: str, kind: str) -> bool:
    return kind in TABLE[origin].split()


def sink(plane: Plane, account: str, subject: bytes, kind: SinkKind) -> list[bytes]:
    """Where the payloads appear that a sink of this kind takes."""
    got: list[bytes] = []
    plane.add_sink(
        plane.account(account), subject, lambda batch: got.extend(c.payload for c in captures(batch)), kind=kind
    )
    return got


def test_the_table_is_the_one_that_was_decided() -> None:
    assert {origin.name: {kind.name for kind in kinds} for origin, kinds in REACHES.items()} == {
        origin: set(kinds.split()) for origin, kinds in TABLE.items()
    }
    assert tuple(kind.name for kind in SinkKind) == KINDS
    for kind, origin in product(SinkKind, MessageOrigin):
        assert bool(admitted_by(kind) >> origin & 1) == expected(origin.name, kind.name)


def test_numbers_keep_their_meaning_since_nodes_exchange_them() -> None:
    names = ["CLIENT", "LEAF", "LINK", "DELIVERY", "ANSWER", "REPUBLISH", "ADVISORY", "TRACE", "EXTENSION", "SERVER"]
    assert [origin.name for origin in sorted(MessageOrigin)] == names
    assert [int(origin) for origin in MessageOrigin] == list(range(10))


# -- the matrix


class Stage:
    """Two nodes, and on the second a sink or an exported service, in account A or in what imports from it."""

    def __init__(self, kind: SinkKind, where: Where) -> None:
        self.link = Link()
        for node in self.link.nodes:
            node.account("A"), node.account("B")
        self.sender, there = self.link.nodes
        receiver = there if where == "linked" else self.sender
        self.got: list[bytes] = []
        self.service = 0  # the connection of who serves what is exported
        self.handles = [node.account(name) for node in self.link.nodes for name in "AB"]
        a, b = receiver.account("A"), receiver.account("B")
        if kind is SinkKind.SERVICE:
            service = receiver.export_service(many=False, threshold_ns=1 << 40)
            receiver.import_service(a, b"x", b, service, to=None)
            self.service = client(receiver, "B")
            receiver.feed(self.service, b"SUB x 1\r\n")
        elif where == "imported":
            receiver.import_stream(b, b"x", a, b"x", shown=None, back=None)
            receiver.add_sink(b, b"x", self._take, kind=kind)
        else:
            receiver.add_sink(a, b"x", self._take, kind=kind)
        self.client = client(self.sender, "A")
        self.link.up()
        for node, route in zip(self.link.nodes, self.link.routes, strict=True):
            node.open_origins(route)
        self.link.pump()

    def _take(self, batch: bytes) -> None:
        self.got += [capture.payload for capture in captures(batch)]

    def send(self, origin: MessageOrigin) -> bool:
        """Whether a message of this origin arrives."""
        if origin is MessageOrigin.CLIENT:
            self.sender.feed(self.client, b"PUB x 1\r\nm\r\n")
        else:
            self.sender.send(self.sender.account("A"), b"x", payload=b"m", origin=origin)
        self.link.pump()
        found, self.got = self.got, []
        return found == [b"m"] or (self.service > 0 and self.sender.take(self.service).endswith(b"\r\nm\r\n"))


def pairs() -> Iterator[tuple[SinkKind, Where]]:
    for kind, where in product(SinkKind, ("here", "imported", "linked")):
        if kind is not SinkKind.SERVICE or where == "here":  # a request is handed over where it enters
            yield kind, where  # type: ignore[misc]


@pytest.mark.parametrize(("kind", "where"), list(pairs()))
def test_a_message_reaches_the_sinks_that_the_table_says(kind: SinkKind, where: Where) -> None:
    stage = Stage(kind, where)
    for origin in (MessageOrigin.CLIENT, *SENT):
        assert stage.send(origin) == expected(origin.name, kind.name), origin.name


@pytest.mark.parametrize("origin", SENT)
def test_subscribers_get_whatever_is_sent_to_them_here_and_at_another_node(origin: MessageOrigin) -> None:
    link = Link()
    link.up()
    for node, route in zip(link.nodes, link.routes, strict=True):
        node.open_origins(route)
    cids = [client(node, "$G") for node in link.nodes]
    for node, cid in zip(link.nodes, cids, strict=True):
        node.feed(cid, b"SUB x 1\r\n")
    link.pump()
    link.nodes[0].send(link.nodes[0].account("$G"), b"x", payload=b"m", origin=origin)
    link.pump()
    assert [payloads(node, cid) for node, cid in zip(link.nodes, cids, strict=True)] == [[b"m"], [b"m"]]


@pytest.mark.parametrize("kind", list(SinkKind)[:6])
def test_a_leaf_node_is_heard_as_a_client_and_what_it_delivers_as_a_delivery(kind: SinkKind) -> None:
    lab = Lab()
    got = sink(lab.plane, "$G", b"x", kind)
    leaf = lab.leaf()
    lab.feed(leaf, b"LMSG x 1\r\n1\r\n")
    lab.feed(leaf, b"LMSG x $JS.ACK.S.c.1.2.3.4.5@s.a 1\r\n2\r\n")
    lab.plane.run_sinks()
    assert got == [b"1"] * expected("LEAF", kind.name) + [b"2"] * expected("DELIVERY", kind.name)


def test_interest_is_that_of_receivers_whom_such_a_message_reaches() -> None:
    plane = make_plane()
    account = plane.account("$G")
    for kind in SinkKind:
        if kind is SinkKind.SERVICE:
            continue
        handle = plane.add_sink(account, b"x", lambda _batch: None, kind=kind)
        for origin in SENT:
            assert plane.has_interest(account, b"x", origin=origin) == expected(origin.name, kind.name)
        plane.remove_sink(handle)
        plane.flush()


# -- from node to node


def record(kind: int, subject: bytes, payload: bytes, shown: bytes = b"") -> bytes:
    rest = subject + shown + payload
    return HEAD.pack(HEAD.size + len(rest), kind, 0, len(shown), 0, len(payload), len(subject), 0) + rest


@pytest.mark.parametrize("origin", list(MessageOrigin))
def test_a_node_that_says_origins_is_believed(origin: MessageOrigin) -> None:
    plane = make_plane()
    got = sink(plane, "$G", b"x", SinkKind.API)
    route = plane.open_route()
    plane.open_origins(route)
    plane.on_route(route, record(ROUTE_MESSAGE | origin << 4, b"x", b"m"))
    plane.run_sinks()
    assert got == [b"m"] * expected(origin.name, "API")


@pytest.mark.parametrize("kind", [ROUTE_MESSAGE | 10 << 4, ROUTE_MESSAGE | 15 << 4, 2 | 3 << 4, 3 | 1 << 4, 5 | 1 << 4])
def test_an_origin_that_there_is_not_and_one_of_what_is_no_message_end_the_link(kind: int) -> None:
    plane = make_plane()
    route = plane.open_route()
    with pytest.raises(RouteFormatError):
        plane.on_route(route, record(kind, b"x", b""))


def test_what_a_node_of_an_older_version_delivers_is_a_delivery_and_the_rest_may_be_a_clients() -> None:
    plane = make_plane()
    got = sink(plane, "$G", b"x", SinkKind.API)
    route = plane.open_route()
    plane.on_route(route, record(ROUTE_MESSAGE, b"x", b"published") + record(ROUTE_MESSAGE, b"x", b"delivered", b"s.a"))
    plane.run_sinks()
    assert got == [b"published"]


@pytest.mark.parametrize("subject", REQUESTS)
@pytest.mark.parametrize("origin", SENT)
def test_a_node_or_a_leaf_node_that_is_told_no_origin_gets_no_request_that_was_not_judged(
    origin: MessageOrigin, subject: bytes
) -> None:
    lab = Lab()
    leaf = lab.leaf()
    lab.feed(leaf, b"LS+ %b\r\nLS+ x\r\n" % subject)
    lab.sent(leaf)
    route = lab.plane.open_route()
    lab.plane.on_route(
        route, HEAD.pack(HEAD.size + len(subject), ROUTE_INTEREST, 0, 0, 1, 0, len(subject), 0) + subject
    )
    lab.plane.take_routes()
    account = lab.plane.account("$G")
    lab.plane.send(account, subject, payload=b"m", origin=origin)
    may = origin is MessageOrigin.SERVER
    assert (b"LMSG" in lab.sent(leaf)) == may
    assert bool(lab.plane.take_routes()) == may
    lab.plane.send(account, b"x", payload=b"m", origin=origin)
    assert b"LMSG x" in lab.sent(leaf)


# -- answers from another account


def test_the_answer_of_an_imported_service_is_no_request_in_the_name_of_who_asked() -> None:
    plane = make_plane()
    a, b = plane.account("A"), plane.account("B")
    ask = plane.export_service(many=False, threshold_ns=1 << 40)
    further = plane.export_service(many=False, threshold_ns=1 << 40)
    plane.import_service(a, b"ask", b, ask, to=None)
    plane.import_service(a, b"further", b, further, to=None)
    asked, stored = sink(plane, "B", b"further", SinkKind.API), sink(plane, "A", b"further", SinkKind.STREAM)
    requester, listener, service = client(plane, "A"), client(plane, "A"), client(plane, "B")
    plane.feed(listener, b"SUB further 1\r\n")
    plane.feed(service, b"SUB ask 1\r\n")
    plane.feed(requester, b"PUB ask further 1\r\nq\r\n")
    reply = plane.take(service).split(b"\r\n")[0].split(b" ")[3]
    plane.feed(service, b"PUB %b 1\r\na\r\n" % reply)
    plane.run_sinks()
    assert payloads(plane, listener) == [b"a"]
    assert (asked, stored) == ([], [])
    plane.feed(requester, b"PUB further 1\r\nb\r\n")  # itself it may
    plane.run_sinks()
    assert (asked, stored) == ([b"b"], [b"b"])
