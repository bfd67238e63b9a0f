"""The end of asyncio tasks that use a client library."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.05


async def cancel_until_done(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, again and again until each has ended; their outcomes are dropped.

    Once is not enough: `asyncio.wait_for` of Python 3.11 swallows a cancellation that arrives together with the
    result it waits for (CPython issue 86296), and clients wait with it. A loop of requests then goes on for ever.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        done, running = await asyncio.wait(running, timeout=AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # asks for it, or the loop would log that no one did
