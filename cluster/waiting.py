"""Waiting for others, within a time: for the answer of one peer, and for what other tasks of this node bring about."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from jetraft.raft.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.forward import MeshLike
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

POLL_S: Final = 0.002


async def ask_peer(mesh: MeshLike, peer: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes | None:
    """Return the peer's answer; None when it is away, does not answer in time, or does not know the question."""
    try:
        return await mesh.call(peer, method, payload, timeout_s=timeout_s)
    except (PeerUnavailableError, CallTimeoutError, RemoteCallError) as error:
        log.debug("%s at %s: %s", method, peer, error)
        return None


async def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Return when the condition holds or the time is up; looks every POLL_S, for waits that are short or rare."""
    with trio.move_on_after(timeout_s):
        while not condition():  # noqa: ASYNC110  (what is waited for is in several objects)
            await trio.sleep(POLL_S)
