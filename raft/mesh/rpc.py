"""Calls between nodes: a request and one answer over the RPC channel, or over BULK when they carry much.

    request: u8 1 | u64 call | u16 method bytes | method | payload        answer: u8 2 | u64 call | u8 status | payload

A call ends with the answer, with the caller's timeout, or with the link: it is never sent twice, so whether a call
without an answer was served is unknown to the caller.
"""

import logging
import struct
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Final

import trio

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_BULK, CHANNEL_RPC
from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 64 << 10  # of methods that do not ask for more: names and numbers
SERVED_AT_ONCE_MAX: Final = 4096  # per node; more are answered with an error instead of filling the memory
_REQUEST: Final = struct.Struct("<BQH")
_ANSWER: Final = struct.Struct("<BQB")
_STATUS_OK, _STATUS_ERROR = 0, 1

Handler = Callable[[NodeId, bytes], Awaitable[bytes]]


class PeerUnavailableError(Exception):
    """There is no link to the node, or it ended before the answer came."""


class CallTimeoutError(Exception):
    """No answer within the caller's time; the call may have been served."""


class RemoteCallError(Exception):
    """The other node could not serve the call; the message is its."""


class _Call:
    __slots__ = ("answer", "bulk", "error", "finished", "to")

    def __init__(self, to: NodeId, *, bulk: bool) -> None:
        self.to = to
        self.bulk = bulk
        self.finished = trio.Event()
        self.answer: bytes | None = None
        self.error: Exception | None = None


class Calls:
    """The calls of one node, in both directions. Handlers run in the nursery that `start_serving` is given."""

    def __init__(
        self, send: Callable[[NodeId, int, bytes], bool], complain: Callable[[Hashable, str], None] | None = None
    ) -> None:
        self._send = send
        self._complain = complain or (lambda _key, text: log.warning("%s", text))
        self._nursery: trio.Nursery | None = None
        self._handlers: dict[str, Handler] = {}
        self._request_bytes_max: dict[str, int] = {}
        self._open: dict[int, _Call] = {}
        self._count = 0
        self._served_now = 0

    def start_serving(self, nursery: trio.Nursery) -> None:
        """Serve requests in this nursery, which outlives all links."""
        self._nursery = nursery

    def serve(self, method: str, handler: Handler, *, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        """Answer `method` with what `handler(sender, payload)` returns; RemoteCallError's text goes to the caller."""
        assert method not in self._handlers
        self._handlers[method] = handler
        self._request_bytes_max[method] = request_bytes_max

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        """The answer. Raises PeerUnavailableError, CallTimeoutError, RemoteCallError."""
        self._count += 1
        number, call = self._count, _Call(to, bulk=bulk)
        name = method.encode()
        request = _REQUEST.pack(1, number, len(name)) + name + payload
        self._open[number] = call
        try:
            if not self._send(to, CHANNEL_BULK if bulk else CHANNEL_RPC, request):
                raise PeerUnavailableError(f"no link to {to}")
            with trio.move_on_after(timeout_s):
                await call.finished.wait()
        finally:
            del self._open[number]
        if call.error is not None:
            raise call.error
        if call.answer is None:
            raise CallTimeoutError(f"{method} at {to}: no answer in {timeout_s} s")
        return call.answer

    def peer_down(self, node: NodeId) -> None:
        """The link ended: calls to the node will not be answered."""
        self._end([call for call in self._open.values() if call.to == node], f"the link to {node} ended")

    def bulk_down(self, node: NodeId) -> None:
        """The connection for bulk ended: bulk calls to the node will not be answered."""
        calls = [call for call in self._open.values() if call.to == node and call.bulk]
        self._end(calls, f"the bulk connection to {node} ended")

    @staticmethod
    def _end(calls: Iterable[_Call], reason: str) -> None:
        for call in calls:
            if not call.finished.is_set():
                call.error = PeerUnavailableError(reason)
                call.finished.set()

    def on_frame(self, channel: int, sender: NodeId, payload: memoryview) -> None:
        """A request or an answer arrived. Raises RemoteProtocolError."""
        kind = payload[0] if len(payload) else 0
        if kind == 1 and len(payload) >= _REQUEST.size:
            self._on_request(channel, sender, payload)
        elif kind == 2 and len(payload) >= _ANSWER.size:  # noqa: PLR2004  (the layout is in the module's head)
            _, number, status = _ANSWER.unpack_from(payload)
            self._on_answer(sender, number, status, bytes(payload[_ANSWER.size :]))
        else:
            raise RemoteProtocolError("a call frame that is neither request nor answer")

    def _on_answer(self, sender: NodeId, number: int, status: int, body: bytes) -> None:
        call = self._open.get(number)
        if call is None or call.to != sender or call.finished.is_set():
            return  # the caller has given up
        if status == _STATUS_OK:
            call.answer = body
        else:
            call.error = RemoteCallError(body.decode(errors="replace"))
        call.finished.set()

    def _on_request(self, channel: int, sender: NodeId, payload: memoryview) -> None:
        _, number, name_bytes = _REQUEST.unpack_from(payload)
        body_at = _REQUEST.size + name_bytes
        if body_at > len(payload):
            raise RemoteProtocolError("a request ends inside its method")
        method = str(payload[_REQUEST.size : body_at], "utf-8", "replace")
        handler = self._handlers.get(method)
        if handler is None:
            self._answer(channel, sender, number, _STATUS_ERROR, b"no such method: " + method[:100].encode())
        elif len(payload) - body_at > self._request_bytes_max[method]:
            self._answer(channel, sender, number, _STATUS_ERROR, b"the request is too large")
        elif self._nursery is None or self._served_now >= SERVED_AT_ONCE_MAX:
            self._answer(channel, sender, number, _STATUS_ERROR, b"busy")
        else:
            self._served_now += 1
            self._nursery.start_soon(self._serve_one, method, channel, sender, number, bytes(payload[body_at:]))

    async def _serve_one(self, method: str, channel: int, sender: NodeId, number: int, body: bytes) -> None:
        try:
            answer = await self._handlers[method](sender, body)
        except (RemoteCallError, CallTimeoutError, PeerUnavailableError) as error:
            self._answer(channel, sender, number, _STATUS_ERROR, str(error).encode())
        except RemoteProtocolError as error:  # of a handler that could not read the request
            self._complain((sender, method), f"with {sender}: {method}: {error}")
            self._answer(channel, sender, number, _STATUS_ERROR, str(error).encode())
        except Exception as error:  # the caller must learn it, and one bad request must not end the node
            self._complain((sender, method), f"with {sender}: serving {method} failed: {error!r}")
            log.debug("serving %s to %s failed", method, sender, exc_info=True)
            self._answer(channel, sender, number, _STATUS_ERROR, repr(error).encode())
        else:
            self._answer(channel, sender, number, _STATUS_OK, answer)
        finally:
            self._served_now -= 1

    def _answer(self, channel: int, to: NodeId, number: int, status: int, body: bytes) -> None:
        self._send(to, channel, _ANSWER.pack(2, number, status) + body)
