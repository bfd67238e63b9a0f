"""A path between two nodes that is slower than what clients send over it: they wait, and the link stays."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.routes import PAUSES_NS, cut_records, pause_ns
from tests.api.plane.test_hostile import connected
from tests.api.plane.test_plane import client, exchange, joined_planes, make_plane
from tests.harness.patience import PATIENCE_S, until
from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient
from tests.harness.server import Server

BYTES_PER_S = 24 << 20
PIECE = 64 << 10
PAYLOAD = 32 << 10
COUNT = 4_096  # 128 MiB: twice what may wait for a peer
BEHIND_NS = 50_000_000


@attrs.define(eq=False)
class SlowPath:
    """Takes connections and carries them to a port; what the dialling side sends goes at BYTES_PER_S."""

    target: int
    listener: socket.socket = attrs.field(init=False)
    _open: list[socket.socket] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)
        self.listener.bind((HOST, 0))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection((HOST, self.target))
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                threading.Thread(target=self._carry, args=(near, far, PIECE / BYTES_PER_S), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, 0.0), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, piece_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                sink.sendall(data)
                time.sleep(piece_s * len(data) / PIECE)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        for one in (self.listener, *self._open):
            one.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """n1, whose only way to n2 is slow, and n2, which dials nobody."""
    with ExitStack() as stack:
        ports = free_port(), free_port()
        path = SlowPath(ports[1])
        stack.callback(path.close)
        names = (("n1", ports[0], path.port), ("n2", ports[1], ports[1]))
        made = [
            Server(
                "jetraft",
                directory=tmp_path / name,
                name=name,
                cluster="C",
                cluster_port=port,
                routes=(f"nats://{HOST}:{route}",),
            )
            for name, port, route in names
        ]
        for each in made:
            stack.callback(each.close)
            each.start(wait=False)
        for each in made:
            each.wait_listening()
        for each in made:
            each.wait_healthy()
        yield made[0], made[1]


def test_a_client_that_sends_more_than_the_path_takes_waits_and_all_of_it_arrives(nodes: tuple[Server, Server]) -> None:
    n1, n2 = nodes
    with RawClient(n1.address) as flooding, RawClient(n1.address) as storing, RawClient(n2.address) as receiving:
        created = storing.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 2})
        assert "error" not in created, created
        sid = receiving.subscribe("flood")
        receiving.settle()
        until(lambda: arrives(flooding, receiving))
        before = terms(n1)
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.extend(numbers(receiving, sid)), daemon=True)
        reader.start()
        flooder = threading.Thread(target=flood, args=(flooding,), daemon=True)
        flooder.start()
        until(lambda: stalled(n1) > 0 or not flooder.is_alive())
        answered = 0
        while flooder.is_alive():  # Raft and calls between the nodes go before what clients have sent
            assert storing.acknowledged("s", b"x")["stream"] == "S"
            answered += 1
        flooder.join(PATIENCE_S)
        reader.join(PATIENCE_S)
    assert found == [b"%06d" % number for number in range(COUNT)]
    assert answered > 0
    assert stalled(n1) > 0
    assert terms(n1) == before
    log = (n1.directory / "server.log").read_text(encoding="utf-8")
    assert "bytes wait for it" not in log


def flood(client: RawClient) -> None:
    """What the receiver has to get, in order."""
    for number in range(COUNT):
        client.send(b"PUB flood %d\r\n%06d" % (PAYLOAD, number) + bytes(PAYLOAD - 6) + b"\r\n")


def numbers(receiving: RawClient, sid: str) -> list[bytes]:
    return [message.payload[:6] for message in receiving.messages(sid, COUNT, PATIENCE_S)]


def arrives(sending: RawClient, receiving: RawClient) -> bool:
    """Whether n1 has heard of what is subscribed at n2."""
    sid = receiving.subscribe("probe")
    receiving.settle()
    sending.publish("probe", b"")
    sending.settle()
    return bool(receiving.messages(sid, 1, 0.5))


def page(node: Server, path: str) -> dict[str, Any]:
    status, body = node.get(path)
    assert status == 200
    assert isinstance(body, dict)
    return body


def stalled(node: Server) -> int:
    return int(page(node, "/varz")["stalled_clients"])


def terms(node: Server) -> str:
    """Who leads the meta group and the stream."""
    body = page(node, "/jsz?streams=1")
    (account,) = body["account_details"]
    (stream,) = account["stream_detail"]
    return f"{body['meta_cluster']['leader']} {stream['cluster']['leader']}"


def test_who_sends_to_a_peer_that_is_behind_is_not_read_until_it_has_caught_up() -> None:
    plane, other, route, other_route = joined_planes()
    other.feed(client(other), b"SUB far 1\r\n")
    exchange(plane, other, route, other_route)
    far_cid, far = connected(plane)
    near_cid, near = connected(plane)
    for sock in (far, near):
        sock.sendall(b'CONNECT {"verbose":false}\r\n')
    plane.turn()
    plane.hold_producers(route, BEHIND_NS)
    far.sendall(b"PUB far 1\r\nx\r\n")
    near.sendall(b"PUB near 1\r\nx\r\n")
    plane.turn()
    far.sendall(b"PUB far 1\r\nx\r\n")
    near.sendall(b"PUB near 1\r\nx\r\n")
    plane.turn()
    assert (read(plane, far_cid), read(plane, near_cid)) == (1, 2)
    assert plane.statistics()["stalls"] == 1
    assert plane.next_wake_ns() > 0
    plane.hold_producers(route, 0)
    assert plane.next_wake_ns() == 0
    plane.turn()
    assert read(plane, far_cid) == 2
    plane.hold_producers(route, BEHIND_NS)
    far.sendall(b"PUB far 1\r\nx\r\n")
    plane.turn()
    assert plane.next_wake_ns() > 0
    plane.close_route(route)  # a peer that is gone holds nobody
    assert plane.next_wake_ns() == 0
    far.close()
    near.close()


def test_the_first_pause_that_ends_is_the_next_that_is_waited_for() -> None:
    plane, other, route, other_route = joined_planes()
    other.feed(client(other), b"SUB far 1\r\n")
    exchange(plane, other, route, other_route)
    socks = [connected(plane)[1] for _ in range(2)]
    ends = []
    for sock, pause in zip(socks, (1000 * BEHIND_NS, BEHIND_NS), strict=True):
        plane.hold_producers(route, pause)
        sock.sendall(b'CONNECT {"verbose":false}\r\nPUB far 1\r\nx\r\n')
        plane.turn()
        ends.append(plane.next_wake_ns())
    assert ends[1] < ends[0]
    for sock in socks:
        sock.close()


def test_what_a_peer_sends_is_taken_while_another_peer_is_behind() -> None:
    plane, other, route, other_route = joined_planes()
    cid = client(plane)
    plane.feed(cid, b"SUB near 1\r\n")
    exchange(plane, other, route, other_route)
    plane.hold_producers(plane.open_route(), BEHIND_NS)
    plane.hold_producers(route, BEHIND_NS)
    other.feed(client(other), b"PUB near 1\r\nx\r\n")
    for _, records in other.take_routes():
        plane.on_route(route, records)
    figures = plane.connection(cid)
    assert figures is not None
    assert figures["out_msgs"] == 1
    assert plane.statistics()["stalls"] == 0


def test_once_a_turn_has_much_for_one_peer_the_others_are_read_little_at_a_time() -> None:
    plane, other, route, other_route = joined_planes()
    other.feed(client(other), b"SUB far 1\r\n")
    exchange(plane, other, route, other_route)
    plane.limit_route_turn(20_000)
    made = [connected(plane) for _ in range(4)]
    for _, sock in made:
        sock.sendall(b'CONNECT {"verbose":false}\r\n' + (b"PUB far 1000\r\n" + bytes(1000) + b"\r\n") * 50)
    plane.turn()
    counts = sorted(read(plane, cid) for cid, _ in made)
    assert counts[-1] == 50
    assert all(0 < count < 20 for count in counts[:-1]), counts
    for _, sock in made:
        sock.close()


def read(plane: Any, cid: int) -> int:
    figures = plane.connection(cid)
    assert figures is not None
    return int(figures["in_msgs"])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 600))
def test_records_are_cut_between_two_of_them_and_none_is_lost(sizes: list[int], most: int) -> None:
    plane, other = make_plane(), make_plane()
    route = plane.open_route()
    subscriber, publisher = client(other), client(plane)
    other.feed(subscriber, b"SUB a 1\r\n")
    other_route = other.open_route()
    exchange(plane, other, route, other_route)
    plane.feed(publisher, b"".join(b"PUB a %d\r\n%s\r\n" % (size, b"x" * size) for size in sizes))
    ((_, records),) = plane.take_routes()
    pieces = list(cut_records(records, most))
    assert b"".join(pieces) == records
    for piece in pieces:
        before = other.statistics()["out_msgs"]
        other.on_route(other_route, piece)
        assert len(piece) <= most or other.statistics()["out_msgs"] == before + 1


def test_a_pause_grows_with_what_waits_and_is_shorter_than_the_silence_that_ends_a_link() -> None:
    assert [pause_ns(quarter * 25 + 1, 100) for quarter in range(4)] == list(PAUSES_NS)
    assert pause_ns(1000, 100) == PAUSES_NS[-1] < 1_250_000_000
