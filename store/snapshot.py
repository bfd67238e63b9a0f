"""Copies a log to another member: a checkpoint and the blocks whose messages it needs.

The sender lists, for its newest durable checkpoint, the parts of blocks that hold live messages up to it (`Manifest`),
and serves bytes of those parts. The receiver gathers them beside its own log (`Staging`), verifies every frame, and
only then puts the new log in place of the old one, by one rename. Nothing of the old log is used or changed before
that. Term and vote are not part of a log and stay.
Where the idea comes from: snapshots as ranges of immutable blocks, as in TigerBeetle's sync and CockroachDB's SSTs.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import attrs

from jetraft.store import trimmed
from jetraft.store._frame import Scan, scan
from jetraft.store.block import Block
from jetraft.store.format import Stop
from jetraft.store.port import Checkpoint, GroupLog, StoreCorrupt, StoreError

_HEAD: Final = struct.Struct("<QQI")  # index, term, parts
_PART: Final = struct.Struct("<QQQQQ")
CHUNK_BYTES: Final = 128 << 10  # as nats-server's catch-up and snapshot chunks


@attrs.frozen(slots=True)
class Part:
    """Entries first_index..last_index of one block: `body_bytes` bytes of frames and marks, from its first frame on."""

    block: int  # the sender's number for it
    first_index: int
    last_index: int
    boundary_term: int  # of the entry before first_index
    body_bytes: int


@attrs.frozen(kw_only=True, slots=True)
class Manifest:
    """What makes a log equal to the sender's after `index`."""

    index: int
    term: int
    parts: tuple[Part, ...]

    def to_bytes(self) -> bytes:
        """For the wire."""
        parts = (_PART.pack(*attrs.astuple(part)) for part in self.parts)
        return b"".join((_HEAD.pack(self.index, self.term, len(self.parts)), *parts))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Raises ValueError when the bytes are no manifest."""
        if len(data) < _HEAD.size:
            raise ValueError("a manifest without a head")
        index, term, count = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + count * _PART.size:
            raise ValueError(f"a manifest of {count} parts in {len(data)} bytes")
        parts = tuple(Part(*fields) for fields in _PART.iter_unpack(data[_HEAD.size :]))
        manifest = cls(index=index, term=term, parts=parts)
        manifest.check()
        return manifest

    def check(self) -> None:
        """Raises ValueError when the parts overlap, do not ascend, or reach beyond `index`."""
        next_index = 1
        for part in self.parts:
            if not next_index <= part.first_index <= part.last_index <= self.index or part.body_bytes <= 0:
                raise ValueError(f"a manifest with a part that cannot be: {part}")
            next_index = part.last_index + 1

    def dropped(self) -> trimmed.Ranges:
        """The indexes up to `index` that are in no part."""
        ranges = []
        next_index = 1
        for part in self.parts:
            if part.first_index > next_index:
                ranges.append((next_index, part.first_index - 1))
            next_index = part.last_index + 1
        if next_index <= self.index:
            ranges.append((next_index, self.index))
        return trimmed.merged(ranges)


def make_manifest(
    blocks: Iterable[Block],
    checkpoint: Checkpoint,
    *,
    first_live_seq: int,
    body_bytes: Callable[[Block, int], int],
) -> Manifest:
    """What a receiver needs: the parts up to the checkpoint of blocks with a message of `first_live_seq` or above.

    `body_bytes` says how long a block is, as it is sent, up to an entry.
    """
    parts = []
    for block in blocks:
        last = min(block.last_index, checkpoint.index)
        if block.first_index <= last and block.last_seq >= first_live_seq:
            parts.append(Part(block.number, block.first_index, last, block.boundary_term, body_bytes(block, last)))
    return Manifest(index=checkpoint.index, term=checkpoint.term, parts=tuple(parts))


class PartDamagedError(StoreCorrupt):
    """A part does not hold what it promises; `block` is the sender's number for it."""

    def __init__(self, text: str, *, block: int) -> None:
        super().__init__(text)
        self.block = block


class InstallRefusedError(StoreError):
    """The log has what was to be installed, and perhaps more: it must not go backwards (rule 35)."""


def covers(log: GroupLog, index: int, term: int) -> bool:
    """Whether a log has the entry, or has dropped it: everything that is committed up to there is in it.

    An entry of another term in that place is covered by nothing: it was never committed.
    """
    return log.boundary[0] >= index or log.term_at(index) == term


class Staging(Protocol):
    """A log on its way in."""

    def missing(self) -> tuple[int, int, int] | None:
        """(block, offset, size) of the next piece to fetch; None when everything is here."""
        ...

    def put_chunk(self, block: int, offset: int, data: bytes) -> None:
        """Add the piece that `missing` asked for, or the beginning of it. Raises ValueError for any other piece."""
        ...

    def finish(self) -> GroupLog:
        """Verify everything, put it in place of the old log, and open it.

        It is what the next start finds when everything up to the new log's `token()` is durable: until then a crash
        leaves the old log, so nobody may be told that it is here. The old log must be closed. Blocking for files: call
        it in a thread. Raises PartDamagedError when a frame is damaged, and InstallRefusedError when the old log covers
        the new one, whatever it covered when this was begun; the old log is then untouched and can be opened again.
        """
        ...

    def abandon(self) -> None:
        """Forget what was gathered."""
        ...


class Arrivals:
    """How much of each part has arrived."""

    def __init__(self, manifest: Manifest, write: Callable[[int, int, bytes], None]) -> None:
        self.manifest = manifest
        self._write = write
        self._arrived = dict.fromkeys(range(len(manifest.parts)), 0)

    def missing(self) -> tuple[int, int, int] | None:
        """See Staging."""
        for number, part in enumerate(self.manifest.parts):
            offset = self._arrived[number]
            if offset < part.body_bytes:
                return part.block, offset, min(CHUNK_BYTES, part.body_bytes - offset)
        return None

    def put_chunk(self, block: int, offset: int, data: bytes) -> None:
        """See Staging."""
        wanted = self.missing()
        if wanted is None or (block, offset) != wanted[:2] or not 0 < len(data) <= wanted[2]:
            raise ValueError(f"{len(data)} bytes at {offset} of block {block} were not asked for: {wanted} was")
        number = next(i for i, part in enumerate(self.manifest.parts) if part.block == block)
        self._write(number, offset, data)
        self._arrived[number] += len(data)


def verify_part(data: bytes | bytearray, part: Part, *, offset: int, incarnation: int, what: str) -> Scan:
    """Walk the frames of a part. Raises PartDamagedError unless they are exactly the entries that it promises."""
    walk = scan(
        data,
        offset=offset,
        incarnation=incarnation,
        next_index=part.first_index,
        term=part.boundary_term,
        last_index=part.last_index,
    )
    if walk.stop != Stop.END or walk.next_index != part.last_index + 1:
        raise PartDamagedError(f"{what}: entry {walk.next_index} of {part} is damaged or missing", block=part.block)
    return walk
