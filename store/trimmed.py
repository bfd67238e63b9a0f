"""The positive record of what was dropped from a log.

A block that is missing is damage unless this record says that it was dropped on purpose: absence is never taken for a
deletion. The record is durable before the first file goes, so a crash in between only leaves files that the next
opening removes.
"""

import struct
from collections.abc import Iterable

from jetraft.store.format import FileKind, Identity, pack_envelope, unpack_envelope
from jetraft.store.port import StoreCorrupt

_RANGE = struct.Struct("<QQ")

Ranges = tuple[tuple[int, int], ...]  # (first index, last index) of what was dropped: ascending, apart from each other


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same indexes in as few ranges as possible."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        assert first <= last
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def covers(ranges: Ranges, first: int, last: int) -> bool:
    """True when every index of first..last was dropped; an empty range always was."""
    return first > last or any(low <= first and last <= high for low, high in ranges)


def pack(ranges: Ranges, identity: Identity) -> bytes:
    """The bytes of the record's file."""
    return pack_envelope(FileKind.TRIMMED, identity, b"".join(_RANGE.pack(*bounds) for bounds in ranges))


def unpack(data: bytes, identity: Identity, *, what: str) -> Ranges:
    """Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.TRIMMED, identity, what=what)
    if len(body) % _RANGE.size:
        raise StoreCorrupt(f"{what}: {len(body)} bytes are no list of ranges")
    return merged(bounds for bounds in _RANGE.iter_unpack(body))
