"""Publishes whose acknowledgements are awaited together: one subscription, as many in flight as the caller lets be.

Messages are sent in the order of the calls, so a stream stores them in that order.
"""

import asyncio
from contextlib import suppress
from typing import Any, Self

import attrs
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from jetraft.api.cli.client.connection import parsed
from jetraft.api.cli.client.errors import AnsweredError, CommandError

NO_RESPONDERS = "503"


class NoStreamError(CommandError):
    """No stream takes the subject now."""


@attrs.define(eq=False)
class Acknowledged:
    """See the module; `async with` opens and closes the subscription."""

    nc: Client
    _prefix: str = ""
    _count: int = 0
    _waiting: dict[str, asyncio.Future[Msg]] = attrs.field(factory=dict)
    _subscription: Any = None

    async def __aenter__(self) -> Self:
        self._prefix = self.nc.new_inbox()
        self._subscription = await self.nc.subscribe(f"{self._prefix}.*", cb=self._take)
        return self

    async def __aexit__(self, *_: object) -> None:
        for future in self._waiting.values():
            future.cancel()
        with suppress(nats.errors.Error):
            await self._subscription.unsubscribe()

    async def _take(self, message: Msg) -> None:
        future = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if future is not None and not future.done():
            future.set_result(message)

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> "asyncio.Future[Msg]":
        """Send a message; its answer comes with the future."""
        self._count += 1
        token = str(self._count)
        future = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        await self.nc.publish(subject, payload, f"{self._prefix}.{token}", headers=headers)
        return future


def acknowledgement(message: Msg) -> dict[str, Any]:
    """The stream and sequence of an answer. Raises NoStreamError, AnsweredError."""
    if (message.headers or {}).get("Status") == NO_RESPONDERS:
        raise NoStreamError("no stream takes this subject: `jetraft stream find --subject SUBJECT` looks for one")
    answer = parsed(message.data)
    if isinstance(answer.get("error"), dict):
        raise AnsweredError(answer["error"])
    return answer
