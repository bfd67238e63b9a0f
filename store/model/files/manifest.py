"""The list of what a copy of a log consists of: a checkpoint's index, and parts of the blocks up to it. Pure.

A member that cannot catch up entry by entry receives a manifest, and then the bytes of its parts
(store/log/snapshot.py). The manifest is a message on the link between members, not a file.
"""

import struct
from typing import Final

import attrs

from jetraft.store.model.files import index_ranges

_HEAD: Final = struct.Struct("<QQI")  # index, term, parts
_PART: Final = struct.Struct("<QQQQQ")


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
    """The parts of a copy of the sender's log up to `index`."""

    index: int
    term: int
    parts: tuple[Part, ...]

    def to_bytes(self) -> bytes:
        """The wire format."""
        parts = (_PART.pack(*attrs.astuple(part)) for part in self.parts)
        return b"".join((_HEAD.pack(self.index, self.term, len(self.parts)), *parts))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Parse the wire format. Raises ValueError when it is malformed."""
        if len(data) < _HEAD.size:
            raise ValueError(f"manifest: expected at least {_HEAD.size} bytes, found {len(data)}")
        index, term, count = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + count * _PART.size:
            wanted_bytes = _HEAD.size + count * _PART.size
            raise ValueError(f"manifest: expected {wanted_bytes} bytes for {count} parts, found {len(data)}")
        parts = tuple(Part(*fields) for fields in _PART.iter_unpack(data[_HEAD.size :]))
        manifest = cls(index=index, term=term, parts=parts)
        manifest.check()
        return manifest

    def check(self) -> None:
        """Raises ValueError when the parts overlap, do not ascend, or reach beyond `index`."""
        next_index = 1
        for part in self.parts:
            if not next_index <= part.first_index <= part.last_index <= self.index or part.body_bytes <= 0:
                raise ValueError(f"manifest: expected a part of entries {next_index} to {self.index}, found {part}")
            next_index = part.last_index + 1

    def dropped(self) -> index_ranges.Ranges:
        """The indexes up to `index` that are in no part."""
        ranges = []
        next_index = 1
        for part in self.parts:
            if part.first_index > next_index:
                ranges.append((next_index, part.first_index - 1))
            next_index = part.last_index + 1
        if next_index <= self.index:
            ranges.append((next_index, self.index))
        return index_ranges.merged(ranges)
