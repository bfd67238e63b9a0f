"""Brings publishes on the subjects of templates to the streams that are made by them, and has these made.

Each node captures what enters there. A message whose subject has no stream yet waits until the meta leader has made
one; all publishes to such a stream come this way, and its leader captures nothing itself. So no message is stored
twice or passed by while a stream begins. Of one subject, what entered at one node stays in order, as one batch at a
time is on its way to the leader. A batch whose answer is lost is not sent again, and gets no acks, as when a leader is
killed.

Before a template's creation or deletion is answered, the nodes that can be reached capture as it says.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.calls.forward import Moved
from jetraft.cluster.calls.messages.forwarding import REQUEST_BYTES_MAX, ForwardedRequest, Owner
from jetraft.cluster.calls.messages.inquiries import QUESTION_BYTES_MAX, MetaIndex
from jetraft.cluster.calls.messages.template_streams import (
    CREATE,
    DESCRIPTION_CHARS_MAX,
    FOLLOWED,
    PUBLISH,
    TemplateStreamAnswer,
)
from jetraft.cluster.calls.reconciling import Reconciling
from jetraft.cluster.calls.waiting import ask_peer
from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import SinkKind
from jetraft.cluster.meta.templates import stream_of, template_of
from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.streams.publishing.puback import error_ack
from jetraft.raft.changes import Change
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model import errors

if TYPE_CHECKING:
    from jetraft.cluster.calls.forward import Forwarder, MeshLike
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.meta_group import MetaGroupRef
    from jetraft.cluster.ports import Outboxes
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

LANES_MAX: Final = 4096  # subjects of which something waits on a node
WAITING_BYTES_MAX: Final = 64 << 20  # of a node; what comes then is refused (10167)
FOLLOW_WAIT_S: Final = 1.0  # as long as a stream's deletion is waited for
BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX - 4096  # beside account, stream and subject


@attrs.frozen(kw_only=True, slots=True)
class TemplatePublishStatistics:
    """A snapshot of what waits, and of what was refused since the start."""

    subjects: int
    waiting_bytes: int
    refused: int


class TemplatePublishes:
    """See the module. One task (`run`) captures, and owns one more for each subject of which something waits."""

    def __init__(  # noqa: PLR0913  (where publishes come from and go to)
        self,
        *,
        mesh: MeshLike | None,
        machine: MetaMachine,
        meta_group: MetaGroupRef,
        outboxes: Outboxes,
        forwarder: Forwarder,
        served: ServedRequests,
        frontend: MetaFrontend,
        directory: ReplicaDirectory[StreamReplica],
    ) -> None:
        self._mesh = mesh
        self._machine = machine
        self._meta_group = meta_group
        self._outboxes = outboxes
        self._forwarder = forwarder
        self._frontend = frontend
        self._directory = directory
        self._sinks: dict[StreamKey, tuple[int, list[int]]] = {}  # by template: its incarnation, and the handles
        self._lanes: dict[tuple[str, bytes], list[bytes]] = {}  # what waits, by account and subject
        self._waiting_bytes = 0
        self._refused = 0
        self._is_followed = False
        self.loop = Reconciling("templates", self._look)
        self._followed = Change()
        self._nursery: trio.Nursery | None = None
        served.serve(CREATE, self._serve_create)
        served.serve(PUBLISH, self._serve_publish)
        machine.on_templates.connect(self._wake)
        if mesh is not None:
            mesh.serve(FOLLOWED, self._serve_followed, request_bytes_max=QUESTION_BYTES_MAX)

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self.loop.run()
        finally:
            self._nursery = None
            for key in list(self._sinks):
                self._end(key)

    def statistics(self) -> TemplatePublishStatistics:
        """Return a snapshot."""
        return TemplatePublishStatistics(
            subjects=len(self._lanes), waiting_bytes=self._waiting_bytes, refused=self._refused
        )

    async def let_all_follow(self) -> None:
        """Wait until this node, and those that can be reached, capture what the templates say that are here now."""
        question = MetaIndex(index=self._meta_group.applied_index).pack()

        async def ask(mesh: MeshLike, peer: NodeId) -> None:
            await ask_peer(mesh, peer, FOLLOWED, question, timeout_s=FOLLOW_WAIT_S)

        with trio.move_on_after(FOLLOW_WAIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follows)
                if self._mesh is not None:
                    for peer, link in self._mesh.peers.items():
                        if link.up:
                            nursery.start_soon(ask, self._mesh, peer)

    async def _follows(self) -> None:
        await self._followed.until(lambda: self._is_followed)

    # --- captured here

    def _wake(self) -> None:
        self._is_followed = False
        self.loop.wake()

    async def _look(self) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        self._is_followed = True
        self._follow()
        self._followed.notify()
        return {}

    def _follow(self) -> None:
        """Capture the subjects of the templates that there are, and no others."""
        rows = self._machine.table.templates.rows
        for key, (incarnation, _) in list(self._sinks.items()):
            if key not in rows or rows[key].incarnation != incarnation:
                self._end(key)
        for key, row in rows.items():
            if key not in self._sinks:
                outbox, handler = self._outboxes(row.account), partial(self._on_publishes, row.account)
                handles = [
                    outbox.add_sink(subject.encode(), handler, kind=SinkKind.STREAM, local_only=True)
                    for subject in row.config.subjects
                ]
                self._sinks[key] = row.incarnation, handles

    def _end(self, key: StreamKey) -> None:
        for handle in self._sinks.pop(key)[1]:
            self._outboxes(key.account).remove_sink(handle)

    def _on_publishes(self, account: str, batch: bytes) -> None:
        for message in captures(batch):
            subject = message.subject
            record = encode_capture(subject, message.reply, message.hdr, message.payload)
            if not _is_text(subject):  # no stream can have it, and two of them would have one name
                self._refuse(account, record, errors.STREAM_INVALID.with_values())
                continue
            lane = self._lanes.get((account, subject))
            if lane is None and self._take_here(account, subject, record):
                continue
            is_full = self._waiting_bytes + len(record) > WAITING_BYTES_MAX or len(self._lanes) >= LANES_MAX
            if is_full or len(record) > BATCH_BYTES_MAX or self._nursery is None:
                self._refuse(account, record, errors.STREAM_TOO_MANY_REQUESTS.with_values())
                continue
            self._waiting_bytes += len(record)
            if lane is not None:
                lane.append(record)
            else:
                self._lanes[account, subject] = [record]
                self._nursery.start_soon(self._carry, account, subject)

    def _take_here(self, account: str, subject: bytes, record: bytes) -> bool:
        """Give a message to the leader, if that is on this node."""
        replica = self._directory.get(self._key(account, subject))
        return replica is not None and self._is_made(account, subject) and replica.take_publishes(record)

    async def _carry(self, account: str, subject: bytes) -> None:
        """Bring what waits of a subject to the leader of its stream, until nothing waits."""
        lane = self._lanes[account, subject]
        try:
            while lane:
                batch = _first(lane)
                self._waiting_bytes -= len(batch)
                await self._carry_batch(account, subject, batch)
        finally:
            self._waiting_bytes -= sum(map(len, lane))
            del self._lanes[account, subject]

    async def _carry_batch(self, account: str, subject: bytes, batch: bytes) -> None:
        key = self._key(account, subject)
        try:
            if not self._is_made(account, subject):
                _check(await self._forwarder.answer(_question(key, Owner.META, CREATE, subject)))
        except errors.ApiError as error:
            self._refuse(account, batch, error)
            return
        except RemoteProtocolError as error:
            log.warning("the meta leader, asked for a stream of %s: %s", account, error)
            return
        try:
            await self._forwarder.answer(_question(key, Owner.STREAM, PUBLISH, batch))
        except errors.ApiError:
            return  # it may be stored: nothing is said, as when a leader is killed

    def _is_made(self, account: str, subject: bytes) -> bool:
        row = self._machine.table.get(self._key(account, subject))
        return row is not None and bool(template_of(row.config)) and row.config.subjects[0].encode() == subject

    def _refuse(self, account: str, batch: bytes, error: ApiError) -> None:
        outbox = self._outboxes(account)
        for message in captures(batch):
            self._refused += 1
            if message.reply:
                name = stream_of(message.subject.decode(errors="replace")).encode()
                outbox.send(message.reply, payload=error_ack(name, error))

    @staticmethod
    def _key(account: str, subject: bytes) -> StreamKey:
        return StreamKey(account, stream_of(subject.decode(errors="replace")))

    # --- answered here

    async def _serve_followed(self, _sender: NodeId, payload: bytes) -> bytes:
        index = MetaIndex.unpack(payload).index
        with trio.move_on_after(FOLLOW_WAIT_S):
            await self._meta_group.wait_applied(index)
            await self._follows()
        return b""

    async def _serve_create(self, request: ForwardedRequest) -> bytes:
        try:
            await self._frontend.create_by_template(request.account, request.payload.decode(errors="replace"))
        except errors.ApiError as error:
            return TemplateStreamAnswer(
                code=error.code, err_code=error.err_code, description=error.description[:DESCRIPTION_CHARS_MAX]
            ).pack()
        return TemplateStreamAnswer().pack()

    async def _serve_publish(self, request: ForwardedRequest) -> bytes:
        replica = self._directory.get(StreamKey(request.account, request.stream))
        if replica is None or not template_of(replica.config) or not replica.take_publishes(request.payload):
            raise Moved(None if replica is None or replica.is_leader else replica.leader)
        return b""


def _is_text(subject: bytes) -> bool:
    """Whether a stream can have this subject: a client may publish on any bytes."""
    try:
        subject.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check(packed: bytes) -> None:
    """Raise the ApiError that an answer has."""
    answer = TemplateStreamAnswer.unpack(packed)
    if answer.code:
        raise errors.ApiError(code=answer.code, err_code=answer.err_code, description=answer.description)


def _first(lane: list[bytes]) -> bytes:
    """Take as much as one request carries from the front of what waits."""
    size = count = 0
    while count < len(lane) and size + len(lane[count]) <= BATCH_BYTES_MAX:
        size += len(lane[count])
        count += 1
    batch = b"".join(lane[:count])
    del lane[:count]
    return batch


def _question(key: StreamKey, owner: Owner, subject: bytes, payload: bytes) -> ForwardedRequest:
    return ForwardedRequest(
        account=key.account,
        owner=owner,
        stream=key.name if owner is Owner.STREAM else "",
        repeatable=owner is Owner.META,
        subject=subject,
        hdr=b"",
        payload=payload,
    )
