"""Backups on one node: starts snapshots of streams that it leads, takes uploads, and restores streams from them.

A restore belongs to the node where the request entered. The stream is created with a mark in its configuration
(restoration.py), filled through its leader as chunks come in, with the very sequences and times of the archive, and
unmarked when the archive was whole. A restore that fails deletes the stream again, and a marked one is not served, so
there is all of it or nothing. A node that dies in between leaves a marked stream, which its leader has deleted.

Between nodes: `backup.free` may this be restored, `.create`, `.finish` and `.remove` are for the meta leader, `.fill`
for the stream's leader (cluster/calls/messages/backups.py).

The modules of archives are imported by the methods that need them: a server that starts does not
(api/startup/late_imports.py).
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
import trio

from jetraft.cluster.backup.large_bodies import worked_on
from jetraft.cluster.backup.mark import is_marked, marked
from jetraft.cluster.calls.forward import Moved
from jetraft.cluster.calls.messages.backups import (
    CREATE,
    FILL,
    FINISH,
    FREE,
    REMOVE,
    BackupAnswer,
    CreatedAnswer,
    FinishQuestion,
    FreeAnswer,
    Refusal,
    RemoveQuestion,
)
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.consumers.account_bounds import within
from jetraft.cluster.state.assignment import StreamKey
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model import errors
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.ids import ALPHABET
from jetraft.store.model.state import StreamState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from random import Random

    from jetraft.cluster.accounts import Accounts
    from jetraft.cluster.advisories import NodeAdvisories
    from jetraft.cluster.backup.asker import Asker
    from jetraft.cluster.backup.sending import Manner, Sending
    from jetraft.cluster.backup.step_batch import RestoreStep
    from jetraft.cluster.backup.upload import Upload
    from jetraft.cluster.calls.forward import Forwarder
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.ports import Outboxes
    from jetraft.cluster.requests.in_force import ConfigsInForce
    from jetraft.cluster.requests.inquiries import Inquiries
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.state.changes import StreamChanges
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.errors import ApiError
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

SNAPSHOTS_MAX: Final = 32  # at once on a node: each has a chunk and a block in memory
UPLOADS_MAX: Final = 32
ID_CHARS: Final = 22  # as long as nats-server's
LEADER_WAIT_S: Final = 4.0
REMOVE_WAIT_S: Final = 1.0  # a server that stops does not wait longer; the stream's leader sees to it then
RESTORING_WAIT_S: Final = 1.0


@attrs.frozen(kw_only=True, slots=True)
class BackupStatistics:
    """A snapshot of the figures since the node started."""

    snapshots_open: int
    snapshots_failed: int
    snapshots_sent: int
    uploads_open: int
    restores_failed: int
    restores_done: int


class Backups:
    """See the module. One task (`run`) owns all transfers."""

    def __init__(  # noqa: PLR0913  (the parts of the node that it works with)
        self,
        *,
        node_id: NodeId,
        owners: Owners,
        forwarder: Forwarder,
        served: ServedRequests,
        inquiries: Inquiries,
        in_force: ConfigsInForce,
        frontend: MetaFrontend,
        machine: MetaMachine,
        directory: ReplicaDirectory[StreamReplica],
        changes: StreamChanges,
        outboxes: Outboxes,
        advisories: NodeAdvisories,
        clock: Clock,
        rng: Random,
        space: SpaceWatch,
        accounts: Accounts,
    ) -> None:
        self._node_id = node_id
        self._owners = owners
        self._forwarder = forwarder
        self._inquiries = inquiries
        self._in_force = in_force
        self._frontend = frontend
        self._machine = machine
        self._directory = directory
        self._changes = changes
        self._outboxes = outboxes
        self._advisories = advisories
        self._clock = clock
        self._rng = rng
        self._space = space
        self._accounts = accounts
        self._nursery: trio.Nursery | None = None
        self._snapshots = self._uploads = 0
        self._reading = trio.Lock()  # uploads are read one at a time
        self._sent = self._not_sent = self._restored = self._not_restored = 0
        self._serves: Mapping[bytes, Callable[[ForwardedRequest], Awaitable[Any]]] = {
            FREE: self._serve_free,
            CREATE: self._serve_create,
            FINISH: self._serve_finish,
            REMOVE: self._serve_remove,
            FILL: self._serve_fill,
        }
        for subject in self._serves:
            served.serve(subject, self._serve)

    async def run(self) -> None:
        """Carry transfers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def statistics(self) -> BackupStatistics:
        """Return a snapshot."""
        return BackupStatistics(
            snapshots_open=self._snapshots,
            snapshots_failed=self._not_sent,
            snapshots_sent=self._sent,
            uploads_open=self._uploads,
            restores_failed=self._not_restored,
            restores_done=self._restored,
        )

    # --- snapshots, on the stream's leader

    async def snapshot(self, account: str, stream: str, manner: Manner) -> tuple[StreamConfig, StreamState]:
        """Begin a snapshot; return the config and the state that it is of. Raises ApiError or Moved."""
        from jetraft.cluster.backup.sending import Sending, cut_of  # noqa: PLC0415  see the module

        replica = self._owners.leading(account, stream)
        if self._snapshots >= SNAPSHOTS_MAX or self._nursery is None:
            raise errors.STREAM_SNAPSHOT_FAILED.with_values(err="too many snapshots at the same time")
        await replica.settle_consumers()
        cut = cut_of(replica.machine, self._clock.unix_ns(), with_consumers=manner.with_consumers)
        key = StreamKey(account, stream)
        sending = Sending(
            outbox=self._outboxes(account),
            machine=replica.machine,
            manner=manner,
            cut=cut,
            ack_prefix=f"$JS.SNAPSHOT.ACK.{stream}.{self._new_id()}.".encode(),
            is_open=lambda: self._directory.get(key) is replica,
            now_unix_ns=self._clock.unix_ns,
        )
        self._advisories.of(account).snapshot_began(stream, cut.state.to_json_dict(), manner.client)
        self._nursery.start_soon(self._send, key, sending, manner.client)
        return replica.config, replica.info().state

    async def _send(self, key: StreamKey, sending: Sending, client: Mapping[str, object]) -> None:
        self._snapshots += 1
        failure, began_ns = "internal error", self._clock.unix_ns()
        try:
            failure = await sending.run()
        except Exception:  # a bug in one transfer must not end the server
            log.exception("snapshot of %s > %s", *key)
        finally:
            self._snapshots -= 1
        self._advisories.of(key.account).snapshot_ended(key.name, began_ns, failure, client)
        self._sent += not failure
        self._not_sent += bool(failure)
        log.info("snapshot of %s > %s: %d bytes: %s", *key, sending.bytes_sent, failure or "complete")

    # --- restores, on the node where the request entered

    async def begin_restore(self, account: str, config: StreamConfig, body: bytes, asker: Asker) -> str:
        """Take an upload from now on; return its subject. The asker is told the outcome. Raises ApiError.

        The name is free and the config, which was asked for by that body, is valid when this returns.
        """
        from jetraft.cluster.backup.upload import Upload  # noqa: PLC0415

        asked = await worked_on(body, lambda: orjson.dumps(config.to_json_dict()))
        kept = await self._ask(account, Owner.META, "", FREE, asked)
        config = await worked_on(kept, lambda: StreamConfig.from_json(orjson.dumps(FreeAnswer.unpack(kept).config)))
        if self._uploads >= UPLOADS_MAX or self._nursery is None:
            raise errors.STREAM_RESTORE_FAILED.with_values(err="too many restores at the same time")
        subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{self._new_id()}"
        upload = Upload(
            outbox=self._outboxes(account),
            subject=subject.encode(),
            has_room=lambda: not self._space.is_low(self._clock.mono_ns()),
        )
        self._uploads += 1
        self._advisories.of(account).restore_began(config.name, asker.client)
        self._nursery.start_soon(self._restore, account, config, upload, asker)
        return subject

    async def _restore(self, account: str, config: StreamConfig, upload: Upload, asker: Asker) -> None:
        from jetraft.cluster.backup.upload import UploadFailedError  # noqa: PLC0415
        from jetraft.store.s2.framing import CorruptArchiveError  # noqa: PLC0415

        began_ns = self._clock.unix_ns()
        outcome: Mapping[str, Any] | ApiError
        try:
            outcome = await self._restored_from(account, config, upload)
        except (UploadFailedError, CorruptArchiveError) as error:
            outcome = errors.STREAM_RESTORE_FAILED.with_values(err=error)
        except errors.ApiError as error:
            outcome = error
        except Exception:  # a bug in one transfer must not end the server
            log.exception("restore of %s > %s", account, config.name)
            outcome = errors.STREAM_RESTORE_FAILED.with_values(err="internal error")
        failed = isinstance(outcome, errors.ApiError)
        if not failed:
            self._advisories.of(account).stream_action(config.name, "create")
        self._advisories.of(account).restore_ended(config.name, began_ns, upload.bytes_received, asker.client)
        try:
            await upload.drain()
        except UploadFailedError as error:
            log.info("upload for %s > %s: %s", account, config.name, error)
        finally:
            upload.close()
            self._uploads -= 1
        self._not_restored += failed
        self._restored += not failed
        told = outcome if failed else "complete"
        log.info("restore of %s > %s: %d bytes: %s", account, config.name, upload.bytes_received, told)
        if upload.reply:
            self._outboxes(account).send(upload.reply, payload=asker.answer(outcome))

    async def _restored_from(self, account: str, config: StreamConfig, upload: Upload) -> Mapping[str, Any]:
        """Make the stream and fill it; return its info. Raises CorruptArchiveError, UploadFailedError, ApiError."""
        from jetraft.cluster.backup.bounds import require_consumer, require_room  # noqa: PLC0415
        from jetraft.cluster.backup.reading import items_of  # noqa: PLC0415
        from jetraft.cluster.backup.steps import StepPlanner  # noqa: PLC0415
        from jetraft.store.stream.consumer_state import ConsumerState  # noqa: PLC0415

        now_ns = self._clock.unix_ns()
        incarnation, planner = 0, StepPlanner(config, now_ns)
        # Looked at once: an archive that does not know its size may take all of it.
        room_bytes = min(self._space.available_bytes(), self._accounts.room_for(account, config))
        consumers, consumers_max = 0, within(config, self._accounts.limits_for(account, config)).max_consumers
        ask = partial(self._ask, account, Owner.STREAM, config.name, FILL)
        try:
            async with (
                aclosing(upload.pieces()) as pieces,
                aclosing(items_of(pieces, config, now_ns, room_bytes=room_bytes, turn=self._reading)) as items,
            ):
                async for item in items:
                    if isinstance(item, StreamState):
                        require_room(item, room_bytes, config.storage)
                        incarnation = await self._create(account, config)
                    elif isinstance(item, ConsumerState):
                        consumers += 1
                        require_consumer(item, consumers, consumers_max)
                    for steps in planner.take(item):
                        await ask(_batch(incarnation, steps))
            await ask(_batch(incarnation, planner.finish()))
            finish = FinishQuestion(incarnation=incarnation, config=config.to_json_dict())
            await self._ask(account, Owner.META, "", FINISH, finish.pack())
            return await self._inquiries.require_info_of(await self._row_of(account, config.name, incarnation))
        except BaseException:
            if incarnation:
                with trio.move_on_after(REMOVE_WAIT_S, shield=True):
                    await self._remove(account, config.name, incarnation)
            raise

    async def _create(self, account: str, config: StreamConfig) -> int:
        """Have the stream created with a mark that no other restore has; return its incarnation. Raises ApiError."""
        mark = f"{self._node_id}.{self._new_id()}"
        body = orjson.dumps(marked(config, mark).to_json_dict())
        return CreatedAnswer.unpack(await self._ask(account, Owner.META, "", CREATE, body)).incarnation

    async def _row_of(self, account: str, name: str, incarnation: int) -> StreamAssignment:
        """Return the finished row as soon as this node has heard of it. Raises ApiError."""
        key = StreamKey(account, name)

        def finished() -> StreamAssignment | None:
            row = self._machine.table.get(key)
            return row if row is not None and row.incarnation == incarnation and not is_marked(row.config) else None

        with trio.move_on_after(LEADER_WAIT_S):
            await self._changes.until(key, lambda: finished() is not None)
        row = finished()
        if row is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return row

    def abandon(self, row: StreamAssignment) -> None:
        """The restore of this stream has stopped, as its leader says: have it deleted."""
        if self._nursery is not None:
            self._nursery.start_soon(self._remove, row.account, row.config.name, row.incarnation)

    async def _remove(self, account: str, name: str, incarnation: int) -> None:
        try:
            await self._ask(account, Owner.META, "", REMOVE, RemoveQuestion(name=name, incarnation=incarnation).pack())
        except (errors.ApiError, RemoteProtocolError) as error:
            log.warning("stream %s > %s is not restored and not deleted yet: %s", account, name, error)

    # --- questions between nodes

    async def _ask(self, account: str, owner: Owner, stream: str, subject: bytes, payload: bytes) -> bytes:
        """Ask the owner; return the body of its answer. Raises the ApiError of the answer, RemoteProtocolError."""
        question = ForwardedRequest(
            account=account, owner=owner, stream=stream, repeatable=True, subject=subject, hdr=b"", payload=payload
        )
        answer = BackupAnswer.unpack(await self._forwarder.answer(question))
        refusal = answer.refusal
        if refusal is not None:
            raise errors.ApiError(code=refusal.code, err_code=refusal.err_code, description=refusal.description)
        return answer.body

    async def _serve(self, request: ForwardedRequest) -> bytes:
        """Answer a question of `_ask`. Raises Moved, AnswerLost, and what a group raises that does not lead."""
        try:
            answer = BackupAnswer(body=orjson.dumps(await self._serves[request.subject](request)))
        except errors.ApiError as error:
            refusal = Refusal(code=error.code, err_code=error.err_code, description=error.description)
            answer = BackupAnswer(refusal=refusal)
        return answer.pack()

    async def _serve_free(self, request: ForwardedRequest) -> orjson.Fragment:
        """Return the config as it would be kept, encoded."""
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        asked = await worked_on(request.payload, lambda: StreamConfig.from_json(request.payload))
        if self._machine.leading_term is None:  # it may have ended meanwhile
            raise Moved(self._machine.leader)
        config = self._frontend.checked(asked, pedantic=False)
        if self._machine.table.get(StreamKey(request.account, config.name)) is not None:
            raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED.with_values()
        # The name may be taken meanwhile: the creation looks again.
        return orjson.Fragment(await worked_on(request.payload, lambda: orjson.dumps(config.to_json_dict())))

    async def _serve_create(self, request: ForwardedRequest) -> int:
        """Return the incarnation; the same for the same restore, should it be asked twice."""
        config = await worked_on(request.payload, lambda: StreamConfig.from_json(request.payload))
        created = await self._frontend.create(request.account, config, pedantic=False)
        if not created.fresh and not is_marked(created.assignment.config):
            raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED.with_values()
        return created.assignment.incarnation

    async def _serve_finish(self, request: ForwardedRequest) -> None:
        asked = FinishQuestion.unpack(request.payload)
        config = await worked_on(request.payload, lambda: StreamConfig.from_json(orjson.dumps(asked.config)))
        self._owners.require_meta()
        self._frontend.checked(config, pedantic=False)
        row = self._machine.table.get(StreamKey(request.account, config.name))
        if row is None or row.incarnation != asked.incarnation:
            raise errors.STREAM_NOT_FOUND.with_values()
        if is_marked(row.config):
            row = await self._frontend.put_in_force(row, self._frontend.checked(config, pedantic=False))
            await self._in_force.let_replicas_follow(row)

    async def _serve_remove(self, request: ForwardedRequest) -> None:
        asked = RemoveQuestion.unpack(request.payload)
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        row = self._machine.table.get(StreamKey(request.account, asked.name))
        if row is not None and row.incarnation == asked.incarnation and is_marked(row.config):
            await self._frontend.remove(request.account, asked.name)

    async def _serve_fill(self, request: ForwardedRequest) -> None:
        from jetraft.cluster.backup.restoration import OutOfStepError  # noqa: PLC0415
        from jetraft.cluster.backup.step_batch import StepBatch  # noqa: PLC0415

        batch = StepBatch.unpack(request.payload)
        key = StreamKey(request.account, request.stream)
        replica = await self._restoring(key, batch.incarnation)
        assert replica.restoration is not None
        try:
            await replica.restoration.carry_out(batch.steps)
        except OutOfStepError as error:
            raise errors.STREAM_RESTORE_FAILED.with_values(err=error) from error

    async def _restoring(self, key: StreamKey, incarnation: int) -> StreamReplica:
        """Return this node's replica once it leads the restore. Raises Moved."""

        def restores(replica: StreamReplica | None) -> bool:
            return replica is not None and replica.incarnation == incarnation and replica.restoration is not None

        def is_known() -> bool:
            replica = self._directory.get(key)
            return restores(replica) or (replica is not None and replica.leader not in (None, self._node_id))

        with trio.move_on_after(RESTORING_WAIT_S):
            await self._changes.until(key, is_known)
        replica = self._directory.get(key)
        if replica is None or not restores(replica):
            raise Moved(None if replica is None else replica.leader)
        return replica

    def _new_id(self) -> str:
        return "".join(self._rng.choice(ALPHABET) for _ in range(ID_CHARS))


def _batch(incarnation: int, steps: Sequence[RestoreStep]) -> bytes:
    from jetraft.cluster.backup.step_batch import StepBatch  # noqa: PLC0415

    return StepBatch(incarnation=incarnation, steps=tuple(steps)).pack()
