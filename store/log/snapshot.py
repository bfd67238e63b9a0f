"""Copies a log to another member: a checkpoint, and the blocks with the messages that it needs.

For its newest durable checkpoint, the sender lists the parts of blocks that have live messages up to it (`Manifest`),
and serves bytes of those parts. The receiver gathers them beside its log (`Staging`), verifies every frame, and then
replaces its log. It does not use or change the old log before that. Term and vote are not part of a log and stay.
Source of the idea: snapshots as ranges of immutable blocks, as in TigerBeetle's sync and CockroachDB's SSTs.
"""

from collections.abc import Callable, Iterable
from typing import Final

from jetraft.store.blocks.block import Block
from jetraft.store.frames._frame import Scan, scan
from jetraft.store.frames.format import Stop
from jetraft.store.model.files.manifest import Manifest, Part
from jetraft.store.port import Checkpoint, GroupLog, StoreCorrupt, StoreError

CHUNK_BYTES: Final = 128 << 10  # as nats-server's catch-up and snapshot chunks


def make_manifest(
    blocks: Iterable[Block],
    checkpoint: Checkpoint,
    *,
    first_live_seq: int,
    body_bytes: Callable[[Block, int], int],
) -> Manifest:
    """List the parts, up to the checkpoint, of blocks with a message at or above `first_live_seq`.

    `body_bytes` returns the size of a block, as it is sent, up to an entry.
    """
    parts = []
    for block in blocks:
        last = min(block.last_index, checkpoint.index)
        if block.first_index <= last and block.last_seq >= first_live_seq:
            parts.append(Part(block.number, block.first_index, last, block.boundary_term, body_bytes(block, last)))
    return Manifest(index=checkpoint.index, term=checkpoint.term, parts=tuple(parts))


class PartDamagedError(StoreCorrupt):
    """A part differs from what the manifest says; `block` is the sender's number for it."""

    def __init__(self, text: str, *, block: int) -> None:
        super().__init__(text)
        self.block = block


class InstallRefusedError(StoreError):
    """The log already covers what was to be installed: it must not go backwards (rule 35)."""


def covers(log: GroupLog, index: int, term: int) -> bool:
    """Whether a log has this entry, or has dropped it. Then it has everything that is committed up to it.

    An entry of another term at this index was never committed and does not count.
    """
    return log.boundary[0] >= index or log.term_at(index) == term


class Arrivals:
    """Tracks how much of each part has arrived."""

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
            raise ValueError(
                f"chunk: expected (block, offset, bytes at most) {wanted}, found {(block, offset, len(data))}"
            )
        number = next(i for i, part in enumerate(self.manifest.parts) if part.block == block)
        self._write(number, offset, data)
        self._arrived[number] += len(data)


def verify_part(data: bytes | bytearray, part: Part, *, offset: int, incarnation: int, what: str) -> Scan:
    """Walk the frames of a part. Raises PartDamagedError unless they are exactly the entries of the manifest."""
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
