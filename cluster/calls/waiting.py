"""Waiting for the answer of one peer, or of all, within a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import trio

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError

if TYPE_CHECKING:
    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.raft.mesh.messages import Message
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

M = TypeVar("M", bound="Message")


async def ask_peer(mesh: MeshLike, peer: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes | None:
    """Return the peer's answer; None when it is away, does not answer in time, or does not know the question."""
    try:
        return await mesh.call(peer, method, payload, timeout_s=timeout_s)
    except (PeerUnavailableError, CallTimeoutError, RemoteCallError) as error:
        log.debug("%s at %s: %s", method, peer, error)
        return None


async def ask_for(  # noqa: PLR0913  (one more than `ask_peer`)
    answer: type[M], mesh: MeshLike, peer: NodeId, method: str, payload: bytes, *, timeout_s: float
) -> M | None:
    """Return the peer's answer as this message; None for the same reasons, or when the answer is no such message."""
    packed = await ask_peer(mesh, peer, method, payload, timeout_s=timeout_s)
    if packed is None:
        return None
    try:
        return answer.unpack(packed)
    except RemoteProtocolError as error:
        log.warning("%s at %s: %s", method, peer, error)
        return None


async def ask_all(answer: type[M], mesh: MeshLike, method: str, payload: bytes, *, timeout_s: float) -> list[M]:
    """Return the answers of the peers that are connected and answer in time."""
    found: list[M] = []

    async def ask(peer: NodeId) -> None:
        given = await ask_for(answer, mesh, peer, method, payload, timeout_s=timeout_s)
        if given is not None:
            found.append(given)

    async with trio.open_nursery() as nursery:
        for peer, link in mesh.peers.items():
            if link.up:
                nursery.start_soon(ask, peer)
    return found
