"""A chain as an auditor computes it: from what a client sees of messages, with nothing of the server's code. Pure.

The definition is in docs/extensions.md: RFC 6962's tree, whose leaves are messages, and runs of sequences that are
missing.
"""

from __future__ import annotations

from hashlib import sha256


class AuditTree:
    """Grows by one message after the other, in the order of their sequences."""

    def __init__(self) -> None:
        self.size = 0
        self.next_seq = 1
        self.gaps: list[tuple[int, int]] = []  # (first, last) of sequences that did not come
        self._edge: list[tuple[int, bytes]] = []  # complete subtrees from the left: (leaves, hash)

    def add(self, seq: int, time_ns: int, subject: bytes, header: bytes, payload: bytes) -> None:
        """A message; `header` is its whole block, from NATS/1.0 to the empty line, or empty."""
        assert seq >= self.next_seq, "a consumer delivers in order"
        self._add_leaf(_hash(b"\x00\x01", _number(seq), _number(time_ns), _text(subject), _text(header), payload))
        self.next_seq = seq + 1

    def add_gap(self, first: int, last: int) -> None:
        """Sequences that are missing before the next message."""
        self.gaps.append((first, last))
        self._add_leaf(_hash(b"\x00\x02", _number(first), _number(last)))
        self.next_seq = last + 1

    def head(self) -> bytes:
        """The hash of the whole tree."""
        if not self._edge:
            return sha256().digest()
        found = self._edge[-1][1]
        for _, left in reversed(self._edge[:-1]):
            found = _hash(b"\x01", left, found)
        return found

    def _add_leaf(self, leaf: bytes) -> None:
        leaves, found = 1, leaf
        while self._edge and self._edge[-1][0] == leaves:
            found = _hash(b"\x01", self._edge.pop()[1], found)
            leaves *= 2
        self._edge.append((leaves, found))
        self.size += 1


def _hash(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value
