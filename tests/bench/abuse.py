"""What attacks cost the others: round trips of a logged-in client and the server's memory, while each goes on.

PYTHONPATH=src:. python -m tests.bench.abuse [--seconds 5] [--connections 10000] [--subscriptions 1000000] [NAME...]

A witness in a process of its own sends a PING every 2 ms, before and during each attack, and logs in from another
address (127.0.0.2) than that of the attack now and then. Every attack has its own
server, with users, TLS for clients, WebSocket and leaf nodes. The figures depend on what else the machine does.
"""

import argparse
import itertools
import json
import multiprocessing
import resource
import select
import socket
import ssl
import statistics
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import attrs

from jetraft.store.s2.framing import _START, _sum_of
from tests.bench.hostile import Peak
from tests.harness.certificates import Authority
from tests.harness.leafs import RawLeaf
from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient, connect_line, header_block
from tests.harness.raw_websocket import BINARY, WebSocketClient, frame, request
from tests.harness.server import Server, command
from tests.scaling import metered

PAUSE_S: Final = 0.002
QUIET_S: Final = 2.0
LOOK_S: Final = 0.2
OTHER_ADDRESS: Final = "127.0.0.2"
PINGS_PER_LOGIN: Final = 50
CONFIG: Final = """
allow_non_tls: true
tls {{ {tls} timeout: 2 }}
authorization {{ timeout: 2, users: [
  {{user: u, password: x}}
  {{user: d, password: x, permissions: {{ publish: {{ deny: "denied" }}, subscribe: {{ deny: "denied" }} }} }}
] }}
websocket {{ host: "127.0.0.1", port: {web}, no_tls: true, compression: true }}
leafnodes {{ host: "127.0.0.1", port: {leaf} }}
accounts {{ SYS {{ users: [ {{user: sys, password: x}} ] }} }}
system_account: SYS
max_control_line: 4096
{more}
"""
LOGIN: Final[Mapping[str, Any]] = {"user": "u", "pass": "x"}
DENIED: Final[dict[str, Any]] = {"user": "d", "pass": "x"}
MOST_ITEMS: Final = 2_900  # of a request, beside its other fields: it may name 3,000
DEFLATE: Final = {"Sec-WebSocket-Extensions": "permessage-deflate"}
COMPRESSED: Final = 4  # the first reserved bit


@attrs.frozen
class Place:
    """A server that is attacked, and how much."""

    server: Server
    web_port: int
    leaf_port: int
    authority: Authority
    seconds: float
    connections: int
    subscriptions: int

    def rounds(self) -> Iterator[int]:
        """Numbers until the time is over."""
        until = time.monotonic() + self.seconds
        for number in itertools.count():
            if time.monotonic() > until:
                return
            yield number

    def wait(self) -> None:
        """Let time pass until it is over."""
        for _ in self.rounds():
            select.select([], [], [], LOOK_S)


def log_in(address: tuple[str, int]) -> float:
    """The seconds of a login from another address."""
    began = time.monotonic()
    with socket.create_connection(address, timeout=60.0, source_address=(OTHER_ADDRESS, 0)) as sock:
        sock.sendall(connect_line(**LOGIN) + b"PING\r\n")
        found = b""
        while b"PONG" not in found:
            found += sock.recv(4096)
    return time.monotonic() - began


def witness(address: tuple[str, int], pipe: Connection) -> None:
    """PING until told to end; sends the round trips and the logins of each part, in seconds."""
    with RawClient(address, **LOGIN) as client:
        client.settle()
        trips: list[float] = []
        logins: list[float] = []
        while True:
            if pipe.poll():
                word = pipe.recv()
                pipe.send((trips, logins))
                trips, logins = [], []
                if word == "end":
                    return
            if len(trips) % PINGS_PER_LOGIN == 0:
                logins.append(log_in(address))
            began = time.monotonic()
            client.settle(60.0)
            trips.append(time.monotonic() - began)
            time.sleep(PAUSE_S)


@contextmanager
def held(sockets: list[socket.socket]) -> Iterator[None]:
    """Close what was opened."""
    try:
        yield
    finally:
        for one in sockets:
            one.close()


# Attacks.


def silent(place: Place) -> None:
    """Connections that say nothing."""
    crowd = [socket.create_connection(place.server.address) for _ in range(place.connections)]
    with held(crowd):
        place.wait()


def slow(place: Place) -> None:
    """Connections that send a byte of a CONNECT every 0.2 s."""
    crowd = [socket.create_connection(place.server.address) for _ in range(place.connections // 10)]
    with held(crowd):
        for number in place.rounds():
            for one in crowd:
                try:
                    one.send(b'CONNECT {"user":"uuuuuuuuuuuuuuuuuuuuu'[number % 30 : number % 30 + 1])
                except OSError:
                    continue
            select.select([], [], [], LOOK_S)


def endless_connect(place: Place) -> None:
    """One CONNECT of a gigabyte after the other."""
    block = b"x" * (1 << 20)
    for _ in place.rounds():
        with socket.create_connection(place.server.address) as one:
            one.settimeout(1.0)
            try:
                one.sendall(b'CONNECT {"name":"')
                for _ in range(1024):
                    one.sendall(block)
            except OSError:
                continue


def deep_json(place: Place) -> None:
    """CONNECTs that nest as deep as a line allows."""
    for _ in place.rounds():
        with socket.create_connection(place.server.address) as one:
            one.sendall(b"CONNECT " + b'{"a":' * 800 + b"\r\n")
            one.settimeout(1.0)
            try:
                while one.recv(65536):
                    pass
            except OSError:
                continue


def bombs(place: Place) -> None:
    """Compressed messages that would inflate to 400 MB, a thousand times their size."""
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"".join(press.compress(b"PING\r\n" * (1 << 18)) for _ in range(256))
    packed = (packed + press.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")
    bomb = frame(BINARY, packed, rsv=COMPRESSED)
    for _ in place.rounds():
        with WebSocketClient((HOST, place.web_port), upgrade=request(headers=DEFLATE), connect=False) as client:
            client.send_bytes(bomb)
            client.rest(1.0)


def subscriptions(place: Place) -> None:
    """One client with a million subscriptions."""
    with RawClient(place.server.address, **LOGIN) as client:
        for first in range(0, place.subscriptions, 1000):
            client.send(b"".join(b"SUB a.%d.b %d\r\n" % (number, number) for number in range(first, first + 1000)))
        client.settle(120.0)


def one_subject(place: Place) -> None:
    """Clients with 40,000 subscriptions of one subject, in as many queue groups, in one and in none, that go again."""
    with RawClient(place.server.address, **LOGIN) as other:
        for number in place.rounds():
            with RawClient(place.server.address, **LOGIN) as client:
                queue = (b"q%d", b"team", b"")[number % 3]
                for first in range(0, 40_000, 1_000):
                    client.send(
                        b"".join(
                            b"SUB one %b %d\r\n" % (queue % at if b"%" in queue else queue, at)
                            for at in range(first, first + 1_000)
                        )
                    )
                client.settle(60.0)
                other.send(b"PUB one 1\r\nx\r\n" * 10)
                other.settle(60.0)


def purges(place: Place) -> None:
    """Purges of a stream with 300,000 subjects: all of it, and by a pattern."""
    with RawClient(place.server.address, **LOGIN) as client:
        made(client.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p.>"], "storage": "memory"}))
        for number in place.rounds():
            for first in range(0, 300_000, 2_000):
                client.send(b"".join(b"PUB p.%d 1\r\nx\r\n" % at for at in range(first, first + 2_000)))
            client.settle(60.0)
            made(client.api("STREAM.PURGE.P", ({}, {"filter": "p.*"})[number % 2]))


@contextmanager
def crowd_of(place: Place, count: int) -> Iterator[list[RawClient]]:
    """So many clients that are logged in."""
    with ExitStack() as stack:
        crowd = [stack.enter_context(RawClient(place.server.address, **LOGIN)) for _ in range(count)]
        for one in crowd:
            one.settle(60.0)
        yield crowd


def crowd_publishes(place: Place) -> None:
    """500 connections that publish to a stream, 2,000 messages in a send of each, all at once."""
    with crowd_of(place, 500) as crowd:
        made(crowd[0].api("STREAM.CREATE.K", {"name": "K", "subjects": ["k"], "storage": "memory", "max_msgs": 1_000}))
        for _ in place.rounds():
            for one in crowd:
                one.send(b"PUB k 1\r\nx\r\n" * 2_000)
            for one in crowd:
                one.settle(120.0)


def crowd_pulls(place: Place) -> None:
    """64 connections that ask consumers for one message, 500 pulls in a send of each, all at once."""
    with crowd_of(place, 64) as crowd:
        made(crowd[0].api("STREAM.CREATE.K", {"name": "K", "subjects": ["k"], "storage": "memory"}))
        crowd[0].send(b"PUB k 1\r\nx\r\n" * 10_000)
        for number, one in enumerate(crowd):
            config = {"durable_name": f"c{number}", "ack_policy": "none"}
            made(one.api(f"CONSUMER.CREATE.K.c{number}", {"stream_name": "K", "config": config}))
            one.subscribe("back")
        for _ in place.rounds():
            for number, one in enumerate(crowd):
                one.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.K.c%d back 1\r\n1\r\n" % number * 500)
            for one in crowd:
                one.settle(120.0)


def crowd_cores(place: Place) -> None:
    """200 connections that publish small messages that nobody wants, 170 KB in a send of each, all at once."""
    with crowd_of(place, 200) as crowd:
        for _ in place.rounds():
            for one in crowd:
                one.send(b"PUB nobody 1\r\nx\r\n" * 10_000)
            for one in crowd:
                one.settle(120.0)


def handshakes(place: Place) -> None:
    """TLS handshakes, one after the other, that are given up before the end."""
    hello = bytes.fromhex("16030100050100000100")
    for _ in place.rounds():
        crowd = [socket.create_connection(place.server.address) for _ in range(50)]
        with held(crowd):
            for one in crowd:
                one.sendall(hello)


def stopped_handshakes(place: Place) -> None:
    """TLS connections that send a whole ClientHello and then nothing: the server has answered and waits."""
    hello = client_hello()
    crowd = [socket.create_connection(place.server.address) for _ in range(place.connections)]
    with held(crowd):
        for one in crowd:
            try:
                one.sendall(hello)
            except OSError:
                continue
        place.wait()


def stopped_proxy_headers(place: Place) -> None:
    """Connections that begin with the header of a load balancer, or with half of one, and say nothing more."""
    whole = b"PROXY TCP4 198.51.100.7 198.51.100.8 51422 4222\r\n"
    crowd = [socket.create_connection(place.server.address) for _ in range(place.connections)]
    with held(crowd):
        for number, one in enumerate(crowd):
            try:
                one.sendall(whole if number % 2 else whole[: len(whole) // 2])
            except OSError:
                continue
        place.wait()


def client_hello() -> bytes:
    """The first flight of a handshake."""
    arrives, leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(arrives, leaves, server_hostname="localhost").do_handshake()
    return leaves.read()


def whole_handshakes(place: Place) -> None:
    """Whole TLS handshakes, one after the other."""
    context = place.authority.client_context()
    for _ in place.rounds():
        with socket.create_connection(place.server.address) as one:
            one.recv(4096)
            with context.wrap_socket(one, server_hostname="localhost"):
                pass


def system_requests(place: Place) -> None:
    """Requests for all connections, as fast as they are taken."""
    body = json.dumps({"subscriptions_detail": True}).encode()
    request = b"PUB $SYS.REQ.SERVER.PING.CONNZ back %d\r\n%s\r\n" % (len(body), body)
    with RawClient(place.server.address, **{**LOGIN, "user": "sys"}) as client:
        client.subscribe("back")
        for _ in place.rounds():
            client.send(request * 200)
            client.settle(60.0)


def leaf_lines(place: Place) -> None:
    """A leaf node that subscribes to ever new subjects and publishes without interest."""
    with RawLeaf(place.leaf_port, **LOGIN) as leaf:
        for number in place.rounds():
            first = number * 500
            leaf.send(b"".join(b"LS+ leaf.%d\r\n" % (first + at) for at in range(500)))
            leaf.send(b"LMSG nobody 3\r\nabc\r\n" * 500)


def denied_lines(place: Place) -> None:
    """Lines that the user's permissions deny, 10,000 in a send."""
    with RawClient(place.server.address, **DENIED) as client:
        for number in place.rounds():
            client.send((b"SUB denied 7\r\n", b"PUB denied 0\r\n\r\n")[number % 2] * 10_000)
            client.settle(60.0)


def connects(place: Place) -> None:
    """CONNECTs on one connection, 5,000 in a send."""
    with RawClient(place.server.address, **LOGIN) as client:
        for _ in place.rounds():
            client.send(connect_line(**LOGIN) * 5_000)
            client.settle(60.0)


def restores(place: Place) -> None:
    """Restores of streams with 10,000 sources, each 400 KB."""
    sources = [{"name": f"N{at}", "filter_subject": f"*.q{at}"} for at in range(10_000)]
    with RawClient(place.server.address, **LOGIN) as client:
        for number in place.rounds():
            name = f"R{number}"
            client.api(f"STREAM.RESTORE.{name}", {"config": {"name": name, "sources": sources}, "state": {}})


def named_items(place: Place) -> None:
    """Creations of streams and consumers that name as much as they may, and more."""
    with RawClient(place.server.address, **LOGIN) as client:
        client.api("STREAM.CREATE.K", {"name": "K", "subjects": ["k.>"], "storage": "memory"})
        for number in place.rounds():
            count, name = (2_900, 10_000)[number % 2], f"C{number}"
            client.api(
                "STREAM.CREATE.M", {"name": "M", "subjects": [f"*.q{at}" for at in range(count)], "storage": "memory"}
            )
            client.api("STREAM.DELETE.M", {})
            config = {"name": name, "ack_policy": "explicit", "filter_subjects": [f"k.*.q{at}" for at in range(count)]}
            client.api(f"CONSUMER.CREATE.K.{name}", {"stream_name": "K", "config": config})
            client.api(f"CONSUMER.DELETE.K.{name}", {})


def patterns(place: Place) -> None:
    """Messages that expect the last sequence of a pattern, and gets of patterns, on a stream with 20,000 subjects."""
    pattern = [("Nats-Expected-Last-Subject-Sequence", "7"), ("Nats-Expected-Last-Subject-Sequence-Subject", "*.zz")]
    hdr, body = header_block(pattern), json.dumps({"multi_last": [f"*.zz{at}" for at in range(1_000)]}).encode()
    expecting = b"HPUB k.a back %d %d\r\n%sx\r\n" % (len(hdr), len(hdr) + 1, hdr)
    getting = b"PUB $JS.API.DIRECT.GET.K back %d\r\n%s\r\n" % (len(body), body)
    with RawClient(place.server.address, **LOGIN) as client:
        client.api("STREAM.CREATE.K", {"name": "K", "subjects": ["k.>"], "storage": "memory", "allow_direct": True})
        client.send(b"".join(b"PUB k.%d 1\r\nx\r\n" % at for at in range(20_000)))
        client.subscribe("back")
        for _ in place.rounds():
            client.send(expecting * 1_000 + getting * 5)
            client.settle(60.0)


def wq_filters(place: Place) -> None:
    """Creations of a second consumer of a work queue: 2,900 filters beside the 2,900 of the first."""

    def create(client: RawClient, name: str) -> None:
        filters = [f"w.{name}.{at:x}" for at in range(MOST_ITEMS)]
        config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters}
        made(client.api(f"CONSUMER.CREATE.W.{name}", {"stream_name": "W", "config": config}))

    with RawClient(place.server.address, **LOGIN) as client:
        made(client.api("STREAM.CREATE.W", {"name": "W", "subjects": ["w.>"], "retention": "workqueue"}))
        create(client, "a")
        for _ in place.rounds():
            create(client, "b")
            made(client.api("CONSUMER.DELETE.W.b", {}))


def claims(place: Place) -> None:
    """Creations of a stream with 600 wildcards that begin the names of 29,000 subjects of ten other streams."""
    with RawClient(place.server.address, **LOGIN) as client:
        for number in range(10):
            subjects = [f"{number}_{at:x}.b" for at in range(MOST_ITEMS)]
            made(client.api(f"STREAM.CREATE.A{number}", {"name": f"A{number}", "subjects": subjects}))
        for _ in place.rounds():
            subjects = [f"*.q{at:x}" for at in range(600)]
            made(client.api("STREAM.CREATE.B", {"name": "B", "no_ack": True, "subjects": subjects}))
            made(client.api("STREAM.DELETE.B", {}))


def interest(place: Place) -> None:
    """Publishes to an interest stream beside the 2,900 filters of its consumer, 1,000 in a send."""
    with RawClient(place.server.address, **LOGIN) as client:
        made(client.api("STREAM.CREATE.I", {"name": "I", "subjects": ["i.>"], "retention": "interest"}))
        filters = [f"i.a.{at:x}" for at in range(MOST_ITEMS)]
        config = {"durable_name": "a", "ack_policy": "explicit", "filter_subjects": filters}
        made(client.api("CONSUMER.CREATE.I.a", {"stream_name": "I", "config": config}))
        for _ in place.rounds():
            client.send(b"PUB i.b 1\r\nx\r\n" * 1_000)
            client.api("STREAM.INFO.I")


def interest_many(place: Place) -> None:
    """Publishes to an interest stream with 2,000 consumers, each of another subject, 500 in a send."""
    with RawClient(place.server.address, **LOGIN) as client:
        made(client.api("STREAM.CREATE.I", {"name": "I", "subjects": ["i.>"], "retention": "interest"}))
        for at in range(2_000):
            config = {"durable_name": f"c{at}", "ack_policy": "explicit", "filter_subject": f"i.x.{at}"}
            client.publish(
                f"$JS.API.CONSUMER.CREATE.I.c{at}", json.dumps({"stream_name": "I", "config": config}).encode()
            )
            if at % 100 == 99:
                client.api("STREAM.INFO.I")
        for _ in place.rounds():
            client.send(b"PUB i.b 1\r\nx\r\n" * 500)
            client.api("STREAM.INFO.I")


def interest_delete(place: Place) -> None:
    """Deletions of one of two consumers of an interest stream with 50,000 messages, and of the only one of another."""
    with RawClient(place.server.address, **LOGIN) as client:
        for name in ("K", "L"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "retention": "interest", "storage": "memory"}
            made(client.api(f"STREAM.CREATE.{name}", config))
        config = {"durable_name": "b", "ack_policy": "explicit", "filter_subjects": ["k.>"]}
        made(client.api("CONSUMER.CREATE.K.b", {"stream_name": "K", "config": config}))
        for first in range(0, 50_000, 2_000):
            client.send(b"".join(b"PUB k.%x 1\r\nx\r\n" % at for at in range(first, first + 2_000)))
            client.api("STREAM.INFO.K")
        for _ in place.rounds():
            for name in ("K", "L"):
                config = {"durable_name": "a", "ack_policy": "explicit"}
                made(client.api(f"CONSUMER.CREATE.{name}.a", {"stream_name": name, "config": config}))
            for first in range(0, 20_000, 2_000):
                client.send(b"".join(b"PUB l.%x 1\r\nx\r\n" % at for at in range(first, first + 2_000)))
                client.api("STREAM.INFO.L")
            for name in ("K", "L"):
                made(client.api(f"CONSUMER.DELETE.{name}.a", {}))


def schedule(place: Place) -> None:
    """Schedules whose target is beside the 2,900 subjects of their stream, 200 in a send."""
    hdr = header_block([("Nats-Schedule", "@every 1h"), ("Nats-Schedule-Target", "nowhere.x")])
    with RawClient(place.server.address, **LOGIN) as client:
        subjects = [f"c.{at:x}" for at in range(MOST_ITEMS)]
        config = {"name": "C", "subjects": subjects, "allow_msg_schedules": True, "allow_msg_ttl": True}
        made(client.api("STREAM.CREATE.C", config))
        for _ in place.rounds():
            client.send(b"HPUB c.0 %d %d\r\n%sx\r\n" % (len(hdr), len(hdr) + 1, hdr) * 200)
            client.api("STREAM.INFO.C")


def tar_bombs(place: Place) -> None:
    """Restores of archives in nats-server's old form: 100 KB that become 750 MB, members of a tar that say nothing."""
    head = tarfile.TarInfo("x")
    head.type = tarfile.XHDTYPE
    member, size = head.tobuf(tarfile.USTAR_FORMAT), 4 << 20
    block = b"\x80\x80\x80\x02\xf4" + (len(member) - 1).to_bytes(2, "little") + member  # as it is
    block += b"\xfe" + len(member).to_bytes(2, "little")  # 64 bytes of it again
    block += b"\x1d\x00" + (size - len(member) - 64 - 65_540).to_bytes(3, "little")  # and all the others
    chunk = b"\x00" + (len(block) + 4).to_bytes(3, "little") + _sum_of(member * (size // len(member))) + block
    bomb = _START + chunk * (100_000 // len(chunk))
    with RawClient(place.server.address, **LOGIN) as client:
        for number in place.rounds():
            answer = client.api(f"STREAM.RESTORE.B{number}", {"config": {"name": f"B{number}"}, "state": {}})
            if "error" in answer:  # as many as may be are going on
                client.settle(60.0)
                continue
            for piece in (bomb, b""):
                client.publish(answer["deliver_subject"], piece, reply=client.new_inbox())
            client.settle(60.0)


def made(answer: Mapping[str, Any]) -> None:
    """The request that an attack depends on was not refused."""
    assert "error" not in answer, answer


def pages(place: Place) -> None:
    """All of /jsz and /metrics of 300 streams with a consumer each, one page after the other."""
    with RawClient(place.server.address, **LOGIN) as client:
        for at in range(300):
            name = f"S{at}"
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{at}.>"], "storage": "memory"})
            config = {"durable_name": "c", "ack_policy": "explicit"}
            client.api(f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": config})
    for _ in place.rounds():
        for path in ("/jsz?consumers=1&config=1&raft=1", "/metrics"):
            place.server.get(path)


MORE: Final[Mapping[str, str]] = {"stopped_proxy_headers": "proxy_protocol: true"}  # of its server
OF_JETSTREAM: Final = (
    "restores", "named_items", "patterns", "pages", "wq_filters", "claims", "interest", "interest_many",
    "interest_delete", "schedule", "tar_bombs", "purges", "crowd_publishes", "crowd_pulls",
)  # fmt: skip
ATTACKS: Final[Mapping[str, Callable[[Place], None]]] = {
    attack.__name__: attack
    for attack in (
        silent, slow, endless_connect, deep_json, bombs, subscriptions, handshakes, stopped_handshakes,
        stopped_proxy_headers, whole_handshakes, system_requests, leaf_lines, denied_lines, connects, restores,
        named_items, patterns, pages, wq_filters, claims, interest, interest_many, interest_delete, schedule,
        tar_bombs, one_subject, purges, crowd_publishes, crowd_pulls, crowd_cores,
    )
}  # fmt: skip


def shown(trips: list[float]) -> str:
    """Median, 99th percentile and the longest in milliseconds."""
    cuts = statistics.quantiles(trips, n=100) if len(trips) > 1 else [0.0] * 99
    return (
        f"p50 {cuts[49] * 1000:5.1f} ms, p99 {cuts[98] * 1000:6.1f} ms, worst {max(trips, default=0.0) * 1000:6.1f} ms"
    )


def measure(name: str, asked: argparse.Namespace, directory: Path) -> bool:
    """One attack on a server of its own; True when it lives on and the witness was served."""
    authority = Authority.make(directory)
    web_port, leaf_port = free_port(), free_port()
    config = CONFIG.format(tls=authority.server().block, web=web_port, leaf=leaf_port, more=MORE.get(name, ""))
    with ExitStack() as stack:
        figures = directory / "figures"
        figures.write_bytes(metered.NOTHING)
        server = Server(asked.server, directory=directory, config=config, jetstream=name in OF_JETSTREAM)
        if asked.server == "jetraft":
            server.starter = [*command("jetraft")[:1], "-m", "tests.scaling.metered", str(figures)]
        stack.enter_context(server)
        here, there = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=witness, args=(server.address, there), daemon=True)
        process.start()
        select.select([], [], [], QUIET_S)
        here.send("next")
        quiet, _ = here.recv()
        steps = metered.mapped(figures)
        steps[: metered.FIGURES.size] = metered.NOTHING
        peak = Peak(server)
        place = Place(server, web_port, leaf_port, authority, asked.seconds, asked.connections, asked.subscriptions)
        attack = multiprocessing.get_context("fork").Process(target=ATTACKS[name], args=(place,), daemon=True)
        attack.start()
        while attack.is_alive():
            attack.join(LOOK_S)
            peak.look()
        here.send("end")
        trips, logins = here.recv()
        process.join()
        during = f"during {shown(trips)}, logins {shown(logins)}"
        step = metered.read(steps)
        end = f"{peak.mb:5.0f} MB more at most; longest step {step.longest_ns / 1e6:.1f} ms ({step.task})"
        print(f"{name:18} before {shown(quiet)}; {during}; {end}", flush=True)
        return attack.exitcode == 0 and len(trips) > 1 and server.running.running


def main() -> int:
    """Measure and print; the exit status says whether every server lived on and served."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=["jetraft", "reference"], default="jetraft")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("names", nargs="*", choices=[[], *ATTACKS])
    asked = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * asked.connections + 1_000)), hard))
    good = True
    for name in asked.names or ATTACKS:
        with tempfile.TemporaryDirectory() as directory:
            good = measure(name, asked, Path(directory)) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
