"""A plain NATS client over one blocking socket: what was sent and what came back, nothing hidden.

No client library sits in between, so malformed bytes can be sent and every reply is seen as it is on the wire.
"""

import json
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import attrs

from tests.harness.patience import PATIENCE_S

REPLY_TIMEOUT_S = 15.0  # long for an answer, short for one that was lost with its leader and is asked for again
RECEIVE_BYTES = 1 << 18
UNAVAILABLE = 10008
REPEATABLE = (
    "STREAM.CREATE.",
    "STREAM.UPDATE.",
    "STREAM.INFO.",
    "STREAM.NAMES",
    "CONSUMER.CREATE.",
    "CONSUMER.DURABLE.",
    "CONSUMER.INFO.",
)


def exchange_to_end(sock: socket.socket, data: bytes = b"") -> bytes:
    """Send this and return what comes until the server closes.

    A server that closes with bytes unread resets the connection, so any of these calls may fail, or none.
    """
    sock.settimeout(PATIENCE_S)
    found = b""
    with suppress(ConnectionError):
        sock.sendall(data)
        while piece := sock.recv(RECEIVE_BYTES):
            found += piece
    return found


@attrs.frozen(kw_only=True)
class Message:
    """One MSG or HMSG. `hdr` is the raw header block, b"" when there is none."""

    subject: str
    sid: str
    reply: str
    hdr: bytes
    payload: bytes

    @property
    def status(self) -> str:
        """What follows NATS/1.0 on the first header line: "404 No Messages", or "" for a plain message."""
        return self.hdr.split(b"\r\n", 1)[0].removeprefix(b"NATS/1.0").strip().decode("utf-8", "replace")

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Header fields in wire order."""
        lines = [line for line in self.hdr.decode("utf-8", "replace").split("\r\n")[1:] if line]
        return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]


@attrs.frozen(kw_only=True)
class Line:
    """Any other protocol line: INFO, PING, PONG, +OK, -ERR, without its line end."""

    text: str


Event = Message | Line


def header_block(headers: Sequence[tuple[str, str]]) -> bytes:
    """The NATS/1.0 block of these fields, b"" for none."""
    if not headers:
        return b""
    return ("NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n").encode()


def connect_line(**options: Any) -> bytes:
    """A CONNECT with these fields beside what every modern client asks for."""
    wish = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
    return b"CONNECT " + json.dumps({**wish, "lang": "raw", "version": "1", **options}).encode() + b"\r\n"


class RawClient:
    """One connection; `connect=False` leaves even the CONNECT to the caller."""

    def __init__(self, address: tuple[str, int], *, connect: bool = True, **options: Any) -> None:
        sock = socket.create_connection(address, REPLY_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._begin(sock)
        first = self.next_event()
        assert isinstance(first, Line)
        assert first.text.startswith("INFO "), first
        self.info: dict[str, Any] = json.loads(first.text[5:])
        if connect:
            self.connect(**options)

    def _begin(self, sock: socket.socket) -> None:
        self.inbox = "_INBOX." + secrets.token_hex(8)
        self.closed = False
        self.unclaimed: list[Message] = []
        self._buffer = bytearray()
        self._sids = 0
        self._socket = sock

    # --- sending --------------------------------------------------------------------------------------------------
    def connect(self, **options: Any) -> None:
        """CONNECT with these fields beside what every modern client asks for."""
        self.send(connect_line(**options))

    def send(self, data: bytes) -> None:
        """Send bytes as they are; a connection that the server has closed swallows them."""
        try:
            self._socket.settimeout(PATIENCE_S)  # not that of the last receive: a server may pause who publishes
            self._socket.sendall(data)
        except OSError:
            self.closed = True

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """PUB or HPUB."""
        words = f"{subject} {reply}".strip().encode()
        hdr = header_block(headers)
        if hdr:
            self.send(b"HPUB %s %d %d\r\n%s%s\r\n" % (words, len(hdr), len(hdr) + len(payload), hdr, payload))
        else:
            self.send(b"PUB %s %d\r\n%s\r\n" % (words, len(payload), payload))

    def subscribe(self, subject: str, queue: str = "") -> str:
        """SUB; returns the subscription's id."""
        self._sids += 1
        self.send(" ".join(filter(None, ["SUB", subject, queue, str(self._sids)])).encode() + b"\r\n")
        return str(self._sids)

    def new_inbox(self) -> str:
        """A reply subject of this connection that was not used before."""
        return f"{self.inbox}.{secrets.token_hex(4)}"

    # --- receiving ------------------------------------------------------------------------------------------------
    def next_event(self, timeout_s: float = REPLY_TIMEOUT_S) -> Event | None:
        """The next line or message; None when the time is over or the server has closed the connection."""
        deadline = time.monotonic() + timeout_s
        while True:
            event = self._parse()
            if event is not None:
                return event
            left_s = deadline - time.monotonic()
            if self.closed or left_s <= 0:
                return None
            self._receive(left_s)

    def _receive(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            return
        except OSError:
            data = b""
        self._buffer += data
        self.closed = self.closed or not data

    def _parse(self) -> Event | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return None
        line = self._buffer[:end].decode("utf-8", "replace")
        verb, *words = line.split(" ")
        if verb not in ("MSG", "HMSG"):
            del self._buffer[: end + 2]
            return Line(text=line)
        total = int(words[-1])
        if len(self._buffer) < end + 2 + total + 2:
            return None
        body = bytes(self._buffer[end + 2 : end + 2 + total])
        del self._buffer[: end + 2 + total + 2]
        hdr_len = int(words[-2]) if verb == "HMSG" else 0
        names = words[: -2 if verb == "HMSG" else -1]
        reply = names[2] if len(names) > 2 else ""
        return Message(subject=names[0], sid=names[1], reply=reply, hdr=body[:hdr_len], payload=body[hdr_len:])

    def settle(self, timeout_s: float = REPLY_TIMEOUT_S, *, pings_before: int = 0) -> list[Event]:
        """Everything that arrives before the answer to a PING of ours, or until the connection is closed.

        `pings_before` is how many PINGs were sent and not yet answered; their PONGs belong to the result.
        """
        self.send(b"PING\r\n")
        events: list[Event] = []
        while True:
            event = self.next_event(timeout_s)
            if event is None:
                return events
            if event == Line(text="PONG"):
                if pings_before == 0:
                    return events
                pings_before -= 1
            events.append(event)

    def rest(self, timeout_s: float = REPLY_TIMEOUT_S) -> list[Event]:
        """Everything until the server closes the connection, or is silent for this long."""
        return list(iter(lambda: self.next_event(timeout_s), None))

    def messages(
        self, sid: str, count: int, timeout_s: float = REPLY_TIMEOUT_S, *, until_status: bool = False
    ) -> list[Message]:
        """Up to `count` messages of this subscription, fewer when the time is over, more when more came at once.

        `until_status` ends it at the first message with a status line, the end of a batch. What other subscriptions
        receive meanwhile is kept in `unclaimed` and counts when it is asked for.
        """
        found = [message for message in self.unclaimed if message.sid == sid]
        self.unclaimed = [message for message in self.unclaimed if message.sid != sid]
        deadline = time.monotonic() + timeout_s
        while len(found) < count and (left_s := deadline - time.monotonic()) > 0:
            event = self.next_event(left_s)
            if event is None:
                break
            self._sort(event, sid, found)
            if until_status and found and found[-1].status:
                break
        for event in self.settle():
            self._sort(event, sid, found)
        return found

    def _sort(self, event: Event, sid: str, found: list[Message]) -> None:
        if isinstance(event, Message):
            (found if event.sid == sid else self.unclaimed).append(event)
        elif event.text == "PING":
            self.send(b"PONG\r\n")

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Sequence[tuple[str, str]] = (),
        replies: int = 1,
        until_status: bool = False,
    ) -> list[Message]:
        """Publish with a reply subject and a subscription of its own and collect the replies.

        The subscription stays, because a delivery keeps the subject under which its message was published.
        """
        inbox = self.new_inbox()
        sid = self.subscribe(inbox)
        self.publish(subject, payload, reply=inbox, headers=headers)
        return self.messages(sid, replies, until_status=until_status)

    def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """One `$JS.API` call: the JSON answer as it is, errors included.

        That nobody leads just now is the answer to what may be asked twice when it was so all the time: a machine that
        stood still for half a second has elections, of either server, of which no test of anything else should know.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.request("$JS.API." + subject, payload)
            assert found, f"no answer to $JS.API.{subject}"
            answer = json.loads(found[0].payload) if found[0].payload else {"status": found[0].status}
            assert isinstance(answer, dict)
            unavailable = (answer.get("error") or {}).get("err_code") == UNAVAILABLE
            if not unavailable or not subject.startswith(REPEATABLE) or time.monotonic() > deadline:
                return answer

    def acknowledged(self, subject: str, payload: bytes, *, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Publish one message to a stream: the JSON of its acknowledgement, or of the refusal.

        What meets no leader, or is lost with one, is sent again under the same id.
        """
        named = [*headers, ("Nats-Msg-Id", secrets.token_hex(8))]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.request(subject, payload, headers=named)
            if found and found[0].payload:
                answer: dict[str, Any] = json.loads(found[0].payload)
                return answer
            assert time.monotonic() < deadline, f"no acknowledgement on {subject}"

    def stored(self, stream: str, last_seq: int) -> dict[int, bytes]:
        """Every message up to a sequence that direct gets give out here, one by one."""
        found: dict[int, bytes] = {}
        for seq in range(1, last_seq + 1):
            (answer,) = self.request(f"$JS.API.DIRECT.GET.{stream}", json.dumps({"seq": seq}).encode())
            if not answer.status:
                found[seq] = answer.payload
        return found

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
