"""Pages in slices: the text is the one that is made at once, no slice is long, and what is gone is left out."""

import math
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.monitor.steps import (
    PIECE_LEAVES_MAX,
    ROWS_PER_STEP,
    SLICE_NS,
    Pace,
    Rows,
    Steps,
    TooLargeError,
    in_steps,
    json_parts,
)
from jetraft.store.model.clock import NS_PER_S

leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)
WIDE = [*range(PIECE_LEAVES_MAX + 1)]


def run(steps: Steps[list[bytes]]) -> tuple[bytes, list[int]]:
    """What steps write, and how many bytes each has written."""
    written: list[int] = []
    while True:
        try:
            written.append(next(steps))
        except StopIteration as end:
            return b"".join(end.value), written


@given(
    document=st.dictionaries(st.text(max_size=5), values | values.map(lambda value: [value, WIDE, value, value])),
    is_indented=st.booleans(),
)
def test_the_text_is_the_one_that_is_written_at_once(document: dict[str, Any], *, is_indented: bool) -> None:
    text, written = run(json_parts(document, is_indented=is_indented))
    assert text == orjson.dumps(document, option=orjson.OPT_INDENT_2 if is_indented else 0)
    assert sum(written) == len(text)


@given(st.lists(st.none() | values.map(lambda value: {"row": value, "wide": WIDE}) | st.text(max_size=3), max_size=6))
def test_rows_are_a_list_of_those_that_are_there(rows: list[object]) -> None:
    document = {"before": 1, "rows": Rows(iter(rows)), "after": Rows(iter(()))}
    text, _ = run(json_parts(document, is_indented=True))
    there = {"before": 1, "rows": [row for row in rows if row is not None], "after": []}
    assert text == orjson.dumps(there, option=orjson.OPT_INDENT_2)


def test_a_row_is_made_when_it_is_written() -> None:
    made = 0

    def rows() -> Iterator[object]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield {"wide": WIDE}

    steps = json_parts({"rows": Rows(rows())}, is_indented=False)
    next(steps)
    assert made <= 1
    assert run(steps)[0].count(b'"wide"') == 100


def test_rows_that_are_gone_take_steps_as_well() -> None:
    _, written = run(json_parts({"rows": Rows(None for _ in range(100 * PIECE_LEAVES_MAX))}, is_indented=False))
    assert len(written) > 90


def test_numbers_and_texts_that_json_cannot_hold_are_written_as_by_the_api() -> None:
    text, _ = run(json_parts({"big": 2**70, "half": "\ud800", "wide": WIDE}, is_indented=True))
    assert orjson.loads(text)["big"] == 2**64 - 1


def test_a_look_at_many_gives_way() -> None:
    seen: list[int] = []
    steps = in_steps(range(10 * ROWS_PER_STEP), seen.append)
    next(steps)
    assert len(seen) == ROWS_PER_STEP
    assert len([*steps]) == 9
    assert len(seen) == 10 * ROWS_PER_STEP


STEP_S = 0.0005


async def test_a_slice_is_short_and_is_paid_back(autojump_clock: trio.testing.MockClock) -> None:
    """Steps of half a millisecond: four in a slice, then as long a pause."""

    def steps() -> Steps[str]:
        for _ in range(40):
            autojump_clock.jump(STEP_S)
            yield 1
        return "page"

    longest_s, last_s = 0.0, trio.current_time()

    class Watch(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            del task
            nonlocal last_s
            last_s = trio.current_time()

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            del task
            nonlocal longest_s
            longest_s = max(longest_s, trio.current_time() - last_s)

    began_s = trio.current_time()
    trio.lowlevel.add_instrument(watch := Watch())
    assert await Pace().finish(steps(), lambda: 100) == "page"
    trio.lowlevel.remove_instrument(watch)
    assert longest_s <= SLICE_NS / NS_PER_S + STEP_S
    assert math.isclose(trio.current_time() - began_s, 40 * STEP_S * 2, rel_tol=0.2)


async def test_what_is_small_comes_between_the_slices_of_a_page(autojump_clock: trio.testing.MockClock) -> None:
    order: list[str] = []

    def steps() -> Steps[None]:
        for _ in range(8):
            autojump_clock.jump(SLICE_NS / NS_PER_S)
            order.append("slice")
            yield 1

    pace = Pace()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pace.finish, steps(), lambda: 100)
        nursery.start_soon(pace.once, lambda: order.append("small"))
    assert order.index("small") < 3
    assert order.count("slice") == 8


async def test_what_has_no_room_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    closed = False

    def steps() -> Steps[None]:
        nonlocal closed
        try:
            while True:
                autojump_clock.jump(SLICE_NS / NS_PER_S)
                yield 60
        finally:
            closed = True

    with pytest.raises(TooLargeError):
        await Pace().finish(steps(), lambda: 100)
    assert closed
