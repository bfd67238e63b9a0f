"""The headers that JetStream reads."""

from typing import Final

SEQ_DIGITS_MAX: Final = 19  # as nats-server's parser: longer numbers are not numbers


def nats_headers(hdr: bytes) -> dict[bytes, bytes]:
    """The headers of a block whose names start with `Nats-`; the first of a name counts, as in nats-server."""
    found: dict[bytes, bytes] = {}
    for line in hdr.split(b"\r\n"):
        if line.startswith(b"Nats-"):
            name, _, value = line.partition(b":")
            found.setdefault(name, value.strip())
    return found


def parse_seq(text: bytes) -> int:
    """A decimal sequence, or -1 for anything else (signs, spaces and underscores included)."""
    return int(text) if text.isdigit() and len(text) <= SEQ_DIGITS_MAX else -1
