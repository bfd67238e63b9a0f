"""Backups on one node: starts snapshots of streams that it leads, takes uploads, and restores streams from them.

A restore belongs to the node where the request entered. The stream is created with a mark in its configuration
(restoration.py), filled through its leader as chunks come in, with the very sequences and times of the archive, and
unmarked when the archive was whole. A restore that fails deletes the stream again, and a marked one serves nobody, so
there is all of it or nothing. A node that dies in between leaves a marked stream, which its leader has deleted.

Between nodes: `backup.free` may this be restored, `.create`, `.finish` and `.remove` are for the meta leader, `.fill`
for the stream's leader. Answers are one byte, 0 for done, and JSON; 1 and the error of the catalogue.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
import trio

from jetraft.cluster.backup.reading import items_of
from jetraft.cluster.backup.restoration import OutOfStepError, is_marked, marked
from jetraft.cluster.backup.s2 import CorruptArchiveError
from jetraft.cluster.backup.sending import Sending, cut_of
from jetraft.cluster.backup.steps import Planner, pack_steps, unpack_steps
from jetraft.cluster.backup.upload import Upload, UploadFailedError
from jetraft.cluster.forward import Moved, Owner, Request
from jetraft.cluster.meta.assignment import StreamKey
from jetraft.store.model import errors
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.ids import ALPHABET
from jetraft.store.model.state import StreamState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from jetraft.cluster.advisories import Advisories
    from jetraft.cluster.backup.sending import Manner
    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.backend import MetaBackend
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.ports import Outbox
    from jetraft.cluster.service import ClusterService
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.errors import ApiError
    from jetraft.store.space import SpaceWatch

log = logging.getLogger(__name__)

SNAPSHOTS_MAX: Final = 32  # at once on a node: each has a chunk and a block in memory
UPLOADS_MAX: Final = 32
ID_CHARS: Final = 22  # as long as nats-server's
LEADER_WAIT_S: Final = 4.0
REMOVE_WAIT_S: Final = 1.0  # a server that stops does not wait longer; the stream's leader sees to it then
POLL_S: Final = 0.01

_FREE, _CREATE, _FINISH = b"backup.free", b"backup.create", b"backup.finish"
_REMOVE, _FILL = b"backup.remove", b"backup.fill"
_DONE, _REFUSED = b"\x00", b"\x01"


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
        service: ClusterService,
        frontend: MetaFrontend,
        machine: MetaMachine,
        backend: MetaBackend[StreamShell],
        outbox: Outbox,
        advisories: Advisories,
        clock: Clock,
        rng: Random,
        space: SpaceWatch,
    ) -> None:
        self._service = service
        self._frontend = frontend
        self._machine = machine
        self._backend = backend
        self._outbox = outbox
        self._advisories = advisories
        self._clock = clock
        self._rng = rng
        self._space = space
        self._nursery: trio.Nursery | None = None
        self._snapshots = self._uploads = 0
        self._sent = self._not_sent = self._restored = self._not_restored = 0

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
        replica = self._service.owners.leading(account, stream)
        if self._snapshots >= SNAPSHOTS_MAX or self._nursery is None:
            raise errors.STREAM_SNAPSHOT_FAILED.with_values(err="too many snapshots at the same time")
        await replica.settle_consumers()
        cut = cut_of(replica.machine, self._clock.unix_ns(), with_consumers=manner.with_consumers)
        key = StreamKey(account, stream)
        sending = Sending(
            outbox=self._outbox,
            machine=replica.machine,
            manner=manner,
            cut=cut,
            ack_prefix=f"$JS.SNAPSHOT.ACK.{stream}.{self._new_id()}.".encode(),
            is_open=lambda: self._backend.get(key) is replica,
        )
        self._advisories.snapshot_began(stream, cut.state.to_json_dict())
        self._nursery.start_soon(self._send, key, sending)
        return replica.config, replica.info().state

    async def _send(self, key: StreamKey, sending: Sending) -> None:
        self._snapshots += 1
        failure, began_ns = "internal error", self._clock.unix_ns()
        try:
            failure = await sending.run()
        except Exception:  # a bug in one transfer must not end the server
            log.exception("snapshot of %s > %s", *key)
        finally:
            self._snapshots -= 1
        self._advisories.snapshot_ended(key.name, began_ns, failure)
        self._sent += not failure
        self._not_sent += bool(failure)
        log.info("snapshot of %s > %s: %d bytes: %s", *key, sending.bytes_sent, failure or "complete")

    # --- restores, on the node where the request entered

    async def begin_restore(
        self, account: str, config: StreamConfig, answer: Callable[[Mapping[str, Any] | ApiError], bytes]
    ) -> str:
        """Take an upload from now on; return its subject. `answer` shapes the outcome for the client. Raises ApiError.

        The name is free and the config is valid when this returns.
        """
        kept = await self._ask(account, Owner.META, "", _FREE, orjson.dumps(config.to_json_dict()))
        config = StreamConfig.from_json(orjson.dumps(kept))
        if self._uploads >= UPLOADS_MAX or self._nursery is None:
            raise errors.STREAM_RESTORE_FAILED.with_values(err="too many restores at the same time")
        subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{self._new_id()}"
        upload = Upload(
            outbox=self._outbox,
            subject=subject.encode(),
            has_room=lambda: not self._space.is_low(self._clock.mono_ns()),
        )
        self._uploads += 1
        self._advisories.restore_began(config.name)
        self._nursery.start_soon(self._restore, account, config, upload, answer)
        return subject

    async def _restore(
        self,
        account: str,
        config: StreamConfig,
        upload: Upload,
        answer: Callable[[Mapping[str, Any] | ApiError], bytes],
    ) -> None:
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
            self._advisories.stream_action(config.name, "create")
        self._advisories.restore_ended(config.name, began_ns, upload.bytes_received)
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
            self._outbox.send(upload.reply, payload=answer(outcome))

    async def _restored_from(self, account: str, config: StreamConfig, upload: Upload) -> Mapping[str, Any]:
        """Make the stream and fill it; return its info. Raises CorruptArchiveError, UploadFailedError, ApiError."""
        now_ns = self._clock.unix_ns()
        incarnation, planner = 0, Planner(config, now_ns)
        room_bytes = self._space.room_bytes()  # looked at once: who does not know its size may take all of it
        ask = partial(self._ask, account, Owner.STREAM, config.name, _FILL)
        try:
            async with (
                aclosing(upload.pieces()) as pieces,
                aclosing(items_of(pieces, config, now_ns, room_bytes=room_bytes)) as items,
            ):
                async for item in items:
                    if isinstance(item, StreamState):
                        require_room(item, room_bytes)
                        incarnation = await self._create(account, config)
                    for steps in planner.take(item):
                        await ask(pack_steps(incarnation, steps))
            await ask(pack_steps(incarnation, planner.finish()))
            body = orjson.dumps([incarnation, config.to_json_dict()])
            await self._ask(account, Owner.META, "", _FINISH, body)
            return await self._service.info_of(await self._row_of(account, config.name, incarnation))
        except BaseException:
            if incarnation:
                with trio.move_on_after(REMOVE_WAIT_S, shield=True):
                    await self._remove(account, config.name, incarnation)
            raise

    async def _create(self, account: str, config: StreamConfig) -> int:
        """Have the stream created with a mark that no other restore has; return its incarnation. Raises ApiError."""
        mark = f"{self._service.node_id}.{self._new_id()}"
        body = orjson.dumps(marked(config, mark).to_json_dict())
        return int(await self._ask(account, Owner.META, "", _CREATE, body))

    async def _row_of(self, account: str, name: str, incarnation: int) -> StreamAssignment:
        """Return the finished row as soon as this node has heard of it. Raises ApiError."""
        with trio.move_on_after(LEADER_WAIT_S):
            while True:
                row = self._machine.table.get(StreamKey(account, name))
                if row is not None and row.incarnation == incarnation and not is_marked(row.config):
                    return row
                await trio.sleep(POLL_S)
        raise errors.CLUSTER_NOT_AVAILABLE.with_values()

    def abandon(self, row: StreamAssignment) -> None:
        """Nobody restores this stream any more, as its leader says: have it deleted."""
        if self._nursery is not None:
            self._nursery.start_soon(self._remove, row.account, row.config.name, row.incarnation)

    async def _remove(self, account: str, name: str, incarnation: int) -> None:
        try:
            await self._ask(account, Owner.META, "", _REMOVE, orjson.dumps([name, incarnation]))
        except errors.ApiError as error:
            log.warning("stream %s > %s is not restored and not deleted yet: %s", account, name, error)

    # --- questions between nodes

    async def _ask(self, account: str, owner: Owner, stream: str, subject: bytes, payload: bytes) -> Any:
        """Ask the owner; return what the JSON says. Raises the ApiError of the answer."""
        question = Request(
            account=account, owner=owner, stream=stream, repeatable=True, subject=subject, hdr=b"", payload=payload
        )
        answer = await self._service.forwarder.answer(question)
        if answer[:1] == _DONE:
            return orjson.loads(answer[1:])
        code, err_code, description = orjson.loads(answer[1:])
        raise errors.ApiError(code=code, err_code=err_code, description=description)

    async def serve(self, request: Request) -> bytes:
        """Answer a question of `_ask`. Raises Moved, AnswerLost, and what a group raises that does not lead."""
        serves = {
            _FREE: self._serve_free,
            _CREATE: self._serve_create,
            _FINISH: self._serve_finish,
            _REMOVE: self._serve_remove,
            _FILL: self._serve_fill,
        }
        if request.subject not in serves:
            raise Moved  # of a newer version
        try:
            return _DONE + orjson.dumps(await serves[request.subject](request))
        except errors.ApiError as error:
            return _REFUSED + orjson.dumps([error.code, error.err_code, error.description])

    async def _serve_free(self, request: Request) -> dict[str, Any]:
        """Return the config as it would be kept."""
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        config = self._frontend.checked(StreamConfig.from_json(request.payload), pedantic=False)
        if self._machine.table.get(StreamKey(request.account, config.name)) is not None:
            raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED.with_values()
        return config.to_json_dict()

    async def _serve_create(self, request: Request) -> int:
        """Return the incarnation; the same for the same restore, should it be asked twice."""
        config = StreamConfig.from_json(request.payload)
        created = await self._frontend.create(request.account, config, pedantic=False)
        if not created.fresh and not is_marked(created.assignment.config):
            raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED.with_values()
        return created.assignment.incarnation

    async def _serve_finish(self, request: Request) -> None:
        incarnation, shown = orjson.loads(request.payload)
        config = StreamConfig.from_json(orjson.dumps(shown))
        self._service.check_config(config, pedantic=False)
        row = self._machine.table.get(StreamKey(request.account, config.name))
        if row is None or row.incarnation != incarnation:
            raise errors.STREAM_NOT_FOUND.with_values()
        if is_marked(row.config):
            await self._frontend.put_in_force(row, self._frontend.checked(config, pedantic=False))

    async def _serve_remove(self, request: Request) -> None:
        name, incarnation = orjson.loads(request.payload)
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        row = self._machine.table.get(StreamKey(request.account, name))
        if row is not None and row.incarnation == incarnation and is_marked(row.config):
            await self._frontend.remove(request.account, name)

    async def _serve_fill(self, request: Request) -> None:
        incarnation, steps = unpack_steps(request.payload)
        key = StreamKey(request.account, request.stream)
        replica = await self._restoring(key, incarnation)
        assert replica.restoration is not None
        try:
            await replica.restoration.carry_out(steps)
        except OutOfStepError as error:
            raise errors.STREAM_RESTORE_FAILED.with_values(err=error) from error

    async def _restoring(self, key: StreamKey, incarnation: int) -> StreamShell:
        """Return this node's replica once it leads the restore. Raises Moved."""
        replica = self._backend.get(key)
        with trio.move_on_after(1.0):
            while replica is None or replica.incarnation != incarnation or replica.restoration is None:
                if replica is not None and replica.leader not in (None, self._service.node_id):
                    break
                await trio.sleep(POLL_S)
                replica = self._backend.get(key)
        if replica is None or replica.incarnation != incarnation or replica.restoration is None:
            raise Moved(None if replica is None else replica.leader)
        return replica

    def _new_id(self) -> str:
        return "".join(self._rng.choice(ALPHABET) for _ in range(ID_CHARS))


def require_room(state: StreamState, room_bytes: int) -> None:
    """Raise ApiError when a stream of this state does not fit."""
    if state.bytes > room_bytes:
        raise errors.STORAGE_RESOURCES_EXCEEDED.with_values()
