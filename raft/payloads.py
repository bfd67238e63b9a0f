"""The messages of a turn to one peer as payloads of bounded size. Pure."""

from typing import Final

PAYLOAD_BYTES_MAX: Final = 16 << 20  # about the size of a link frame; a longer message is a payload of its own


def payloads_of(parts: list[bytes]) -> list[bytes]:
    """Join parts into payloads of bounded size; a message is never cut (its parts begin with a fixed header)."""
    total = sum(map(len, parts))
    if total <= PAYLOAD_BYTES_MAX:
        return [b"".join(parts)]
    return _split(parts)


def _split(parts: list[bytes]) -> list[bytes]:
    """Cut between messages: the first four bytes of a message give its whole length."""
    payloads: list[bytes] = []
    current: list[bytes] = []
    current_bytes = remaining = 0
    for part in parts:
        if remaining == 0:
            remaining = int.from_bytes(part[:4], "little")
            if current and current_bytes + remaining > PAYLOAD_BYTES_MAX:
                payloads.append(b"".join(current))
                current, current_bytes = [], 0
        current.append(part)
        current_bytes += len(part)
        remaining -= len(part)
    payloads.append(b"".join(current))
    return payloads
