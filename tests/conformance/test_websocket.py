"""WebSocket on both servers: which requests are upgraded, what frames are refused, how connections end, side by side.

Where a frame breaks the rules, the reference may close the connection before its close frame has left; its log has the
same text. What it closes so is compared by that text, and jetraft's close frame has to say it.
"""

import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import Line
from tests.harness.raw_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, WebSocketClient, frame, request
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
Address = tuple[str, int]
Seen = dict[str, Any]
BLOCK = 'no_tls: true\ncompression: true\nheaders { X-A: b }\nsame_origin: true\nallowed_origins: ["http://localhost"]'
USERS = "authorization { users [{ user: a, password: p }, { user: b, password: q, connection_types: [STANDARD] }] }"
DEFLATE = {"Sec-WebSocket-Extensions": "x-a, permessage-deflate; client_max_window_bits"}


def web_address(server: Server) -> Address:
    """Where it listens for WebSocket."""
    match = re.search(r"://(.*):(\d+)\s*$", server.running.wait_for_line("Listening for websocket clients on"))
    assert match is not None
    return match.group(1), int(match.group(2))


def answered(address: Address, *requests: bytes) -> list[str]:
    """The head and body of the answer to each request of one connection, and its end if the server ends it."""
    answers = []
    with closing(socket.create_connection(address, PATIENCE_S)) as sock, sock.makefile("rb") as reader:
        for data in requests:
            sock.sendall(data)
            head = b""
            while not head.endswith(b"\r\n\r\n") and (line := reader.readline()):
                head += line
            length = re.search(rb"Content-Length: (\d+)", head)
            body = reader.read(int(length.group(1))) if length else b""
            if b"Connection: close" in head:
                body += reader.read()
            text = (head + body).decode()
            answers.append(re.sub(r"Date: .*?\r\n", "", text))
    return answers


REQUESTS: dict[str, tuple[bytes, ...]] = {
    "good": (request(),),
    "a path and a query": (request("/any/path?x=1"),),
    "no masks": (request(headers={"Nats-No-Masking": "true"}),),
    "no masks, not true": (request(headers={"Nats-No-Masking": "yes"}),),
    "compression": (request(headers=DEFLATE),),
    "another method": (request(method="POST", headers={"Content-Length": "0"}),),
    "no host": (request(without=("Host",)),),
    "no upgrade": (request(without=("Upgrade",)),),
    "another upgrade": (request(headers={"Upgrade": "h2c"}),),
    "no connection": (request(headers={"Connection": "keep-alive"}),),
    "connection among others": (request(headers={"Connection": "keep-alive, upgrade"}),),
    "no key": (request(without=("Sec-WebSocket-Key",)),),
    "a short key": (request(headers={"Sec-WebSocket-Key": "abcd"}),),
    "no version": (request(without=("Sec-WebSocket-Version",)),),
    "another version": (request(headers={"Sec-WebSocket-Version": "12"}),),
    "same origin": (request(headers={"Origin": "http://localhost"}),),
    "another origin": (request(headers={"Origin": "http://elsewhere"}),),
    "another scheme": (request(headers={"Origin": "https://localhost"}),),
    "no origin at all": (request(headers={"Origin": "null"}),),
    "a second attempt": (request(without=("Upgrade",)), request()),
    "no request": (b"hello\r\n\r\n",),
    "a bad header": (b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",),
    "another protocol": (request(version="2.0"),),
    "mqtt": (request("/mqtt"),),  # the last: the test waits for its line
}  # fmt: skip


def ended(client: WebSocketClient) -> Seen:
    """What the client is told until the end, and with what."""
    texts = [event.text[:40].split(" {")[0] for event in client.rest(PATIENCE_S) if isinstance(event, Line)]
    controls = [(found.opcode, found.payload) for found in client.frames]
    return {"texts": [text for text in texts if text != "INFO"], "frames": controls}


def say(data: bytes) -> Callable[[Address], Seen]:
    """A client that sends bytes as they are, and reads to the end."""

    def step(address: Address) -> Seen:
        with WebSocketClient(address, connect=False) as client:
            client.send_bytes(data)
            return ended(client)

    return step


def ask(data: bytes, *, masks: bool = True, upgrade: bytes = b"") -> Callable[[Address], Seen]:
    """A client that is in, sends bytes as they are, then PING, and says what comes until its PONG."""

    def step(address: Address) -> Seen:
        with WebSocketClient(address, connect=False, masks=masks, upgrade=upgrade) as client:
            client.connect()
            client.settle()
            client.send_bytes(data)
            texts = [event.text[:40].split(" {")[0] for event in client.settle() if isinstance(event, Line)]
            return {"texts": texts, "frames": [(found.opcode, found.payload) for found in client.frames]}

    return step


CLOSED = {
    "close": frame(CLOSE),
    "close with a status": frame(CLOSE, b"\x03\xe8bye"),
    "close with a status of the application": frame(CLOSE, b"\x0f\xa0ok"),
    "close with what is no text": frame(CLOSE, b"\x03\xe8\xff\xfe"),
}
BROKEN = {
    "no mask": frame(BINARY, b"PING\r\n", mask=None),
    "compressed, not agreed on": frame(BINARY, b"PING\r\n", rsv=4),
    "the second reserved bit": frame(BINARY, b"PING\r\n", rsv=2),
    "the third reserved bit": frame(BINARY, b"PING\r\n", rsv=1),
    "opcode 3": frame(3, b"x"),
    "opcode 11": frame(11, b"x"),
    "opcode 15": frame(15, b"x"),
    "a long ping": frame(PING, bytes(126)),
    "a ping in pieces": frame(PING, b"x", final=False),
    "a pong of 64 bits": frame(PONG, length=1 << 20),
    "nothing to continue": frame(CONTINUATION, b"x"),
    "a message inside of another": frame(BINARY, b"PI", final=False) + frame(TEXT, b"NG"),
    "a length of 64 bits and its sign": b"\x82\xff" + b"\xff" * 8 + b"abcd",
    "half a status": frame(CLOSE, b"x"),
    "status 1005": frame(CLOSE, b"\x03\xed"),
    "status 999": frame(CLOSE, b"\x03\xe7"),
    "status 2000": frame(CLOSE, b"\x07\xd0"),
    "status 5000": frame(CLOSE, b"\x13\x88"),
}
ANSWERED: dict[str, Callable[[Address], Seen]] = {
    "text": ask(frame(TEXT, b"PING\r\n")),
    "a ping": ask(frame(PING, b"hi")),
    "two pings": ask(frame(PING, b"hi") + frame(PING)),
    "a pong": ask(frame(PONG, b"hi")),
    "an empty message": ask(frame(BINARY) + frame(BINARY, b"PING\r\n")),
    "pieces, and a ping between": ask(frame(BINARY, b"PI", final=False) + frame(PING, b"a") + frame(0, b"NG\r\n")),
    "a line in two messages": ask(frame(BINARY, b"PI") + frame(BINARY, b"NG\r\n")),
    "no masks, agreed on": ask(
        frame(BINARY, b"PING\r\n", mask=None), masks=False, upgrade=request(headers={"Nats-No-Masking": "true"})
    ),
}  # fmt: skip


def servers(directory: Path, block: str = BLOCK, rest: str = "") -> list[Server]:
    """Both servers with the same configuration; the reference first."""
    config = f'websocket {{\nlisten: "{HOST}:-1"\n{block}\n}}\n{rest}\n'
    kinds: tuple[Kind, Kind] = ("reference", "jetraft")
    found = []
    for kind in kinds:
        (directory / kind).mkdir()
        found.append(Server(kind, directory=directory / kind, config=config, flags=("-D",)))
    return found


def told(server: Server, mark: str) -> list[str]:
    """What the log says of clients that were refused, in order."""
    return [line.partition(mark)[2] for line in server.running.lines if mark in line]


def test_requests_are_answered_as_the_reference_does(tmp_path: Path) -> None:
    reference, jetraft = servers(tmp_path)
    with reference, jetraft:
        for name, requests in REQUESTS.items():
            expected, actual = (answered(web_address(server), *requests) for server in (reference, jetraft))
            assert actual == expected, name
        mark = "websocket handshake error: "
        last = "mqtt websocket endpoint not enabled"
        for server in (reference, jetraft):
            server.running.wait_for_line(last)
        assert told(jetraft, mark) == told(reference, mark)


def test_frames_are_answered_as_the_reference_does(tmp_path: Path) -> None:
    reference, jetraft = servers(tmp_path)
    with reference, jetraft:
        for name, step in ANSWERED.items():
            assert step(web_address(jetraft)) == step(web_address(reference)), name
        for name, data in CLOSED.items():
            assert say(data)(web_address(jetraft)) == say(data)(web_address(reference)), name


def test_broken_frames_are_refused_as_the_reference_does(tmp_path: Path) -> None:
    reference, jetraft = servers(tmp_path)
    with reference, jetraft:
        for name, data in BROKEN.items():
            expected, actual = (say(data)(web_address(server)) for server in (reference, jetraft))
            assert expected["frames"] in ([], actual["frames"]), name
            assert actual["texts"] == [], name
            ((opcode, payload),) = actual["frames"]
            assert (opcode, payload[:2]) == (CLOSE, b"\x03\xea"), name
            for server in (reference, jetraft):
                server.running.wait_for_line(f"read error: {payload[2:].decode()}")
        assert told(jetraft, "read error: ") == told(reference, "read error: ")


COOKIES = "no_tls: true\nuser_cookie: u\npass_cookie: p\ntoken_cookie: t\nauthorization { %s }"
NAMED: list[tuple[dict[str, str], str]] = [
    ({"user": "a", "pass": "p"}, ""),
    ({"user": "a", "pass": "x"}, ""),
    ({"user": "b", "pass": "q"}, ""),
    ({"auth_token": "s"}, ""),
    ({"auth_token": "x"}, "t=s"),
    ({}, ""),
    ({}, "u=a; p=p"),
    ({"pass": "p"}, 'x=y; u="a"; p=wrong'),
    ({}, "u=a"),
    ({}, "u=b; p=q"),
    ({}, "t=s"),
]
ONE_USER = "authorization { user: b, password: q }"


@pytest.mark.parametrize(
    ("block", "rest"),
    [
        (COOKIES % "timeout: 3", USERS),
        (COOKIES % "user: a, password: p", ONE_USER),
        (COOKIES % "token: s", ""),
        (COOKIES % "timeout: 3" + "\nno_auth_user: a", USERS),
        (COOKIES % "timeout: 3", USERS + "\nno_auth_user: a"),
        (COOKIES % "timeout: 3", ONE_USER),
    ],
    ids=["a list", "a user of its own", "a token of its own", "a default of its own", "a default", "the server's user"],
)
def test_users_are_judged_as_the_reference_does(tmp_path: Path, block: str, rest: str) -> None:
    reference, jetraft = servers(tmp_path, block, rest)
    with reference, jetraft:
        for wish, cookie in NAMED:
            seen = []
            for server in (reference, jetraft):
                upgrade = request(headers={"Cookie": cookie, "X-Forwarded-For": "192.0.2.7"})
                with WebSocketClient(web_address(server), connect=False, upgrade=upgrade) as client:
                    client.connect(**wish)
                    client.settle()
                    rows = [] if client.closed else server.get("/connz?auth=1")[1]["connections"]
                    wanted = ("authorized_user", "ip", "kind", "type")
                    mine = [row for row in rows if row["cid"] == client.info["client_id"]]
                    shown = [{name: row.get(name) for name in wanted} for row in mine]
                    info = {name: client.info.get(name) for name in ("auth_required", "client_ip", "tls_required")}
                    seen.append((client.closed, shown, info))
                server.running.wait_for_line(f" 192.0.2.7/{HOST}:")
            assert seen[0] == seen[1], (wish, cookie)
