"""The questions that nodes ask each other about the table and the streams in it; clients see none of them.

| question | asked of | answered when |
|---|---|---|
| what does this stream look like? | its leader | the config that is asked about is in force there |
| this stream's group has the members of its row | the meta leader | that is in the table |
| how far is the meta group? | the meta leader | it is certain that it leads |
| have you applied the meta log up to here? | a node | it has, and runs what the table says: what was deleted is gone |

The first three look for their owner as API requests do (`forward`); the last goes to one node.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import orjson
import trio

from jetraft.cluster.calls.forward import Forwarder, MeshLike, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.calls.messages.inquiries import (
    CAUGHT_UP,
    INDEX,
    INFO,
    QUESTION_BYTES_MAX,
    SETTLED,
    MetaIndex,
    SettledReport,
    StreamInfoAnswer,
    StreamRevision,
)
from jetraft.cluster.calls.waiting import ask_peer
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model import errors
from jetraft.store.model.jsoncodec import encode

if TYPE_CHECKING:
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.meta_group import MetaGroupRef
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.state.changes import StreamChanges
    from jetraft.cluster.streams.replica import StreamReplica
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

INFO_WAIT_S: Final = 1.0  # how long a stream's node waits for its replica to start, to lead, to take over a config
CAUGHT_UP_WAIT_S: Final = 1.0


class Inquiries:
    """See the module. One task (`run`) passes on what is reported."""

    def __init__(  # noqa: PLR0913  (the parts that it works with)
        self,
        *,
        node_id: NodeId,
        mesh: MeshLike | None,
        forwarder: Forwarder,
        served: ServedRequests,
        owners: Owners,
        machine: MetaMachine,
        meta_group: MetaGroupRef,
        frontend: MetaFrontend,
        directory: ReplicaDirectory[StreamReplica],
        changes: StreamChanges,
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._forwarder = forwarder
        self._owners = owners
        self._machine = machine
        self._frontend = frontend
        self._meta_group = meta_group
        self._directory = directory
        self._changes = changes
        self._settled: dict[StreamKey, StreamAssignment] = {}
        self._settled_woken = trio.Event()
        served.serve(INFO, self._serve_info)
        served.serve(SETTLED, self._serve_settled)
        served.serve(INDEX, self._serve_index)
        if mesh is not None:
            mesh.serve(CAUGHT_UP, self._serve_caught_up, request_bytes_max=QUESTION_BYTES_MAX)

    # --- asked here

    async def info_of(self, row: StreamAssignment) -> dict[str, Any] | None:
        """Ask the stream's leader, who has this row's config in force; return its info as a JSON object.

        None when there is no leader in time, or the stream is gone.
        """
        if row.holders == (self._node_id,) and await self._is_in_force(row.key, row.incarnation, row.revision):
            return self._owners.leading(*row.key).info().to_json_dict()  # no other node can lead it
        question = ForwardedRequest(
            account=row.account,
            owner=Owner.STREAM,
            stream=row.config.name,
            repeatable=True,
            subject=INFO,
            hdr=b"",
            payload=StreamRevision(incarnation=row.incarnation, revision=row.revision).pack(),
        )
        try:
            return StreamInfoAnswer.unpack(await self._forwarder.answer(question)).info
        except errors.ApiError:
            return None
        except RemoteProtocolError as error:
            log.warning("the leader of stream %s > %s: %s", *row.key, error)
            return None

    async def require_info_of(self, row: StreamAssignment) -> dict[str, Any]:
        """The same. Raises ApiError when there is no leader in time."""
        info = await self.info_of(row)
        if info is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return info

    async def committed_index(self) -> int | None:
        """How far the meta group had committed when this was asked; None when no leader could say so in time."""
        try:
            return MetaIndex.unpack(await self._forwarder.answer(_of_meta_leader("", INDEX, b""))).index
        except errors.ApiError:
            return None
        except RemoteProtocolError as error:
            log.warning("the meta leader: %s", error)
            return None

    async def is_current(self, row: StreamAssignment) -> bool:
        """Say whether the table here has this row, and all that the meta group had committed when this was asked."""
        index = await self.committed_index()
        return index is not None and self._meta_group.applied_index >= index and self._machine.table.get(row.key) == row

    def report_settled(self, row: StreamAssignment) -> None:
        """Tell the meta leader that the stream's group has the members of its row. It may be reported again."""
        self._settled[row.key] = row
        self._settled_woken.set()

    async def run(self) -> None:
        """Pass on what is reported, until cancelled."""
        while True:
            await self._settled_woken.wait()
            self._settled_woken = trio.Event()
            while self._settled:
                key, row = self._settled.popitem()
                report = SettledReport(name=key.name, incarnation=row.incarnation, revision=row.revision).pack()
                try:
                    await self._forwarder.answer(_of_meta_leader(key.account, SETTLED, report))
                except errors.ApiError as error:
                    log.info("stream %s > %s: the meta leader does not know that it is settled: %s", *key, error)

    async def let_holders_catch_up(self, row: StreamAssignment) -> None:
        """Wait until this node, and those of the row's holders that can be reached, match the table as it is now."""
        question = MetaIndex(index=self._meta_group.applied_index).pack()
        await self._directory.settle()
        mesh = self._mesh
        if mesh is None:
            return

        async def ask(peer: NodeId) -> None:
            await ask_peer(mesh, peer, CAUGHT_UP, question, timeout_s=CAUGHT_UP_WAIT_S)

        with trio.move_on_after(CAUGHT_UP_WAIT_S):
            async with trio.open_nursery() as nursery:
                for peer in row.holders:
                    if peer != self._node_id:
                        nursery.start_soon(ask, peer)

    # --- answered here

    def info_now(self, key: StreamKey, *, incarnation: int, revision: int) -> bytes | None:
        """The info of a stream that this node leads with at least this revision in force, as JSON; None if not."""
        replica = self._directory.get(key)
        if replica is None or not replica.is_leader or not self._is_current(key, incarnation, revision):
            return None
        return orjson.dumps(replica.info().to_json_dict())

    def _is_current(self, key: StreamKey, incarnation: int, revision: int) -> bool:
        """Whether the replica here leads with at least this revision in force, or knows another node that leads."""
        row = self._machine.table.get(key)
        replica = self._directory.get(key)
        if row is None or row.incarnation != incarnation or row.revision < revision or replica is None:
            return False
        return replica.incarnation == incarnation and (
            replica.has_config(row.config)
            if replica.is_leader
            else replica.leader not in (None, self._node_id)  # itself: elected, and about to lead
        )

    async def _serve_info(self, request: ForwardedRequest) -> bytes:
        asked = StreamRevision.unpack(request.payload)
        key = StreamKey(request.account, request.stream)
        if not await self._is_in_force(key, asked.incarnation, asked.revision):
            raise Moved
        return encode(self._owners.leading(*key).info())

    async def _is_in_force(self, key: StreamKey, incarnation: int, revision: int) -> bool:
        """Wait until the replica here leads with this revision, or another one leads; False when it takes too long."""

        def current() -> bool:
            return self._is_current(key, incarnation, revision)

        with trio.move_on_after(INFO_WAIT_S):
            await self._changes.until(key, current)
        return current()

    async def _serve_settled(self, request: ForwardedRequest) -> bytes:
        report = SettledReport.unpack(request.payload)
        await self._frontend.settle(
            request.account, report.name, incarnation=report.incarnation, revision=report.revision
        )
        return b""

    async def _serve_index(self, _request: ForwardedRequest) -> bytes:
        """The index up to which the meta group had committed when it was asked."""
        await self._owners.leading_meta().confirm_leadership()
        return MetaIndex(index=self._meta_group.applied_index).pack()

    async def _serve_caught_up(self, _sender: NodeId, payload: bytes) -> bytes:
        index = MetaIndex.unpack(payload).index
        with trio.move_on_after(CAUGHT_UP_WAIT_S):
            await self._meta_group.wait_applied(index)
        await self._directory.settle()
        return b""


def _of_meta_leader(account: str, subject: bytes, payload: bytes) -> ForwardedRequest:
    return ForwardedRequest(
        account=account, owner=Owner.META, stream="", repeatable=True, subject=subject, hdr=b"", payload=payload
    )
