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
POLL_MAX_S: Final = 0.032  # a list of 256 streams without leaders is 256 waits


async def ask_peer(mesh: MeshLike, peer: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes | None:
    """Return the peer's answer; None when it is away, does not answer in time, or does not know the question."""
    try:
        return await mesh.call(peer, method, payload, timeout_s=timeout_s)
    except (PeerUnavailableError, CallTimeoutError, RemoteCallError) as error:
        log.debug("%s at %s: %s", method, peer, error)
        return None


async def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Return when the condition holds or the time is up; looks again after POLL_S, then less and less often."""
    with trio.move_on_after(timeout_s):
        pause_s = POLL_S
        while not condition():
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_MAX_S)
