from array import array
from collections import OrderedDict

from jetraft.store.blocks.block import Block
from jetraft.store.blocks.read_ahead import ReadAhead
from jetraft.store.blocks.terms import TermRuns
from jetraft.store.port import Entry

FRAME_OVERHEAD_BYTES: int

class GrowingBlock:
    @property
    def number(self) -> int: ...
    first_index: int
    boundary_term: int
    size: int
    used: int
    offsets: array[int]
    last_seq: int
    indexes: array[int] | None
    stored: array[int] | None
    sealed_last_index: int
    def __init__(
        self,
        *,
        number: int,
        first_index: int,
        boundary_term: int,
        size: int,
        used: int,
        offsets: array[int] | None = None,
        last_seq: int = 0,
        indexes: array[int] | None = None,
        stored: array[int] | None = None,
        sealed_last_index: int = 0,
    ) -> None: ...
    def place(self, entry: Entry, overhead_bytes: int = 0) -> int: ...

class LastTerms:
    _starts: list[int]
    _terms: list[int]
    last_index: int
    def __init__(self, boundary_index: int, boundary_term: int) -> None: ...
    def append(self, index: int, term: int) -> None: ...

class PlacedEntries:
    _blocks: list[Block]
    terms: TermRuns
    def __init__(self, blocks: list[Block], terms: TermRuns) -> None: ...
    def place(self, entry: Entry, overhead_bytes: int = 0) -> int: ...
    def locate(self, index: int) -> tuple[int, int] | None: ...

class KeptFrames:
    _bytes_max: int
    _bytes_held: int
    ahead: ReadAhead
    _frames: OrderedDict[tuple[int, int, int], bytes]
    def __init__(self, bytes_max: int, ahead: ReadAhead) -> None: ...
    def put(self, key: tuple[int, int, int], frame: bytes) -> None: ...
    def make_room(self) -> None: ...
