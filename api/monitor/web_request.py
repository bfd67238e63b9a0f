"""A request of the monitor's listener as the dashboard needs it, and an answer that goes on.

Pages of the table of paths are asked with the arguments of their URL alone. The dashboard's own requests have a method,
headers and a body, and its events are an answer without an end.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import attrs

from jetraft.api.monitor.page import Page

BODY_BYTES_MAX = 256 * 1024  # of a request: the configuration of a stream, or a message that is published


@attrs.frozen(kw_only=True)
class WebRequest:
    """One request. `headers` by their names in lower case; several of one name are joined, as in a list."""

    method: str
    arguments: Mapping[str, str]
    headers: Mapping[str, str]
    ip: str
    port: int
    is_secure: bool  # HTTPS
    body: bytes = attrs.field(default=b"", repr=False)

    def header(self, name: str) -> str:
        """The value of a header, empty without one."""
        return self.headers.get(name, "")


Send = Callable[[bytes], Awaitable[None]]


class Feed(Protocol):
    """An answer without an end."""

    @property
    def head(self) -> Page:
        """Status, type and headers; its body is not sent."""

    async def run(self, send: Send) -> None:
        """Send until there is nothing more to be sent. Each send may raise, when the peer has gone or is too slow."""

    def close(self) -> None:
        """Give back what it holds; called once, whether it ran or not."""


Answerer = Callable[[WebRequest], Awaitable[Page | Feed]]


class MonitorSite(Protocol):
    """Requests that are more than a page. Implemented by api/monitor/ui/site.py."""

    @property
    def answerers(self) -> Mapping[str, Answerer]:
        """Path -> what answers it. It bounds what it costs by itself: it is not one of the pages that take turns."""

    async def run(self) -> None:
        """Serve until cancelled."""
