"""The lists of the dashboard: streams, consumers, accounts and Raft groups of this node, a part at a time."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import attrs
import orjson

from jetraft.api.monitor.page import Handler, Page
from jetraft.api.monitor.pages import refusal
from jetraft.api.monitor.questions import ArgumentError, ListQuestion, PageError, from_query
from jetraft.api.monitor.ui.assets import with_headers
from jetraft.api.monitor.ui.changes import Glance


class JetStreamLists(Protocol):
    """JetStream as the dashboard sees it. Implemented by api/jetstream/dashboard.py. Each raises PageError."""

    async def streams(self, question: ListQuestion) -> dict[str, Any]:
        """`rows` of streams with a replica here, and their `total`."""

    async def stream(self, question: ListQuestion) -> dict[str, Any]:
        """One stream as /jsz shows it, with its configuration."""

    async def consumers(self, question: ListQuestion) -> dict[str, Any]:
        """`rows` of consumers of streams that this node leads."""

    async def accounts(self, question: ListQuestion) -> dict[str, Any]:
        """`rows` of accounts: what their streams hold here."""

    async def groups(self, question: ListQuestion) -> dict[str, Any]:
        """`rows` of Raft groups with a member here."""

    def glances(self) -> Iterator[Glance]:
        """See Watched of events.py."""


@attrs.frozen(eq=False)
class NoLists:
    """The lists of a server without JetStream."""

    async def _nothing(self, _question: ListQuestion) -> dict[str, Any]:
        return {"total": 0, "offset": 0, "rows": [], "disabled": True}

    streams = consumers = accounts = groups = _nothing

    def glances(self) -> Iterator[Glance]:
        """There are none."""
        return iter(())

    async def stream(self, _question: ListQuestion) -> dict[str, Any]:
        """There is none."""
        raise PageError("JetStream is not enabled", status=404)


def list_table(lists: JetStreamLists) -> dict[str, Handler]:
    """Path -> handler of each list."""
    return {
        "/ui/streams": _handler(lists.streams),
        "/ui/stream": _handler(lists.stream),
        "/ui/consumers": _handler(lists.consumers),
        "/ui/accounts": _handler(lists.accounts),
        "/ui/groups": _handler(lists.groups),
    }


def _handler(make: Callable[[ListQuestion], Awaitable[dict[str, Any]]]) -> Handler:
    async def handle(arguments: dict[str, str]) -> Page:
        try:
            page = Page(body=orjson.dumps(await make(from_query(ListQuestion, arguments))))
        except (ArgumentError, PageError) as error:
            page = refusal(error)
        return with_headers(page)

    return handle
