"""Getting one request to the node that owns the asset, and exactly one answer back.

Every node accepts every request. The node where it enters looks for the owner (the meta leader, or a stream's leader),
carries it out when it is itself the owner, and otherwise sends it there whole. The receiver carries it out or says
"moved", with a hint; it never passes it on, so there are no loops and no second answer. An owner that this node is not
linked with is asked through one that is linked with both, which hands the request and the answer on as they are.

When the owner is unknown or changes, the entering node tries again for OWNER_WAIT_S: an election takes less. A request
whose answer was lost may have been carried out; it is sent again only when carrying it out twice is harmless.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import msgpack
import trio

from jetraft.raft.complaints import Complaints
from jetraft.raft.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model import errors
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from collections.abc import Set as AbstractSet

log = logging.getLogger(__name__)

METHOD: Final = "js.api"
RELAY: Final = "js.relay"
OWNER_WAIT_S: Final = 4.0  # clients give up after 5 s by default (nats.go, nats.py), an election takes under 2 s
CALL_TIMEOUT_S: Final = 5.0
RETRY_PAUSE_S: Final = 0.05
REQUEST_BYTES_MAX: Final = 64 << 20
RELAY_HEAD_BYTES: Final = 64  # what is around a request that is handed on

_DONE: Final = b"\x00"
_MOVED: Final = b"\x01"
_LOST: Final = b"\x02"


class Owner(enum.Enum):
    """Who may carry out a request."""

    META = "meta"  # the leader of the meta group
    STREAM = "stream"  # the leader of the stream's group
    ANY = "any"  # the node where it entered


@attrs.frozen(kw_only=True, slots=True)
class Request:
    """One request as it entered. `stream` is the stream's name when the owner is the stream's leader.

    Subjects that do not start with `$` are the cluster's own questions, never a client's.
    """

    account: str
    owner: Owner
    stream: str
    repeatable: bool
    subject: bytes
    hdr: bytes
    payload: bytes


class Moved(Exception):  # noqa: N818  (it is an answer, not a failure)
    """This node does not own it (any more) and has not carried it out; `hint` may know better."""

    def __init__(self, hint: NodeId | None = None) -> None:
        super().__init__(hint)
        self.hint = hint


class AnswerLost(Exception):  # noqa: N818  (it is an answer, not a failure)
    """It may or may not have been carried out."""


class PeerLike(Protocol):
    """What forwarding needs to know of a peer."""

    @property
    def up(self) -> bool:
        """Whether the link stands."""


class MeshLike(Protocol):
    """The part of the mesh that forwarding uses."""

    @property
    def peers(self) -> Mapping[NodeId, PeerLike]:
        """All known peers."""

    @property
    def own_routes(self) -> int:
        """Configured routes that turned out to lead back to this node."""

    def relay_to(self, node: NodeId) -> NodeId | None:
        """A peer that is linked with this node too."""

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Ask a peer."""

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
        locate: Callable[[Request, AbstractSet[NodeId]], NodeId | None],
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._locate = locate
        self.execute: Callable[[Request], Awaitable[bytes]] = _not_ready
        self.forwarded = 0
        self._complaints = Complaints()  # a client chooses how often it asks for what does not come
        if mesh is not None:
            mesh.serve(METHOD, self._serve, request_bytes_max=REQUEST_BYTES_MAX)
            mesh.serve(RELAY, self._hand_on, request_bytes_max=REQUEST_BYTES_MAX + RELAY_HEAD_BYTES)

    async def answer(self, request: Request, *, on_wait: Callable[[], None] = lambda: None) -> bytes:
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
                if trio.current_time() >= deadline:
                    raise errors.CLUSTER_NOT_AVAILABLE.with_values()
                asked.clear()
                hint = None
                on_wait()
                await trio.sleep(RETRY_PAUSE_S)

    async def _ask(self, place: NodeId, request: Request) -> bytes:
        if place == self._node_id:
            return await self.execute(request)
        if self._mesh is None:
            raise Moved
        to, method, packed = place, METHOD, pack_request(request)
        if place not in self._mesh.peers or not self._mesh.peers[place].up:
            relay = self._mesh.relay_to(place)
            if relay is None:
                raise Moved
            to, method, packed = relay, RELAY, msgpack.packb([place, packed])
        self.forwarded += 1
        try:
            answer = await self._mesh.call(to, method, packed, timeout_s=CALL_TIMEOUT_S)
        except RemoteCallError as error:  # it does not serve this, or is too busy: nothing was carried out
            raise Moved from error
        except (PeerUnavailableError, CallTimeoutError) as error:
            text = f"forwarding {request.subject.decode(errors='replace')} to {place}: {error}"
            line = self._complaints.line(place, text, int(trio.current_time() * NS_PER_S))
            if line is not None:
                log.info("%s", line)
            raise AnswerLost from error
        return unpack_answer(answer)

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        request = unpack_request(payload)
        try:
            return _DONE + await self.execute(request)
        except Moved as moved:
            hint = moved.hint or self._locate(request, {self._node_id})
            return _MOVED + (hint.encode() if hint else b"")
        except AnswerLost:
            return _LOST

    async def _hand_on(self, _sender: NodeId, payload: bytes) -> bytes:
        """Ask another node for one that is not linked with it. Nothing is carried out here."""
        place, packed = msgpack.unpackb(payload, max_bin_len=REQUEST_BYTES_MAX, max_array_len=2, max_map_len=0)
        mesh = self._mesh
        if mesh is None or place not in mesh.peers or not mesh.peers[place].up:
            return _MOVED
        try:
            return await mesh.call(place, METHOD, packed, timeout_s=CALL_TIMEOUT_S)
        except RemoteCallError:
            return _MOVED
        except (PeerUnavailableError, CallTimeoutError):
            return _LOST


async def _not_ready(_request: Request) -> bytes:
    raise Moved


def pack_request(request: Request) -> bytes:
    """Return the bytes of a request on its way to another node."""
    packed: bytes = msgpack.packb(
        [
            request.account,
            request.owner.value,
            request.stream,
            request.repeatable,
            request.subject,
            request.hdr,
            request.payload,
        ]
    )
    return packed


def unpack_request(packed: bytes) -> Request:
    """Return the request of `pack_request`. Raises ValueError or TypeError when it is none."""
    account, owner, stream, repeatable, subject, hdr, payload = msgpack.unpackb(
        packed, max_bin_len=REQUEST_BYTES_MAX, max_str_len=REQUEST_BYTES_MAX, max_array_len=7, max_map_len=0
    )
    return Request(
        account=account,
        owner=Owner(owner),
        stream=stream,
        repeatable=repeatable,
        subject=subject,
        hdr=hdr,
        payload=payload,
    )


def unpack_answer(answer: bytes) -> bytes:
    """Return the JSON of an answer; raises Moved or AnswerLost when the answer says so."""
    status, body = answer[:1], answer[1:]
    if status == _DONE:
        return body
    if status == _MOVED:
        raise Moved(NodeId(body.decode()) if body else None)
    raise AnswerLost
