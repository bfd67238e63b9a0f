"""The questions that nodes ask each other about the table and the streams in it; clients see none of them.

| question | asked of | answered when |
|---|---|---|
| what does this stream look like? | its leader | the config that is asked about is in force there |
| this stream's group has the members of its row | the meta leader | that is in the table |
| how far is the meta group, and is this node a member? | the meta leader | it is certain that it leads |

They look for their owner as API requests do (`forward`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import orjson
import trio

from jetraft.cluster.calls.forward import Forwarder, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.calls.messages.inquiries import (
    INDEX,
    INFO,
    SETTLED,
    MetaIndex,
    MetaState,
    MetaStateQuestion,
    SettledReport,
    StreamInfoAnswer,
    StreamRevision,
)
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import unpack_any
from jetraft.store.model import errors
from jetraft.store.model.encoding.jsoncodec import encode
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.lease_grants import LeaseGrants
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.meta_group import MetaGroupRef
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.state.changes import StreamChanges
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.clock import Clock

log = logging.getLogger(__name__)

INFO_WAIT_S: Final = 1.0  # how long a stream's node waits for its replica to start, to lead, to take over a config


class Inquiries:
    """See the module. One task (`run`) passes on what is reported."""

    def __init__(  # noqa: PLR0913  (the parts that it works with)
        self,
        *,
        node_id: NodeId,
        forwarder: Forwarder,
        served: ServedRequests,
        owners: Owners,
        machine: MetaMachine,
        meta_group: MetaGroupRef,
        frontend: MetaFrontend,
        directory: ReplicaDirectory[StreamReplica],
        changes: StreamChanges,
        clock: Clock,
        grants: LeaseGrants,
    ) -> None:
        self._clock = clock
        self._grants = grants
        self._node_id = node_id
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
        """How far the meta group had committed when this was asked.

        None when no leader could say so in time, or this node is no member, and so will not have as much.
        """
        state = await self.meta_state()
        return None if state is None or not state.is_member else state.index

    async def meta_state(self) -> MetaState | None:
        """The same, and whether this node is a member; None when no leader could say so in time."""
        asker = MetaStateQuestion(node_id=self._node_id).pack()
        try:
            answer = unpack_any(await self._forwarder.answer(_of_meta_leader("", INDEX, asker)), MetaState, MetaIndex)
        except errors.ApiError:
            return None
        except RemoteProtocolError as error:
            log.warning("the meta leader: %s", error)
            return None
        if isinstance(answer, MetaIndex):  # of a leader that knows of no more
            return MetaState(index=answer.index, is_member=True)
        assert isinstance(answer, MetaState)
        return answer

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

    async def _serve_index(self, request: ForwardedRequest) -> bytes:
        """The index up to which the meta group had committed when it was asked, and whether the asker is a member."""
        asker = NodeId(MetaStateQuestion.unpack(request.payload).node_id) if request.payload else None
        await self._owners.leading_meta().confirm_leadership()
        index = self._meta_group.applied_index
        if asker is None:
            return MetaIndex(index=index).pack()
        group = self._owners.leading_meta()
        # A removal that is not committed may come to nothing.
        is_member = asker in group.members or not group.configuration_is_committed
        if is_member:
            self._grants.answered(asker, self._clock.mono_ns())
        return MetaState(index=index, is_member=is_member).pack()


def _of_meta_leader(account: str, subject: bytes, payload: bytes) -> ForwardedRequest:
    return ForwardedRequest(
        account=account, owner=Owner.META, stream="", repeatable=True, subject=subject, hdr=b"", payload=payload
    )
