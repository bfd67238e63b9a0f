"""A connection that publishes: acknowledgements come back while more is sent, and are counted many at a time."""

import json
import time
from collections.abc import Iterable
from typing import Any

import attrs

from pyspark_jetstream.client import Connection
from pyspark_jetstream.errors import (
    JetStreamSourceError,
    LoginRefusedError,
    ServerError,
    ServersUnavailableError,
    WriteRefusedError,
)
from pyspark_jetstream.options import Access
from pyspark_jetstream.wire import Frame, status_of

# Of a server that owes acknowledgements. An fsync on a majority takes milliseconds, an election up to some seconds.
ACK_SILENCE_S = 5.0
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0
NO_RESPONDERS = 503
CLIENT_ERRORS = range(400, 500)
TRANSIENT = frozenset({408, 429})  # of them: too slow, too many


class Publisher(Connection):
    """A connection with replies to publishes; a token names those that belong together. ServerError ends it."""

    def __init__(self, url: str, access: Access) -> None:
        super().__init__(url, access)
        self._tokens = 0

    def new_token(self) -> int:
        """A number that was not used on this connection."""
        self._tokens += 1
        return self._tokens

    def reply(self, token: int) -> bytes:
        """The reply subject of a token."""
        return b"%b.%d" % (self._inbox, token)

    def send(self, data: bytes | memoryview) -> None:
        """Send protocol bytes; waits while the server does not read, ACK_SILENCE_S at most."""
        self.set_timeout(ACK_SILENCE_S)
        super().send(data)

    def receive(self) -> None:
        """Receive what is there, after waiting ACK_SILENCE_S at most for something."""
        self.set_timeout(ACK_SILENCE_S)
        self._receive(0)

    def counted(self, tokens: Iterable[int], ack_start: bytes) -> dict[int, int] | None:
        """Take the positive acks that are buffered and return how many each token has.

        None when something else is buffered too: then nothing was taken, and `replies` has it one by one.
        """
        found = count_acks(self._data, self._start, self._inbox, tokens, ack_start)
        if found is None:
            return None
        self._start, counts = found
        return counts

    def replies(self) -> "Iterable[tuple[int, Frame]]":
        """Take each buffered reply with its token. Raises WriteRefusedError where the server forbids a subject."""
        while frame := self._buffered_frame():
            if frame.verb == b"PING":
                self.send(b"PONG\r\n")
            elif frame.verb == b"-ERR":
                self.close()
                text = frame.argument.decode("utf-8", "replace")
                kind = WriteRefusedError if b"permissions violation" in frame.argument.lower() else ServerError
                raise kind(f"{self.url}: the server sent -ERR {text}")
            elif frame.verb == b"MSG":
                yield int(frame.subject.rpartition(b".")[2]), frame


def count_acks(
    data: bytes, start: int, inbox: bytes, tokens: Iterable[int], ack_start: bytes
) -> tuple[int, dict[int, int]] | None:
    """Count positive acks by token; returns where they end. None when there is anything else among them.

    An ack is two lines: `MSG <inbox>.<token> 1 <size>`, and JSON that begins with the stream's name (an error begins
    otherwise). Where the lines of both kinds are all the lines there are, each is a whole ack.
    """
    end = data.rfind(b"\r\n") + 2
    lines = data.count(b"\r\n", start, end)
    if lines % 2:
        end = data.rfind(b"\r\n", start, end - 2) + 2
        lines -= 1
    if lines <= 0 or end <= start:
        return start, {}
    counts = {token: data.count(b"MSG %b.%d 1 " % (inbox, token), start, end) for token in tokens}
    total = sum(counts.values())
    return (end, counts) if 2 * total == lines == 2 * data.count(b"\r\n" + ack_start, start, end) else None


@attrs.frozen(kw_only=True, slots=True)
class Ack:
    """A positive acknowledgement."""

    seq: int
    count: int = 1  # messages of an atomic batch


def read_ack(frame: Frame, stream: str) -> Ack:
    """Return the ack in a reply.

    Raises ServerError when a repeated publish may succeed, RefusedPublishError or WriteRefusedError otherwise.
    """
    if status := status_of(frame.header):
        reason = "no stream takes the message now (503 no responders)" if status.code == NO_RESPONDERS else str(status)
        raise ServerError(reason)
    try:
        answer: dict[str, Any] = json.loads(frame.payload)
        error = answer.get("error")
        if error is None:
            found = str(answer["stream"])
            ack = Ack(seq=int(answer["seq"]), count=int(answer.get("count", 1)))
        else:
            code, err_code, text = int(error["code"]), int(error.get("err_code", 0)), str(error.get("description", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise ServerError(f"an acknowledgement is malformed: {failure!r}") from failure
    if error is not None:
        if code in CLIENT_ERRORS and code not in TRANSIENT:
            raise RefusedPublishError(stream, err_code, text)
        raise ServerError(f"{text} (err_code {err_code})")
    if found != stream:
        raise WriteRefusedError(f"the subject belongs to stream {found!r}, not to {stream!r}; the message is there now")
    return ack


class RefusedPublishError(WriteRefusedError):
    """The stream refused a message, and would refuse it again."""

    def __init__(self, stream: str, err_code: int, text: str) -> None:
        super().__init__(f"stream {stream!r} refuses the rows: {text} (err_code {err_code})")
        self.err_code = err_code


class Publishers:
    """The publishing connection of a task: to one server at a time, the next one after a failure."""

    def __init__(self, access: Access, servers: tuple[str, ...], stream: str) -> None:
        self._access = access
        self._servers = list(dict.fromkeys([*servers, *access.servers]))
        self._stream = stream
        self._open: Publisher | None = None
        self._failures: dict[str, str] = {}
        self._entered = False
        self.progressed()

    def get(self) -> Publisher:
        """Return an open connection. Raises ServersUnavailableError after the retry timeout without progress."""
        while self._open is None or self._open.closed:
            url = self._servers[0]
            kept = KEPT.pop((url, self._access), None)
            if kept is not None and kept.is_alive():
                self._open = kept
                break
            try:
                self._open = Publisher(url, self._access)
            except LoginRefusedError as error:
                if not self._entered:
                    raise  # the login is wrong, not the server
                self.failed(error)
            except ServerError as error:
                self.failed(error)
        self._entered = True
        return self._open

    def progressed(self) -> None:
        """Rows were acknowledged: the retry timeout begins again."""
        self._deadline_s = time.monotonic() + self._access.retry_timeout_s
        self._pause_s = PAUSE_FIRST_S

    def failed(self, error: JetStreamSourceError, *, keep: bool = False) -> None:
        """Pause, then go on with the next server; `keep`: with the same connection."""
        url = self._servers[0]
        self._failures[url] = str(error)
        if not keep:
            self.close()
            self._servers.append(self._servers.pop(0))
        if time.monotonic() > self._deadline_s:
            self.close()
            reasons = "; ".join(dict.fromkeys(self._failures.values()))
            raise ServersUnavailableError(
                f"stream {self._stream!r} acknowledged nothing within {self._access.retry_timeout_s:g} s: {reasons}"
            ) from error
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)

    def keep(self) -> None:
        """The task has all it asked for: the next task of this process may use the connection."""
        if self._open is not None and not self._open.closed:
            KEPT[self._servers[0], self._access] = self._open
        self._open = None

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
        self._open = None


KEPT: dict[tuple[str, Access], Publisher] = {}
