"""Frames that are indexed in runs: what is damaged, or of another log, is never among them."""

from __future__ import annotations

from array import array

import pytest

from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Kind
from jetraft.store.stream._index import Index
from jetraft.store.stream._seqset import PackedRanges

COUNT = 6
INCARNATION = 7


def run(*, flipped: int | None = None, at: int = -9) -> tuple[bytes, array[int], range]:
    """A run of frames with one message each; of the `flipped`-th one bit is another one."""
    frames: list[bytearray] = []
    for index in range(1, COUNT + 1):
        record = make_record(b"s.%d" % index, b"", b"payload", ts_ns=index)
        body = [record]
        sealed = seal(Kind.MESSAGES, index=index, term=1, incarnation=INCARNATION, body=body, first_seq=index, count=1)
        frames.append(bytearray(sealed))
    if flipped is not None:
        frames[flipped][at] ^= 1
    places, offset = array("I"), 0
    for frame in frames:
        places.append(offset)
        offset += len(frame)
    return b"".join(frames), places, range(1, COUNT + 1)


def load(data: bytes, places: array[int], indexes: range, incarnation: int = INCARNATION) -> tuple[int, Index]:
    """How many frames were indexed, and the index."""
    index = Index(overhead_bytes=30, hdr_overhead_bytes=4)
    loaded, _, _ = index.load_run(data, places, places, indexes, 1, incarnation, PackedRanges(b"", 1))
    return loaded, index


def test_sound_frames_are_indexed_together() -> None:
    loaded, index = load(*run())
    assert loaded == COUNT
    assert index.subject_state(b"s.%d" % COUNT) is not None


@pytest.mark.parametrize("flipped", range(COUNT))
@pytest.mark.parametrize("at", [2, 9, 20, -9])
def test_a_run_ends_at_the_first_damaged_frame(flipped: int, at: int) -> None:
    loaded, index = load(*run(flipped=flipped, at=at))
    assert loaded == flipped
    assert [index.subject_state(b"s.%d" % seq) is not None for seq in range(1, COUNT + 1)] == [
        seq <= flipped for seq in range(1, COUNT + 1)
    ]


def test_frames_of_another_incarnation_or_place_are_not_indexed() -> None:
    data, places, indexes = run()
    assert load(data, places, indexes, incarnation=INCARNATION + 1)[0] == 0
    assert load(data, places, range(2, COUNT + 2))[0] == 0
    assert load(data[: len(data) - 1], places, indexes)[0] == COUNT - 1
