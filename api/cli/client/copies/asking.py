"""Requests of a copy, across a change of leaders: each may be repeated, and is, until it has an answer."""

import asyncio
from typing import Any, Final

from jetraft.api.cli.client.connection import CommandConnection
from jetraft.api.cli.client.errors import AnsweredError, UnansweredError

UNAVAILABLE: Final = 10008  # no leader just now
AGAIN_S: Final = 1.0
TRIES: Final = 30  # a new leader is there within seconds


async def asked(at: CommandConnection, subject: str, body: object = None) -> dict[str, Any]:
    """The answer of a JetStream request that changes nothing when it is repeated. Raises CommandError."""
    for _ in range(TRIES - 1):
        try:
            return await at.api(subject, body)
        except UnansweredError:
            pass
        except AnsweredError as error:
            if error.err_code != UNAVAILABLE:
                raise
        await asyncio.sleep(AGAIN_S)
    return await at.api(subject, body)
