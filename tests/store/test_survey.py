"""What a survey finds behind damage, against what was written."""

from hypothesis import given
from hypothesis import strategies as st

from jetraft.store import _frame
from jetraft.store.format import BLOCK_HEAD_BYTES, Kind, Stop
from jetraft.store.survey import Survey, is_in, survey

INCARNATION = 7


def frame(index: int, body: bytes, term: int = 1) -> bytes:
    return _frame.seal(Kind.NOOP, index=index, term=term, incarnation=INCARNATION, body=body)


def block(batches: list[list[bytes]]) -> tuple[bytes, list[tuple[int, int]]]:
    """A block of batches of frame bodies, each followed by a mark; and where each frame is."""
    data = bytearray(BLOCK_HEAD_BYTES)
    places = []
    index = 1
    for batch in batches:
        for body in batch:
            places.append((len(data), len(data) + 48 + len(body)))
            data += frame(index, body)
            index += 1
        data += _frame.make_mark(incarnation=INCARNATION, offset=len(data), next_index=index)
    return bytes(data) + bytes(256), places


def surveyed(data: bytes, last_index: int | None = None) -> Survey:
    return survey(data, offset=BLOCK_HEAD_BYTES, incarnation=INCARNATION, next_index=1, term=0, last_index=last_index)


BATCHES = st.lists(st.lists(st.binary(max_size=80), min_size=1, max_size=4), min_size=1, max_size=4)


@given(BATCHES, st.data())
def test_damage_costs_the_entries_it_hits_and_no_other(batches: list[list[bytes]], data: st.DataObject) -> None:
    sound, places = block(batches)
    start = data.draw(st.integers(BLOCK_HEAD_BYTES, places[-1][1] - 1))
    end = min(start + data.draw(st.integers(1, 200)), places[-1][1])
    damaged = sound[:start] + bytes(byte ^ 0x5A for byte in sound[start:end]) + sound[end:]

    found = surveyed(damaged)

    hit = [index for index, (low, high) in enumerate(places, 1) if low < end and start < high]
    assert [index for index in range(1, len(places) + 1) if is_in(found.gaps, index)] == hit
    assert found.walk.next_index == len(places) + 1
    assert [offset for index, offset in enumerate(found.walk.offsets, 1) if index not in hit] == [
        low for index, (low, _) in enumerate(places, 1) if index not in hit
    ]
    assert list(found.walk.offsets) == sorted(set(found.walk.offsets))


def test_a_tail_without_a_mark_is_no_gap() -> None:
    data, places = block([[b"a" * 50], [b"b" * 50, b"c" * 50]])
    unmarked = data[: places[2][1]]
    torn = bytearray(unmarked)
    torn[places[1][0] + 60] ^= 1

    found = surveyed(bytes(torn))

    assert found.gaps == ()
    assert found.walk.next_index == 2
    assert found.walk.stop == Stop.DAMAGED


def test_a_sealed_block_that_ends_early_has_a_gap_to_its_known_end() -> None:
    data, places = block([[b"a" * 50, b"b" * 50, b"c" * 50]])

    found = surveyed(data[: places[1][0]], last_index=3)

    assert [(gap.first_index, gap.last_index, gap.start) for gap in found.gaps] == [(2, 3, places[1][0])]
    assert found.walk.next_index == 4


def test_payload_that_looks_like_a_frame_of_this_log_is_not_taken_for_a_later_one() -> None:
    inner = frame(9, b"x")
    data, places = block([[b"a" * 30, b"-" * 10 + inner + b"-" * 10, b"c" * 30]])
    damaged = bytearray(data)
    damaged[places[1][0] + 50] ^= 1

    found = surveyed(bytes(damaged))

    assert [(gap.first_index, gap.last_index) for gap in found.gaps] == [(2, 2)]
