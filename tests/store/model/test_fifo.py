"""The lazy queue behaves like a deque, and keeps nothing when it is empty."""

import sys
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.fifo import Fifo

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
    assert sys.getsizeof(fifo) < sys.getsizeof(deque()) / 10
    assert fifo._items is None
