"""RFC 6962's tree by its definitions: recursive, over lists of leaf hashes, for comparison with the server's."""

from collections.abc import Sequence
from hashlib import sha256


def leaf(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def message(seq: int, ts_ns: int, subject: bytes, hdr: bytes, payload: bytes) -> bytes:
    fixed = b"\x01" + seq.to_bytes(8, "big") + ts_ns.to_bytes(8, "big")
    return leaf(fixed + len(subject).to_bytes(4, "big") + subject + len(hdr).to_bytes(4, "big") + hdr + payload)


def gap(first: int, last: int) -> bytes:
    return leaf(b"\x02" + first.to_bytes(8, "big") + last.to_bytes(8, "big"))


def split(count: int) -> int:
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    middle = split(len(leaves))
    return node(root(leaves[:middle]), root(leaves[middle:]))


def path(place: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 6962, 2.1.1."""
    if len(leaves) == 1:
        return []
    middle = split(len(leaves))
    if place < middle:
        return [*path(place, leaves[:middle]), root(leaves[middle:])]
    return [*path(place - middle, leaves[middle:]), root(leaves[:middle])]


def proof(older: int, leaves: Sequence[bytes], *, is_whole: bool = True) -> list[bytes]:
    """SUBPROOF of RFC 6962, 2.1.2."""
    if older == len(leaves):
        return [] if is_whole else [root(leaves)]
    middle = split(len(leaves))
    if older <= middle:
        return [*proof(older, leaves[:middle], is_whole=is_whole), root(leaves[middle:])]
    return [*proof(older - middle, leaves[middle:], is_whole=False), root(leaves[:middle])]


def included(seq_leaf: bytes, place: int, size: int, found: Sequence[bytes], head: bytes) -> bool:
    """Verify an inclusion proof: RFC 9162, 2.1.3.2."""
    number, last, value = place, size - 1, seq_leaf
    for one in found:
        if last == 0:
            return False
        if number & 1 or number == last:
            value = node(one, value)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            value = node(value, one)
        number, last = number >> 1, last >> 1
    return last == 0 and value == head


def consistent(older: int, newer: int, found: Sequence[bytes], older_head: bytes, newer_head: bytes) -> bool:
    """Verify a consistency proof: RFC 9162, 2.1.4.2."""
    if older == newer or not older:
        return not found and (not older or older_head == newer_head)
    proofs = [older_head, *found] if not older & (older - 1) else list(found)
    number, last = older - 1, newer - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    if not proofs:
        return False
    first = second = proofs[0]
    for one in proofs[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            first, second = node(one, first), node(one, second)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            second = node(second, one)
        number, last = number >> 1, last >> 1
    return last == 0 and first == older_head and second == newer_head
