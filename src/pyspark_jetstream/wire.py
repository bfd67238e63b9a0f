"""The part of the NATS protocol that a reader of streams needs: bytes in, values out, no sockets.

The hot function is `scan_messages`: the answer to a batch direct get is thousands of HMSG frames whose header blocks
end with the same lines from the server, so one regular expression parses a frame (about 2 us each). Other frames (a
status line, another order of headers, PING) are parsed one by one.

Layout of a frame: `HMSG <subject> <sid> [reply] <header bytes> <total bytes>` CR LF, header block, payload, CR LF.
Source: ADR-4 (headers), ADR-31 (direct get).
"""

import re
from collections.abc import Callable, Mapping

import attrs

from pyspark_jetstream import times
from pyspark_jetstream.errors import ServerError

# The limit of a line without an end; the longest line of a server is INFO.
LINE_BYTES_MAX = 1 << 20
HEADER_VERSION = b"NATS/1.0\r\n"

_DIRECT_MESSAGE = re.compile(
    rb"HMSG \S+ \S+ (\d+) (\d+)\r\n"
    rb"NATS/1\.0\r\n((?:[^\r\n]+\r\n)*?)"
    rb"Nats-Stream: [^\r\n]*\r\nNats-Subject: ([^\r\n]*)\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^\r\n]*)\r\n"
    rb"Nats-Num-Pending: (\d+)\r\nNats-Last-Sequence: \d+\r\n\r\n"
)
_PLAIN_MESSAGE = re.compile(rb"MSG \S+ \S+ (\d{1,8})\r\n")
# The server's headers in a direct get answer; the last line with a name is the server's, earlier ones the publisher's.
_DIRECT_HEADERS = frozenset(
    {b"Nats-Stream", b"Nats-Subject", b"Nats-Sequence", b"Nats-Time-Stamp", b"Nats-Num-Pending", b"Nats-Last-Sequence"}
)


@attrs.define(slots=True)
class Rows:
    """Received messages in columns, in ascending order of their sequences."""

    stream_seqs: list[int] = attrs.field(factory=list)
    times: list[bytes] = attrs.field(factory=list)  # RFC 3339, or decimal Unix times in ns
    subjects: list[bytes] = attrs.field(factory=list)
    headers: list[bytes] = attrs.field(factory=list)  # header lines, each ended by CR LF; empty: no headers
    payloads: list[bytes] = attrs.field(factory=list)
    num_pending: int = 0  # messages after the last one, as stated by the server
    has_unix_times: bool = False

    def __len__(self) -> int:
        return len(self.stream_seqs)

    def append(self, stream_seq: int, time: bytes, subject: bytes, header: bytes, payload: bytes) -> None:
        """Add one message."""
        self.stream_seqs.append(stream_seq)
        self.times.append(time)
        self.subjects.append(subject)
        self.headers.append(header)
        self.payloads.append(payload)

    @property
    def data_bytes(self) -> int:
        """The bytes of all payloads."""
        return sum(map(len, self.payloads))

    def last_time_ns(self) -> int:
        """The Unix time of the last message."""
        text = self.times[-1].decode()
        return int(text) if self.has_unix_times else times.unix_ns(text)

    def columns(self) -> tuple[list[int], list[bytes], list[bytes], list[bytes], list[bytes]]:
        """Return all columns in the order of the schema."""
        return self.stream_seqs, self.times, self.subjects, self.headers, self.payloads

    def keep_first(self, count: int) -> None:
        """Drop every row after the first `count`."""
        for column in self.columns():
            del column[count:]


Scanner = Callable[[bytes, int, Rows], int]  # see scan_messages


@attrs.frozen(kw_only=True, slots=True)
class Frame:
    """One protocol message of the server. `verb` decides which fields are set."""

    verb: bytes  # MSG (also for HMSG), PING, PONG, INFO, +OK, -ERR
    argument: bytes = b""  # the rest of the line of INFO and -ERR
    subject: bytes = b""
    reply: bytes = b""
    header: bytes = b""  # the raw block, from NATS/1.0 to the empty line
    payload: bytes = b""


@attrs.frozen(kw_only=True, slots=True)
class Status:
    """The status line of a message without content, such as 204 EOB, 404 Message Not Found or 503."""

    code: int
    description: str
    headers: Mapping[bytes, bytes]  # the last value of each name

    def number(self, name: bytes) -> int | None:
        """Return a header as a number, None when it is missing or none."""
        text = self.headers.get(name, b"")
        return int(text) if text.isdigit() else None


def connect_line(options: bytes) -> bytes:
    """Return CONNECT with its JSON."""
    return b"CONNECT " + options + b"\r\n"


def publish(subject: bytes, reply: bytes, payload: bytes, header_lines: bytes = b"") -> bytes:
    """Return a request; `header_lines` are whole lines, each ended by CR LF."""
    if not header_lines:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    block = HEADER_VERSION + header_lines + b"\r\n"
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), len(block) + len(payload), block, payload)


def scan_messages(data: bytes, start: int, rows: Rows) -> int:
    """Append the direct get messages from `start` on to the rows; returns the offset after the last of them.

    Stops at an incomplete frame and at anything that is not a plain direct get message.
    """
    match_at = _DIRECT_MESSAGE.match
    add_seq, add_time = rows.stream_seqs.append, rows.times.append
    add_subject, add_header, add_payload = rows.subjects.append, rows.headers.append, rows.payloads.append
    size = len(data)
    pending: bytes | None = None
    while match := match_at(data, start):
        header_size, total, header, subject, stream_seq, time, left = match.groups()
        header_bytes = int(header_size)
        payload_start = match.end()
        end = payload_start + int(total) - header_bytes
        if end + 2 > size or payload_start - match.start(3) + len(HEADER_VERSION) != header_bytes:
            break
        add_seq(int(stream_seq))
        add_time(time)
        add_subject(subject)
        add_header(header)
        add_payload(data[payload_start:end])
        pending = left
        start = end + 2
    if pending is not None:
        rows.num_pending = int(pending)
    return start


def plain_message(data: bytes, start: int) -> tuple[int, int] | None:
    """Where the payload of a message without headers at `start` begins, and its size; None if something else is there.

    The payload need not be there yet.
    """
    match = _PLAIN_MESSAGE.match(data, start)
    return (match.end(), int(match[1])) if match else None


def next_frame(data: bytes, start: int) -> tuple[Frame | None, int]:
    """Return the frame at `start` and where the next one starts; (None, total bytes needed) when it is incomplete.

    Raises ServerError for bytes that are not NATS protocol.
    """
    line_end = data.find(b"\r\n", start)
    if line_end < 0:
        if len(data) - start > LINE_BYTES_MAX:
            raise ServerError(f"the server sent {LINE_BYTES_MAX} bytes without a line end; is this a NATS client port?")
        return None, 0
    verb, _, argument = data[start:line_end].partition(b" ")
    verb = verb.upper()
    if verb not in {b"MSG", b"HMSG"}:
        if verb not in {b"PING", b"PONG", b"INFO", b"+OK", b"-ERR"}:
            raise ServerError(f"the server sent {verb[:20]!r}; is this a NATS client port?")
        return Frame(verb=verb, argument=argument), line_end + 2
    words = argument.split()
    sizes = words[-2:] if verb == b"HMSG" else [b"0", words[-1]]
    header_bytes, total = int(sizes[0]), int(sizes[1])
    body = line_end + 2
    end = body + total
    if len(data) < end + 2:
        return None, end + 2
    header, payload = data[body : body + header_bytes], data[body + header_bytes : end]
    reply = words[2] if len(words) == (5 if verb == b"HMSG" else 4) else b""
    return Frame(verb=b"MSG", subject=words[0], reply=reply, header=header, payload=payload), end + 2


def status_of(header: bytes) -> Status | None:
    """Return the status of a header block; None if it has none, as in a message with content."""
    line, _, rest = header.partition(b"\r\n")
    words = line.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004  (version, code[, description])
        return None
    description = words[2].decode("utf-8", "replace") if len(words) > 2 else ""  # noqa: PLR2004
    return Status(code=int(words[1]), description=description, headers=dict(header_lines(rest)))


def header_lines(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and value of each header line, in order, values without surrounding blanks."""
    pairs = []
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            pairs.append((name.strip(), value.strip()))
    return pairs


def append_message(frame: Frame, rows: Rows) -> None:
    """Append a direct get message with its headers in any order. Raises ServerError when one is missing.

    The publisher's headers may have the same names (a republished message): the server's are last.
    """
    lines = [line for line in frame.header.split(b"\r\n")[1:] if line]
    server: dict[bytes, bytes] = {}
    own: list[bytes] = []
    for line in reversed(lines):
        name, _, value = line.partition(b":")
        if (name in _DIRECT_HEADERS and name not in server) or name.startswith(b"Jetraft-"):
            server[name] = value.strip()
        else:
            own.append(line)
    if not {b"Nats-Subject", b"Nats-Sequence", b"Nats-Time-Stamp"} <= server.keys():
        raise ServerError("a direct get message lacks its Nats-Sequence, Nats-Subject or Nats-Time-Stamp header")
    rows.append(
        int(server[b"Nats-Sequence"]),
        server[b"Nats-Time-Stamp"],
        server[b"Nats-Subject"],
        b"".join(line + b"\r\n" for line in reversed(own)),
        frame.payload,
    )
    rows.num_pending = int(server.get(b"Nats-Num-Pending", b"0"))
