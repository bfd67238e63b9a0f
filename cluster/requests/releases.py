"""Waiting until no node acts on a row that is of the past, before a deletion or a removal is answered.

The meta leader has committed that a stream is gone, or that a server is no member. The client that is told so may make
another stream of the same subjects in the next moment. So the nodes that could act on the row of before are asked until
they say that they do not: they have applied the entry, and their replicas have ended. They are asked over a third node
where the link is lost. For the others:

- A stream with one replica is served by the lease of its node's table (meta/table_lease.py): when that is over
  (meta/lease_grants.py), the node takes nothing by the row any more.
- A stream with more replicas goes on without that lease, as an entry needs a majority of its members (decision 130): as
  soon as a majority of the holders has ended its replicas, none can be committed. While there is none the deletion is
  not confirmed: 10008.
- A server that was removed ends its replicas when it is told (meta/members/exclusion.py), or its lease is over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.calls.messages.inquiries import CAUGHT_UP, LOOK, QUESTION_BYTES_MAX, MetaIndex
from jetraft.cluster.calls.waiting import ask_peer
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model import errors
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.subject import overlaps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from jetraft.cluster.calls.forward import Forwarder, MeshLike
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.lease_grants import LeaseGrants
    from jetraft.cluster.meta.meta_group import MetaGroupRef
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

ASK_S: Final = 1.0  # one question
AGAIN_S: Final = 0.1


@attrs.define(eq=False, kw_only=True)
class Releases:
    """See the module. `mesh` is None where no other node is."""

    node_id: NodeId
    mesh: MeshLike | None
    forwarder: Forwarder
    served: ServedRequests
    meta_group: MetaGroupRef
    directory: ReplicaDirectory[StreamReplica]
    grants: LeaseGrants
    clock: Clock
    # Deleted, and not confirmed yet.
    _waiting: dict[StreamKey, tuple[StreamAssignment, trio.Event]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.served.serve(CAUGHT_UP.encode(), self._serve_relayed)
        if self.mesh is not None:
            self.mesh.serve(CAUGHT_UP, self._serve, request_bytes_max=QUESTION_BYTES_MAX)

    def over_ns(self, row: StreamAssignment) -> int:
        """When (mono) no node can serve by this row any more that has one replica, if it is not the present one."""
        return max((self.grants.over_ns(peer) for peer in row.holders if peer != self.node_id), default=0)

    async def until(self, at_ns: int) -> None:
        """Return at this moment (mono)."""
        await trio.sleep(max(0, at_ns - self.clock.mono_ns()) / NS_PER_S)

    async def settle(self, key: StreamKey, subjects: Sequence[bytes] = ()) -> None:
        """Return when no deletion that this node has committed, of this stream or its subjects, is to be confirmed.

        Who is told that a stream is not there, or gets its subjects for another one, relies on that as much as the one
        who has deleted it.
        """
        for row, ended in list(self._waiting.values()):
            filters = row.config.subject_filters
            is_same = row.key == key or any(overlaps(one, other) for one in filters for other in subjects)
            if is_same and row.account == key.account:
                await ended.wait()

    async def stream_gone(self, row: StreamAssignment) -> None:
        """Return when no node acts on the row of a stream that was just deleted. Raises ApiError: see the module."""
        await self.streams_gone((row,))

    async def streams_gone(self, rows: Sequence[StreamAssignment]) -> None:
        """The same for many that were deleted together: each node is asked once for all of them."""
        ended = trio.Event()
        for row in rows:
            self._waiting[row.key] = row, ended
        try:
            await self._until_gone(rows)
        finally:
            ended.set()
            for row in rows:
                if self._waiting.get(row.key) == (row, ended):
                    del self._waiting[row.key]

    async def _until_gone(self, rows: Sequence[StreamAssignment]) -> None:
        question = MetaIndex(index=self.meta_group.applied_index)
        over_ns = max(map(self.over_ns, rows), default=0)
        others = sorted({peer for row in rows for peer in row.holders} - {self.node_id})
        waiting = set(others)
        await self.directory.settle()
        if self.mesh is None or not others:
            return

        released = trio.Event()

        async def ask(peer: NodeId) -> None:
            if await self._has_caught_up(peer, question):
                waiting.discard(peer)
                if not any(_may_be_served(row, waiting) for row in rows):
                    released.set()

        async def insist(peer: NodeId) -> None:
            while peer in waiting:
                await ask(peer)
                await trio.sleep(AGAIN_S)

        await _each(ask, others)
        if not released.is_set():
            with trio.move_on_after(max(0, over_ns - self.clock.mono_ns()) / NS_PER_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_each, insist, tuple(waiting))
                    await released.wait()
                    nursery.cancel_scope.cancel()
        left = [row for row in rows if len(row.holders) > 1 and _may_be_served(row, waiting)]
        for row in left:
            names = ", ".join(sorted(waiting.intersection(row.holders)))
            log.warning("stream %s > %s is deleted, but %s may serve it still", *row.key, names)
        if left:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()

    async def server_gone(self, node: NodeId) -> None:
        """Return when a server that was removed serves nothing any more: it has said so, or its lease is over."""
        over_ns = self.grants.over_ns(node)
        question = _question(LOOK, b"")
        while self.clock.mono_ns() < over_ns:
            with trio.move_on_after((over_ns - self.clock.mono_ns()) / NS_PER_S):
                if await self.forwarder.ask_node(node, question) is not None:
                    return
                await trio.sleep(AGAIN_S)

    async def _has_caught_up(self, peer: NodeId, question: MetaIndex) -> bool:
        mesh = self.mesh
        assert mesh is not None
        if peer in mesh.peers and mesh.peers[peer].up:
            answer = await ask_peer(mesh, peer, CAUGHT_UP, question.pack(), timeout_s=ASK_S)
        else:
            with trio.move_on_after(ASK_S):
                answer = None
                answer = await self.forwarder.ask_node(peer, _question(CAUGHT_UP.encode(), question.pack()))
        try:
            # A node before 0.2.0 says nothing, also when it has not.
            return answer is not None and (not answer or MetaIndex.unpack(answer).index >= question.index)
        except RemoteProtocolError as error:
            log.warning("%s: %s", peer, error)
            return False

    # --- answered here

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        index = MetaIndex.unpack(payload).index
        with trio.move_on_after(ASK_S):
            await self.meta_group.wait_applied(index)
        applied_index = self.meta_group.applied_index
        await self.directory.settle()
        return MetaIndex(index=applied_index).pack()

    async def _serve_relayed(self, request: ForwardedRequest) -> bytes:
        return await self._serve(self.node_id, request.payload)


async def _each(ask: Callable[[NodeId], Awaitable[None]], peers: Iterable[NodeId]) -> None:
    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(ask, peer)


def _may_be_served(row: StreamAssignment, waiting: AbstractSet[NodeId]) -> bool:
    """Whether holders that have not confirmed can act on the row: the only one, or a half of them or more."""
    silent = sum(peer in waiting for peer in row.holders)
    return 2 * silent >= len(row.holders)


def _question(subject: bytes, payload: bytes) -> ForwardedRequest:
    return ForwardedRequest(
        account="", owner=Owner.ANY, stream="", repeatable=True, subject=subject, hdr=b"", payload=payload
    )
