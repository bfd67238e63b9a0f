"""A task ends although one of its cancellations is lost."""

import asyncio
import contextlib

from tests.harness.tasks import cancel_until_done


def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    async def play() -> int:
        swallowed = 0

        async def stubborn() -> None:
            nonlocal swallowed
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            swallowed += 1
            await asyncio.Event().wait()

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await asyncio.wait_for(cancel_until_done([task]), timeout=60)
        assert task.cancelled()
        return swallowed

    assert asyncio.run(play()) == 1


def test_tasks_that_have_failed_or_ended_are_no_obstacle() -> None:
    async def play() -> None:
        async def fail() -> None:
            raise ValueError

        async def end() -> None:
            pass

        tasks = [asyncio.create_task(fail()), asyncio.create_task(end())]
        await asyncio.wait_for(cancel_until_done(tasks), timeout=60)
        assert all(task.done() for task in tasks)

    asyncio.run(play())


def test_no_tasks_are_ended_at_once() -> None:
    asyncio.run(cancel_until_done([]))
