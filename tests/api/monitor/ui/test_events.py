"""Events of the dashboard: bounded feeds, no work without one, and what a real server tells."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from jetraft.api.monitor.page import Page
from jetraft.api.monitor.ui.changes import Glance
from jetraft.api.monitor.ui.events import (
    EVENT_BYTES_MAX,
    FEEDS_MAX,
    FEEDS_PER_ADDRESS,
    GLANCES_PER_S,
    QUEUE_MAX,
    EventFeed,
    Events,
    encoded,
)
from jetraft.api.monitor.web_request import WebRequest
from jetraft.store.model.clock import ManualClock
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server


def asked(ip: str = "192.0.2.1", **headers: str) -> WebRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return WebRequest(method="GET", arguments={}, headers=named, ip=ip, port=1, is_secure=False)


class Streams:
    """JetStream with so many streams, that counts the looks at them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.looks = 0

    def glances(self) -> Iterator[Glance]:
        for number in range(self.count):
            self.looks += 1
            yield Glance(account="A", stream=f"S{number}", leader="n1")


def events_of(count: int) -> tuple[Events, Streams]:
    streams = Streams(count)
    return Events(clock=ManualClock(), figures=dict, watched=streams), streams


async def test_a_feed_that_is_not_read_drops_the_oldest_and_says_how_many() -> None:
    feed = EventFeed(lambda _feed: None)
    for number in range(QUEUE_MAX + 5):
        feed.put(b"%d\n" % number)
    sent: list[bytes] = []
    feed.end()

    async def send(data: bytes) -> None:
        sent.append(data)

    await feed.run(send)
    lines = b"".join(sent).splitlines()
    assert lines[2:5] == [b"event: dropped", b'data: {"count":5}', b""]
    assert lines[5:] == [b"%d" % number for number in range(5, QUEUE_MAX + 5)]
    assert feed.dropped == 5


async def test_there_are_so_many_feeds_and_not_all_of_one_address() -> None:
    events, _ = events_of(0)
    feeds = [await events.open(asked()) for _ in range(FEEDS_PER_ADDRESS)]
    refused = await events.open(asked())
    assert isinstance(refused, Page)
    assert refused.status == 503
    others = [await events.open(asked(f"198.51.100.{at}")) for at in range(FEEDS_MAX - FEEDS_PER_ADDRESS)]
    assert all(isinstance(feed, EventFeed) for feed in feeds + others)
    assert isinstance(await events.open(asked("203.0.113.1")), Page)
    feed = feeds[0]
    assert isinstance(feed, EventFeed)
    feed.close()
    assert isinstance(await events.open(asked("203.0.113.1")), EventFeed)
    assert events.statistics()["refused"] == 2


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_site_takes_no_place(site: str) -> None:
    events, _ = events_of(0)
    refused = await events.open(asked(sec_fetch_site=site))
    assert isinstance(refused, Page)
    assert (refused.status, len(events.feeds)) == (403, 0)


async def test_nothing_is_looked_at_without_a_feed_and_so_many_streams_in_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    events, streams = events_of(GLANCES_PER_S + 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run)
        await trio.sleep(10)
        assert streams.looks == 0
        feed = await events.open(asked())
        await trio.sleep(0.5)
        assert streams.looks == GLANCES_PER_S
        await trio.sleep(1)
        assert streams.looks == GLANCES_PER_S + 100
        assert isinstance(feed, EventFeed)
        feed.close()
        await trio.sleep(2)
        looks = streams.looks
        await trio.sleep(60)
        assert streams.looks == looks
        nursery.cancel_scope.cancel()


def test_an_event_is_one_line_and_a_large_one_is_left_out() -> None:
    assert encoded("change", {"stream": "a\n\ndata: b"}) == b'event: change\ndata: {"stream":"a\\n\\ndata: b"}\n\n'
    large = encoded("change", {"stream": "x" * EVENT_BYTES_MAX})
    assert b"too_large" in large
    assert len(large) < 100


class Listener:
    """A browser that listens to a real server."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)
        self.connection.request("GET", "/ui/events", headers=headers)
        self.response = self.connection.getresponse()

    def next_of_any(self) -> tuple[str, dict[str, Any]]:
        """The next event, with its kind."""
        kind = ""
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return kind, json.loads(line.removeprefix("data: "))

    def next(self, kind: str) -> dict[str, Any]:
        """The next event of a kind."""
        while True:
            found, fields = self.next_of_any()
            if found == kind:
                return fields


def test_a_real_server_tells_figures_and_streams_that_come_and_go(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server, RawClient(server.address) as client:
        listener = Listener(server)
        assert listener.response.headers["Content-Type"].startswith("text/event-stream")
        assert "default-src 'none'" in listener.response.headers["Content-Security-Policy"]
        figures = listener.next("figures")
        assert figures["connections"] == 1
        assert figures["loop_delay_ns"] >= 0
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        added = listener.next("change")
        assert (added["what"], added["account"], added["stream"]) == ("stream_added", "$G", "S")
        client.api("STREAM.DELETE.S")
        while (event := listener.next("change"))["what"] != "stream_gone":
            pass
        assert event["stream"] == "S"
        listener.connection.close()
        assert server.healthy()
