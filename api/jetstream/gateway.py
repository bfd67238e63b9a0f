"""Where API requests come in from clients and answers go out: one answer per request, in the order of a stream.

Sinks that capture the API's subjects at this node hand over batches. Each request is looked up in the dispatch list
and given to the cluster's forwarder, which carries it out here or sends it to the owner. Requests about one stream are
worked off one after the other, so that a client that sends create and delete without waiting gets both in that order;
requests about different streams overlap, and so do creations of different consumers that follow each other: many become
durable together. Their answers keep the order too. Beyond REQUESTS_MAX waiting requests new ones are dropped, as in
nats-server.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.dispatch import CAPTURED, Found, find
from jetraft.cluster.forward import Moved, Owner, Request
from jetraft.store.model import errors, message
from jetraft.store.model.jsoncodec import encode
from jetraft.store.model.responses import ResponseType, answer, error_answer
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jetraft.cluster.ports import Outbox
    from jetraft.cluster.service import ClusterService

log = logging.getLogger(__name__)

REQUESTS_MAX: Final = 10_000  # JSDefaultRequestQueueLimit
CREATIONS_MAX: Final = 64  # of consumers of one stream in work at a time
REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
LEVEL_DIGITS_MAX: Final = 9

# u32 length | u32 hdr_len | u32 payload_len | u16 subject_len | u16 reply_len | u32 origin
_CAPTURE_HEADER: Final = struct.Struct("<IIIHHI")


@attrs.frozen(kw_only=True, slots=True)
class Captured:
    """One message as the plane captured it."""

    subject: bytes
    reply: bytes
    hdr: bytes
    payload: bytes


@attrs.frozen(kw_only=True, slots=True)
class GatewayStatistics:
    """Requests answered and in work at this node, since it started."""

    requests: int
    errors: int
    waiting: int
    dropped: int


@attrs.frozen(slots=True)
class _Job:
    found: Found
    captured: Captured


class JetStreamGateway:
    """The API of one account on one node."""

    def __init__(
        self, *, service: ClusterService, outbox: Outbox, kick: Callable[[], None], account: str = "$G"
    ) -> None:
        self._service = service
        self._outbox = outbox
        self._kick = kick
        self._account = account
        self._nursery: trio.Nursery | None = None
        self._queues: dict[str, deque[_Job]] = {}
        self._waiting = 0
        self._requests = self._errors = self._dropped = 0
        service.execute_api = self.execute
        service.usages.api_counts = lambda: (self._requests, self._errors)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            handles = [self._outbox.add_sink(subject, self.on_batch, local_only=True) for subject in CAPTURED]
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                for handle in handles:
                    self._outbox.remove_sink(handle)

    def on_batch(self, batch: bytes) -> None:
        """Take over a batch of captured requests."""
        for captured in captures(batch):
            found = find(captured.subject)
            if found is None:
                continue  # see dispatch: an unknown API is not answered
            if self._waiting >= REQUESTS_MAX:
                self._dropped += 1
                continue
            self._queue(_Job(found, captured))

    async def execute(self, request: Request) -> bytes:
        """Carry a request out on this node and return its JSON, or nothing. Raises Moved or AnswerLost."""
        found = find(request.subject)
        if found is None:  # another node serves what this older one does not know
            raise Moved
        operation = found.operation
        call = Call(account=request.account, names=found.names, body=request.payload)
        try:
            _check_level(request.hdr)
            body = await operation.handler(self._service, call)
            return b"" if body is None else answer(operation.kind, body)
        except errors.ApiError as error:
            return error_json(operation.kind, error)
        except self._service.not_answers:
            raise
        except Exception:  # a bug in one request must not end the server, and needs an answer as any other
            log.exception("request on %s", request.subject.decode(errors="replace"))
            return error_json(operation.kind, errors.CLUSTER_NOT_AVAILABLE.with_values())

    def statistics(self) -> GatewayStatistics:
        """Return a snapshot."""
        return GatewayStatistics(
            requests=self._requests, errors=self._errors, waiting=self._waiting, dropped=self._dropped
        )

    def _queue(self, job: _Job) -> None:
        assert self._nursery is not None
        self._waiting += 1
        names = job.found.names
        if not names:
            self._nursery.start_soon(self._answer, job)
            return
        queue = self._queues.get(names[0])
        if queue is not None:
            queue.append(job)
            return
        self._queues[names[0]] = deque([job])
        self._nursery.start_soon(self._work_off, names[0])

    async def _work_off(self, stream: str) -> None:
        """Answer the requests about one stream, in order, until there are none; a queue exists while its task does."""
        queue = self._queues[stream]
        try:
            while queue:
                jobs = _take_together(queue)
                if len(jobs) == 1:
                    await self._answer(jobs[0])
                else:
                    await self._answer_together(jobs)
        finally:
            del self._queues[stream]

    async def _answer(self, job: _Job) -> None:
        self._send(job, await self._carry_out(job))

    async def _answer_together(self, jobs: Sequence[_Job]) -> None:
        bodies: dict[int, bytes] = {}

        async def carry_out(place: int) -> None:
            bodies[place] = await self._carry_out(jobs[place])

        async with trio.open_nursery() as nursery:
            for place in range(len(jobs)):
                nursery.start_soon(carry_out, place)
        for place, job in enumerate(jobs):
            self._send(job, bodies[place])

    async def _carry_out(self, job: _Job) -> bytes:
        """Have the owner do what is asked for; returns the answer, empty for none."""
        operation, captured = job.found.operation, job.captured
        request = Request(
            account=self._account,
            owner=operation.owner,
            stream=job.found.names[0] if operation.owner is Owner.STREAM else "",
            repeatable=operation.repeatable,
            subject=captured.subject,
            hdr=captured.hdr,
            payload=captured.payload,
        )
        try:
            return await self._service.forwarder.answer(request)
        except errors.ApiError as error:
            return error_json(operation.kind, error)

    def _send(self, job: _Job, body: bytes) -> None:
        """Count a request, tell of it, and answer it."""
        captured = job.captured
        self._waiting -= 1
        self._requests += 1
        self._errors += b'"error":{' in body[:ERROR_PLACE]
        if self._service.advisories is not None and body:
            self._service.advisories.api_audit(
                server=self._service.node_id,
                account=self._account,
                subject=captured.subject,
                request=captured.payload,
                response=body,
            )
        if captured.reply and body:
            self._outbox.send(captured.reply, payload=body)
            self._kick()


def _take_together(queue: deque[_Job]) -> list[_Job]:
    """Take the next request, with the creations of other consumers that stand behind the creation of one."""
    jobs = [queue.popleft()]
    name = _created_consumer(jobs[0])
    names = {name}
    while name and queue and len(jobs) < CREATIONS_MAX:
        name = _created_consumer(queue[0])
        if not name or name in names:
            break
        names.add(name)
        jobs.append(queue.popleft())
    return jobs


def _created_consumer(job: _Job) -> str:
    """The consumer that a request creates, empty when it does something else or has the name in its body only."""
    names = job.found.names
    return names[1] if job.found.operation.kind is ResponseType.CONSUMER_CREATE and len(names) > 1 else ""


ERROR_PLACE: Final = 100  # an error stands right after the type, whose names are shorter than this

# What nats-server writes after an error, where it is not what `responses` says: empty lists, zero values.
_LISTS: Final[dict[ResponseType, dict[str, object]]] = {
    ResponseType.STREAM_LIST: {"streams": []},
    ResponseType.CONSUMER_LIST: {"consumers": []},
    ResponseType.CONSUMER_NAMES: {"consumers": []},
}
_PAGE: Final = {"total": 0, "offset": 0, "limit": 0}
_TAILS: Final[dict[ResponseType, dict[str, object]]] = {
    **{kind: {**_PAGE, **empty} for kind, empty in _LISTS.items()},
    ResponseType.CONSUMER_PAUSE: {"paused": False, "pause_until": "0001-01-01T00:00:00Z"},
    ResponseType.STREAM_RESTORE: {"deliver_subject": ""},
}


def error_json(kind: ResponseType, error: errors.ApiError) -> bytes:
    """Return the JSON of an error, with the fields that nats-server writes in spite of it."""
    tail = _TAILS.get(kind)
    if tail is None:
        return error_answer(kind, error)
    return encode({"type": kind.type_name, "error": error.to_json_dict(), **tail})


def captures(batch: bytes) -> Iterator[Captured]:
    """Yield the messages of a capture batch."""
    offset = 0
    while offset < len(batch):
        length, hdr_len, payload_len, subject_len, reply_len, _origin = _CAPTURE_HEADER.unpack_from(batch, offset)
        subject = offset + _CAPTURE_HEADER.size
        reply = subject + subject_len
        hdr = reply + reply_len
        payload = hdr + hdr_len
        assert payload + payload_len <= offset + length
        yield Captured(
            subject=bytes(batch[subject:reply]),
            reply=bytes(batch[reply:hdr]),
            hdr=bytes(batch[hdr:payload]),
            payload=bytes(batch[payload : payload + payload_len]),
        )
        offset += length


def _check_level(hdr: bytes) -> None:
    """Raise ApiError 10185 when the client needs a newer API than this one."""
    wanted = message.get(hdr, REQUIRED_LEVEL) if hdr else None
    if not wanted:
        return
    digits = wanted[1:] if wanted[:1] in (b"-", b"+") else wanted
    if not digits.isdigit() or len(digits) > LEVEL_DIGITS_MAX or int(wanted) > API_LEVEL:
        raise errors.REQUIRED_API_LEVEL.with_values()
