"""Waiting until a stream's new config is in force at the replicas that answer by it, before its change is answered.

A config is an entry of the stream's own log: it holds at a replica when that has applied it. The leader is waited for
as it is (inquiries.py, `info_of`). The others serve direct gets by it, so a client that has the answer and reads at
another node could meet a replica that goes by the old one: without `jetraft.linearizable_reads`, say. Replicas that
are away, or do not apply it in time, are not waited for longer than IN_FORCE_WAIT_S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.calls.messages.inquiries import IN_FORCE, QUESTION_BYTES_MAX, ConfigQuestion
from jetraft.cluster.calls.waiting import ask_peer
from jetraft.cluster.state.assignment import StreamKey

if TYPE_CHECKING:
    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.state.changes import StreamChanges
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.ids import NodeId

IN_FORCE_WAIT_S: Final = 1.0  # as long as a deletion is waited for


class ConfigsInForce:
    """See the module."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        mesh: MeshLike | None,
        machine: MetaMachine,
        directory: ReplicaDirectory[StreamReplica],
        changes: StreamChanges,
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._machine = machine
        self._directory = directory
        self._changes = changes
        if mesh is not None:
            mesh.serve(IN_FORCE, self._serve, request_bytes_max=QUESTION_BYTES_MAX)

    async def let_replicas_follow(self, row: StreamAssignment) -> None:
        """Wait until this row's config is in force at all replicas of the stream that can be reached."""
        mesh = self._mesh
        if mesh is None:
            return
        question = ConfigQuestion(
            account=row.account, name=row.config.name, incarnation=row.incarnation, revision=row.revision
        )
        packed = question.pack()

        async def ask(peer: NodeId) -> None:
            await ask_peer(mesh, peer, IN_FORCE, packed, timeout_s=IN_FORCE_WAIT_S)

        with trio.move_on_after(IN_FORCE_WAIT_S):
            async with trio.open_nursery() as nursery:
                for peer in row.holders:
                    nursery.start_soon(*((self._follows, question) if peer == self._node_id else (ask, peer)))

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        with trio.move_on_after(IN_FORCE_WAIT_S):
            await self._follows(ConfigQuestion.unpack(payload))
        return b""

    async def _follows(self, asked: ConfigQuestion) -> None:
        """Return when the replica here goes by this revision of the row, or a later one gives it no replica."""
        key = StreamKey(asked.account, asked.name)
        await self._changes.until(key, lambda: self._is_in_force(key, asked))

    def _is_in_force(self, key: StreamKey, asked: ConfigQuestion) -> bool:
        row = self._machine.table.get(key)
        if row is None or row.incarnation != asked.incarnation or row.revision < asked.revision:
            return False
        if self._node_id not in row.holders:
            return True
        replica = self._directory.get(key)
        return replica is not None and replica.incarnation == asked.incarnation and replica.has_config(row.config)
