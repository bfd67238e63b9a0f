"""Records: cut anywhere, large, slow, many at once; ends and misuse in the middle of them."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.api.tls.conftest import Start
from tests.clients.nats_py import connection, run
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import exchange_to_end
from tests.harness.raw_tls import TlsClient, read_line
from tests.harness.server import Server

LARGE = 20 * 1024 * 1024
LIMITS = f"max_payload: {LARGE + 1024}\nmax_pending: 256MB"


class Wire:
    """A TLS client whose ciphertext is in the test's hands."""

    def __init__(self, server: Server, context: ssl.SSLContext) -> None:
        self.sock = socket.create_connection(server.address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(PATIENCE_S)
        read_line(self.sock)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def handshake(self, *, piece: int = 1 << 20) -> None:
        """Shake hands, `piece` bytes at a time."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.push(piece)
                self.incoming.write(self.sock.recv(65536))
            else:
                self.push(piece)
                return

    def records(self, data: bytes) -> bytes:
        """The ciphertext of what is to be sent."""
        self.tls.write(data)
        return self.outgoing.read()

    def push(self, piece: int = 1 << 20) -> None:
        """Send what OpenSSL has to send."""
        data = self.outgoing.read()
        for at in range(0, len(data), piece):
            self.sock.sendall(data[at : at + piece])

    def read_until(self, end: bytes) -> bytes:
        """Plaintext up to and with an ending."""
        found = b""
        while end not in found:
            found += self.read_some()
        return found

    def read_some(self) -> bytes:
        """Some plaintext."""
        while True:
            try:
                return self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                data = self.sock.recv(1 << 18)
                assert data, "the server closed the connection"
                self.incoming.write(data)

    def close(self) -> None:
        """Without a close_notify."""
        self.sock.close()


@contextmanager
def wire(server: Server, authority: Authority) -> Iterator[Wire]:
    """A connection that is closed in the end."""
    found = Wire(server, authority.client_context())
    try:
        yield found
    finally:
        found.close()


def test_a_handshake_may_come_byte_by_byte(start_tls: Start, authority: Authority) -> None:
    server = start_tls("timeout: 20", debug=False)
    with wire(server, authority) as client:
        client.handshake(piece=1)
        client.sock.sendall(client.records(b"CONNECT {}\r\nPING\r\n"))
        assert b"PONG" in client.read_until(b"PONG\r\n")


def test_a_record_may_be_cut_at_every_byte(start_tls: Start, authority: Authority) -> None:
    server = start_tls(debug=False)
    with wire(server, authority) as client:
        client.handshake()
        client.sock.sendall(client.records(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n'))
        client.read_until(b"PONG\r\n")
        client.sock.sendall(record := client.records(b"PUB a 3\r\nabc\r\n"))
        length = len(record)
        client.read_until(b"abc\r\n")
        for cut in range(1, length):
            record = client.records(b"PUB a 3\r\nabc\r\n")
            client.sock.sendall(record[:cut])
            client.sock.sendall(record[cut:])
            assert client.read_until(b"abc\r\n") == b"MSG a 1 3\r\nabc\r\n", cut


def test_many_records_of_a_receive_are_all_parsed_in_order(start_tls: Start, authority: Authority) -> None:
    server, count = start_tls(debug=False), 20_000
    with wire(server, authority) as client:
        client.handshake()
        client.sock.sendall(client.records(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n'))
        client.read_until(b"PONG\r\n")
        batch = b"".join(client.records(b"PUB a %d\r\n%d\r\n" % (len(str(i)), i)) for i in range(count))
        sender = threading.Thread(target=client.sock.sendall, args=(batch + client.records(b"PING\r\n"),))
        sender.start()
        found = client.read_until(b"PONG\r\n")
        sender.join()
    assert found == b"".join(b"MSG a 1 %d\r\n%d\r\n" % (len(str(i)), i) for i in range(count)) + b"PONG\r\n"


def test_a_large_message_passes_both_ways(start_tls: Start, authority: Authority) -> None:
    server = start_tls(rest=LIMITS, debug=False)
    payload = bytes(range(256)) * (LARGE // 256)
    with TlsClient(server.address, authority.client_context()) as client:
        sid = client.subscribe("large")
        client.publish("large", payload)
        (message,) = client.messages(sid, 1, timeout_s=PATIENCE_S)
        assert message.payload == payload


def test_a_slow_reader_gets_everything_in_the_end(start_tls: Start, authority: Authority) -> None:
    server, size, count = start_tls(rest=LIMITS, debug=False), 1 << 20, 48
    with wire(server, authority) as reader, TlsClient(server.address, authority.client_context()) as writer:
        reader.handshake()
        reader.sock.sendall(reader.records(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n'))
        reader.read_until(b"PONG\r\n")
        for number in range(count):
            writer.publish("a", bytes([number]) * size)
        writer.settle()
        pending = max(row["pending_bytes"] for row in server.get("/connz")[1]["connections"])
        assert pending > size
        head, rest = b"MSG a 1 %d\r\n" % size, b""
        for number in range(count):
            while len(rest) < len(head) + size + 2:
                rest += reader.read_some()
            frame, rest = rest[: len(head) + size + 2], rest[len(head) + size + 2 :]
            assert frame == head + bytes([number]) * size + b"\r\n", number


def test_who_never_reads_is_cut_off_as_a_slow_consumer(start_tls: Start, authority: Authority) -> None:
    server = start_tls(rest="max_pending: 4MB", debug=True)
    with wire(server, authority) as idle, TlsClient(server.address, authority.client_context()) as writer:
        idle.handshake()
        idle.sock.sendall(idle.records(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n'))
        idle.read_until(b"PONG\r\n")
        deadline = time.monotonic() + PATIENCE_S
        while server.get("/varz")[1]["slow_consumers"] == 0:
            assert time.monotonic() < deadline
            writer.publish("a", bytes(1 << 19))
            writer.settle()
    server.running.wait_for_line("Slow Consumer")


def test_the_end_of_a_connection_is_told_in_a_record(start_tls: Start, authority: Authority) -> None:
    server = start_tls(debug=False)
    with wire(server, authority) as client:
        client.handshake()
        client.sock.sendall(client.records(b"NONSENSE\r\n"))
        while data := client.sock.recv(65536):
            client.incoming.write(data)
        while client.tls.read(1 << 20):  # b"" is a close_notify; without one it would raise SSLWantReadError
            pass


def test_what_was_sent_before_the_end_is_acted_on(start_tls: Start, authority: Authority) -> None:
    """It takes several turns: the connection has a share of each."""
    server = start_tls(debug=False)
    with TlsClient(server.address, authority.client_context()) as other, wire(server, authority) as client:
        other.send(b"SUB last 1\r\n")
        other.settle()
        client.handshake()
        sent = client.records(b'CONNECT {"verbose":false}\r\n' * 300 + b"PUB last 1\r\nx\r\n")
        with suppress(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.sock.sendall(sent + client.outgoing.read())
        client.sock.shutdown(socket.SHUT_WR)
        assert [one.payload for one in other.messages("1", 1)] == [b"x"]


@pytest.mark.parametrize("size", [1, 100, 16 * 1024, 70_000])
def test_garbage_in_a_record_ends_only_its_connection(start_tls: Start, authority: Authority, size: int) -> None:
    server = start_tls(debug=False)
    with TlsClient(server.address, authority.client_context()) as other, wire(server, authority) as client:
        client.handshake()
        head = bytes([0x17, 3, 3]) + min(size, 16 * 1024).to_bytes(2, "big")
        exchange_to_end(client.sock, head + bytes(size))
        assert other.settle() is not None
        assert not other.closed


def test_nats_py_works_over_tls_with_jetstream(start_tls: Start, authority: Authority) -> None:
    client = authority.sign("js")
    server = start_tls(f'ca_file: "{authority.ca_file}"\nverify: true', debug=False)

    async def scenario() -> None:
        options = {"tls": authority.client_context(client), "tls_hostname": "localhost"}
        async with connection(server.url.replace("nats://", "tls://"), **options) as nc:
            js = nc.jetstream()
            await js.add_stream(name="S", subjects=["s.>"])
            acks = await asyncio.gather(*[js.publish(f"s.{i}", bytes([i]) * 1000) for i in range(200)])
            assert sorted(ack.seq for ack in acks) == list(range(1, 201))
            puller = await js.pull_subscribe("s.>", durable="d")
            messages = [message for _ in range(4) for message in await puller.fetch(50, timeout=PATIENCE_S)]
            assert sorted(message.data[0] for message in messages) == list(range(200))
            for message in messages:
                await message.ack()

    run(scenario)


def test_nats_py_may_begin_with_the_handshake(start_tls: Start, authority: Authority) -> None:
    server = start_tls("handshake_first: true", debug=False)

    async def scenario() -> None:
        options = {"tls": authority.client_context(), "tls_hostname": "localhost", "tls_handshake_first": True}
        async with connection(server.url.replace("nats://", "tls://"), **options) as nc:
            subscription = await nc.subscribe("a")
            await nc.publish("a", b"x")
            assert (await subscription.next_msg(PATIENCE_S)).data == b"x"

    run(scenario)


@pytest.mark.parametrize("cut", ["hello", "flight", "records", "message"])
def test_a_connection_may_end_in_every_state(start_tls: Start, authority: Authority, cut: str) -> None:
    server = start_tls(debug=False)
    for _ in range(10):
        with wire(server, authority) as client:
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.do_handshake()
            hello = client.outgoing.read()
            if cut == "hello":
                client.sock.sendall(hello[: len(hello) // 2])
                continue
            client.sock.sendall(hello)
            if cut == "flight":
                continue
            client.incoming.write(client.sock.recv(65536))
            client.handshake()
            record = client.records(b"CONNECT {}\r\nPUB a 100\r\n")
            client.sock.sendall(record if cut == "message" else record[: len(record) // 2])
    with TlsClient(server.address, authority.client_context()) as client:
        client.settle()
        assert not client.closed
    assert server.running.running
