"""The requests that this node carries out: here, or forwarded by another node.

Those who answer register their subjects when they are made, as with `Mesh.serve`; the API (api/jetstream/gateway.py)
takes all others. The registry stands below both the forwarder and those who answer with its help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetraft.cluster.calls.messages.forwarding import ForwardedRequest

    Handler = Callable[[ForwardedRequest], Awaitable[bytes]]


class ServedRequests:
    """See the module."""

    def __init__(self) -> None:
        self._by_subject: dict[bytes, Handler] = {}
        self._api: Handler = _no_api

    def serve(self, subject: bytes, handler: Handler) -> None:
        """Have requests on this subject carried out by `handler`, which raises Moved when it is not the owner."""
        assert subject not in self._by_subject
        self._by_subject[subject] = handler

    def serve_api(self, handler: Handler) -> None:
        """Have requests on all other subjects carried out by `handler`."""
        self._api = handler

    async def execute(self, request: ForwardedRequest) -> bytes:
        """Carry the request out and return its answer. Raises Moved or AnswerLost."""
        handler = self._by_subject.get(request.subject, self._api)
        try:
            return await handler(request)
        except NotLeaderError as error:
            raise Moved from error
        except OutcomeUnknownError as error:
            raise AnswerLost from error


async def _no_api(_request: ForwardedRequest) -> bytes:
    raise AnswerLost
