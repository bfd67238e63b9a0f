"""An answer of the monitoring pages. Without the HTTP server, which only a server with a monitoring port loads."""

from collections.abc import Awaitable, Callable

import attrs

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"


@attrs.frozen(kw_only=True)
class Page:
    """One answer."""

    body: bytes
    status: int = 200
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()  # beside its type and length


Handler = Callable[[dict[str, str]], Page | Awaitable[Page]]
