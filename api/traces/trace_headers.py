"""The headers by which a message asks to be traced, and how they are changed. Pure; as nats-server 2.15 reads them.

`Nats-Trace-Dest` names where the events go. Without it they go to the account's destination, where it has one and the
message carries the W3C header `traceparent` with the sampled bit. A message that must not be traced again carries
DISABLED as its destination.
"""

from typing import Final

import attrs

LINE: Final = b"NATS/1.0\r\n"
DEST: Final = b"Nats-Trace-Dest"
HOP: Final = b"Nats-Trace-Hop"
ONLY: Final = b"Nats-Trace-Only"
ORIGIN_ACCOUNT: Final = b"Nats-Trace-Origin-Account"  # of servers before 2.11.1
ACCEPT_ENCODING: Final = b"Accept-Encoding"
TRACEPARENT: Final = b"traceparent"
DISABLED: Final = b"trace disabled"  # no subject, so that every server refuses it
ONLY_WORDS: Final = (b"1", b"true", b"on")
TRACEPARENT_PARTS: Final = 4
SAMPLED: Final = 1

Headers = dict[bytes, list[bytes]]


@attrs.frozen(kw_only=True, slots=True)
class TraceAsked:
    """The trace that headers ask for. `is_external`: by `traceparent`, so the account says where it goes."""

    headers: Headers
    is_external: bool

    def first(self, name: bytes) -> bytes:
        """The first value of a header, empty when there is none."""
        return self.headers.get(name, [b""])[0]

    @property
    def is_only(self) -> bool:
        """The message is to be traced and not delivered."""
        return not self.is_external and self.first(ONLY).lower() in ONLY_WORDS


def read_trace(hdr: bytes) -> TraceAsked | None:
    """The trace that a header block asks for; None when it does not ask for a trace. Empty values are passed over."""
    if not hdr.startswith(LINE):
        return None
    headers: Headers = {}
    by_dest = by_parent = False
    for line in hdr[len(LINE) :].split(b"\r\n"):
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon:
            break
        if not name or not value:
            continue
        headers.setdefault(name, []).append(value)
        if name == DEST:
            if value == DISABLED and not by_dest:
                return None
            by_dest = True
        elif name.lower() == TRACEPARENT:
            by_parent = by_parent or is_sampled(value)
    if not by_dest and not by_parent:
        return None
    return TraceAsked(headers=headers, is_external=not by_dest)


def is_sampled(traceparent: bytes) -> bool:
    """Whether the flags of a `traceparent` say that the caller records its trace."""
    parts = traceparent.split(b"-")
    if len(parts) != TRACEPARENT_PARTS or len(parts[3]) != 2:  # noqa: PLR2004  (two hexadecimal digits)
        return False
    try:
        flags = int(parts[3], 16)
    except ValueError:
        return False
    return flags < 0x80 and bool(flags & SAMPLED)  # noqa: PLR2004  (nats-server reads a signed byte)


def with_header(hdr: bytes, name: bytes, value: bytes) -> bytes:
    """A header block with one value for a name, at the end, instead of those that it had."""
    kept = [line for line in hdr.removesuffix(b"\r\n\r\n").split(b"\r\n") if not line.startswith(name + b":")]
    return b"\r\n".join([*kept, name + b": " + value, b"", b""])


def disabled(hdr: bytes) -> bytes:
    """A header block that asks for no trace: its destination stays where it is and is none."""
    if b"\n" + DEST + b":" not in hdr:
        return with_header(hdr, DEST, DISABLED)
    lines = hdr.split(b"\r\n")
    return b"\r\n".join(DEST + b": " + DISABLED if line.startswith(DEST + b":") else line for line in lines)
