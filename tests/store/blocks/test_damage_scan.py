"""What a scan for damage finds behind damage, against what was written."""

from itertools import pairwise

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.store.blocks.builder import BlockBuilder
from jetraft.store.blocks.damage_scan import DamageScan, as_compacted, is_in, scan_damage
from jetraft.store.frames import _frame
from jetraft.store.frames._thin import thin
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, Kind, Stop

INCARNATION = 7
TAG = 0xC0FFEE11


def frame(index: int, body: bytes, term: int = 1) -> bytes:
    return _frame.seal(Kind.NOOP, index=index, term=term, incarnation=INCARNATION, body=body)


def block(batches: list[list[bytes]], tag: int = TAG) -> tuple[bytes, list[tuple[int, int]]]:
    """A block of batches of frame bodies, each followed by a mark; and where each frame is."""
    data = bytearray(BLOCK_HEAD_BYTES)
    places = []
    index = 1
    for batch in batches:
        for body in batch:
            places.append((len(data), len(data) + 48 + len(body)))
            data += frame(index, body)
            index += 1
        data += _frame.make_mark(incarnation=INCARNATION, offset=len(data), next_index=index, tag=tag)
    return bytes(data) + bytes(256), places


def scanned(data: bytes, last_index: int | None = None, tag: int = TAG) -> DamageScan:
    return scan_damage(
        data,
        offset=BLOCK_HEAD_BYTES,
        incarnation=INCARNATION,
        next_index=1,
        term=0,
        last_index=last_index,
        tag=tag,
    )


BATCHES = st.lists(st.lists(st.binary(max_size=80), min_size=1, max_size=4), min_size=1, max_size=4)


def missing(found: DamageScan, entries: int) -> list[int]:
    return [index for index in range(1, entries + 1) if is_in(found.gaps, index)]


@given(BATCHES, st.data())
def test_damage_costs_the_entries_it_hits_and_at_most_those_up_to_the_next_mark(
    batches: list[list[bytes]], data: st.DataObject
) -> None:
    sound, places = block(batches)
    start = data.draw(st.integers(BLOCK_HEAD_BYTES, places[-1][1] - 1))
    end = min(start + data.draw(st.integers(1, 200)), places[-1][1])
    damaged = sound[:start] + bytes(byte ^ 0x5A for byte in sound[start:end]) + sound[end:]

    found = scanned(damaged)

    hit = [index for index, (low, high) in enumerate(places, 1) if low < end and start < high]
    lost = missing(found, len(places))
    mark = _frame.find_mark(damaged, offset=start, incarnation=INCARNATION, tag=TAG)
    before_mark = sum(low < mark for low, _ in places)
    assert set(hit) <= set(lost) <= set(range(hit[0], before_mark + 1) if hit else ())
    assert found.walk.next_index == len(places) + 1
    assert [offset for index, offset in enumerate(found.walk.offsets, 1) if index not in lost] == [
        low for index, (low, _) in enumerate(places, 1) if index not in lost
    ]
    assert list(found.walk.offsets) == sorted(set(found.walk.offsets))


def _apart(numbers: set[int]) -> list[int]:
    """Entries of which no two are neighbours."""
    return [2 * number + 1 for number in numbers]


@given(BATCHES, st.data(), st.sampled_from([TAG, 0]))
def test_flipped_bits_in_entries_apart_cost_these_and_no_other(
    batches: list[list[bytes]], data: st.DataObject, tag: int
) -> None:
    sound, places = block(batches, tag)
    hit = sorted(data.draw(st.sets(st.integers(0, (len(places) - 1) // 2), min_size=1, max_size=3).map(_apart)))
    damaged = bytearray(sound)
    for index in hit:
        low, high = places[index - 1]
        bit = data.draw(st.integers(low * 8, high * 8 - 1))
        damaged[bit // 8] ^= 1 << bit % 8

    found = scanned(bytes(damaged), tag=tag)

    assert missing(found, len(places)) == hit
    assert found.walk.next_index == len(places) + 1


def test_a_tail_without_a_mark_is_no_gap() -> None:
    data, places = block([[b"a" * 50], [b"b" * 50, b"c" * 50]])
    unmarked = data[: places[2][1]]
    torn = bytearray(unmarked)
    torn[places[1][0] + 60] ^= 1

    found = scanned(bytes(torn))

    assert found.gaps == ()
    assert found.walk.next_index == 2
    assert found.walk.stop == Stop.DAMAGED


def test_a_sealed_block_that_ends_early_has_a_gap_to_its_known_end() -> None:
    data, places = block([[b"a" * 50, b"b" * 50, b"c" * 50]])

    found = scanned(data[: places[1][0]], last_index=3)

    assert [(gap.first_index, gap.last_index, gap.start) for gap in found.gaps] == [(2, 3, places[1][0])]
    assert found.walk.next_index == 4


FORGED = st.lists(
    st.tuples(
        st.sampled_from(["frame", "frame", "mark", "skip", "filler", "head"]), st.integers(-1, 4), st.integers(0, 40)
    ),
    max_size=6,
)


def forged(pieces: list[tuple[str, int, int]], place: int, index: int, tag: int) -> bytes:
    """What a client sends who knows the incarnation, the index of the entry and the place in the block, but no tag."""
    payload = b""
    following = index
    for what, step, size in pieces:
        at = place + len(payload)
        following = max(1, following + step)
        if what == "frame":
            payload += frame(following, bytes(size), term=3)
            following += 1
        elif what == "mark":
            payload += _frame.make_mark(incarnation=INCARNATION, offset=at, next_index=following, tag=tag)
        elif what == "skip":
            payload += _frame.make_skip(
                incarnation=INCARNATION, place=at, logical_offset=at, next_index=following + step, tag=tag
            )
        elif what == "head":  # of a frame that says that it ends behind this payload
            payload += bytearray(frame(following, bytes(size)))[:48] + b"\xff"
            following += 1
        else:
            payload += b"." * size
    return payload


@st.composite
def attacked(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """A block of entries of which each holds forgeries up to its end, and where the entries are."""
    data = bytearray(BLOCK_HEAD_BYTES)
    places = []
    index = 1
    for batch in draw(st.lists(st.lists(FORGED, min_size=1, max_size=4), min_size=1, max_size=3)):
        for pieces in batch:
            payload = forged(pieces, len(data) + 48, index, draw(st.sampled_from([0, TAG ^ 1, 1])))
            places.append((len(data), len(data) + 48 + len(payload)))
            data += frame(index, payload)
            index += 1
        data += _frame.make_mark(incarnation=INCARNATION, offset=len(data), next_index=index, tag=TAG)
    return bytes(data), places


def hurt(data: bytes, places: list[tuple[int, int]], draw: st.DataObject) -> bytes:
    """Several ranges of garbage, or a length that leads to where an attacker has hoped for."""
    damaged = bytearray(data)
    if draw.draw(st.booleans()):
        low, high = draw.draw(st.sampled_from(places))
        ends = [at for at in range(low + 48, high) if data[at + 16 : at + 24] == INCARNATION.to_bytes(8, "little")]
        damaged[low : low + 4] = (draw.draw(st.sampled_from([*ends, high + 1])) - low).to_bytes(4, "little")
        damaged[low + draw.draw(st.integers(4, 8))] ^= 0x5A
        return bytes(damaged)
    for _ in range(draw.draw(st.integers(1, 3))):
        start = draw.draw(st.integers(BLOCK_HEAD_BYTES, len(data) - 1))
        for at in range(start, min(start + draw.draw(st.integers(1, 120)), len(data))):
            damaged[at] ^= 0x5A
    return bytes(damaged)


@settings(max_examples=300)
@given(attack=attacked(), data=st.data(), is_sealed=st.booleans(), is_torn=st.booleans())
def test_nothing_that_a_client_has_forged_is_ever_believed(
    *, attack: tuple[bytes, list[tuple[int, int]]], data: st.DataObject, is_sealed: bool, is_torn: bool
) -> None:
    sound, places = attack
    block_bytes = hurt(sound, places, data)
    if is_torn:  # a power cut has left what a client has sent, and not the mark behind it
        block_bytes = block_bytes[: places[-1][1]] + bytes(64)

    found = scanned(block_bytes, len(places) if is_sealed else None)

    true = {index: low for index, (low, _) in enumerate(places, 1)}
    believed = {index: offset for index, offset in enumerate(found.walk.offsets, 1) if not is_in(found.gaps, index)}
    assert believed.items() <= true.items()
    assert found.walk.next_index <= len(places) + 1


def test_a_frame_that_a_client_has_hidden_is_not_taken_for_the_next_entry() -> None:
    """One byte of the length of the frame around it is damaged."""
    hidden = frame(3, b"forged")
    data, places = block([[b"a" * 30, b"-" * 100 + hidden + b"-" * 60, b"c" * 30, b"d" * 30]])
    damaged = bytearray(data)
    damaged[places[1][0] + 2] = 0x40

    found = scanned(bytes(damaged))

    assert missing(found, 4) == [2]
    assert list(found.walk.offsets) == [low for low, _ in places]


def test_a_frame_hidden_at_the_end_of_the_last_of_several_damaged_ones_is_not_believed() -> None:
    """Frames and indexes behind it agree: only that no mark proves it tells that it is none."""
    hidden = frame(3, b"forged")
    data, places = block([[b"a" * 30, b"b" * 30, b"-" * 40 + hidden, b"d" * 30], [b"e" * 30]])
    damaged = bytearray(data)
    damaged[places[1][0] : places[2][0] + 60] = bytes(places[2][0] + 60 - places[1][0])

    found = scanned(bytes(damaged))

    assert missing(found, 5) == [2, 3, 4]
    assert found.walk.offsets[4] == places[4][0]


def test_a_length_that_leads_to_where_an_attacker_has_hoped_for_is_not_believed() -> None:
    """Behind the forged frame is a header that seems to be a damaged frame, which ends where an entry begins."""
    forgery = frame(2, b"forged")
    header = bytearray(frame(3, b"")[:48])

    def payload(length: int) -> bytes:
        return b"-" * 20 + forgery + length.to_bytes(4, "little") + header[4:] + b"-" * 50

    _, places = block([[payload(0), b"b" * 30, b"c" * 30, b"d" * 30]])
    fake = places[0][0] + 48 + 20 + len(forgery)
    data, places = block([[payload(places[3][0] - fake), b"b" * 30, b"c" * 30, b"d" * 30]])
    damaged = bytearray(data)
    damaged[places[0][0] : places[0][0] + 4] = (48 + 20).to_bytes(4, "little")
    damaged[places[0][0] + 60] ^= 1

    found = scanned(bytes(damaged))

    assert missing(found, 4) == [1, 2, 3, 4]
    assert found.walk.next_index == 5


def test_a_mark_that_a_client_has_hidden_makes_a_torn_tail_no_durable_entry() -> None:
    data, places = block([[b"a" * 30]])
    end = places[0][1] + 32
    payload = frame(3, b"forged")
    at = end + 48 + len(payload)
    payload += _frame.make_mark(incarnation=INCARNATION, offset=at, next_index=4)
    torn = data[:end] + bytes(48) + payload + bytes(100)

    found = scanned(torn)

    assert found.gaps == ()
    assert found.walk.next_index == 2


@given(BATCHES, st.data())
def test_in_a_block_without_a_tag_damage_costs_no_entry_of_a_batch_behind_the_next_one(
    batches: list[list[bytes]], data: st.DataObject
) -> None:
    sound, places = block(batches, tag=0)
    start = data.draw(st.integers(BLOCK_HEAD_BYTES, places[-1][1] - 1))
    end = min(start + data.draw(st.integers(1, 200)), places[-1][1])
    damaged = sound[:start] + bytes(byte ^ 0x5A for byte in sound[start:end]) + sound[end:]

    found = scanned(damaged, tag=0)

    hit = {index for index, (low, high) in enumerate(places, 1) if low < end and start < high}
    lost = set(missing(found, len(places)))
    mark = _frame.find_mark(damaged, offset=start, incarnation=INCARNATION)
    assert hit <= lost <= {index for index, (low, high) in enumerate(places, 1) if start < high and low < mark}
    assert found.walk.next_index == len(places) + 1


def test_payload_that_looks_like_a_frame_of_this_log_is_not_taken_for_a_later_one() -> None:
    inner = frame(9, b"x")
    data, places = block([[b"a" * 30, b"-" * 10 + inner + b"-" * 10, b"c" * 30]])
    damaged = bytearray(data)
    damaged[places[1][0] + 50] ^= 1

    found = scanned(bytes(damaged))

    assert [(gap.first_index, gap.last_index) for gap in found.gaps] == [(2, 2)]


# Compacted blocks: frames are shorter than readers take them for, and a skip says where the next one is for these.


@attrs.frozen
class Compact:
    data: bytes
    frames: dict[int, tuple[int, int, int]]  # by index: place, end, and length for readers
    skips: list[int]  # their places


@st.composite
def compacted(draw: st.DrawFn) -> Compact:
    """A compacted block of message frames, of which messages and whole entries are gone."""
    builder = BlockBuilder(incarnation=INCARNATION, first_index=1, serial=1, cipher=None, is_compacted=True, tag=TAG)
    lengths = {}
    index = 0
    for kept in draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=6)):
        index += 1 if draw(st.booleans()) else 2
        records = [_frame.make_record(b"s", b"", b"payload " * 9, ts_ns=1) for _ in kept]
        whole = _frame.seal(
            Kind.MESSAGES,
            index=index,
            term=1,
            incarnation=INCARNATION,
            body=records,
            first_seq=index * 10,
            count=len(kept),
        )
        builder.add(index, thin(whole, bytearray(kept)) or whole)
        lengths[index] = len(whole)
    builder.finish()
    data = bytes(BLOCK_HEAD_BYTES) + builder.take()
    frames = {
        index: (place, place + _frame.parse_header(data, place).length, lengths[index])
        for index, place in zip(builder.indexes, builder.places, strict=True)
    }
    inside = {at for place, end, _ in frames.values() for at in range(place, end)}
    skips = [
        at for at in range(BLOCK_HEAD_BYTES, len(data) - 32) if at not in inside and (at == 128 or at - 1 in inside)
    ]
    return Compact(data, frames, skips)


def believed(block: Compact, found: DamageScan) -> dict[int, int]:
    """The offset for readers of each entry that can be read; each is where its frame is."""
    walk = found.walk
    indexes = walk.indexes or range(walk.next_index - len(walk.offsets), walk.next_index)
    logical = walk.logical_offsets or walk.offsets
    sound = {}
    for index, place, offset in zip(indexes, walk.offsets, logical, strict=True):
        if not is_in(found.gaps, index):
            assert block.frames[index][0] == place
            sound[index] = offset
    return sound


def is_same(block: Compact, damaged: bytes | bytearray, index: int) -> bool:
    """Whether an entry was damaged twice in the same way, so that it has its bytes back."""
    low, high, _ = block.frames[index]
    return damaged[low:high] == block.data[low:high]


@given(compacted(), st.data())
def test_damage_to_a_compacted_block_lets_no_entry_reach_into_the_next_one(block: Compact, data: st.DataObject) -> None:
    damaged, hit = bytearray(block.data), set()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(BLOCK_HEAD_BYTES, len(block.data) - 33))
        end = min(start + data.draw(st.integers(1, 200)), len(block.data) - 32)
        damaged[start:end] = bytes(byte ^ 0x5A for byte in block.data[start:end])
        hit |= {index for index, (low, high, _) in block.frames.items() if low < end and start < high}

    found = scanned(bytes(damaged), last_index=max(block.frames))

    offsets = believed(block, found)
    assert not [index for index in hit & offsets.keys() if not is_same(block, damaged, index)]
    for index, after in pairwise(offsets):
        assert offsets[index] + block.frames[index][2] <= offsets[after]


@given(compacted(), st.data())
def test_a_flipped_bit_in_a_skip_costs_no_entry(block: Compact, data: st.DataObject) -> None:
    bit = data.draw(st.sampled_from(block.skips)) * 8 + data.draw(st.integers(0, 255))
    damaged = bytearray(block.data)
    damaged[bit // 8] ^= 1 << bit % 8

    found = scanned(bytes(damaged), last_index=max(block.frames))

    assert set(believed(block, found)) == set(block.frames)
    assert [gap.end - gap.start for gap in found.gaps] == [32]
    assert as_compacted(found.walk, found.gaps).indexes is not None
