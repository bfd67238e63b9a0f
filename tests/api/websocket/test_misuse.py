"""What a client may not do over WebSocket, and what it costs the server."""

import signal
import socket
import zlib
from contextlib import closing

import pytest

from tests.api.websocket.conftest import Start, web_address
from tests.harness.log_lines import wait_for_event
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Line
from tests.harness.raw_websocket import BINARY, CLOSE, PING, PONG, Frame, WebSocketClient, frame, request
from tests.harness.server import Server

DEFLATE = {"Sec-WebSocket-Extensions": "permessage-deflate"}
COMPRESSED = 4  # the first reserved bit
GROWTH_MAX_BYTES = 32 << 20
BLOCK = "no_tls: true\ncompression: true"


def deflated(data: bytes) -> bytes:
    """A compressed message."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


def talk(server: Server, data: bytes, *, timeout_s: float = PATIENCE_S) -> bytes:
    """Send bytes and read to the end of the connection."""
    with closing(socket.create_connection(web_address(server), timeout_s)) as sock:
        sock.sendall(data)
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionError:
            pass
        return answer


def test_a_frame_of_any_stated_length_is_read_as_it_comes(start: Start) -> None:
    server = start(BLOCK, debug=False)
    with WebSocketClient(web_address(server)) as client:
        client.settle()
        before = server.rss_bytes()
        line = b"PUB a 1000000\r\n" + bytes(1_000_000) + b"\r\nPING\r\n"
        client.send_bytes(frame(BINARY, line * 40, length=1 << 62))
        for _ in range(40):
            assert client.next_pong()
        assert server.rss_bytes() - before < GROWTH_MAX_BYTES


def test_a_compressed_message_may_not_grow_without_bounds(start: Start) -> None:
    server = start(BLOCK)
    bomb = deflated(b"PUB a 0\r\n\r\n" * 500_000)
    assert len(bomb) < 1 << 14  # what is not read when the server closes would reset the connection
    with WebSocketClient(web_address(server), upgrade=request(headers=DEFLATE)) as client:
        client.send(b"PING\r\n")
        assert client.next_pong()
        before = server.rss_bytes()
        client.send_bytes(frame(BINARY, bomb, rsv=COMPRESSED))
        close = client.end()
        assert server.rss_bytes() - before < GROWTH_MAX_BYTES
    assert close is not None
    assert close.payload == b"\x03\xf1Maximum Message Payload Exceeded"
    server.running.wait_for_line("Client connection closed: Maximum Message Payload Exceeded")


def packed(data: bytes) -> bytes:
    """A frame with a compressed message."""
    return frame(BINARY, deflated(data), rsv=COMPRESSED)


def test_before_it_names_itself_a_client_has_little_room(start: Start) -> None:
    address, many = web_address(start(BLOCK, debug=False)), b"PUB a 0\r\n\r\n" * 10_000 + b"PING\r\n"
    with WebSocketClient(address, upgrade=request(headers=DEFLATE)) as client:
        client.settle()
        client.send_bytes(packed(many))
        assert client.next_pong()
    with WebSocketClient(address, upgrade=request(headers=DEFLATE), connect=False) as client:
        client.send_bytes(packed(many))
        assert client.end() == Frame(CLOSE, b"\x03\xf1Maximum Message Payload Exceeded")


def test_a_payload_of_max_payload_may_be_compressed(start: Start) -> None:
    with WebSocketClient(web_address(start(BLOCK, debug=False)), upgrade=request(headers=DEFLATE)) as client:
        client.settle()
        client.send_bytes(packed(b"PUB a 1048576\r\n" + bytes(1 << 20) + b"\r\nPING\r\n"))
        assert client.next_pong()


def test_what_is_not_deflate_ends_the_connection(start: Start) -> None:
    server = start(BLOCK)
    with WebSocketClient(web_address(server), upgrade=request(headers=DEFLATE)) as client:
        client.send_bytes(frame(BINARY, b"\xff" * 30, rsv=COMPRESSED))
        close = client.end()
    assert close is not None
    assert close.payload == b"\x03\xefcorrupt compressed message"
    wait_for_event(server.running, "text", "read_error", error="corrupt compressed message")


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\n", request()[:-2]])
def test_an_upgrade_that_takes_too_long_ends(start: Start, head: bytes) -> None:
    server = start("no_tls: true\nhandshake_timeout: 300ms", debug=False)
    assert talk(server, head) == b""
    assert server.get("/varz")[1]["connections"] == 0


def test_a_request_is_bounded(start: Start) -> None:
    server = start(debug=False)
    answer = talk(server, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 3000)
    refusal = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    assert answer.startswith(refusal) or answer == b""  # a reset takes the answer with it


def test_requests_of_one_connection_are_bounded_together(start: Start) -> None:
    server = start("no_tls: true\nhandshake_timeout: 60s", debug=False)
    wrong = request(without=("Upgrade",), headers={"X": "y" * 8000})
    with closing(socket.create_connection(web_address(server), PATIENCE_S)) as sock:
        answers = 0
        while answers < 20:
            try:
                sock.sendall(wrong)
                answer = sock.recv(65536)
            except ConnectionError:
                break
            if not answer:
                break
            answers += 1
        assert 0 < answers < 10


def test_data_before_the_answer_ends_the_connection(start: Start) -> None:
    server = start(debug=False)
    assert talk(server, request() + frame(BINARY, b"PING\r\n")) == b""
    server.running.wait_for_line("websocket handshake error: client sent data before handshake is complete")


def test_a_client_that_pings_and_never_reads_costs_a_bounded_memory(start: Start) -> None:
    server = start(rest="write_deadline: 2s")
    with WebSocketClient(web_address(server)) as client:
        client.settle()
        before = server.rss_bytes()
        pings = frame(PING, bytes(125)) * 1000
        while not client.closed:
            client.send_bytes(pings)
            assert server.rss_bytes() - before < GROWTH_MAX_BYTES
    server.running.wait_for_line("Client connection closed: Slow Consumer (Write Deadline)")


def test_a_client_that_does_not_read_is_a_slow_consumer(start: Start) -> None:
    server = start(rest="max_pending: 4MB")
    with WebSocketClient(web_address(server)) as slow, WebSocketClient(web_address(server)) as fast:
        slow.subscribe("a")
        slow.settle()
        for _ in range(40):
            fast.publish("a", bytes(1 << 20))
        fast.settle()
        server.running.wait_for_line("Client connection closed: Slow Consumer (Pending Bytes)")
    assert server.get("/varz")[1]["slow_consumers"] == 1


def test_pings_are_answered_between_and_inside_of_messages(start: Start) -> None:
    with WebSocketClient(web_address(start(debug=False))) as client:
        client.send_bytes(frame(BINARY, b"PI", final=False) + frame(PING, b"a") + frame(0, b"NG\r\n") + frame(PING))
        assert client.next_pong()
        assert [client.next_frame(), client.next_frame()] == [Frame(PONG, b"a"), Frame(PONG, b"")]


def test_masks_are_required_unless_both_ends_do_without(start: Start) -> None:
    address = web_address(start())
    with WebSocketClient(address, upgrade=request(headers={"Nats-No-Masking": "true"}), masks=False) as client:
        client.send(b"PING\r\n")
        assert client.next_pong()
    with WebSocketClient(address) as client:
        client.send_bytes(frame(BINARY, b"PING\r\n", mask=None))
        assert client.end() == Frame(CLOSE, b"\x03\xeamask bit missing")


@pytest.mark.parametrize(("agent", "longest"), [("Mozilla/5.0", 4096), ("curl/8", 1 << 16)])
def test_browsers_get_short_frames(start: Start, agent: str, longest: int) -> None:
    address = web_address(start(debug=False))
    with WebSocketClient(address, upgrade=request(headers={"User-Agent": agent})) as client:
        sid = client.subscribe("a")
        client.publish("a", bytes(200_000))
        (message,) = client.messages(sid, 1)
        assert len(message.payload) == 200_000
        assert client.longest == longest


def test_the_server_says_why_it_ends(start: Start) -> None:
    server = start("no_tls: true\nping_interval: 200ms", "ping_max: 1")
    with WebSocketClient(web_address(server)) as client:
        assert client.end() == Frame(CLOSE, b"\x03\xe9Stale Connection")
    client = WebSocketClient(web_address(server))
    client.settle()
    server.stop()
    with client:
        assert client.end() == Frame(CLOSE, b"\x03\xe9Server Shutdown")


def test_a_lame_duck_tells_its_clients_and_closes_them(start: Start) -> None:
    server = start(rest='lame_duck_grace_period: "0s"\nlame_duck_duration: "30s"')
    with WebSocketClient(web_address(server)) as client:
        client.settle()
        server.running.signal(signal.SIGUSR2)
        told = [event.text for event in client.rest(PATIENCE_S) if isinstance(event, Line)]
        assert any('"ldm":true' in text for text in told)
        assert client.end() == Frame(CLOSE, b"\x03\xe9Server Shutdown")
    server.running.wait()


def test_users_may_be_bound_to_websocket_and_have_a_time_of_their_own(start: Start) -> None:
    types = "allowed_connection_types: [%s]"
    users = f"{{user: w, password: p, {types % 'WEBSOCKET'}}}, {{user: s, password: p, {types % 'STANDARD'}}}"
    server = start("no_tls: true\nauthorization { timeout: 0.3 }", f"authorization {{ users [{users}] }}")
    address = web_address(server)
    with WebSocketClient(address, connect=False) as client:
        client.connect(user="w", **{"pass": "p"})
        assert client.info["auth_required"] is True
        client.send(b"PING\r\n")
        assert client.next_pong()
    with WebSocketClient(address, connect=False) as client:
        client.connect(user="s", **{"pass": "p"})
        assert client.end() == Frame(CLOSE, b"\x03\xf0Authentication Failure")
    with WebSocketClient(address, connect=False) as client:
        assert client.next_event(PATIENCE_S) == Line(text="-ERR 'Authentication Timeout'")
        assert client.end() == Frame(CLOSE, b"\x03\xf0Authentication Timeout")


def test_what_one_receive_brings_before_an_upgrade_is_bounded(start: Start) -> None:
    server = start(BLOCK)
    asked = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    with closing(socket.create_connection(web_address(server), PATIENCE_S)) as sock:
        sock.sendall(asked * 60)
        answer = b""
        while answer.count(b"HTTP/1.1 400") < 60:
            piece = sock.recv(65536)
            assert piece
            answer += piece
        sock.sendall(asked * 40)
        try:
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionError:  # what the server has not read resets the connection
            pass
    assert answer.count(b"HTTP/1.1 400") <= 64
