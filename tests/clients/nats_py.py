"""nats-py runs on asyncio, the test suite on trio: every test runs its own loop around one or more connections."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import nats
from nats.aio.client import Client

from tests.harness.patience import PATIENCE_S

TIMEOUT_S = 3 * PATIENCE_S
LOOK_S = 0.05


@asynccontextmanager
async def connection(*urls: str, **options: Any) -> AsyncIterator[Client]:
    """A connection that is closed, not drained, at the end.

    nats-py gives up connecting after 2 s and an answer of JetStream after 5 s, which a busy machine needs at times, to
    make a first stream above all.
    """
    client = await nats.connect(list(urls), **{"connect_timeout": PATIENCE_S, "max_reconnect_attempts": 20, **options})
    client.jetstream = partial(client.jetstream, timeout=PATIENCE_S)  # type: ignore[method-assign]
    try:
        yield client
    finally:
        await client.close()


def run(test: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run an asyncio test to its end, at most TIMEOUT_S long, and take away what nats-py leaves.

    The transport of a failed reconnect is not closed, which the garbage collector complains of: now, not in a test that
    has nothing to do with it.
    """

    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test(*arguments)

    try:
        asyncio.run(bounded())
    finally:
        gc.collect()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  (stream info is asked for, nothing tells)
            await asyncio.sleep(LOOK_S)
