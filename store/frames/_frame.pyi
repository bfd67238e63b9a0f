# Types of _frame.pyx, which has the docstrings.

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from _typeshed import ReadableBuffer as Buffer

class Header(NamedTuple):
    # units and meaning as in format.py
    length: int
    crc: int
    version: int
    kind: int
    flags: int
    record_count: int  # of a MESSAGES frame
    incarnation: int
    log_index: int
    term: int
    first_stream_seq: int

class Scan(NamedTuple):
    # the result of a scan of a block
    offsets: array[int]  # of the frames, in bytes from the block's first byte
    terms: list[tuple[int, int]]  # (first log index, term) of each run of one term
    next_index: int  # of the entry after the last one
    term: int  # of the last frame, or the one given
    last_seq: int  # highest stream sequence of a message, 0 when there is none
    end: int  # the offset where the walk stopped
    stop: int  # format.Stop
    damaged_marks: int
    indexes: array[int] | None  # log indexes of the frames, of a block that was compacted
    logical_offsets: array[int] | None  # of the frames; None unless the block was compacted
    shift: int  # logical offset minus place, of the last frame

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_by_table(data: Buffer, value: int = 0) -> int: ...
def seal(
    kind: int,
    *,
    index: int,
    term: int,
    incarnation: int,
    body: bytes | Sequence[Buffer],
    first_seq: int = 0,
    count: int = 0,
    flags: int = 0,
    summed: bool = False,
) -> bytes: ...
def resummed(frame: Buffer) -> bytes: ...
def parse_header(data: Buffer, offset: int = 0) -> Header: ...
def verify(data: Buffer, offset: int = 0) -> bool: ...
def entry_frame(data: bytes, offset: int, index: int, incarnation: int) -> tuple[bytes, int, int] | None: ...
def sound_entry(frame: bytes, index: int, incarnation: int) -> tuple[int, int, int] | None: ...
def make_record(subject: Buffer, hdr: Buffer, payload: Buffer, *, ts_ns: int, flags: int = 0) -> bytes: ...
def record_at(frame: Buffer, offset: int) -> tuple[int, int, bytes, bytes, bytes]: ...
def records(frame: Buffer) -> list[tuple[int, int, bytes, bytes, bytes]]: ...
def make_mark(*, incarnation: int, offset: int, next_index: int, tag: int = 0) -> bytes: ...
def make_skip(*, incarnation: int, place: int, logical_offset: int, next_index: int, tag: int = 0) -> bytes: ...
def find_mark(data: Buffer, *, offset: int, incarnation: int, skip: bool = False, tag: int = 0) -> int: ...
def scan(
    data: Buffer,
    *,
    offset: int,
    incarnation: int,
    next_index: int,
    term: int,
    last_index: int = ...,
    check: bool = True,
    shift: int = 0,
    lift: int = 0,
) -> Scan: ...
