"""Makes the streams of the configuration file where they are absent: as a client that asks until it is answered.

A stream that is there as it is declared is left alone; one that is there with another configuration too, and the log of
the server says so: what is stored is never changed because a file was. Every server of a cluster asks for what its own
file declares, and who asks first makes it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
import trio

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.api.options.options import DeclaredStream
    from jetraft.cluster.ports import Outbox, Outboxes
    from jetraft.store.model.api_error import ApiErrorSpec

log = logging.getLogger(__name__)

ANSWER_WAIT_S: Final = 5.0
REST_S: Final = 0.5  # before it is asked again, doubled each time
REST_S_MAX: Final = 30.0
UNAVAILABLE: Final = 503
LATER: Final[tuple[ApiErrorSpec, ...]] = (errors.CLUSTER_NO_PEERS, errors.INSUFFICIENT_RESOURCES)  # nodes still start


async def declare(streams: Sequence[DeclaredStream], outboxes: Outboxes, server: str) -> None:
    """Return when each stream is there, or is refused for good. `server` is this one's id, for subjects."""
    for number, stream in enumerate(streams):
        await _declare(stream, outboxes(stream.account), f"$JSC.R.{server}_DECLARED_{number}".encode())


async def _declare(stream: DeclaredStream, outbox: Outbox, reply: bytes) -> None:
    rest_s = REST_S
    while (answer := await _ask(stream, outbox, reply)) is None or _may_change(answer):
        await trio.sleep(rest_s)
        rest_s = min(REST_S_MAX, rest_s * 2)
    error = answer.get("error")
    if not isinstance(error, dict):
        log.info("stream %s > %s is there as it is declared", stream.account, stream.name)
    elif error.get("err_code") == errors.STREAM_NAME_EXISTS.err_code:
        log.warning("stream %s > %s is not as it is declared, and stays as it is", stream.account, stream.name)
    else:
        log.error("stream %s > %s cannot be made: %s", stream.account, stream.name, error.get("description"))


def _may_change(answer: dict[str, object]) -> bool:
    """True for an answer that says something of this moment: there is no leader, or too few nodes are up."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return False
    return error.get("code") == UNAVAILABLE or any(error.get("err_code") == spec.err_code for spec in LATER)


async def _ask(stream: DeclaredStream, outbox: Outbox, reply: bytes) -> dict[str, object] | None:
    """The answer to a request for the stream, None without one."""
    found: list[bytes] = []
    is_answered = trio.Event()

    def answered(found: list[bytes], batch: bytes) -> None:
        found.extend(answer.payload for answer in captures(batch))
        is_answered.set()

    sink = outbox.add_sink(reply, partial(answered, found), kind=SinkKind.REPLY)
    try:
        outbox.send(
            f"$JS.API.STREAM.CREATE.{stream.name}".encode(),
            reply=reply,
            payload=stream.body,
            origin=MessageOrigin.SERVER,
        )
        with trio.move_on_after(ANSWER_WAIT_S):
            await is_answered.wait()
    finally:
        outbox.remove_sink(sink)
    answer = orjson.loads(found[0]) if found else None
    return answer if isinstance(answer, dict) else None
