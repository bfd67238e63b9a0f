"""Connections that are not logged in have so many places per address; the others wait, and other addresses do not."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import pytest

from jetraft.api.listeners.address_share import AddressShare
from jetraft.api.sessions.arrivals import BEGUN_PER_TURN, WAIT_NS, ArrivalPlaces, waiting_max
from jetraft.store.model.clock import ManualClock
from tests.api.reload.test_reload import reload
from tests.harness.certificates import Authority
from tests.harness.leafs import RawLeaf
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw_websocket import WebSocketClient
from tests.harness.server import Server

OTHER = "127.0.0.2"
PLACES = 4
USERS = "authorization { timeout: 30, users: [ { user: u, password: x } ] }\n"
BOUND = f"max_unauthenticated_per_address: {PLACES}\n"


class Never:
    """A timer that is not called off in these tests."""

    def cancel(self) -> None:
        """See the class."""


@attrs.define
class Bench:
    """ArrivalPlaces, with turns and time by hand."""

    clock: ManualClock = attrs.field(factory=ManualClock)
    later: list[Callable[[], None]] = attrs.field(factory=list)
    timers: list[tuple[int, Callable[[], None]]] = attrs.field(factory=list)
    begun: list[int] = attrs.field(factory=list)
    dropped: list[int] = attrs.field(factory=list)
    arrivals: ArrivalPlaces = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.arrivals = ArrivalPlaces(self.clock, PLACES)
        self.arrivals.attach(self.later.append, self.call_at)

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Never:
        self.timers.append((at_ns, callback))
        return Never()

    def come(self, cid: int, ip: str) -> None:
        """A connection is accepted."""

        def begin() -> None:
            self.begun.append(cid)
            self.arrivals.enter(cid, ip)

        if self.arrivals.has_place(ip):
            begin()
        else:
            self.arrivals.wait(ip, begin, lambda: self.dropped.append(cid))

    def turn(self) -> None:
        later, self.later[:] = list(self.later), []
        for callback in later:
            callback()

    def pass_time(self, ns: int) -> None:
        self.clock.advance(ns)
        due = [callback for at_ns, callback in self.timers if at_ns <= self.clock.mono_ns()]
        self.timers[:] = [timer for timer in self.timers if timer[0] > self.clock.mono_ns()]
        for callback in due:
            callback()


def test_beyond_its_places_an_address_waits_and_others_do_not(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for cid in range(PLACES + 2):
        bench.come(cid, "a")
    bench.come(100, "b")
    assert bench.begun == [*range(PLACES), 100]
    assert caplog.messages == [f"a - {PLACES} connections are not logged in, the next ones wait"]
    bench.arrivals.leave(0)
    assert PLACES not in bench.begun  # not within the end of another one
    bench.turn()
    bench.turn()
    assert bench.begun == [*range(PLACES), 100, PLACES]
    assert bench.arrivals.statistics() == {
        "unauthenticated": PLACES + 1, "addresses": 2, "waiting": 1, "waited": 2, "refused": 0
    }  # fmt: skip


def test_those_in_line_begin_in_the_order_in_which_they_came() -> None:
    bench = Bench()
    for cid in range(5 * PLACES):
        bench.come(cid, "a")
    for cid in range(4 * PLACES):
        bench.arrivals.leave(cid)
        bench.turn()
    bench.come(99, "a")  # behind them all, and there is a place
    assert bench.begun == [*range(5 * PLACES)]
    bench.arrivals.leave(5 * PLACES - 1)
    bench.turn()
    assert bench.begun[-1] == 99


def test_a_turn_begins_so_many_and_addresses_take_turns() -> None:
    bench = Bench()
    bench.arrivals.per_address_max = 2 * BEGUN_PER_TURN
    for ip in ("a", "b"):
        for number in range(4 * BEGUN_PER_TURN):
            bench.come(ord(ip) * 1000 + number, ip)
    before = len(bench.begun)
    for number in range(2 * BEGUN_PER_TURN):
        for ip in ("a", "b"):
            bench.arrivals.leave(ord(ip) * 1000 + number)
    bench.turn()
    begun = bench.begun[before:]
    assert len(begun) == BEGUN_PER_TURN
    assert {cid // 1000 for cid in begun[:2]} == {ord("a"), ord("b")}
    while bench.later:
        bench.turn()
    assert len(bench.begun) == 8 * BEGUN_PER_TURN


def test_what_waits_too_long_is_closed() -> None:
    bench = Bench()
    for cid in range(PLACES + 1):
        bench.come(cid, "a")
    bench.pass_time(WAIT_NS // 2)
    bench.come(9, "a")
    bench.pass_time(WAIT_NS // 2)
    assert bench.dropped == [PLACES]
    bench.pass_time(WAIT_NS // 2)
    assert bench.dropped == [PLACES, 9]
    assert bench.arrivals.statistics()["refused"] == 2
    assert bench.arrivals.statistics()["waiting"] == 0
    bench.arrivals.leave(0)
    bench.turn()
    assert bench.arrivals.has_place("a")


def test_the_line_is_bounded() -> None:
    bench = Bench()
    room = waiting_max() // 2  # one address leaves half of it to the others
    for cid in range(PLACES + room + 3):
        bench.come(cid, "a")
    assert bench.dropped == [PLACES + room + number for number in range(3)]
    assert bench.arrivals.statistics()["waiting"] == room


def test_a_bound_that_is_raised_lets_those_in_line_begin() -> None:
    bench = Bench()
    for cid in range(3 * PLACES):
        bench.come(cid, "a")
    bench.arrivals.follow(0)
    while bench.later:
        bench.turn()
    assert bench.begun == [*range(3 * PLACES)]


def test_nothing_is_kept_of_those_who_have_gone() -> None:
    bench = Bench()
    for cid in range(100):
        bench.come(cid, str(cid))
        bench.arrivals.enter(cid, "of the header")
        bench.arrivals.leave(cid)
        bench.arrivals.leave(cid)
    assert bench.arrivals.statistics() == dict.fromkeys(bench.arrivals.statistics(), 0)


def test_one_address_does_not_have_all_places_of_a_small_listener() -> None:
    share = AddressShare(places=4, per_address_max=3)
    assert [share.take("a") for _ in range(4)] == [True, True, True, False]
    assert share.take("b")
    assert not share.take("c")
    share.give_back("a")
    assert share.take("a")
    assert share.statistics() == {"open": 4, "refused": 2}


# --- the listeners


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


HELLO = b'CONNECT {"verbose":false,"user":"u","pass":"x"}\r\nPING\r\n'


def connected(address: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(address, timeout=PATIENCE_S, source_address=(source, 0))


def answer(sock: socket.socket, asked: bytes, end: bytes) -> bytes:
    """What comes up to this."""
    sock.sendall(asked)
    found = b""
    while end not in found and (more := sock.recv(4096)):
        found += more
    return found


@contextmanager
def crowd(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Silent connections."""
    with ExitStack() as opened:
        yield [opened.enter_context(connected(address)) for _ in range(count)]


def arrivals_of(server: Server) -> dict[str, int]:
    found: dict[str, int] = server.get("/varz")[1]["jetraft"]["arrivals"]
    return found


def wait_for(server: Server, **wanted: int) -> None:
    """Until `/varz` shows these figures."""
    server.running.wait_until(lambda: wanted.items() <= arrivals_of(server).items(), what=str(wanted))


def started(stack: ExitStack, directory: Path, config: str) -> Server:
    return stack.enter_context(Server("jetraft", directory=directory, config=BOUND + config, jetstream=False))


def test_clients_of_other_addresses_are_served_and_those_of_one_wait(tmp_path: Path, stack: ExitStack) -> None:
    server = started(stack, tmp_path, USERS)
    silent = stack.enter_context(crowd(server.address, PLACES))
    wait_for(server, unauthenticated=PLACES)
    waiting = stack.enter_context(connected(server.address))
    wait_for(server, waiting=1)
    with connected(server.address, OTHER) as other:
        assert b"PONG" in answer(other, HELLO, b"PONG")
    assert arrivals_of(server)["waiting"] == 1
    silent[0].close()
    assert b"PONG" in answer(waiting, HELLO, b"PONG")
    wait_for(server, waiting=0, waited=1, unauthenticated=PLACES - 1)
    server.running.wait_for_line(f"{PLACES} connections are not logged in, the next ones wait")


def test_many_clients_of_one_address_come_back_at_once(tmp_path: Path, stack: ExitStack) -> None:
    server = started(stack, tmp_path, USERS)
    come = stack.enter_context(crowd(server.address, 40 * PLACES))
    for sock in come:
        sock.sendall(HELLO)
    assert all(b"PONG" in answer(sock, b"", b"PONG") for sock in come)
    wait_for(server, waiting=0, unauthenticated=0, refused=0)


def test_handshakes_that_stop_do_not_keep_others_out(tmp_path: Path, stack: ExitStack) -> None:
    block = Authority.make(tmp_path).server().block
    server = started(stack, tmp_path, f"tls {{ {block} timeout: 30 }}\n")
    stack.enter_context(crowd(server.address, PLACES + 1))
    wait_for(server, unauthenticated=PLACES, waiting=1)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _ in range(2 * PLACES):  # without a login a place is free after the handshake
        sock = connected(server.address, OTHER)
        answer(sock, b"", b"\r\n")
        stack.enter_context(context.wrap_socket(sock))
    wait_for(server, unauthenticated=PLACES, waiting=1)


@pytest.mark.parametrize("kind", ["websocket", "leafnodes"])
def test_the_other_listeners_count_with_it(tmp_path: Path, stack: ExitStack, kind: str) -> None:
    port = free_port()
    more = "no_tls: true" if kind == "websocket" else "authorization { user: u, password: x, timeout: 30 }"
    server = started(stack, tmp_path, USERS + f'{kind} {{ host: "{HOST}", port: {port}, {more} }}\n')
    silent = stack.enter_context(crowd((HOST, port), PLACES - 1))
    silent += stack.enter_context(crowd(server.address, 1))
    wait_for(server, unauthenticated=PLACES)
    stack.enter_context(connected((HOST, port)))
    wait_for(server, unauthenticated=PLACES, waiting=1)
    with connected(server.address, OTHER) as other:
        assert b"PONG" in answer(other, HELLO, b"PONG")
    silent[-1].close()
    wait_for(server, unauthenticated=PLACES, waiting=0)


def test_a_client_over_websocket_leaves_its_place_when_it_is_logged_in(tmp_path: Path, stack: ExitStack) -> None:
    port = free_port()
    server = started(stack, tmp_path, f'websocket {{ host: "{HOST}", port: {port}, no_tls: true }}\n')
    clients = [stack.enter_context(WebSocketClient((HOST, port))) for _ in range(2 * PLACES)]
    clients[-1].settle()
    wait_for(server, unauthenticated=0)


def test_a_leaf_node_leaves_its_place_when_it_is_admitted(tmp_path: Path, stack: ExitStack) -> None:
    port = free_port()
    server = started(stack, tmp_path, f'leafnodes {{ host: "{HOST}", port: {port} }}\n')
    for _ in range(2 * PLACES):
        stack.enter_context(RawLeaf(port, name="raw")).until("LS+")
    wait_for(server, unauthenticated=0)


def test_behind_a_proxy_the_address_that_it_names_counts(tmp_path: Path, stack: ExitStack) -> None:
    server = started(stack, tmp_path, USERS + "proxy_protocol: true\n")
    one, other = (b"PROXY TCP4 198.51.100.%d 127.0.0.1 5678 4222\r\n" % number for number in (7, 8))
    silent = []
    for _ in range(PLACES + 1):
        sock = stack.enter_context(connected(server.address))
        sock.sendall(one)
        silent.append(sock)
        wait_for(server, unauthenticated=min(len(silent), PLACES), waiting=len(silent) // (PLACES + 1))
    for _ in range(PLACES):
        sock = stack.enter_context(connected(server.address))
        assert b"PONG" in answer(sock, other + HELLO, b"PONG")
    wait_for(server, unauthenticated=PLACES, waiting=1)
    silent[0].close()
    assert b"PONG" in answer(silent[-1], HELLO, b"PONG")


def test_without_logins_nothing_is_counted(tmp_path: Path, stack: ExitStack) -> None:
    server = started(stack, tmp_path, "")
    come = stack.enter_context(crowd(server.address, 2 * PLACES))
    assert all(b"INFO" in answer(sock, b"", b"\r\n") for sock in come)
    assert arrivals_of(server)["unauthenticated"] == 0


def test_a_reload_follows_the_bound(tmp_path: Path, stack: ExitStack) -> None:
    server = started(stack, tmp_path, USERS)
    stack.enter_context(crowd(server.address, 2 * PLACES))
    wait_for(server, waiting=PLACES)
    reload(server, USERS)
    wait_for(server, waiting=0, unauthenticated=2 * PLACES)


def test_the_ipv6_addresses_of_one_network_share_their_places_and_those_of_others_do_not() -> None:
    bench = Bench()
    for number in range(PLACES):
        bench.come(number, f"2001:db8::{number:x}")
    assert len(bench.begun) == PLACES
    bench.come(PLACES, "2001:db8::ffff:1")
    assert len(bench.begun) == PLACES
    bench.come(PLACES + 1, "2001:db8:0:1::1")
    assert bench.begun[-1] == PLACES + 1
    share = AddressShare(places=8, per_address_max=1)
    assert (share.take("2001:db8::1"), share.take("2001:db8::2"), share.take("2001:db8:0:1::1")) == (True, False, True)
    share.give_back("2001:db8::1")
    assert share.take("2001:db8::2")
