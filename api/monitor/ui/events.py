"""Server-sent events of the dashboard: figures of the node once a second, and what changes.

Bounded: feeds in all and of one address (AddressShare), events that wait for a feed (QUEUE_MAX: the oldest are dropped,
and the browser is told how many), streams that are looked at in a second (GLANCES_PER_S), and the work between two
checkpoints (a slice of steps.py). Without a feed nothing is looked at. An event is encoded once for all feeds.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs
import orjson
import trio

from jetraft.api.listeners.address_share import AddressShare
from jetraft.api.monitor.page import Page
from jetraft.api.monitor.steps import Steps, a_slice
from jetraft.api.monitor.ui.answers import problem
from jetraft.api.monitor.ui.assets import with_headers
from jetraft.api.monitor.ui.changes import Changes, Glance
from jetraft.api.monitor.ui.guards import is_cross_site
from jetraft.api.monitor.web_request import Feed, Send, WebRequest
from jetraft.store.model.clock import Clock

FEEDS_MAX: Final = 32  # each has a connection, a task and a queue: some 200 KiB
FEEDS_PER_ADDRESS: Final = 24  # of those; a proxy is one address
QUEUE_MAX: Final = 256  # events: more than a person reads, and less than 1 MiB
EVENT_BYTES_MAX: Final = 4096  # a larger one is told without its fields
PERIOD_S: Final = 1.0
PROBE_S: Final = 0.05
GLANCES_PER_S: Final = 2_000  # streams, some 5 us each
EVENT_TYPE: Final = "text/event-stream; charset=utf-8"

_log = logging.getLogger(__name__)


class Watched(Protocol):
    """JetStream as the events see it. Implemented by api/jetstream/dashboard.py."""

    def glances(self) -> Iterator[Glance]:
        """Glances at the meta group and at every stream that has a replica here, each made when it is asked for."""


@attrs.define(eq=False)
class EventFeed:
    """One browser that listens. `given_back` is called when it has gone."""

    given_back: Callable[["EventFeed"], None]
    _queue: deque[bytes] = attrs.field(factory=deque)
    _arrived: trio.Event = attrs.field(factory=trio.Event)
    _unsaid: int = 0  # dropped since the browser was told last
    dropped: int = 0
    is_over: bool = False
    gone: trio.Event = attrs.field(factory=trio.Event)  # the browser is

    @property
    def head(self) -> Page:
        """See Feed."""
        return with_headers(Page(body=b"", content_type=EVENT_TYPE))

    def put(self, data: bytes) -> None:
        """Let an event wait; the oldest is dropped where too many wait."""
        if len(self._queue) >= QUEUE_MAX:
            self._queue.popleft()
            self._unsaid += 1
            self.dropped += 1
        self._queue.append(data)
        self._arrived.set()

    def end(self) -> None:
        """Nothing more is sent after what waits."""
        self.is_over = True
        self._arrived.set()

    def close(self) -> None:
        """See Feed."""
        self.gone.set()
        self.given_back(self)

    async def run(self, send: Send) -> None:
        """See Feed."""
        await send(b"retry: 2000\n\n")
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            parts = list(self._queue)
            self._queue.clear()
            if self._unsaid:
                parts.insert(0, encoded("dropped", {"count": self._unsaid}))
                self._unsaid = 0
            if parts:
                await send(b"".join(parts))
            if self.is_over and not self._queue:
                return


@attrs.define(eq=False)
class Events:
    """All feeds, and the task that looks for what they are told. `figures` are those of the node."""

    clock: Clock
    figures: Callable[[], Mapping[str, Any]]
    watched: Watched | None
    share: AddressShare = attrs.field(factory=lambda: AddressShare(places=FEEDS_MAX, per_address_max=FEEDS_PER_ADDRESS))
    feeds: set[EventFeed] = attrs.field(factory=set)
    dropped: int = 0  # by feeds that have ended
    _wanted: trio.Event = attrs.field(factory=trio.Event)
    _delay_ns: int = 0  # the longest of this period by which the loop was late

    async def open(self, asked: WebRequest) -> Page | Feed:
        """A feed, which begins with the events from now on."""
        if asked.method != "GET":
            return problem(405, "it is GET")
        if is_cross_site(asked):
            return problem(403, "requests of other sites are not served")
        if not self.share.take(asked.ip):
            return problem(503, f"{FEEDS_MAX} dashboards listen already")
        feed = EventFeed(lambda feed: self._gone(feed, asked.ip))
        self.feeds.add(feed)
        self._wanted.set()
        return feed

    def _gone(self, feed: EventFeed, ip: str) -> None:
        self.feeds.discard(feed)
        self.dropped += feed.dropped
        self.share.give_back(ip)

    def tell(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Tell all feeds."""
        data = encoded(kind, fields)
        for feed in self.feeds:
            feed.put(data)

    async def run(self) -> None:
        """Look for changes while a feed is open, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._probe)
                await self._tell_while_heard()
                nursery.cancel_scope.cancel()

    async def _tell_while_heard(self) -> None:
        changes = Changes()  # what changed while there was no feed is not told
        found = self._round()
        while self.feeds:
            try:
                found = await self._look(changes, found)
                self.tell("figures", {**self.figures(), "loop_delay_ns": self._delay_ns})
            except Exception:  # noqa: BLE001  a bug in what is told must not stop the server
                _log.exception("dashboard events failed")
            self._delay_ns = 0
            await trio.sleep(PERIOD_S)

    async def _probe(self) -> None:
        """Measure how late the loop wakes a task."""
        while True:
            due_ns = self.clock.mono_ns() + int(PROBE_S * 1e9)
            await trio.sleep(PROBE_S)
            self._delay_ns = max(self._delay_ns, self.clock.mono_ns() - due_ns)

    async def _look(self, changes: Changes, found: Iterator[Glance]) -> Iterator[Glance]:
        """Look at the next streams of a round, and begin the next one after the last; returns what is left of it."""
        steps = self._glanced(changes, found)
        while True:
            _, left = a_slice(steps)
            if left:
                return left[0]
            await trio.lowlevel.checkpoint()

    def _glanced(self, changes: Changes, found: Iterator[Glance]) -> Steps[Iterator[Glance]]:
        for _ in range(GLANCES_PER_S):
            glance = next(found, None)
            if glance is None:
                self._tell_changes(changes.end_round())
                return self._round()
            self._tell_changes(changes.look(glance))
            yield 0
        return found

    def _round(self) -> Iterator[Glance]:
        return iter(()) if self.watched is None else self.watched.glances()

    def _tell_changes(self, found: Sequence[Mapping[str, Any]]) -> None:
        for fields in found:
            self.tell("change", fields)

    def statistics(self) -> dict[str, int]:
        """Feeds, those that found no place, and events that were dropped."""
        return {**self.share.statistics(), "dropped": self.dropped + sum(feed.dropped for feed in self.feeds)}


def encoded(kind: str, fields: Mapping[str, Any]) -> bytes:
    """An event as it is sent: JSON has no line breaks, so one line of data is enough."""
    data = orjson.dumps(fields)
    if len(data) > EVENT_BYTES_MAX:
        data = orjson.dumps({"what": "too_large", "bytes": len(data)})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
