from collections.abc import Callable, Sequence
from pathlib import Path

from jetraft.store.blocks.block import Block, BlockList
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import Batch
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.state import LogState
from jetraft.store.log.write_queue import BlockFile, Rewriting
from jetraft.store.model.files import index_ranges
from jetraft.store.port import AnyCheckpoint, Checkpoint, Entry, HardState

NEWEST_BYTES_MAX: int

class HeldFrames:
    cache: BlockCache
    _log: int
    _unwritten: dict[tuple[int, int], bytes]
    def __init__(self, cache: BlockCache, log: int) -> None: ...
    def buffer(self, block: Block, offset: int, frame: bytes) -> None: ...
    def release(self, block: Block, offset: int) -> None: ...

class Segment:
    block: Block
    file: BlockFile
    create: bool
    offset: int
    first_index: int
    end: int
    reserved_bytes: int
    frames: list[bytes]
    def __init__(
        self, *, block: Block, file: BlockFile, create: bool, offset: int, first_index: int, end: int
    ) -> None: ...
    def on_reserved(self, size: int) -> None: ...
    def cut_from(self, index: int) -> None: ...

class WriteQueue:
    facts: list[bytes]
    hard_state: HardState | None
    founding: Checkpoint | None
    begun: tuple[bytes, ...]
    segments: list[Segment]
    retired: list[tuple[Block, BlockFile]]
    rewrites: dict[tuple[int, int], Rewriting]
    drops_copies: bool
    checkpoint: AnyCheckpoint | None
    dropped: index_ranges.Ranges | None
    unlink: list[Path]
    close: list[int]
    new_directories: list[Path]
    empty_directories: list[Path]
    @property
    def only_grows(self) -> bool: ...
    @property
    def makes_files(self) -> bool: ...
    def frame_bytes(self) -> int: ...

class Appending:
    _state: LogState
    _blocks: BlockList
    _reader: FrameReader
    _seal: Callable[[int, int, bytes], bytes] | None
    def __init__(
        self,
        state: LogState,
        blocks: BlockList,
        reader: FrameReader,
        seal: Callable[[int, int, bytes], bytes] | None,
    ) -> None: ...
    def append(self, entries: Sequence[Entry]) -> None: ...
    def _begin_segment(self, block: Block, *, create: bool = False) -> Segment: ...

def add_growing(batch: Batch, segment: Segment, incarnation: int) -> None: ...
def release_written(segments: Sequence[Segment], reader: HeldFrames) -> int | None: ...
