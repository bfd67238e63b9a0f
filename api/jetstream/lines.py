"""The queues of API requests: their bounds, their order, and which requests are executed together. Pure.

A *line* is a queue whose requests are executed one after the other: those about one stream, so that a create and a
delete that a client sends without waiting are executed in that order; or those of one client about no stream. Lines are
served in turn, so a client with a thousand requests does not delay others. Successive creations of different consumers
are taken together, because they become durable together.

Identical reads share one answer if no change is between them. The answer is made after the last of them arrived, so it
is never older than a request.

A request that finds the queues full is refused with an error; nats-server drops all queued requests without an answer.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.limits import NO_LIMITS
from jetraft.store.model.responses import ResponseType

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from jetraft.api.jetstream.dispatch import Found
    from jetraft.cluster.capture._capture import Capture
    from jetraft.store.model.limits import QueueLimits

SHARE: Final = 2  # one connection may have half of a queue, so that one client cannot fill it
WAITING_BYTES_MAX: Final = 64 << 20  # of all requests; nats-server's MAX_PENDING_SIZE is the same for one client
READ_WAIT_S: Final = 4.0  # clients give up after 5 s by default (nats.go, nats.py)
GETS_MAX: Final = 16  # messages that are read without a task at a time: what one turn may have to do, some 1 ms
CREATIONS_MAX: Final = 64  # consumers that are created at the same time, shared by the workers for changes

Question = tuple[str, bytes, bytes, bytes]  # account, subject, headers, body
_R = ResponseType
INFOS: Final = frozenset(
    {
        _R.ACCOUNT_INFO,
        _R.STREAM_NAMES,
        _R.STREAM_LIST,
        _R.STREAM_INFO,
        _R.CONSUMER_NAMES,
        _R.CONSUMER_LIST,
        _R.CONSUMER_INFO,
        _R.CHAIN_HEAD,
        _R.CHAIN_PROOF,
        _R.CHAIN_CONSISTENCY,
    }
)  # which have a bound of their own
READS: Final = INFOS | {_R.STREAM_MSG_GET}


@attrs.frozen(kw_only=True, slots=True)
class Captured:
    """One captured message. `client` is the id of its connection, 0 when it has none on this node.

    `asker` describes who sent it, where an event will say so: by the time of an answer the connection may be gone.
    """

    account: str
    subject: bytes
    reply: bytes
    hdr: bytes
    payload: bytes
    client: int = 0
    asker: Mapping[str, object] | None = attrs.field(default=None, eq=False)

    @classmethod
    def of(cls, account: str, capture: Capture, asker: Mapping[str, object] | None = None) -> Captured:
        """A copy that does not keep the batch alive while it waits."""
        return cls(
            account=account,
            subject=capture.subject,
            reply=capture.reply,
            hdr=capture.hdr,
            payload=capture.payload,
            client=capture.origin,
            asker=asker,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of memory while it is queued."""
        return len(self.subject) + len(self.reply) + len(self.hdr) + len(self.payload)

    @property
    def question(self) -> Question:
        """The question: requests that read, and ask the same, may share an answer."""
        return self.account, self.subject, self.hdr, self.payload


@attrs.define(eq=False)
class Job:
    """A request that is executed once and answered to every client that sent it."""

    found: Found
    asked: list[Captured]
    since_s: float  # when the last of them arrived

    @property
    def captured(self) -> Captured:
        """The request itself."""
        return self.asked[0]

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, so that identical requests can share its answer."""
        return self.found.operation.kind in READS


@attrs.define(eq=False)
class Line:
    """Jobs that are executed one after the other. `shared` has the reads after the last change, by their content.

    While `gets` messages are read without a task (`begin_get`) the line is neither ready nor with a worker.
    """

    key: Hashable
    jobs: deque[Job] = attrs.field(factory=deque)
    shared: dict[Question, Job] = attrs.field(factory=dict)
    gets: int = 0


class Lines:
    """All queued requests. A line is in `ready`, with the worker that took it, or with gets; an empty one ends."""

    def __init__(self, limits: QueueLimits = NO_LIMITS.queues) -> None:
        self._lines: dict[Hashable, Line] = {}
        self._most = {True: limits.infos, False: limits.requests}  # by whether they ask how something is
        self._of_client: Counter[tuple[int, bool]] = Counter()
        self._waiting = {True: 0, False: 0}  # requests without an answer: queued or being executed
        self.waiting_bytes = 0
        self._gets = 0  # of all lines
        self.ready: dict[bool, deque[Line]] = {True: deque(), False: deque()}  # by whether the next job is a read

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return sum(self._waiting.values())

    def offer(self, found: Found, captured: Captured, now_s: float) -> bool:
        """Queue a request; False when a bound is reached."""
        if not self._count(found, captured):
            return False
        key = _key_of(found, captured)
        line = self._lines.get(key)
        is_new = line is None
        if line is None:
            line = self._lines[key] = Line(key)
        self._append(line, found, captured, now_s)
        if is_new:
            self._make_ready(line)
        return True

    def _count(self, found: Found, captured: Captured) -> bool:
        """Count a request until it is `answered`; False when a bound is reached."""
        client, is_info, size_bytes = captured.client, found.operation.kind in INFOS, captured.size_bytes
        most, place_of_client = self._most[is_info], (client, is_info)
        full = self._waiting[is_info] >= most or self.waiting_bytes + size_bytes > WAITING_BYTES_MAX
        if full or (client and self._of_client[place_of_client] >= max(1, most // SHARE)):
            return False
        self._of_client[place_of_client] += 1
        self._waiting[is_info] += 1
        self.waiting_bytes += size_bytes
        return True

    # Gets of messages that need no task.

    def begin_get(self, found: Found, captured: Captured, now_s: float) -> Job | None:
        """Take a get that need not wait: nothing of its line is queued or executed, but for other gets.

        None when it has to be offered like others. Requests that come after it wait until `end_get`.
        """
        key = _key_of(found, captured)
        line = self._lines.get(key)
        if (
            self._gets >= GETS_MAX
            or (line is not None and (line.jobs or not line.gets))
            or not self._count(found, captured)
        ):
            return None
        if line is None:
            line = self._lines[key] = Line(key)
        line.gets += 1
        self._gets += 1
        return Job(found, [captured], now_s)

    def end_get(self, job: Job, *, is_to_wait: bool = False) -> Sequence[Job]:
        """A get has ended, or is put before what waits in its line. Returns gets that have waited and begin now."""
        line = self._lines[_key_of(job.found, job.captured)]
        line.gets -= 1
        self._gets -= 1
        if is_to_wait:
            line.jobs.appendleft(job)
        if line.gets:
            return ()
        begun: list[Job] = []
        while not is_to_wait and line.jobs and self._gets < GETS_MAX and _is_get(line.jobs[0]):
            begun.append(self._next(line))
            line.gets += 1
            self._gets += 1
        if not begun:
            self.put_back(line)
        return begun

    @staticmethod
    def _append(line: Line, found: Found, captured: Captured, now_s: float) -> None:
        job = Job(found, [captured], now_s)
        if not job.is_read:
            line.shared.clear()
        else:
            same = line.shared.get(captured.question)
            if same is not None:
                same.asked.append(captured)
                same.since_s = now_s
                return
            line.shared[captured.question] = job
        line.jobs.append(job)

    def take(self, line: Line, creations_max: int = CREATIONS_MAX) -> list[Job]:
        """Take the next job of a line; after a creation of a consumer also those of other consumers that follow it."""
        jobs = [self._next(line)]
        name = _created_consumer(jobs[0])
        names = {name}
        while name and line.jobs and len(jobs) < creations_max:
            name = _created_consumer(line.jobs[0])
            if not name or name in names:
                break
            names.add(name)
            jobs.append(self._next(line))
        return jobs

    @staticmethod
    def _next(line: Line) -> Job:
        job = line.jobs.popleft()
        if job.is_read:  # who asks from now on gets an answer that is made from now on
            question = job.captured.question
            if line.shared.get(question) is job:
                del line.shared[question]
        return job

    def put_back(self, line: Line) -> None:
        """Return a line whose jobs are done: it becomes ready again, or ends if it is empty."""
        if line.jobs:
            self._make_ready(line)
        else:
            del self._lines[line.key]

    def answered(self, found: Found, captured: Captured) -> None:
        """Stop counting a request that was answered."""
        is_info = found.operation.kind in INFOS
        self._waiting[is_info] -= 1
        self.waiting_bytes -= captured.size_bytes
        place_of_client = captured.client, is_info
        self._of_client[place_of_client] -= 1
        if not self._of_client[place_of_client]:
            del self._of_client[place_of_client]

    def _make_ready(self, line: Line) -> None:
        self.ready[line.jobs[0].is_read].append(line)


def _key_of(found: Found, captured: Captured) -> Hashable:
    """The line of a request: its stream's, or its client's."""
    place: Hashable = found.names[0] if found.names else (captured.client, found.operation.kind)
    return captured.account, place


def _is_get(job: Job) -> bool:
    return job.found.operation.kind is ResponseType.STREAM_MSG_GET


def is_late(job: Job, now_s: float) -> bool:
    """Whether the client has given up. Only for reads: a change is executed however late, a client may rely on it."""
    return job.is_read and now_s - job.since_s > READ_WAIT_S


def _created_consumer(job: Job) -> str:
    """The consumer that a request creates; empty for other requests and if only the body has the name."""
    names = job.found.names
    return names[1] if job.found.operation.kind is ResponseType.CONSUMER_CREATE and len(names) > 1 else ""
