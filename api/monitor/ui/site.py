"""The dashboard's own requests: what is more than a page."""

from collections.abc import Mapping
from functools import partial

import attrs
import trio

from jetraft.api.monitor.page import Page
from jetraft.api.monitor.ui.advisories import AdvisoryFeeds
from jetraft.api.monitor.ui.asking import UserRequests
from jetraft.api.monitor.ui.events import EventFeed, Events
from jetraft.api.monitor.ui.sign_in import SignIns
from jetraft.api.monitor.web_request import Answerer, Feed, WebRequest


@attrs.define(eq=False)
class DashboardSite:
    """See MonitorSite of api/monitor/web_request.py."""

    events: Events
    sign_ins: SignIns
    answerers: Mapping[str, Answerer] = attrs.field(init=False)
    _advisories: AdvisoryFeeds = attrs.field(factory=AdvisoryFeeds, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.answerers = {
            "/ui/events": self._open_feed,
            "/ui/session": self.sign_ins.status,
            "/ui/challenge": self.sign_ins.challenge,
            "/ui/login": self.sign_ins.sign_in,
            "/ui/logout": self.sign_ins.sign_out,
            "/ui/request": UserRequests(self.sign_ins).ask,
        }

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self.events.run)
            self._nursery.start_soon(self.sign_ins.run)

    async def _open_feed(self, asked: WebRequest) -> Page | Feed:
        """A feed; for who is signed in with the advisories of the account that the user may subscribe to."""
        feed = await self.events.open(asked)
        found = self.sign_ins.of(asked) if isinstance(feed, EventFeed) else None
        if found is not None and isinstance(feed, EventFeed):
            assert self._nursery is not None
            is_system = bool(self.sign_ins.described(found)["is_system"])
            self._nursery.start_soon(partial(self._advisories.add, found, feed, is_system=is_system))
        return feed
