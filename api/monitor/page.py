"""An answer of the monitoring pages. Without the HTTP server, which only a server with a monitoring port loads."""

from collections.abc import Awaitable, Callable, Sequence

import attrs

from jetraft.api.monitor.questions import ArgumentError, PageError
from jetraft.api.monitor.steps import Steps

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"


@attrs.frozen(kw_only=True)
class Page:
    """One answer. `rest` is what follows the body of a large one."""

    body: bytes
    rest: Sequence[bytes] = ()
    status: int = 200
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()  # beside its type and length

    @property
    def size(self) -> int:
        """Bytes of the body and the rest."""
        return len(self.body) + sum(map(len, self.rest))


Handler = Callable[[dict[str, str]], Page | Awaitable[Page] | Steps[Page]]


def refusal(error: ArgumentError | PageError) -> Page:
    """The page that says why there is none."""
    status = error.status if isinstance(error, PageError) else 400
    return Page(body=str(error).encode(errors="replace"), status=status, content_type=TEXT_TYPE)
