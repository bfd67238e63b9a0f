"""Makes reads of a replica linearizable: the stream's leader says how far its group is, and this node gets there.

The leader answers when a majority has confirmed that it leads (rule 21 of docs/raft.md). Its index is not below what
was committed before it was asked: a replica that has applied so much has every message that was acknowledged before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.calls.forward import Forwarder, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.calls.messages.inquiries import READ_INDEX, ReadIndex, ReadIndexQuestion
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica

    Told = Callable[[bool], None]

log = logging.getLogger(__name__)

CONFIRM_WAIT_S: Final = 2.0  # for an answer of the leader and to apply what it says; clients wait for 5 s


class ReadConfirmations:
    """See the module. A replica has one question on at a time, so questions are as many as replicas at most."""

    def __init__(
        self,
        *,
        forwarder: Forwarder,
        served: ServedRequests,
        owners: Owners,
        directory: ReplicaDirectory[StreamReplica],
    ) -> None:
        self._forwarder = forwarder
        self._owners = owners
        self._directory = directory
        self._asked: list[tuple[StreamAssignment, Told]] = []
        self._woken = trio.Event()
        served.serve(READ_INDEX, self._serve)

    def confirm(self, row: StreamAssignment, told: Told) -> None:
        """Call back once the replica here has what is committed now: with True, or False when that takes too long."""
        self._asked.append((row, told))
        self._woken.set()

    async def run(self) -> None:
        """Ask, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._woken.wait()
                self._woken = trio.Event()
                asked, self._asked = self._asked, []
                for row, told in asked:
                    nursery.start_soon(self._confirm, row, told)

    async def _confirm(self, row: StreamAssignment, told: Told) -> None:
        is_confirmed = False
        with trio.move_on_after(CONFIRM_WAIT_S):
            is_confirmed = await self._is_confirmed(row)
        told(is_confirmed)

    async def _is_confirmed(self, row: StreamAssignment) -> bool:
        question = ForwardedRequest(
            account=row.account,
            owner=Owner.STREAM,
            stream=row.config.name,
            repeatable=True,
            subject=READ_INDEX,
            hdr=b"",
            payload=ReadIndexQuestion(incarnation=row.incarnation).pack(),
        )
        try:
            index = ReadIndex.unpack(await self._forwarder.answer(question)).index
        except errors.ApiError:
            return False
        except RemoteProtocolError as error:
            log.warning("the leader of stream %s > %s: %s", *row.key, error)
            return False
        replica = self._directory.get(row.key)
        if replica is None or replica.incarnation != row.incarnation:
            return False
        await replica.group.wait_applied(index)
        return replica.group.applied_index >= index

    async def _serve(self, request: ForwardedRequest) -> bytes:
        """How far the group of a stream was when it was asked. Raises Moved, NotLeaderError."""
        asked = ReadIndexQuestion.unpack(request.payload)
        replica = self._owners.leading(request.account, request.stream)
        if replica.incarnation != asked.incarnation:
            raise Moved
        await replica.group.confirm_leadership()
        return ReadIndex(index=replica.group.applied_index).pack()
