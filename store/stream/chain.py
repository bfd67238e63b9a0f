"""The chain of a stream with `jetraft.chain`: its tree, what its leaves are, and what proofs are made of. Pure.

The tree (`_merkle.pyx`) is part of the replicated state. It holds no hash of a single message but those at its right
edge: a proof begins with the messages of at most two chunks, which are read again and hashed here, in Python. So a
proof of what was changed on disk does not fit the head. Above the chunks are levels of complete subtrees, which follow
from the chunks and are worked out when a proof needs them first.

Source: RFC 6962, sections 2.1.1 (audit paths) and 2.1.2 (consistency proofs).
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from jetraft.store.stream._merkle import CHUNK_LEAVES, MerkleTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jetraft.store.stream.stream_store import StoredMessage

HASH_BYTES: Final = 32
MESSAGE: Final = b"\x00\x01"  # RFC 6962's prefix of a leaf, and its kind
GAP: Final = b"\x00\x02"
NODE: Final = b"\x01"


class Chain:
    """The chain of one stream replica. `size` leaves; a leaf is a message, or a run of sequences that never were."""

    def __init__(self, tree: MerkleTree | None = None) -> None:
        self.tree = MerkleTree() if tree is None else tree
        self._levels: list[bytearray] = []  # above the chunks: [0] has subtrees of two chunks

    @classmethod
    def restore(cls, state: Any) -> Chain:
        """The chain of a `MerkleTree.pack`."""
        return cls(MerkleTree.unpack(state))

    @property
    def size(self) -> int:
        """How many leaves the tree has."""
        return self.tree.size

    def leaf_of(self, seq: int) -> int | None:
        """The number of a message's leaf, from 0; None when the tree has no such message."""
        if not 0 < seq < self.tree.next_seq:
            return None
        place = bisect_right(self.tree.gaps, seq, key=lambda gap: gap[1]) - 1
        if place < 0:
            return seq - 1
        leaf, _, last = self.tree.gaps[place]
        return None if seq <= last else leaf + seq - last

    def content(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The leaves of [first, last): (leaf, first sequence, last sequence), runs of messages and gaps.

        A gap is one leaf; a run of messages begins at the named leaf, and has one for each sequence.
        """
        gaps = self.tree.gaps
        place = bisect_right(gaps, first, key=lambda gap: gap[0]) - 1
        leaf = first
        while leaf < last:
            gap = gaps[place] if place >= 0 else None
            if gap is not None and gap[0] == leaf:
                yield gap
                leaf += 1
                continue
            seq = leaf + 1 if gap is None else gap[2] + leaf - gap[0]
            end = min(last, gaps[place + 1][0] if place + 1 < len(gaps) else last)
            yield leaf, seq, seq + end - leaf - 1
            leaf, place = end, place + 1

    def is_gap(self, leaf: int) -> bool:
        """Whether a leaf is a run of sequences that the stream never had."""
        place = bisect_right(self.tree.gaps, leaf, key=lambda gap: gap[0]) - 1
        return place >= 0 and self.tree.gaps[place][0] == leaf

    def levels(self) -> Sequence[bytes | bytearray]:
        """The hashes of complete subtrees of 1, 2, 4, ... chunks."""
        below: bytes | bytearray = self.tree.chunks
        for level in range((len(below) // HASH_BYTES).bit_length() - 1):
            if level == len(self._levels):
                self._levels.append(bytearray())
            here = self._levels[level]
            for at in range(2 * len(here), len(below) - 2 * HASH_BYTES + 1, 2 * HASH_BYTES):
                here += sha256(NODE + below[at : at + 2 * HASH_BYTES]).digest()
            below = here
        return [self.tree.chunks, *self._levels]


class Prover:
    """Proofs of one tree. `leaves` has the hashes of all leaves of the chunks that `chunks_for` names."""

    def __init__(self, levels: Sequence[bytes | bytearray], leaves: Mapping[int, bytes]) -> None:
        self._levels = levels
        self._leaves = leaves

    def root(self, size: int) -> bytes:
        """The head when the tree had so many leaves."""
        return self._hash(0, size) if size else sha256().digest()

    def inclusion(self, leaf: int, size: int) -> list[bytes]:
        """The audit path of a leaf in the tree of this size, from the bottom."""
        low, high, path = 0, size, list[bytes]()
        while high - low > 1:
            middle = low + _split(high - low)
            if leaf < middle:
                path.append(self._hash(middle, high))
                high = middle
            else:
                path.append(self._hash(low, middle))
                low = middle
        return path[::-1]

    def consistency(self, older: int, newer: int) -> list[bytes]:
        """That the tree of `older` leaves is the beginning of that of `newer`; empty where one of them is trivial."""
        if not 0 < older < newer:
            return []
        low, high, path, is_whole = 0, newer, list[bytes](), True
        while older != high:
            middle = low + _split(high - low)
            if older <= middle:
                path.append(self._hash(middle, high))
                high = middle
            else:
                path.append(self._hash(low, middle))
                low, is_whole = middle, False
        return (path if is_whole else [*path, self._hash(low, high)])[::-1]

    def of_leaves(self, low: int, high: int) -> bytes:
        """The hash of a range of leaves, from nothing but the leaves."""
        if high - low == 1:
            return self._leaves[low]
        middle = low + _split(high - low)
        return sha256(NODE + self.of_leaves(low, middle) + self.of_leaves(middle, high)).digest()

    def chunk(self, low: int) -> bytes:
        """The hash of the complete chunk that begins with this leaf, as it was when its messages came."""
        return self._hash(low, low + CHUNK_LEAVES)

    def _hash(self, low: int, high: int) -> bytes:
        count = high - low
        if count == 1:
            return self._leaves[low]
        if count >= CHUNK_LEAVES and not count & (count - 1):  # complete, and so at a multiple of its size
            level, at = (count // CHUNK_LEAVES).bit_length() - 1, low // count * HASH_BYTES
            return bytes(self._levels[level][at : at + HASH_BYTES])
        middle = low + _split(count)
        return sha256(NODE + self._hash(low, middle) + self._hash(middle, high)).digest()


def chunks_for(sizes: Sequence[int], leaf: int | None = None) -> list[tuple[int, int]]:
    """Which leaves proofs about trees of these sizes need (the last is the largest), as [first, last).

    Of each tree its last chunk, unless that is complete; and the chunk of the leaf.
    """
    firsts = {size // CHUNK_LEAVES * CHUNK_LEAVES for size in sizes if size % CHUNK_LEAVES}
    if leaf is not None:
        firsts.add(leaf // CHUNK_LEAVES * CHUNK_LEAVES)
    return [(first, min(first + CHUNK_LEAVES, sizes[-1])) for first in sorted(firsts)]


def message_leaf(message: StoredMessage) -> bytes:
    """The hash of a message's leaf."""
    return sha256(
        b"".join(
            (
                MESSAGE,
                message.seq.to_bytes(8, "big"),
                message.ts_ns.to_bytes(8, "big", signed=True),
                len(message.subject).to_bytes(4, "big"),
                message.subject,
                len(message.hdr).to_bytes(4, "big"),
                message.hdr,
                message.payload,
            )
        )
    ).digest()


def gap_leaf(first: int, last: int) -> bytes:
    """The hash of the leaf of a run of sequences that the stream never had."""
    return sha256(GAP + first.to_bytes(8, "big") + last.to_bytes(8, "big")).digest()


def _split(count: int) -> int:
    """The largest power of two below a number above 1."""
    return 1 << (count - 1).bit_length() - 1
