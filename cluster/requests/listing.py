"""Infos of many streams at once: one question to each leader's node, and one gathering for all that ask for the same.

A list of 256 streams would be 256 calls to other nodes; asked for 500 times a second it is all that a cluster does. The
infos of all streams that a node leads are one call. Lists of the same streams share a run (`shared_runs`), and at most
LISTS_AT_ONCE are made at a time.

A stream whose leader is not known or does not answer at once is asked for by itself (`Inquiries.info_of`): that waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from jetraft.cluster.calls.messages.inquiries import StreamInfoAnswer
from jetraft.cluster.calls.messages.listing import METHOD, QUESTION_BYTES_MAX, InfosAnswer, InfosQuestion, InfoWanted
from jetraft.cluster.calls.shared_runs import SharedRuns
from jetraft.cluster.calls.waiting import ask_for
from jetraft.cluster.state.assignment import StreamKey
from jetraft.raft.mesh.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.requests.inquiries import Inquiries
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

LIST_WAIT_S: Final = 4.0  # nats-server waits as long for the infos of a list; who is late goes to `missing`
LISTS_AT_ONCE: Final = 2  # of different streams: one is made while the other waits for other nodes
INFOS_WAIT_S: Final = 1.0  # for one node's infos; after it each is asked for by itself
INFOS_PER_PASS: Final = 16  # made before others get their turn: about 2 ms


@attrs.frozen(kw_only=True, slots=True)
class StreamPage:
    """Infos of streams by name, as JSON objects, and the names whose leader did not answer in time."""

    infos: Mapping[str, dict[str, Any]]
    missing: tuple[str, ...]


class Listing:
    """See the module."""

    def __init__(
        self, *, node_id: NodeId, mesh: MeshLike | None, cluster: ClusterView, owners: Owners, inquiries: Inquiries
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._cluster = cluster
        self._owners = owners
        self._inquiries = inquiries
        self._runs: SharedRuns[StreamPage] = SharedRuns(LISTS_AT_ONCE)
        self.gathered = 0
        if mesh is not None:
            mesh.serve(METHOD, self._serve, request_bytes_max=QUESTION_BYTES_MAX)

    async def infos_of(self, rows: Iterable[StreamAssignment]) -> StreamPage:
        """The infos of these streams, from their leaders; who is away or does not answer in time is missing."""
        wanted = list(rows)
        question = tuple((row.key, row.incarnation, row.revision) for row in wanted)
        return await self._runs.answer(question, lambda: self._gather(wanted))

    async def _gather(self, wanted: Sequence[StreamAssignment]) -> StreamPage:
        self.gathered += 1
        infos: dict[str, dict[str, Any]] = {}
        online = self._cluster.online()

        async def ask(row: StreamAssignment) -> None:
            info = await self._inquiries.info_of(row)
            if info is not None:
                infos[row.config.name] = info

        with trio.move_on_after(LIST_WAIT_S):
            async with trio.open_nursery() as nursery:
                for node, rows in self._by_leader(wanted).items():
                    nursery.start_soon(self._ask_node, node, rows, infos)
            async with trio.open_nursery() as nursery:
                for row in wanted:
                    if row.config.name not in infos and any(peer in online for peer in row.peers):
                        nursery.start_soon(ask, row)
        missing = tuple(row.config.name for row in wanted if row.config.name not in infos)
        return StreamPage(infos={name: infos[name] for name in sorted(infos)}, missing=missing)

    def _by_leader(self, wanted: Sequence[StreamAssignment]) -> dict[NodeId, list[StreamAssignment]]:
        found: dict[NodeId, list[StreamAssignment]] = {}
        for row in wanted:
            leader = self._owners.leader_of(row)
            if leader is not None:
                found.setdefault(leader, []).append(row)
        return found

    async def _ask_node(self, node: NodeId, rows: Sequence[StreamAssignment], infos: dict[str, dict[str, Any]]) -> None:
        """Note the infos of those of these streams that the node leads."""
        question = InfosQuestion(streams=tuple(map(_wanted, rows)))
        if node == self._node_id:
            answer = await self._infos_here(question)
        elif self._mesh is None:
            return
        else:
            found = await ask_for(InfosAnswer, self._mesh, node, METHOD, question.pack(), timeout_s=INFOS_WAIT_S)
            if found is None:
                return
            answer = found
        if len(answer.infos) != len(rows):
            log.warning("%s at %s: %d infos for %d streams", METHOD, node, len(answer.infos), len(rows))
            return
        for row, packed in zip(rows, answer.infos, strict=True):
            if packed:
                try:
                    infos[row.config.name] = StreamInfoAnswer.unpack(packed).info
                except RemoteProtocolError as error:
                    log.warning("%s at %s: %s", METHOD, node, error)

    async def _infos_here(self, question: InfosQuestion) -> InfosAnswer:
        """The infos as JSON; empty where this node does not lead, or not with this config yet."""
        found: list[bytes] = []
        for number, wanted in enumerate(question.streams, start=1):
            key = StreamKey(wanted.account, wanted.name)
            info = self._inquiries.info_now(key, incarnation=wanted.incarnation, revision=wanted.revision)
            found.append(info or b"")
            if number % INFOS_PER_PASS == 0:
                await trio.lowlevel.checkpoint()
        return InfosAnswer(infos=tuple(found))

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        return (await self._infos_here(InfosQuestion.unpack(payload))).pack()


def _wanted(row: StreamAssignment) -> InfoWanted:
    return InfoWanted(account=row.account, name=row.config.name, incarnation=row.incarnation, revision=row.revision)
