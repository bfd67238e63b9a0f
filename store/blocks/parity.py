"""Parity of a block that is rewritten as a whole, in a file beside it: one damaged place of it is repaired.

In plain blocks of a group of one member each message has a checksum, so a flipped bit costs one message. The frames of
compacted and compressed blocks have one checksum for a batch, and compressed bytes behind a flipped bit mean nothing.
So the block has a checksum for every 4 KiB, and the parity of every 32nd of them:

    u64 length of the block   u32 checksum of each unit   parity of the first units of all rows, of the second ones, ...

A block is cut into at most 32 rows of equal length; unit n of all rows is one stripe. A damaged unit is the parity of
its stripe without it, if every other one has its checksum; the result has to have its own. So a run of damage as long
as a row is repaired: an unreadable sector, a lost or misplaced page, any number of flipped bits in one place.

Pure. The caller verifies the frames of what is returned: a file of parity that is older than its block proves nothing.
Source: RAID 5 (Patterson, Gibson, Katz 1988), in one file.
"""

import struct
from collections.abc import Sequence
from typing import Final

from jetraft.store.frames._frame import crc32c
from jetraft.store.frames.format import FileKind, Identity, pack_envelope, unpack_envelope
from jetraft.store.port import StoreCorrupt

UNIT_BYTES: Final = 4096  # a page of a device, which fails as a whole
ROWS_MAX: Final = 32  # so parity takes a 32nd of a large block

_LENGTH: Final = struct.Struct("<Q")
_SUM_BYTES: Final = 4


def pack(data: bytes, identity: Identity) -> bytes:
    """The file of parity for the bytes of a block."""
    row = _row_bytes(len(data))
    parity = 0
    for at in range(0, len(data), row):
        parity ^= int.from_bytes(data[at : at + row], "little")
    view = memoryview(data)
    sums = [crc32c(view[at : at + UNIT_BYTES]) for at in range(0, len(data), UNIT_BYTES)]
    body = _LENGTH.pack(len(data)) + struct.pack(f"<{len(sums)}I", *sums) + parity.to_bytes(row, "little")
    return pack_envelope(FileKind.PARITY, identity, body)


def mended(data: bytes, parity_file: bytes, identity: Identity, ranges: Sequence[tuple[int, int]]) -> bytes | None:
    """The block with the units in these damaged ranges of bytes restored; None when one of them cannot be.

    Units outside of the ranges stay as they are: they may have been changed on purpose since. Raises StoreCorrupt,
    StoreRefused when the file of parity is damaged itself.
    """
    body = unpack_envelope(parity_file, FileKind.PARITY, identity, what="parity")
    length = _LENGTH.unpack_from(body)[0] if len(body) >= _LENGTH.size else 0
    units, row = -(-length // UNIT_BYTES), _row_bytes(length)
    parity_at = _LENGTH.size + _SUM_BYTES * units
    if len(body) != parity_at + row:
        raise StoreCorrupt(f"parity: {len(body)} bytes are not those of a block of {length}")
    sums = struct.unpack_from(f"<{units}I", body, _LENGTH.size)
    whole = bytearray(data[:length].ljust(length, b"\0"))
    for start, end in ranges:
        for unit in range(start // UNIT_BYTES, -(-min(end, length) // UNIT_BYTES)):
            if not _is_sound(whole, unit, sums[unit]) and not _mend(whole, unit, row, sums, body[parity_at:]):
                return None
    return bytes(whole)


def _row_bytes(length: int) -> int:
    """The bytes of a row: whole units, if there is more than one."""
    units = -(-length // UNIT_BYTES)
    return min(length, -(-units // ROWS_MAX) * UNIT_BYTES)


def _is_sound(whole: bytearray, unit: int, checksum: int) -> bool:
    return crc32c(memoryview(whole)[unit * UNIT_BYTES : (unit + 1) * UNIT_BYTES]) == checksum


def _mend(whole: bytearray, unit: int, row: int, sums: Sequence[int], parity: bytes) -> bool:
    """Restore one unit in place; False when another one of its stripe is damaged or was changed."""
    at, size = unit * UNIT_BYTES, min(UNIT_BYTES, len(whole) - unit * UNIT_BYTES)
    in_row = at % row
    found = int.from_bytes(parity[in_row : in_row + UNIT_BYTES], "little")
    for other in range(in_row // UNIT_BYTES, len(sums), max(1, row // UNIT_BYTES)):
        if other != unit:
            if not _is_sound(whole, other, sums[other]):
                return False
            found ^= int.from_bytes(whole[other * UNIT_BYTES : (other + 1) * UNIT_BYTES], "little")
    if found.bit_length() > 8 * size:
        return False
    whole[at : at + size] = found.to_bytes(size, "little")
    return _is_sound(whole, unit, sums[unit])
