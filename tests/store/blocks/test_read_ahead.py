"""Windows of blocks: when a reader gets one, how many are kept, and what is believed of their bytes."""

from array import array

import pytest

from jetraft.store.blocks._growing import FRAME_OVERHEAD_BYTES
from jetraft.store.blocks._window import Window
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.blocks.read_ahead import FIRST_BYTES, READERS_MAX, WINDOW_BYTES_MAX, ReadAhead
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Kind

FRAMES = [_frame.seal(Kind.META, index=index, term=1, incarnation=7, body=b"%d" % index * 9) for index in (5, 6, 9)]
START = 128


def window(data: bytes = b"".join(FRAMES), *, shift: int = 0) -> Window:
    """The frames as a compacted block has them: their offsets are not their places."""
    places = array("I", [START, START + len(FRAMES[0]), START + len(FRAMES[0]) + len(FRAMES[1])])
    offsets = array("I", [place + 1000 + shift for place in places])
    indexes = array("Q", [5, 6, 9])
    return Window(data, start=START, offsets=offsets, places=places, first_index=5, indexes=indexes, incarnation=7)


OFFSETS = [1128, 1128 + len(FRAMES[0]), 1128 + len(FRAMES[0]) + len(FRAMES[1])]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 1, 0, 2)])
def test_a_window_has_its_frames_by_offset_in_any_order(order: tuple[int, ...]) -> None:
    one = window()
    assert [one.take(OFFSETS[number]) for number in order] == [FRAMES[number] for number in order]
    assert [one.place_of(offset) + 1000 for offset in OFFSETS] == OFFSETS
    assert [one.take(offset) for offset in (0, OFFSETS[0] + 1, OFFSETS[2] + 1)] == [None, None, None]
    with pytest.raises(KeyError):
        one.place_of(OFFSETS[0] + 1)


def test_any_flipped_bit_of_a_frame_in_a_window_is_seen() -> None:
    whole = b"".join(FRAMES)
    for bit in range(8 * len(FRAMES[0]), 8 * (len(FRAMES[0]) + len(FRAMES[1]))):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        assert [window(bytes(changed)).take(offset) for offset in OFFSETS] == [FRAMES[0], None, FRAMES[2]]


@pytest.mark.parametrize("size", [0, 1, 47, 48, len(FRAMES[0]) - 1])
def test_a_frame_of_which_the_window_has_a_part_is_not_in_it(size: int) -> None:
    assert window(FRAMES[0][:size]).take(OFFSETS[0]) is None
    assert window(FRAMES[0]).take(OFFSETS[1]) is None


def test_a_sound_frame_of_another_entry_or_another_life_of_the_group_is_not_taken() -> None:
    other_index = _frame.seal(Kind.META, index=8, term=1, incarnation=7, body=b"5" * 9)
    other_incarnation = _frame.seal(Kind.META, index=5, term=1, incarnation=8, body=b"5" * 9)
    assert window(FRAMES[0]).take(OFFSETS[0]) == FRAMES[0]
    assert window(other_index).take(OFFSETS[0]) is None
    assert window(other_incarnation).take(OFFSETS[0]) is None


def test_the_second_of_two_frames_in_order_starts_a_window_and_each_one_is_larger_than_the_one_before() -> None:
    ahead = ReadAhead(1 << 20)
    assert ahead.size_at((1, 2), 3) == 0
    ahead.missed((1, 2), 3)
    assert [ahead.size_at(place, number) for place, number in [((1, 2), 3), ((1, 3), 4), ((2, 2), 4)]] == [0, 0, 0]
    sizes, number = [], 4
    for _ in range(5):
        sizes.append(ahead.size_at((1, 2), number))
        ahead.keep((1, 2), number, window(), (2, number + 3))
        number += 3
    assert sizes == [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES, WINDOW_BYTES_MAX, WINDOW_BYTES_MAX]
    assert ahead.size_at((1, 2), 4) == 0, "who begins there again is not known to go on"


def test_windows_have_a_bound_and_the_oldest_goes_first() -> None:
    one = window().bytes_held
    ahead = ReadAhead(3 * one)
    for block in range(5):
        ahead.keep((1, block), 0, window(), (block, 3))
        assert ahead.bytes_held <= 3 * one
    assert [ahead.take((1, block), OFFSETS[0]) is not None for block in range(5)] == [False, False, True, True, True]
    assert (len(ahead), ahead.bytes_held, ahead.hits) == (3, 3 * one, 3)


def test_opened_frames_count_for_the_bound() -> None:
    ahead = ReadAhead(window().bytes_held + 5000)
    kept = window()
    ahead.keep((1, 1), 0, kept, (1, 3))
    ahead.keep_opened(kept, OFFSETS[0], b"o" * 3000)
    assert kept.take(OFFSETS[0]) == b"o" * 3000
    held = ahead.bytes_held
    assert held > kept.bytes_held + 3000
    ahead.keep_opened(kept, OFFSETS[0], b"o" * 3000)
    assert ahead.bytes_held == held, "it is kept once"
    ahead.keep_opened(kept, OFFSETS[1], b"o" * 3000)
    assert (len(ahead), ahead.bytes_held) == (0, 0)
    ahead.keep_opened(kept, OFFSETS[2], b"o")
    assert ahead.bytes_held == 0, "the window is gone"


def test_a_window_larger_than_all_may_be_is_not_kept() -> None:
    ahead = ReadAhead(window().bytes_held - 1)
    ahead.missed((1, 1), 0)
    assert ahead.size_at((1, 1), 1) <= window().bytes_held - 1
    ahead.keep((1, 1), 1, window(), (1, 4))
    assert (len(ahead), ahead.bytes_held) == (0, 0)


def test_what_is_dropped_is_of_the_block_or_of_the_log() -> None:
    ahead = ReadAhead(1 << 20)
    places = [(1, 1), (1, 1), (1, 2), (2, 1)]
    for number, place in enumerate(places):
        ahead.keep(place, number, window(shift=10_000 * number), (place[1], number + 3))

    def found() -> list[bool]:
        return [ahead.take(place, OFFSETS[0] + 10_000 * number) is not None for number, place in enumerate(places)]

    assert found() == [True, True, True, True]
    ahead.drop_block((1, 1))
    ahead.drop_block((3, 3))
    assert found() == [False, False, True, True]
    ahead.drop_log(1)
    assert found() == [False, False, False, True]
    ahead.clear()
    assert (found(), len(ahead), ahead.bytes_held) == ([False] * 4, 0, 0)


def test_so_many_readers_are_remembered() -> None:
    ahead = ReadAhead(1 << 20)
    for block in range(READERS_MAX + 1):
        ahead.missed((1, block), 0)
    assert ahead.size_at((1, 0), 1) == 0
    assert ahead.size_at((1, 1), 1) == FIRST_BYTES


def test_frames_and_windows_share_the_bytes_of_the_cache() -> None:
    size = 100 + FRAME_OVERHEAD_BYTES
    cache = BlockCache(bytes_max=40 * size)
    for offset in range(40):
        cache.put((0, 0, offset), bytes(100))
    assert cache.statistics().bytes_held == 40 * size
    for block in range(20):
        cache.ahead.keep((0, block), 0, window(), (block, 3))
        cache.make_room()
        found = cache.statistics()
        assert found.bytes_held <= found.bytes_max
        assert found.bytes_held == found.frames * size + found.window_bytes
        assert found.window_bytes == found.windows * window().bytes_held <= found.bytes_max // 4
    assert found.frames >= 30
    assert found.windows > 1
    cache.clear()
    found = cache.statistics()
    assert (found.frames, found.windows, found.bytes_held) == (0, 0, 0)
