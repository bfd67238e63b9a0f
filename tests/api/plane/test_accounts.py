"""Accounts against a plain Python model: a subject never leaves its account, by whatever path."""

import gc
import json
import struct
from collections import Counter
from collections.abc import Callable
from typing import Literal

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.api.plane._plane import Plane, RouteFormatError
from jetraft.api.plane.interest import InterestWatches
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.cluster.capture._capture import captures, encode_capture
from tests.api.plane.test_plane import LITERALS, PATTERNS, matches

ACCOUNTS = ("$G", "A", "B")
HEAD = struct.Struct("<IBBHIIHH")
ROUTE_MESSAGE, ROUTE_INTEREST, ROUTE_ACCOUNT, ROUTE_ACCOUNT_MESSAGE, ROUTE_ACCOUNT_INTEREST = range(1, 6)


def make_plane(request_info: Callable[[int, str, str, int], bytes] | None = None) -> Plane:
    def connect(_cid: int, text: bytes | None) -> ConnectOptions:
        account = json.loads(text or b"{}").get("user", "$G")
        return ConnectOptions(verbose=False, pedantic=False, headers=True, no_responders=True, account=account)

    return Plane(
        max_payload=1 << 20,
        max_control_line=4096,
        max_pending=64 << 20,
        max_subscriptions=0,
        connect_handler=connect,
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda *_: b"",
        request_info=request_info,
    )


def client(plane: Plane, account: str) -> int:
    cid = plane.open(-1, b"")
    plane.feed(cid, b'CONNECT {"user":"%s"}\r\n' % account.encode())
    return cid


def payloads(plane: Plane, cid: int) -> list[bytes]:
    lines = plane.take(cid).split(b"\r\n")
    return [lines[i + 1] for i, line in enumerate(lines) if line.startswith(b"MSG ")]


@attrs.define
class Link:
    """Two nodes and the records between them."""

    nodes: tuple[Plane, Plane] = attrs.field(factory=lambda: (make_plane(), make_plane()))
    routes: list[int] = attrs.field(factory=list)
    kinds: Counter[int] = attrs.field(factory=Counter)

    def up(self, *, accounts: bool = True) -> None:
        self.routes = [node.open_route() for node in self.nodes]
        if accounts:
            for node, route in zip(self.nodes, self.routes, strict=True):
                node.open_accounts(route)

    def down(self) -> None:
        for node, route in zip(self.nodes, self.routes, strict=True):
            node.close_route(route)
        self.routes = []

    def pump(self) -> None:
        """Carry records until there are none, and end the turns."""
        moved = True
        while moved:
            moved = False
            for node in self.nodes:
                node.run_sinks()
                node.flush()
            for here, there in ((0, 1), (1, 0)):
                for _, records in self.nodes[here].take_routes():
                    at = 0
                    while at < len(records):
                        length, kind, *_ = HEAD.unpack_from(records, at)
                        self.kinds[kind] += 1
                        at += length
                    moved = True
                    self.nodes[there].on_route(self.routes[there], records)


@attrs.define
class Listener:
    """A subscription of a client (`cid`), or of a sink (`batches`)."""

    node: int
    account: str
    pattern: str
    queue: str = ""
    cid: int = 0
    handle: int = 0
    batches: list[bytes] | None = None
    local_only: bool = False

    def received(self, plane: Plane) -> list[bytes]:
        if self.batches is None:
            return payloads(plane, self.cid)
        got = [message.payload for batch in self.batches for message in captures(batch)]
        self.batches.clear()
        return got


Step = (
    tuple[Literal["sub"], int, str, str, str]
    | tuple[Literal["sink"], int, str, str, bool]
    | tuple[Literal["publish"], int, str, str, str]
    | tuple[Literal["end"], int]
    | tuple[Literal["relink"]]
)
NODES, NAMES = st.integers(0, 1), st.sampled_from(ACCOUNTS)
STEPS = st.one_of(
    st.tuples(st.just("sub"), NODES, NAMES, PATTERNS, st.sampled_from(["", "", "q", "r"])),
    st.tuples(st.just("sink"), NODES, NAMES, PATTERNS, st.booleans()),
    st.tuples(st.just("publish"), NODES, NAMES, LITERALS, st.sampled_from(["client", "send", "batch"])),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("relink")),
)


@attrs.define
class Model:
    """Two nodes, and who listens where."""

    link: Link = attrs.field(factory=Link)
    listeners: list[Listener] = attrs.field(factory=list)
    publishers: dict[tuple[int, str], int] = attrs.field(factory=dict)

    def start(self) -> None:
        self.link.up()
        for where, plane in enumerate(self.link.nodes):
            for account in ACCOUNTS:
                cid = self.publishers[where, account] = client(plane, account)
                plane.feed(cid, b"SUB _INBOX.me 1\r\n")
        self.link.pump()

    def sub(self, where: int, account: str, pattern: str, queue: str) -> None:
        cid = client(self.link.nodes[where], account)
        self.link.nodes[where].feed(cid, f"SUB {pattern} {queue} 1\r\n".encode())
        self.listeners.append(Listener(where, account, pattern, queue, cid=cid))

    def sink(self, where: int, account: str, pattern: str, local_only: bool) -> None:  # noqa: FBT001  (a step's)
        plane, batches = self.link.nodes[where], list[bytes]()
        handle = plane.add_sink(plane.account(account), pattern.encode(), batches.append, local_only=local_only)
        self.listeners.append(Listener(where, account, pattern, handle=handle, batches=batches, local_only=local_only))

    def end(self, number: int) -> None:
        if number < len(self.listeners):
            one = self.listeners.pop(number)
            if one.cid:
                self.link.nodes[one.node].close(one.cid, 1)
            else:
                self.link.nodes[one.node].remove_sink(one.handle)

    def relink(self) -> None:
        self.link.down()
        self.link.up()

    def publish(self, where: int, account: str, subject: str, how: str) -> None:
        plane, body = self.link.nodes[where], b"body"
        reached = [
            one
            for one in self.listeners
            if one.account == account and matches(one.pattern, subject) and (one.node == where or not one.local_only)
        ]
        assert plane.has_interest(plane.account(account), subject.encode()) is bool(reached)
        publisher = self.publishers[where, account]
        if how == "client":
            plane.feed(publisher, f"PUB {subject} _INBOX.me 4\r\nbody\r\n".encode())
        elif how == "send":
            plane.send(plane.account(account), subject.encode(), payload=body)
        else:
            plane.send_batch(plane.account(account), encode_capture(subject.encode(), payload=body))
        self.link.pump()
        self._check(reached, body)
        assert (b"503" in plane.take(publisher)) is (how == "client" and not reached)
        for (node, _), cid in self.publishers.items():
            assert self.link.nodes[node].take(cid) == b""

    def _check(self, reached: list[Listener], body: bytes) -> None:
        """All plain ones of those reached have it, and one of each queue group; nobody else has anything."""
        got = {id(one): one.received(self.link.nodes[one.node]) for one in self.listeners}
        groups: dict[str, list[bytes]] = {}
        for one in reached:
            received = got.pop(id(one))
            if one.queue:
                groups.setdefault(one.queue, []).extend(received)
            else:
                assert received == [body]
        assert all(received == [body] for received in groups.values())
        assert not any(got.values())


@given(st.lists(STEPS, max_size=40))
@settings(deadline=None, max_examples=300)
def test_a_message_reaches_its_account_on_all_nodes_and_nobody_else(steps: list[Step]) -> None:
    model = Model()
    model.start()
    for what, *arguments in steps:
        getattr(model, what)(*arguments)
        model.link.pump()


@given(st.lists(st.tuples(NAMES, LITERALS), max_size=30), st.lists(st.tuples(NAMES, PATTERNS), max_size=8))
@settings(deadline=None, max_examples=100)
def test_messages_read_at_once_are_matched_in_the_account_that_the_connection_has_then(
    publishes: list[tuple[str, str]], subs: list[tuple[str, str]]
) -> None:
    plane = make_plane()
    listeners = [(account, pattern, client(plane, account)) for account, pattern in subs]
    for _, pattern, cid in listeners:
        plane.feed(cid, f"SUB {pattern} 1\r\n".encode())
    text = b""
    for number, (account, subject) in enumerate(publishes):
        text += f'CONNECT {{"user":"{account}"}}\r\n'.encode() + f"PUB {subject} 2\r\n{number:02}\r\n".encode() * 2
    plane.feed(plane.open(-1, b""), text)
    for account, pattern, cid in listeners:
        wanted = [
            b"%02d" % number
            for number, (name, subject) in enumerate(publishes)
            for _ in range(2)
            if name == account and matches(pattern, subject)
        ]
        assert payloads(plane, cid) == wanted


def test_what_a_connection_subscribed_to_ends_when_it_enters_another_account() -> None:
    plane = make_plane()
    cid = client(plane, "A")
    plane.feed(cid, b'SUB s 1\r\nCONNECT {"user":"B"}\r\n')
    for account in ACCOUNTS:
        assert not plane.has_interest(plane.account(account), b"s")
    assert plane.subscriptions_from(cid, 0, 100)[2] == []
    connection = plane.connection(cid)
    assert connection is not None
    assert connection["account"] == "B"


def test_a_watch_hears_of_its_own_account_only() -> None:
    plane = make_plane()
    watches, calls = InterestWatches(plane), list[str]()
    a, b = plane.account("A"), plane.account("B")
    handle = watches.add(a, b"s", lambda: calls.append("A"))
    watches.add(b, b"s", lambda: calls.append("B"))
    cid = client(plane, "A")
    plane.feed(cid, b"SUB s 1\r\n")
    watches.run()
    assert calls == ["A"]
    watches.remove(handle)
    plane.feed(cid, b"SUB * 2\r\n")
    watches.run()
    assert calls == ["A"]
    assert watches.statistics() == {"watches": 1, "subjects": 1}


def test_an_account_of_which_nothing_is_left_is_freed_at_both_ends() -> None:
    link = Link()
    link.up()
    for node in link.nodes:
        cid = client(node, "A")
        node.feed(cid, b"SUB s 1\r\n")
        link.pump()
        node.close(cid, 1)
    held = [node.account("B") for node in link.nodes]
    link.pump()
    assert [node.account_names() for node in link.nodes] == [["$G", "B"]] * 2
    assert [one.name for one in held] == ["B", "B"]
    del held
    gc.collect()
    link.pump()
    assert [node.account_names() for node in link.nodes] == [["$G"]] * 2
    assert [node.statistics()["accounts"] for node in link.nodes] == [1, 1]


def test_a_peers_interest_in_an_account_that_nobody_here_knows_is_kept_under_its_name() -> None:
    link = Link()
    link.up()
    left, right = link.nodes
    listener = client(right, "A")
    right.feed(listener, b"SUB s 1\r\n")
    link.pump()
    assert left.account_names() == ["$G", "A"]
    left.feed(client(left, "A"), b"PUB s 2\r\nhi\r\n")
    link.pump()
    assert payloads(right, listener) == [b"hi"]
    link.down()
    for node in link.nodes:
        node.flush()
    assert not left.has_interest(left.account("A"), b"s")


def test_a_peer_that_has_not_said_that_it_knows_accounts_is_sent_the_records_of_the_global_one_alone() -> None:
    link = Link()
    link.up(accounts=False)
    left, right = link.nodes
    left.feed(client(left, "A"), b"SUB s 1\r\nSUB t 2\r\nUNSUB 2\r\n")
    left.feed(client(left, "$G"), b"SUB s 1\r\n")
    right.feed(client(right, "A"), b"PUB s 0\r\n\r\n")
    link.pump()
    assert set(link.kinds) == {ROUTE_INTEREST}
    left.open_accounts(link.routes[0])  # and who is sent such records may answer with them
    link.pump()
    right.feed(client(right, "A"), b"SUB u 1\r\nPUB s 0\r\n\r\n")
    link.pump()
    assert link.kinds[ROUTE_ACCOUNT] == 2
    assert link.kinds[ROUTE_ACCOUNT_MESSAGE] == 1
    assert left.has_interest(left.account("A"), b"u")


def account_record(number: int, name: bytes, kind: int = ROUTE_ACCOUNT) -> bytes:
    return HEAD.pack(HEAD.size + len(name), kind, 0, 0, number, 0, len(name), 0) + name


def account_message(number: int, subject: bytes, payload: bytes) -> bytes:
    body = struct.pack("<I", number) + subject + payload
    head = HEAD.pack(HEAD.size + len(body), ROUTE_ACCOUNT_MESSAGE, 0, 0, 0, len(payload), len(subject), 0)
    return head + body


@pytest.mark.parametrize(
    "records",
    [
        account_message(0, b"s", b""),
        account_record(0, b"A") + account_message(1, b"s", b""),
        account_record(0, b"A") + account_record(0, b"") + account_message(0, b"s", b""),
        account_record(0, b"$G"),
        account_record(1 << 16, b"A"),
        account_record(0xFFFFFFFF, b"A"),
        account_record(0, b"A" * 256),
        account_record(0, b"A B"),
        account_record(0, b"\xff"),
        account_record(0, b"A")[:-1],
        HEAD.pack(HEAD.size, ROUTE_ACCOUNT_MESSAGE, 0, 0, 0, 0, 0, 0),
        HEAD.pack(HEAD.size + 1, ROUTE_ACCOUNT, 1, 0, 0, 0, 1, 0) + b"A",
        account_record(0, b"A", kind=6),
    ],
)
def test_a_bad_record_of_an_account_ends_the_link(records: bytes) -> None:
    plane = make_plane()
    with pytest.raises(RouteFormatError):
        plane.on_route(plane.open_route(), records)


def test_a_number_may_be_given_to_another_account() -> None:
    plane = make_plane()
    a, b = client(plane, "A"), client(plane, "B")
    for cid in (a, b):
        plane.feed(cid, b"SUB s 1\r\n")
    route = plane.open_route()
    plane.on_route(route, account_record(3, b"A") + account_message(3, b"s", b"1"))
    plane.on_route(route, account_record(3, b"B") + account_message(3, b"s", b"2"))
    assert (payloads(plane, a), payloads(plane, b)) == ([b"1"], [b"2"])


@given(st.binary(max_size=120), st.integers(0, 6), st.integers(0, 3))
@settings(deadline=None, max_examples=300)
def test_damaged_records_raise_and_leave_the_plane_whole(tail: bytes, kind: int, number: int) -> None:
    plane = make_plane()
    route = plane.open_route()
    plane.on_route(route, account_record(1, b"A"))
    body = struct.pack("<I", number) + tail
    record = HEAD.pack(HEAD.size + len(body), kind, tail[0] if tail else 0, 0, number, 0, len(tail), 0) + body
    try:
        plane.on_route(route, record)
    except RouteFormatError:
        plane.close_route(route)
    plane.flush()
    listener = client(plane, "A")
    plane.feed(listener, b"SUB s 1\r\nPUB s 1\r\nx\r\n")
    assert payloads(plane, listener) == [b"x"]


def test_an_account_of_another_plane_is_refused() -> None:
    one, two = make_plane(), make_plane()
    with pytest.raises(ValueError, match="another plane"):
        one.send(two.account("A"), b"s")
    for name in ("", "a b", "x" * 256):
        with pytest.raises(ValueError, match="account name"):
            one.account(name)


@pytest.mark.parametrize("subject", ["_INBOX.reply.{}", "$JS.ACK.S.c.1.{}.1.1.0", "orders.same"])
def test_an_answer_that_is_kept_serves_one_account_only(subject: str) -> None:
    plane = make_plane()
    listeners = {account: client(plane, account) for account in ("A", "B")}
    for cid in listeners.values():
        plane.feed(cid, f"SUB {subject.split('.', maxsplit=1)[0]}.> 1\r\n".encode())
    senders = {account: client(plane, account) for account in ("A", "B", "C")}
    for number in range(6):
        for account, cid in senders.items():
            plane.feed(cid, f"PUB {subject.format(number)} 1\r\n{account}\r\n".encode())
    assert payloads(plane, listeners["A"]) == [b"A"] * 6
    assert payloads(plane, listeners["B"]) == [b"B"] * 6
