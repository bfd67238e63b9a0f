r"""Which sequences of a stream are live at one moment: the end of an archive that a backup asks for. Pure.

An archive has messages as they were read, one after the other, while the stream went on: some of what was live at its
beginning is missing, some of what it has is gone by its end. A backup that continues must know one moment exactly, and
also what has become of the messages in the archives before. So the server says at the end, in the same turn in which
nothing newer was left to read, which sequences are removed; removal is final, so what an archive has and this does not
name is what the stream had at that moment.

    {"first_seq": 12, "last_seq": 900}\n<removed sequences in between, packed as in _seqset.pyx>
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Self

import attrs
import orjson

from jetraft.store.s2.framing import CorruptArchiveError
from jetraft.store.stream._seqset import PackedRanges, pack_ranges

CUT_NAME: Final = b"jetraft.cut"  # of its entry, which is the last one and has no sequence
SEQ_MAX: Final = (1 << 62) - 1

Runs = tuple[tuple[int, int], ...]


@attrs.frozen(kw_only=True)
class LiveCut:
    """Live are first_seq <= seq <= last_seq without `removed`: ascending runs, both ends included, all in between."""

    first_seq: int
    last_seq: int
    removed: Runs = ()
    _firsts: tuple[int, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_firsts", tuple(first for first, _ in self.removed))

    @property
    def live(self) -> int:
        """How many sequences are live."""
        return self.last_seq + 1 - self.first_seq - sum(last + 1 - first for first, last in self.removed)

    def has(self, seq: int) -> bool:
        """Whether a sequence is live."""
        if not self.first_seq <= seq <= self.last_seq:
            return False
        at = bisect_right(self._firsts, seq) - 1
        return at < 0 or seq > self.removed[at][1]

    def until(self, last_seq: int) -> Self:
        """The part of it up to a sequence. With nothing live, it begins behind its end."""
        removed = tuple((first, min(last, last_seq)) for first, last in self.removed if first <= last_seq)
        return attrs.evolve(self, first_seq=min(self.first_seq, last_seq + 1), last_seq=last_seq, removed=removed)

    def pack(self) -> bytes:
        """The body of its entry."""
        return pack_cut(self.first_seq, self.last_seq, pack_ranges(self.removed, self.first_seq))

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read what `pack` made, or a server. Raises CorruptArchiveError."""
        head, _, packed = body.partition(b"\n")
        try:
            said = orjson.loads(head)
            first_seq, last_seq = said["first_seq"], said["last_seq"]
            are_numbers = type(first_seq) is type(last_seq) is int and 1 <= first_seq <= last_seq + 1 <= SEQ_MAX
            runs = tuple(PackedRanges(packed, first_seq if are_numbers else 0).to_list())
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptArchiveError(f"the cut at the end of the archive is unreadable: {error}") from error
        if not are_numbers or (runs and runs[-1][1] > last_seq):
            raise CorruptArchiveError("the cut at the end of the archive is out of range")
        return cls(first_seq=first_seq, last_seq=last_seq, removed=runs)


class CutBuilder:
    """The cut of a stream that is told by its live sequences, ascending."""

    def __init__(self) -> None:
        self.first_seq = 0  # 0 before the first one
        self._next_seq = 0
        self._removed: list[tuple[int, int]] = []

    def add(self, seq: int) -> None:
        """This sequence is live, and those since the one before are not."""
        if not self.first_seq:
            self.first_seq = seq
        elif seq > self._next_seq:
            self._removed.append((self._next_seq, seq - 1))
        self._next_seq = seq + 1

    def cut(self, last_seq: int) -> LiveCut:
        """The cut of the stream that ends so."""
        if not self.first_seq:
            return LiveCut(first_seq=last_seq + 1, last_seq=last_seq)
        end = [(self._next_seq, last_seq)] if self._next_seq <= last_seq else []
        return LiveCut(first_seq=self.first_seq, last_seq=last_seq, removed=(*self._removed, *end))


def pack_cut(first_seq: int, last_seq: int, removed: bytes) -> bytes:
    """The body of a cut's entry; `removed` are runs that a RangePacker has packed."""
    return orjson.dumps({"first_seq": first_seq, "last_seq": last_seq}) + b"\n" + removed
