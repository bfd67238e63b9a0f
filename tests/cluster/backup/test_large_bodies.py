"""What a large body takes is done by a thread, one at a time; what is small is done at once."""

import threading
import time

import pytest
import trio

from jetraft.cluster.backup.large_bodies import IN_TURN_BYTES_MAX, worked_on


async def test_a_large_body_is_worked_on_by_a_thread_and_a_small_one_is_not() -> None:
    own = threading.get_ident()
    assert await worked_on(b"x" * IN_TURN_BYTES_MAX, threading.get_ident) == own
    assert await worked_on(b"x" * (IN_TURN_BYTES_MAX + 1), threading.get_ident) != own


@pytest.mark.parametrize("size", [1, IN_TURN_BYTES_MAX + 1])
async def test_what_the_work_raises_is_raised(size: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await worked_on(b"x" * size, lambda: 1 // 0)


async def test_large_bodies_are_worked_on_one_at_a_time() -> None:
    inside = most = 0

    def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0)  # lets another thread run, if there is one
        inside -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(worked_on, b"x" * (IN_TURN_BYTES_MAX + 1), work)
    assert most == 1
