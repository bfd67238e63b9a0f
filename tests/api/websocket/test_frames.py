"""Frames against wsproto: whatever it sends, cut anywhere, is the protocol here; whatever is sent here, it reads."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.extensions import PerMessageDeflate

from jetraft.api.plane._web import WebPlane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.api.websocket._common import WebSocketCommon
from jetraft.api.websocket.closing import close_frames
from tests.harness.forms import examples

MAX_PAYLOAD = 1 << 16
RECEIVE_BYTES = 1 << 20
SEND_BYTES = 1 << 15
DEFLATE = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
CONNECT = b'CONNECT {"verbose":false}\r\n'


@attrs.define
class Pair:
    """A plane with one WebSocket connection, and wsproto at its other end."""

    plane: WebPlane
    cid: int
    sock: socket.socket
    peer: Connection
    text: bytes = b""
    others: list[Event] = attrs.field(factory=list)
    closed: list[int] = attrs.field(factory=list)

    def send(self, data: bytes) -> None:
        """Let the plane act on bytes of the client, as many at a time as fit into a socket."""
        for start in range(0, len(data), SEND_BYTES):
            self.sock.sendall(data[start : start + SEND_BYTES])
            while self.plane.turn() > 0:
                self.end_turn()
        self.end_turn()

    def end_turn(self) -> None:
        """Send what waits, and read it."""
        self.closed += [reason for _, reason, _ in self.plane.flush()]
        try:
            self.peer.receive_data(self.sock.recv(RECEIVE_BYTES) or None)
        except BlockingIOError:
            return
        for event in self.peer.events():
            if isinstance(event, BytesMessage):
                self.text += bytes(event.data)
            else:
                self.others.append(event)


@contextmanager
def joined(*, deflates: bool = False, browser: bool = False) -> Iterator[Pair]:
    """A pair whose upgrade is behind it."""
    plane = WebPlane(
        max_payload=MAX_PAYLOAD,
        max_control_line=4096,
        max_pending=64 << 20,
        max_subscriptions=0,
        connect_handler=lambda _cid, _text: ConnectOptions(verbose=False, pedantic=False, headers=True),
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda *_: b"",
    )
    common = WebSocketCommon(
        ping_interval_ns=0,
        packed_max=8 * MAX_PAYLOAD,
        plain_max=8 * MAX_PAYLOAD,
        closes=close_frames(),
        on_http=lambda _cid, _data: None,
    )
    plane.serve_websocket(common)
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.settimeout(0)
    extension = PerMessageDeflate()
    extension.finalize(DEFLATE)
    peer = Connection(ConnectionType.CLIENT, [extension] if deflates else [])
    cid = plane.open(ours.detach(), b"")
    plane.expect_upgrade(cid, common)
    assert plane.upgrade(cid, b"", masked=True, deflates=deflates, browser=browser)
    with theirs:
        pair = Pair(plane, cid, theirs, peer)
        pair.send(peer.send(BytesMessage(data=CONNECT + b"SUB a 1\r\n")))
        yield pair


PAYLOADS = st.lists(st.tuples(st.binary(max_size=20), st.integers(1, 3000)), max_size=6)  # repeated so often
CUTS = st.lists(st.integers(0, 1 << 17), max_size=12)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The data, cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@settings(max_examples=examples(150, long=3000), deadline=None)
@given(PAYLOADS, CUTS, CUTS, CUTS, st.lists(st.binary(max_size=125), max_size=4), st.booleans(), st.booleans())
def test_any_message_of_wsproto_is_the_protocol_however_it_is_cut(  # noqa: PLR0913, PLR0917  (Hypothesis' arguments)
    repeated: list[tuple[bytes, int]],
    fragments: list[int],
    messages: list[int],
    segments: list[int],
    pings: list[bytes],
    deflates: bool,  # noqa: FBT001
    browser: bool,  # noqa: FBT001
) -> None:
    payloads = [piece * count for piece, count in repeated]
    protocol = b"".join(b"PUB a %d\r\n%s\r\n" % (len(payload), payload) for payload in payloads)
    expected = b"".join(b"MSG a 1 %d\r\n%s\r\n" % (len(payload), payload) for payload in payloads)
    waiting = list(pings)
    with joined(deflates=deflates, browser=browser) as pair:
        wire = b""
        for message in pieces(protocol, messages):
            parts = pieces(message, fragments)
            for number, part in enumerate(parts):
                wire += pair.peer.send(BytesMessage(data=part, message_finished=number == len(parts) - 1))
                if waiting:
                    wire += pair.peer.send(Ping(payload=waiting.pop()))
        sent = pings[len(waiting) :][::-1]
        for segment in pieces(wire, segments):
            pair.send(segment)
        assert pair.text == expected
        assert [bytes(event.payload) for event in pair.others if isinstance(event, Pong)] == sent
        assert len(pair.others) == len(sent)
        assert pair.closed == []


@pytest.mark.parametrize("deflates", [False, True])
def test_text_messages_are_the_protocol_too(*, deflates: bool) -> None:
    with joined(deflates=deflates) as pair:
        pair.send(pair.peer.send(TextMessage(data="PUB a 1\r\nx\r\nPING\r\n")))
        assert pair.text == b"MSG a 1 1\r\nx\r\nPONG\r\n"


@pytest.mark.parametrize(("reason", "status"), [(Reason.SERVER_SHUTDOWN, 1001), (Reason.KICKED, 1011)])
def test_a_close_frame_follows_what_was_said(reason: Reason, status: int) -> None:
    with joined() as pair:
        pair.plane.close(pair.cid, reason, b"-ERR 'x'\r\n")
        pair.end_turn()
        assert pair.text == b"-ERR 'x'\r\n"
        (close,) = pair.others
        assert isinstance(close, CloseConnection)
        assert close.code == status
        assert pair.closed == [reason]


@given(st.binary(max_size=2000), st.booleans())
@settings(max_examples=examples(300, long=5000), deadline=None)
def test_garbage_ends_a_connection_or_waits(data: bytes, deflates: bool) -> None:  # noqa: FBT001
    with joined(deflates=deflates) as pair:
        pair.sock.sendall(data)
        for _ in range(20):
            pair.plane.turn()
        assert len(pair.plane.flush()) <= 1
