"""Where API requests come in from clients and answers go out: one answer per request, in the order of a stream.

Sinks that capture the API's subjects at this node hand over batches. Each request is looked up in the dispatch list
and waits in its line (`lines`). A bounded number of workers takes from the lines in turn and gives what it takes to the
cluster's forwarder, which carries it out here or sends it to the owner. So the API costs the node no more than so much
work at a time, however much is asked, and acknowledgements go in between. What does not fit into the lines, or has
waited for too long, is refused with 429: everybody is answered.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.dispatch import CAPTURED, Found, find
from jetraft.api.jetstream.lines import CREATIONS_MAX, Captured, Job, Line, Lines, is_late
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

WORKERS_MAX: Final = 16  # that read, and as many that change: what one pass of the scheduler may have to do, some 10 ms
PARKED_MAX: Final = 1024  # that wait for a stream to have a leader; these cost nothing but memory
REFUSED_LINE_S: Final = 10.0  # a line in the log, and an advisory, say how many were refused since the one before
REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
LEVEL_DIGITS_MAX: Final = 9

# u32 length | u32 hdr_len | u32 payload_len | u16 subject_len | u16 reply_len | u32 origin
_CAPTURE_HEADER: Final = struct.Struct("<IIIHHI")


@attrs.frozen(kw_only=True, slots=True)
class GatewayStatistics:
    """Requests answered and in work at this node, since it started."""

    requests: int
    errors: int
    waiting: int
    refused: int


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
        self._lines = Lines()
        self._workers = {True: 0, False: 0}  # those that take reads, and those that take changes
        self._parked = 0
        self._requests = self._errors = self._refused = 0
        self._said_refused = 0  # of those, how many the last line told of
        self._say_again_s = 0.0
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
            if not self._lines.offer(found, captured, trio.current_time()):
                self._refuse(found, captured)
        self._employ()

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
            requests=self._requests, errors=self._errors, waiting=self._lines.waiting, refused=self._refused
        )

    # --- work

    def _employ(self) -> None:
        """Start workers for the lines that are ready, as many as there may be."""
        assert self._nursery is not None
        for reads, ready in self._lines.ready.items():
            for _ in range(min(len(ready), WORKERS_MAX - self._workers[reads])):
                self._workers[reads] += 1
                self._nursery.start_soon(self._work, ready.popleft(), reads)

    async def _work(self, line: Line, reads: bool) -> None:  # noqa: FBT001  (handed to a nursery)
        """Take from one line after the other until none is ready, or the place was given to another worker."""
        place, ready = _Place(self, is_read=reads), self._lines.ready[reads]
        while True:
            jobs = self._lines.take(line, CREATIONS_MAX // max(1, self._workers[reads]))
            await self._answer(jobs, place)
            self._lines.give_back(line)
            if place.is_given_up or not ready:
                break
            line = ready.popleft()
            self._employ()
            await trio.lowlevel.checkpoint()  # what is answered without waiting for anybody must not hold up the others
        if place.is_given_up:
            self._parked -= 1
        else:
            self._workers[reads] -= 1
        self._employ()

    def park(self, *, is_read: bool) -> bool:
        """A worker is about to wait for an owner: another one takes its place. False when too many wait already."""
        if self._parked >= PARKED_MAX:
            return False
        self._parked += 1
        self._workers[is_read] -= 1
        self._employ()
        return True

    async def _answer(self, jobs: Sequence[Job], place: _Place) -> None:
        if len(jobs) == 1:
            self._send(jobs[0], await self._carry_out(jobs[0], place))
            return
        bodies: dict[int, bytes] = {}

        async def carry_out(number: int) -> None:
            bodies[number] = await self._carry_out(jobs[number], place)

        async with trio.open_nursery() as nursery:
            for number in range(len(jobs)):
                nursery.start_soon(carry_out, number)
        for number, job in enumerate(jobs):
            self._send(job, bodies[number])

    async def _carry_out(self, job: Job, place: _Place) -> bytes:
        """Have the owner do what is asked for; returns the answer, empty for none."""
        operation, captured = job.found.operation, job.captured
        if is_late(job, trio.current_time()):
            self._count_refused(len(job.asked))
            return error_json(operation.kind, errors.STREAM_TOO_MANY_REQUESTS.with_values())
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
            return await self._service.forwarder.answer(request, on_wait=place.give_up)
        except errors.ApiError as error:
            return error_json(operation.kind, error)

    def _send(self, job: Job, body: bytes) -> None:
        """Count requests, tell of them, and answer them."""
        for captured in job.asked:
            self._lines.answered(captured)
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

    # --- too much

    def _refuse(self, found: Found, captured: Captured) -> None:
        """Answer a request for which there is no room, in the turn in which it came."""
        self._requests += 1
        self._errors += 1
        self._count_refused(1)
        if captured.reply:
            body = error_json(found.operation.kind, errors.STREAM_TOO_MANY_REQUESTS.with_values())
            self._outbox.send(captured.reply, payload=body)

    def _count_refused(self, count: int) -> None:
        """Say it in the log and as an advisory, but not each time."""
        self._refused += count
        now_s = trio.current_time()
        if now_s < self._say_again_s:
            return
        self._say_again_s = now_s + REFUSED_LINE_S
        refused, self._said_refused = self._refused - self._said_refused, self._refused
        log.warning(
            "JetStream API queue limit reached, %d requests refused, %d wait", refused, self._lines.waiting
        )  # a line like nats-server's, which drops them
        if self._service.advisories is not None:
            self._service.advisories.api_limit_reached(server=self._service.node_id, dropped=refused)


@attrs.define(eq=False)
class _Place:
    """The place of a worker among those that work at the same time."""

    gateway: JetStreamGateway
    is_read: bool
    is_given_up: bool = False

    def give_up(self) -> None:
        """The worker waits for others from now on. Harmless when it is called again."""
        self.is_given_up = self.is_given_up or self.gateway.park(is_read=self.is_read)


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
        length, hdr_len, payload_len, subject_len, reply_len, origin = _CAPTURE_HEADER.unpack_from(batch, offset)
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
            client=origin,
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
