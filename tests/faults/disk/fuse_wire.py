"""The kernel's FUSE protocol, as much of it as a store needs: numbers, layouts, packing. Nothing needs installing.

Source: include/uapi/linux/fuse.h, protocol 7.31. The kernel writes through (no writeback cache), so each write and each
fsync of a server is a request, while reads may come from the kernel's page cache until a server drops it, as on a disk.
"""

import struct
from enum import IntEnum
from typing import Final

import attrs

VERSION: Final = (7, 31)
REQUEST_BYTES_MAX: Final = (1 << 20) + 4096  # a write of max_write, and its head
WRITE_BYTES_MAX: Final = 1 << 20
PAGES_MAX: Final = 256
INIT_FLAGS: Final = (1 << 0) | (1 << 3) | (1 << 5) | (1 << 22)  # async read, O_TRUNC with open, big writes, max_pages
VALID_S: Final = 3600  # nobody else changes this file system
IN_HEADER: Final = struct.Struct("<IIQQIIII")
OUT_HEADER: Final = struct.Struct("<IiQ")
SETATTR_SIZE: Final = 1 << 3
DIRECTORY_MODE, FILE_MODE = 0o040755, 0o100640
BLOCK_BYTES: Final = 4096

_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_ENTRY = struct.Struct("<QQQQII")
_STATFS = struct.Struct("<QQQQQIIII24x")


class Op(IntEnum):
    """What the kernel asks for."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    RENAME2 = 45


@attrs.frozen(slots=True)
class Request:
    """One question of the kernel."""

    op: int
    unique: int
    node: int
    body: bytes

    def name(self, at: int = 0) -> str:
        """The name that ends the body, from a place on."""
        return self.body[at:].split(b"\0")[0].decode()

    def numbers(self, layout: str) -> tuple[int, ...]:
        """The fields at the beginning of the body."""
        return struct.unpack_from(layout, self.body)


def parse(data: bytes) -> Request:
    """One read from the device is one request."""
    _length, op, unique, node, *_rest = IN_HEADER.unpack_from(data)
    return Request(op, unique, node, data[IN_HEADER.size :])


def answer(unique: int, body: bytes = b"", *, error: int = 0) -> bytes:
    """The reply to a request; `error` is a positive errno."""
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), -error, unique) + body


def init_body() -> bytes:
    """What was agreed upon."""
    return _INIT_OUT.pack(*VERSION, 1 << 17, INIT_FLAGS, 16, 12, WRITE_BYTES_MAX, 1, PAGES_MAX, 0, 0)


def attributes(node: int, size: int, *, is_directory: bool) -> bytes:
    """A node's attributes; times are none."""
    mode, links = (DIRECTORY_MODE, 2) if is_directory else (FILE_MODE, 1)
    blocks = (size + 511) // 512
    return _ATTR.pack(node, size, blocks, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, BLOCK_BYTES, 0)


def entry(node: int, attr: bytes) -> bytes:
    """A name was found or made."""
    return _ENTRY.pack(node, 0, VALID_S, VALID_S, 0, 0) + attr


def attr_body(attr: bytes) -> bytes:
    """The answer to GETATTR and SETATTR."""
    return struct.pack("<QII", VALID_S, 0, 0) + attr


def statfs_body(capacity_bytes: int, free_bytes: int) -> bytes:
    """How much room there is."""
    blocks, free = capacity_bytes // BLOCK_BYTES, max(0, free_bytes) // BLOCK_BYTES
    return _STATFS.pack(blocks, free, free, 1 << 20, 1 << 19, BLOCK_BYTES, 255, BLOCK_BYTES, 0)


def dirent(node: int, offset: int, name: str, *, is_directory: bool) -> bytes:
    """One name of a directory's listing, padded."""
    data = name.encode()
    packed = struct.pack("<QQII", node, offset, len(data), 4 if is_directory else 8) + data
    return packed + bytes(-len(packed) % 8)
