"""The lists of the dashboard: streams, consumers, accounts and Raft groups of this node, a part at a time."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs

from jetraft.api.monitor.page import Handler, Page, refusal
from jetraft.api.monitor.questions import ArgumentError, ListQuestion, PageError, from_query
from jetraft.api.monitor.steps import Steps, json_parts
from jetraft.api.monitor.ui.assets import with_headers
from jetraft.api.monitor.ui.changes import Glance


class JetStreamLists(Protocol):
    """JetStream as the dashboard sees it. Implemented by api/jetstream/dashboard.py. Each raises PageError."""

    def streams(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """`rows` of streams with a replica here, and their `total`."""

    def stream(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """One stream as /jsz shows it, with its configuration."""

    def consumers(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """`rows` of consumers of streams that this node leads."""

    def accounts(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """`rows` of accounts: what their streams hold here."""

    def groups(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """`rows` of Raft groups with a member here."""

    def glances(self) -> Iterator[Glance]:
        """See Watched of events.py."""


@attrs.frozen(eq=False)
class NoLists:
    """The lists of a server without JetStream."""

    def _nothing(self, _question: ListQuestion) -> Steps[dict[str, Any]]:
        yield 0
        return {"total": 0, "offset": 0, "rows": [], "disabled": True}

    streams = consumers = accounts = groups = _nothing

    def glances(self) -> Iterator[Glance]:
        """There are none."""
        return iter(())

    def stream(self, _question: ListQuestion) -> Steps[dict[str, Any]]:
        """There is none."""
        yield 0
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


def _handler(make: Callable[[ListQuestion], Steps[dict[str, Any]]]) -> Handler:
    def handle(arguments: dict[str, str]) -> Page | Steps[Page]:
        try:
            return _page_of(make(from_query(ListQuestion, arguments)))
        except ArgumentError as error:
            return with_headers(refusal(error))

    return handle


def _page_of(made: Steps[dict[str, Any]]) -> Steps[Page]:
    try:
        document = yield from made
    except PageError as error:
        return with_headers(refusal(error))
    first, *rest = yield from json_parts(document, is_indented=False)
    return with_headers(Page(body=first, rest=rest))
