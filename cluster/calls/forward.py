"""Getting one request to the node that owns the asset, and exactly one answer back.

Every node accepts every request. The node where it enters looks for the owner (the meta leader, or a stream's leader),
carries it out when it is itself the owner, and otherwise sends it there whole. The receiver carries it out or says
"moved", with a hint; it never passes it on, so there are no loops and no second answer. An owner that this node is not
linked with is asked through one that is linked with both, which hands the request and the answer on as they are.

When the owner is unknown or changes, the entering node tries again for OWNER_WAIT_S: an election takes less. A request
whose answer was lost may have been carried out; it is sent again only when carrying it out twice is harmless.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from jetraft.cluster.calls.messages.forwarding import (
    METHOD,
    RELAY,
    RELAY_HEAD_BYTES,
    REQUEST_BYTES_MAX,
    ForwardedAnswer,
    ForwardedRequest,
    ForwardStatus,
    RelayedRequest,
)
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.log_limiter import LogLimiter
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model import errors
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping
    from collections.abc import Set as AbstractSet

    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

OWNER_WAIT_S: Final = 4.0  # clients give up after 5 s by default (nats.go, nats.py), an election takes under 2 s
CALL_TIMEOUT_S: Final = 5.0
RETRY_PAUSE_S: Final = 0.05
OF_CLIENTS: Final = b"$JS."  # subjects of requests of clients, which come behind what these have published


class Moved(Exception):  # noqa: N818  (it is an answer, not a failure)
    """This node does not own it (any more) and has not carried it out; `hint` may know better."""

    def __init__(self, hint: NodeId | None = None) -> None:
        super().__init__(hint)
        self.hint = hint


class AnswerLost(Exception):  # noqa: N818  (it is an answer, not a failure)
    """It may or may not have been carried out."""


class PeerLike(Protocol):
    """A peer as forwarding needs it."""

    @property
    def up(self) -> bool:
        """Whether the link stands."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its server's description of itself."""


class MeshLike(Protocol):
    """The part of the mesh that forwarding uses."""

    @property
    def peers(self) -> Mapping[NodeId, PeerLike]:
        """All known peers."""

    @property
    def own_routes(self) -> int:
        """Configured routes that turned out to lead back to this node."""

    def routes_to(self, nodes: Container[NodeId]) -> int:
        """Configured routes that lead to one of these nodes."""

    def relay_to(self, node: NodeId) -> NodeId | None:
        """A peer that is linked with this node too."""

    async def call(
        self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, behind_routes: bool = False
    ) -> bytes:
        """Ask a peer; `behind_routes`: behind the core messages that wait for it."""

    def serve(
        self, method: str, handler: Callable[[NodeId, bytes], Awaitable[bytes]], *, request_bytes_max: int = ...
    ) -> None:
        """Answer peers; larger requests are refused."""


class Forwarder:
    """Finds owners and carries requests there.

    `locate` gives this node's best knowledge of the owner besides the nodes that were just asked, None when it has
    none. `execute` carries a request out on this node and raises Moved when it is not the owner.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        mesh: MeshLike | None,
        locate: Callable[[ForwardedRequest, AbstractSet[NodeId]], NodeId | None],
        execute: Callable[[ForwardedRequest], Awaitable[bytes]],
        is_cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        """While this node is cut off from the majority it waits for no owner: none can appear that it reaches."""
        self._is_cut_off = is_cut_off
        self._node_id = node_id
        self._mesh = mesh
        self._locate = locate
        self._execute = execute
        self.forwarded = 0
        self._log_limiter = LogLimiter()  # a client chooses how often it asks for what does not come
        if mesh is not None:
            mesh.serve(METHOD, self._serve, request_bytes_max=REQUEST_BYTES_MAX)
            mesh.serve(RELAY, self._hand_on, request_bytes_max=REQUEST_BYTES_MAX + RELAY_HEAD_BYTES)

    async def answer(self, request: ForwardedRequest, *, on_wait: Callable[[], None] = lambda: None) -> bytes:
        """Return the owner's answer. Raises ApiError 10008 when no owner was found in time or the answer was lost.

        `on_wait` is called before it waits for an owner to appear.
        """
        deadline = trio.current_time() + OWNER_WAIT_S
        asked: set[NodeId] = set()
        hint: NodeId | None = None
        while True:
            place = hint or self._locate(request, asked)
            hint = None
            try:
                if place is not None and place not in asked:
                    asked.add(place)
                    return await self._ask(place, request)
            except Moved as moved:
                hint = moved.hint
            except AnswerLost:
                if not request.repeatable:
                    raise errors.CLUSTER_NOT_AVAILABLE.with_values() from None
            if place is None or hint in asked:
                if trio.current_time() >= deadline or self._is_cut_off():
                    raise errors.CLUSTER_NOT_AVAILABLE.with_values()
                asked.clear()
                hint = None
                on_wait()
                await trio.sleep(RETRY_PAUSE_S)

    async def ask_node(self, place: NodeId, request: ForwardedRequest) -> bytes | None:
        """Return this node's answer, over a third one where the two are not linked; None when there is none."""
        try:
            return await self._ask(place, request)
        except (Moved, AnswerLost):
            return None

    async def _ask(self, place: NodeId, request: ForwardedRequest) -> bytes:
        if place == self._node_id:
            return await self._execute(request)
        if self._mesh is None:
            raise Moved
        to, method, packed = place, METHOD, request.pack()
        if place not in self._mesh.peers or not self._mesh.peers[place].up:
            relay = self._mesh.relay_to(place)
            if relay is None:
                raise Moved
            to, method, packed = relay, RELAY, RelayedRequest(place=place, packed=packed).pack()
        self.forwarded += 1
        try:
            is_client_s = request.subject.startswith(OF_CLIENTS)
            answered = await self._mesh.call(to, method, packed, timeout_s=CALL_TIMEOUT_S, behind_routes=is_client_s)
            answer = ForwardedAnswer.unpack(answered)
        except RemoteCallError as error:  # it does not serve this, or is too busy: nothing was carried out
            raise Moved from error
        except (PeerUnavailableError, CallTimeoutError, RemoteProtocolError) as error:
            text = f"forwarding {request.subject.decode(errors='replace')} to {place}: {error}"
            line = self._log_limiter.line(place, text, int(trio.current_time() * NS_PER_S))
            if line is not None:
                log.info("%s", line)
            raise AnswerLost from error
        if answer.status is ForwardStatus.MOVED:
            raise Moved(answer.hint)
        if answer.status is ForwardStatus.LOST:
            raise AnswerLost
        return answer.body

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        request = ForwardedRequest.unpack(payload)
        try:
            answer = ForwardedAnswer(status=ForwardStatus.DONE, body=await self._execute(request))
        except Moved as moved:
            hint = moved.hint or self._locate(request, {self._node_id})
            answer = ForwardedAnswer(status=ForwardStatus.MOVED, hint=hint)
        except AnswerLost:
            answer = ForwardedAnswer(status=ForwardStatus.LOST)
        return answer.pack()

    async def _hand_on(self, _sender: NodeId, payload: bytes) -> bytes:
        """Ask another node for one that is not linked with it. Nothing is carried out here."""
        asked = RelayedRequest.unpack(payload)
        mesh, place = self._mesh, asked.place
        if mesh is None or place not in mesh.peers or not mesh.peers[place].up:
            return ForwardedAnswer(status=ForwardStatus.MOVED).pack()
        try:
            return await mesh.call(place, METHOD, asked.packed, timeout_s=CALL_TIMEOUT_S)
        except RemoteCallError:
            return ForwardedAnswer(status=ForwardStatus.MOVED).pack()
        except (PeerUnavailableError, CallTimeoutError):
            return ForwardedAnswer(status=ForwardStatus.LOST).pack()
