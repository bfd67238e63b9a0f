"""Pull requests: what a client asks for, and the queue of those that wait for messages.

The queue serves its requests in turn, one message each, so that many clients share a consumer fairly. Status texts are
nats-server's to the byte: clients compare them. Source: consumer.go (nextReqFromMsg, waitQueue), ADR-13.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.store.model import message
from jetraft.store.model.encoding.gojson import JsonSyntaxError, one_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUESTS_CACHED: Final = 1024  # clients send the same few request bodies again and again
NEVER_NS: Final = 2**63 - 1
HEARTBEAT_NS_MIN: Final = 1_000_000  # nats-server's timers come to no more: 1,700 a second when asked for 1 ns
FIELDS: Final[dict[str, type]] = {
    "batch": int,
    "expires": int,
    "no_wait": bool,
    "max_bytes": int,
    "idle_heartbeat": int,
    "group": str,
    "id": str,
    "min_pending": int,
    "min_ack_pending": int,
    "priority": int,
}
PRIORITY_MAX: Final = 9


class BadRequestError(ValueError):
    """A body that is not a pull request, in nats-server's words."""


@attrs.frozen(kw_only=True, slots=True)
class PullRequest:
    """A client's request. Durations in nanoseconds; 0 is none; `max_bytes` 0 is no limit."""

    batch: int = 1
    expires_ns: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    heartbeat_ns: int = 0
    group: str | None = None  # None: the body is not JSON, and names none
    min_pending: int = 0
    min_ack_pending: int = 0
    pin_id: str = ""
    priority: int = PRIORITY_MAX + 1  # of a body that is not JSON: behind all others


@lru_cache(maxsize=REQUESTS_CACHED)
def parse_pull_request(payload: bytes) -> PullRequest:
    """The request of a MSG.NEXT body: nothing, a number or a JSON object. Raises BadRequestError."""
    text = payload.strip()
    if not text.startswith(b"{"):
        digits = text.removeprefix(b"+")
        return PullRequest(batch=max(1, int(digits)) if digits.isdigit() and len(digits) < len("9" * 10) else 1)
    fields = _load(text)
    heartbeat_ns, expires_ns = fields.get("idle_heartbeat", 0), fields.get("expires", 0)
    if heartbeat_ns > 0 and heartbeat_ns * 2 > expires_ns:
        raise BadRequestError("heartbeat value too large")
    if not 0 <= fields.get("priority", 0) <= PRIORITY_MAX:
        raise BadRequestError(f"Priority must be between 0 and {PRIORITY_MAX}")
    return PullRequest(
        batch=max(1, fields.get("batch", 0)),
        expires_ns=expires_ns,
        no_wait=fields.get("no_wait", False),
        max_bytes=max(0, fields.get("max_bytes", 0)),
        heartbeat_ns=max(HEARTBEAT_NS_MIN, heartbeat_ns) if heartbeat_ns > 0 else 0,
        group=fields.get("group", ""),
        min_pending=fields.get("min_pending", 0),
        min_ack_pending=fields.get("min_ack_pending", 0),
        pin_id=fields.get("id", ""),
        priority=fields.get("priority", 0),
    )


def _load(text: bytes) -> dict[str, Any]:
    fields: dict[str, Any]
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(syntax_fault(text) or "invalid request") from error
    for name, kind in FIELDS.items():
        value = fields.get(name)
        if value is None:
            fields.pop(name, None)
        elif type(value) is not kind:
            raise BadRequestError(
                f"json: cannot unmarshal {GO_KINDS.get(type(value), 'object')} into Go struct field "
                f".{name} of type {GO_TYPES[name]}"
            )
    return fields


def syntax_fault(text: bytes) -> str:
    """The error of json.Unmarshal for a text that is not JSON; empty when it is."""
    try:
        one_value(text)
    except JsonSyntaxError as error:
        return str(error)
    return ""


GO_KINDS: Final = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
GO_TYPES: Final = {
    "batch": "int",
    "expires": "time.Duration",
    "no_wait": "bool",
    "max_bytes": "int",
    "idle_heartbeat": "time.Duration",
    "group": "string",
    "id": "string",
    "min_pending": "int64",
    "min_ack_pending": "int64",
    "priority": "int",
}


@attrs.define(eq=False)
class Waiting:
    """A request in the queue: what is left of it."""

    reply: bytes
    request: PullRequest
    remaining: int
    bytes_left: int  # 0 when the request has no limit
    expires_at_ns: int  # NEVER_NS for none
    heartbeat_at_ns: int  # NEVER_NS for none
    delivered: int = 0
    behind_seq: int = 0  # of a request that does not wait: the stream had taken messages up to here before it
    pin_id: str = ""
    ended_with: tuple[int, bytes] | None = None  # code and text of the status that ends it, from its making on
    lacks_some: bool = False  # since then some of what it was to get turned out to be gone

    @classmethod
    def begin(cls, reply: bytes, request: PullRequest, now_ns: int) -> Waiting:
        """A request that arrives now."""
        return cls(
            reply=reply,
            request=request,
            remaining=request.batch,
            bytes_left=request.max_bytes,
            expires_at_ns=now_ns + request.expires_ns if request.expires_ns else NEVER_NS,
            heartbeat_at_ns=now_ns + request.heartbeat_ns if request.heartbeat_ns else NEVER_NS,
            pin_id=request.pin_id,
        )

    @property
    def deadline_ns(self) -> int:
        """When something is due for it."""
        return min(self.expires_at_ns, self.heartbeat_at_ns)

    def admits(self, size: int) -> bool:
        """True when a message of this size may still be sent to it."""
        return not self.request.max_bytes or size <= self.bytes_left

    def take(self, count: int, size: int, now_ns: int) -> None:
        """Count messages that go to this request; their bytes matter only when it has a limit of them."""
        assert 0 < count <= self.remaining
        self.remaining -= count
        self.delivered += count
        if self.request.max_bytes:
            self.bytes_left -= size
            if self.bytes_left == 0:
                self.remaining = 0
        if self.request.heartbeat_ns:
            self.heartbeat_at_ns = now_ns + self.request.heartbeat_ns

    def give_back(self, count: int, size: int) -> None:
        """Messages that were counted are not sent."""
        assert 0 < count <= self.delivered
        self.delivered -= count
        self.remaining = self.request.batch - self.delivered
        if self.request.max_bytes:
            self.bytes_left += size


class WaitingQueue:
    """Requests in the order in which they are served next."""

    def __init__(self) -> None:
        self.is_sorted = False  # by the requests' priorities; those of one priority in turn
        self._queue: deque[Waiting] = deque()
        self._wake_ns = NEVER_NS  # not later than the earliest deadline

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._queue)

    @property
    def requested(self) -> int:
        """Messages that all requests together still want."""
        return sum(waiting.remaining for waiting in self._queue)

    @property
    def wake_ns(self) -> int:
        """When to look at the deadlines again."""
        return self._wake_ns if self._queue else NEVER_NS

    def add(self, waiting: Waiting) -> None:
        """Queue a request behind the others, or behind those of its priority."""
        self._put(waiting)
        self._wake_ns = min(self._wake_ns, waiting.deadline_ns)

    def put_back(self, waiting: Waiting) -> None:
        """Queue a request again that had left: it is the next one, or the next of its priority."""
        place = 0
        if self.is_sorted:
            while place < len(self._queue) and _priority(self._queue[place]) < waiting.request.priority:
                place += 1
        self._queue.insert(place, waiting)
        self._wake_ns = min(self._wake_ns, waiting.deadline_ns)

    def head(self) -> Waiting | None:
        """The request that is served next."""
        return self._queue[0] if self._queue else None

    def advance(self) -> None:
        """The head was served: it leaves when it has all it wanted, else it queues up again."""
        waiting = self._queue.popleft()
        if waiting.remaining:
            self._put(waiting)

    def pass_over(self) -> None:
        """The head may not be served now: it goes behind the others."""
        self._queue.rotate(-1)

    def order(self, *, is_sorted: bool) -> None:
        """Keep the requests in the order of their priorities from here on, or no longer."""
        if is_sorted and not self.is_sorted:
            self._queue = deque(sorted(self._queue, key=_priority))
        self.is_sorted = is_sorted

    def _put(self, waiting: Waiting) -> None:
        if not self.is_sorted:
            self._queue.append(waiting)
            return
        place = len(self._queue)
        while place and _priority(self._queue[place - 1]) > waiting.request.priority:
            place -= 1
        self._queue.insert(place, waiting)

    def drop_head(self) -> Waiting:
        """Take the head out."""
        return self._queue.popleft()

    def remove_if(self, condition: Callable[[Waiting], bool]) -> list[Waiting]:
        """Take out every request for which the condition holds; return them in order."""
        kept: deque[Waiting] = deque()
        removed: list[Waiting] = []
        for waiting in self._queue:
            (removed if condition(waiting) else kept).append(waiting)
        self._queue = kept
        return removed

    def rest(self) -> None:
        """Work out again when the next deadline is."""
        self._wake_ns = min((waiting.deadline_ns for waiting in self._queue), default=NEVER_NS)


def _priority(waiting: Waiting) -> int:
    return waiting.request.priority


def pending_status(code: int, text: bytes, waiting: Waiting) -> bytes:
    """A status that ends a request and says what it did not get."""
    fields = {
        message.PENDING_MESSAGES: b"%d" % waiting.remaining,
        message.PENDING_BYTES: b"%d" % waiting.bytes_left,
    }
    return message.status(code, text, fields)


def heartbeat_status(consumer_seq: int, stream_seq: int) -> bytes:
    """The sign of life that a request with a heartbeat gets when there is nothing else to send."""
    fields = {message.LAST_CONSUMER: b"%d" % consumer_seq, message.LAST_STREAM: b"%d" % stream_seq}
    return message.status(100, b"Idle Heartbeat", fields)
