"""The small pieces a log is made of: terms, ranges, envelopes, the cache."""

import itertools

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from jetraft.store.blocks._growing import FRAME_OVERHEAD_BYTES
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.blocks.terms import TermRuns
from jetraft.store.frames import checkpoint as checkpoint_file
from jetraft.store.frames._frame import crc32c
from jetraft.store.frames.format import (
    FORMAT_VERSION,
    BlockHead,
    FileKind,
    Identity,
    pack_block_head,
    pack_envelope,
    unpack_block_head,
    unpack_envelope,
)
from jetraft.store.model.files import index_ranges
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, StoreCorrupt, StoreRefused

IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
STEPS = st.lists(st.tuples(st.sampled_from(["append", "cut", "drop"]), st.integers(0, 30)), max_size=60)


@given(STEPS)
def test_term_runs_equal_a_list_of_terms(steps: list[tuple[str, int]]) -> None:
    runs, boundary, terms = TermRuns(0, 0), 0, [0]  # terms[i] belongs to index i
    for step, number in steps:
        if step == "append":
            terms.append(terms[-1] + number // 10)
            runs.append(len(terms) - 1, terms[-1])
        elif step == "cut" and len(terms) - 1 > boundary:
            index = boundary + 1 + number % (len(terms) - 1 - boundary)
            del terms[index:]
            runs.cut_from(index)
        elif step == "drop":
            boundary += number % (len(terms) - boundary)
            runs.drop_before(boundary)
        assert runs.boundary == (boundary, terms[boundary])
        assert (runs.last_index, runs.last_term) == (len(terms) - 1, terms[-1])
        for index in range(-1, len(terms) + 2):
            assert runs.at(index) == (terms[index] if boundary <= index < len(terms) else None)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5))), st.integers(1, 40), st.integers(1, 40))
def test_merged_ranges_cover_the_same_indexes(pieces: list[tuple[int, int]], first: int, last: int) -> None:
    ranges = [(start, start + length) for start, length in pieces]
    dropped = {index for start, end in ranges for index in range(start, end + 1)}
    found = index_ranges.merged(ranges)
    assert {index for start, end in found for index in range(start, end + 1)} == dropped
    assert all(end + 1 < start for (_, end), (start, _) in itertools.pairwise(found))
    assert index_ranges.covers(found, first, last) == (set(range(first, last + 1)) <= dropped)


def test_checkpoint_comes_back() -> None:
    checkpoint = Checkpoint(index=5, term=6, members=b"members", state=b"state" * 100)
    assert checkpoint_file.unpack(checkpoint_file.pack(checkpoint, IDENTITY), IDENTITY, what="c") == checkpoint


def test_block_head_comes_back() -> None:
    head = BlockHead(serial=3, first_index=2**40, boundary_term=9)
    for tag, reserved_bytes in itertools.product([0, 1, 2**32 - 1], [0, 4096]):
        data = pack_block_head(attrs.evolve(head, tag=tag), IDENTITY, reserved_bytes=reserved_bytes)
        assert len(data) == 128
        found = unpack_block_head(data + b"frames", IDENTITY, what="b")
        assert (found, found.tag, found.reserved_bytes) == (head, tag, reserved_bytes)


@given(st.data())
def test_any_flipped_bit_of_an_envelope_is_seen(data: st.DataObject) -> None:
    packed = bytearray(pack_envelope(FileKind.CHECKPOINT, IDENTITY, b"body"))
    bit = data.draw(st.integers(0, len(packed) * 8 - 1))
    packed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StoreCorrupt):  # never StoreRefused: damage is repaired, a newer file or another kind is not
        unpack_envelope(bytes(packed), FileKind.CHECKPOINT, IDENTITY, what="file")


def test_an_envelope_of_the_first_version_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetraft.store.frames.format.FORMAT_VERSION", 1)
    packed = pack_envelope(FileKind.CHECKPOINT, IDENTITY, b"body")
    monkeypatch.undo()
    assert packed[:10] == b"jetraft\n\x01\0"
    assert unpack_envelope(packed, FileKind.CHECKPOINT, IDENTITY, what="file") == b"body"
    kept = crc32c(packed[16:]).to_bytes(4, "little")
    assert packed[12:16] == kept, "as servers wrote it that did not sum the head"


@given(st.binary(max_size=200))
def test_garbage_is_no_envelope(garbage: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="file: "):
        unpack_envelope(garbage, FileKind.TRIMMED, IDENTITY, what="file")


def test_envelope_of_another_owner_or_kind_is_refused() -> None:
    packed = pack_envelope(FileKind.TRIMMED, IDENTITY, b"")
    with pytest.raises(StoreRefused, match="belongs to"):
        unpack_envelope(packed, FileKind.TRIMMED, attrs.evolve(IDENTITY, incarnation=8), what="file")
    with pytest.raises(StoreRefused, match="file kind 4, expected 3"):
        unpack_envelope(packed, FileKind.CHECKPOINT, IDENTITY, what="file")


def test_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetraft.store.frames.format.FORMAT_VERSION", FORMAT_VERSION + 1)
    packed = pack_envelope(FileKind.TRIMMED, IDENTITY, b"")
    monkeypatch.undo()
    with pytest.raises(StoreRefused, match=f"file: format version {FORMAT_VERSION + 1} is newer than {FORMAT_VERSION}"):
        unpack_envelope(packed, FileKind.TRIMMED, IDENTITY, what="file")


def test_cache_drops_the_least_recently_used() -> None:
    cache = BlockCache(bytes_max=3 * (100 + FRAME_OVERHEAD_BYTES))
    for offset in (1, 2, 3):
        cache.put((0, 0, offset), bytes(100))
    assert cache.get((0, 0, 1)) is not None
    cache.put((0, 0, 4), bytes(100))
    assert [offset for offset in (1, 2, 3, 4) if cache.get((0, 0, offset)) is not None] == [1, 3, 4]
    statistics = cache.statistics()
    assert (statistics.frames, statistics.bytes_held) == (3, 3 * (100 + FRAME_OVERHEAD_BYTES))
    assert (statistics.hits, statistics.misses) == (4, 1)


def test_cache_numbers_logs_apart() -> None:
    cache = BlockCache()
    assert cache.register_log() != cache.register_log()
