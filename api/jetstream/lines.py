"""Requests that wait for their turn: how many may, in what order they go, and which are answered together. Pure.

A *line* is what has to be done one after the other: the requests about one stream, so that a client that sends create
and delete without waiting gets both in that order; or those of one client that are about no stream in particular. Lines
take turns, so a client that asks for a thousand lists waits for itself. Creations of different consumers that stand
behind each other are taken together, for they become durable together.

Requests that only read, and are the same in every byte, share one answer when nothing that changes something stands
between them: the answer is then made after the last of them has come, and none is older than its request.

What does not fit is refused, which is an answer; nats-server throws away all that waits, and its clients wait in vain.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.responses import ResponseType

if TYPE_CHECKING:
    from collections.abc import Hashable

    from jetraft.api.jetstream.dispatch import Found

WAITING_MAX: Final = 10_000  # nats-server: JSDefaultRequestQueueLimit
CLIENT_WAITING_MAX: Final = WAITING_MAX // 2  # of one connection: the others find room
WAITING_BYTES_MAX: Final = 64 << 20  # nats-server: MAX_PENDING_SIZE, what may wait for one client; here of all requests
READ_WAIT_S: Final = 4.0  # clients give up after 5 s by default (nats.go, nats.py): a later answer helps nobody
CREATIONS_MAX: Final = 64  # of consumers in work at a time, shared by the streams that they are for

_R = ResponseType
READS: Final = frozenset(
    {
        _R.ACCOUNT_INFO,
        _R.STREAM_NAMES,
        _R.STREAM_LIST,
        _R.STREAM_INFO,
        _R.STREAM_MSG_GET,
        _R.CONSUMER_NAMES,
        _R.CONSUMER_LIST,
        _R.CONSUMER_INFO,
    }
)


@attrs.frozen(kw_only=True, slots=True)
class Captured:
    """One message as the plane captured it. `client` is the connection; 0 for what comes from elsewhere."""

    subject: bytes
    reply: bytes
    hdr: bytes
    payload: bytes
    client: int = 0

    @property
    def size_bytes(self) -> int:
        """What it holds while it waits."""
        return len(self.subject) + len(self.reply) + len(self.hdr) + len(self.payload)


@attrs.define(eq=False)
class Job:
    """A request that is answered once, to all who have asked it."""

    found: Found
    asked: list[Captured]
    since_s: float  # when the last of them came

    @property
    def captured(self) -> Captured:
        """The request itself."""
        return self.asked[0]

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, and its answer is good for all that ask the same."""
        return self.found.operation.kind in READS


@attrs.define(eq=False)
class Line:
    """Jobs that go one after the other. `shared` are the reads behind the last change, by what they ask."""

    key: Hashable
    jobs: deque[Job] = attrs.field(factory=deque)
    shared: dict[tuple[bytes, bytes, bytes], Job] = attrs.field(factory=dict)


class Lines:
    """All that waits. A line is in `ready` or with whoever took it last, and ends when it is given back empty."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, Line] = {}
        self._of_client: dict[int, int] = {}
        self.waiting = 0  # requests, with those that are in work
        self.waiting_bytes = 0
        self.ready: dict[bool, deque[Line]] = {True: deque(), False: deque()}  # those that go on with a read, or not

    def offer(self, found: Found, captured: Captured, now_s: float) -> bool:
        """Take a request; False when there is no room for it."""
        client = captured.client
        of_client = self._of_client.get(client, 0)
        full = self.waiting >= WAITING_MAX or self.waiting_bytes + captured.size_bytes > WAITING_BYTES_MAX
        if full or (client and of_client >= CLIENT_WAITING_MAX):
            return False
        self._of_client[client] = of_client + 1
        self.waiting += 1
        self.waiting_bytes += captured.size_bytes
        key: Hashable = found.names[0] if found.names else (client, found.operation.kind)
        line = self._lines.get(key)
        is_new = line is None
        if line is None:
            line = self._lines[key] = Line(key)
        self._append(line, found, captured, now_s)
        if is_new:
            self._make_ready(line)
        return True

    @staticmethod
    def _append(line: Line, found: Found, captured: Captured, now_s: float) -> None:
        job = Job(found, [captured], now_s)
        if not job.is_read:
            line.shared.clear()
        else:
            question = captured.subject, captured.hdr, captured.payload
            same = line.shared.get(question)
            if same is not None:
                same.asked.append(captured)
                same.since_s = now_s
                return
            line.shared[question] = job
        line.jobs.append(job)

    def take(self, line: Line, creations_max: int = CREATIONS_MAX) -> list[Job]:
        """The next job of a line, with the creations of other consumers that stand behind the creation of one."""
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
            captured = job.captured
            question = captured.subject, captured.hdr, captured.payload
            if line.shared.get(question) is job:
                del line.shared[question]
        return job

    def give_back(self, line: Line) -> None:
        """Its jobs are done: it waits for its next turn, or is over."""
        if line.jobs:
            self._make_ready(line)
        else:
            del self._lines[line.key]

    def answered(self, captured: Captured) -> None:
        """A request that was taken does not wait any more."""
        self.waiting -= 1
        self.waiting_bytes -= captured.size_bytes
        left = self._of_client[captured.client] - 1
        if left:
            self._of_client[captured.client] = left
        else:
            del self._of_client[captured.client]

    def _make_ready(self, line: Line) -> None:
        self.ready[line.jobs[0].is_read].append(line)


def is_late(job: Job, now_s: float) -> bool:
    """Whether nobody waits for its answer any more. A change is made however late: somebody may rely on it."""
    return job.is_read and now_s - job.since_s > READ_WAIT_S


def _created_consumer(job: Job) -> str:
    """The consumer that a request creates, empty when it does something else or has the name in its body only."""
    names = job.found.names
    return names[1] if job.found.operation.kind is ResponseType.CONSUMER_CREATE and len(names) > 1 else ""
