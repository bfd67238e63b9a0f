"""The lazy queue behaves like a deque, and keeps nothing when it is empty."""

import gc
import sys
import weakref
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model._fifo import Fifo

GIVES_BACK_AT = 64
steps = st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["pop", "clear", "replace"])))


@given(steps)
def test_it_is_a_deque_to_all_who_use_it(plan: list[int | str]) -> None:
    fifo: Fifo[int] = Fifo()
    model: deque[int] = deque()
    for step in plan:
        if isinstance(step, int):
            fifo.append(step)
            model.append(step)
        elif step == "clear":
            fifo.clear()
            model.clear()
        elif model and step == "replace":
            fifo[-1] = model[-1] = 10
        elif model:
            assert fifo.popleft() == model.popleft()
        assert (len(fifo), bool(fifo)) == (len(model), bool(model))
        assert (list(fifo), list(reversed(fifo))) == (list(model), list(reversed(model)))
        if model:
            assert (fifo[0], fifo[-1]) == (model[0], model[-1])


def test_an_empty_one_has_nothing_to_give_and_takes_no_room() -> None:
    fifo: Fifo[int] = Fifo()
    fifo.append(1)
    fifo.popleft()
    with pytest.raises(IndexError):
        fifo.popleft()
    with pytest.raises(IndexError):
        _ = fifo[0]
    with pytest.raises(IndexError):
        fifo[0] = 1
    for place in (0, -1):
        with pytest.raises(IndexError):
            _ = fifo[place]
    assert sys.getsizeof(fifo) < sys.getsizeof(deque()) / 10


def test_a_long_one_gives_places_back_and_keeps_its_order() -> None:
    fifo: Fifo[int] = Fifo()
    model: deque[int] = deque()
    for item in range(4 * GIVES_BACK_AT):
        fifo.append(item)
        model.append(item)
    for item in range(6 * GIVES_BACK_AT):
        assert fifo.popleft() == model.popleft()
        if item % 2:
            fifo.append(item)
            model.append(item)
        assert (len(fifo), list(fifo)) == (len(model), list(model))
        assert (fifo[0], fifo[-1], fifo[-len(model)]) == (model[0], model[-1], model[0])
        with pytest.raises(IndexError):
            _ = fifo[len(model)]


def test_what_was_removed_is_held_no_longer() -> None:
    class Item:
        """Something that can be watched."""

    fifo: Fifo[Item] = Fifo()
    first = Item()
    watch = weakref.ref(first)
    fifo.append(first)
    fifo.append(Item())
    del first
    fifo.popleft()
    gc.collect()
    assert watch() is None
