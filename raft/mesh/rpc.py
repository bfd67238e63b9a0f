"""Calls between nodes: a request and one answer over the RPC channel, or over BULK when they carry much.

    request: u8 1 | u64 call | u16 method bytes | method | payload        answer: u8 2 | u64 call | u8 status | payload

A call ends with the answer, with the caller's timeout, or with the link: it is never sent twice, so whether a call
without an answer was served is unknown to the caller.

A caller is a task that waits (`call`) or a callback (`ask`), and so is who serves (`serve`, `serve_at_once`): what goes
between callbacks is asked and answered within turns of the nodes, without a pass of their schedulers.
"""

import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Final

import trio

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_BULK, CHANNEL_RPC
from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 64 << 10  # of methods that do not ask for more: names and numbers
ASKED_S: Final = 5.0  # then a callback is told that there is no answer, a second later at most
LOOK_S: Final = 1.0  # between looks for such
SERVED_AT_ONCE_MAX: Final = 4096  # per node; more are answered with an error instead of filling the memory
_REQUEST: Final = struct.Struct("<BQH")
_ANSWER: Final = struct.Struct("<BQB")
_STATUS_OK, _STATUS_ERROR = 0, 1

Handler = Callable[[NodeId, bytes], Awaitable[bytes]]
PromptHandler = Callable[[NodeId, bytes, Callable[[bytes], None]], None]
Asked = Callable[[bytes | None], None]


class PeerUnavailableError(Exception):
    """There is no link to the node, or it ended before the answer came."""


class CallTimeoutError(Exception):
    """No answer within the caller's time; the call may have been served."""


class RemoteCallError(Exception):
    """The other node could not serve the call; the message is its."""


class _Call:
    __slots__ = ("_done", "answer", "bulk", "error", "is_over", "to")

    def __init__(self, to: NodeId, *, bulk: bool, done: Callable[[], None]) -> None:
        self.to = to
        self.bulk = bulk
        self._done = done
        self.answer: bytes | None = None
        self.error: Exception | None = None
        self.is_over = False

    def end(self, *, answer: bytes | None = None, error: Exception | None = None) -> None:
        """The first end counts."""
        if not self.is_over:
            self.is_over, self.answer, self.error = True, answer, error
            self._done()


class Calls:
    """The calls of one node, in both directions. Handlers run in the nursery that `start_serving` is given."""

    def __init__(
        self,
        send: Callable[[NodeId, int, bytes], bool],
        complain: Callable[[Hashable, str], None] | None = None,
        send_behind_routes: Callable[[NodeId, int, bytes], bool] | None = None,
    ) -> None:
        self._send = send
        self._send_behind_routes = send_behind_routes or send
        self._complain = complain or (lambda _key, text: log.warning("%s", text))
        self._nursery: trio.Nursery | None = None
        self._handlers: dict[str, Handler] = {}
        self._prompt: dict[str, PromptHandler] = {}
        self._request_bytes_max: dict[str, int] = {}
        self._open: dict[int, _Call] = {}
        self._asked: deque[tuple[float, int]] = deque()  # (when it is given up, call) of callbacks, the oldest first
        self._is_looking = False  # for those of them that are over
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

    def serve_at_once(self, method: str, handler: PromptHandler, *, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        """Have `handler(sender, payload, answer)` called within the turn; it calls `answer` once, then or later.

        It may raise RemoteProtocolError before that.
        """
        assert method not in self._prompt
        self._prompt[method] = handler
        self._request_bytes_max[method] = request_bytes_max

    def ask(self, to: NodeId, method: str, payload: bytes, done: Asked) -> bool:
        """Have `done` called with the answer, or with None when there is none; False when it cannot be asked.

        The question goes behind the core messages for that node that wait by now.
        """
        assert self._nursery is not None
        number = self._count + 1
        call = _Call(to, bulk=False, done=lambda: self._end_asked(number, done))
        self._open[number] = call
        if not self._send_request(to, CHANNEL_RPC, method, payload, behind_routes=True):
            self._open.pop(number, None)
            return False
        self._asked.append((trio.current_time() + ASKED_S, number))
        if not self._is_looking:
            self._is_looking = True
            self._nursery.start_soon(self._look)
        return True

    def _end_asked(self, number: int, done: Asked) -> None:
        call = self._open.pop(number)
        while self._asked and self._asked[0][1] not in self._open:
            self._asked.popleft()
        done(call.answer)

    async def _look(self) -> None:
        """Give up what was asked too long ago, until nothing is."""
        while self._asked:
            await trio.sleep(LOOK_S)
            while self._asked and self._asked[0][0] <= trio.current_time():
                number = self._asked.popleft()[1]
                if number in self._open:
                    self._open[number].end(error=CallTimeoutError(f"no answer in {ASKED_S} s"))
        self._is_looking = False

    def _send_request(
        self, to: NodeId, channel: int, method: str, payload: bytes, *, behind_routes: bool = False
    ) -> bool:
        self._count += 1
        name = method.encode()
        send = self._send_behind_routes if behind_routes else self._send
        return send(to, channel, _REQUEST.pack(1, self._count, len(name)) + name + payload)

    async def call(  # noqa: PLR0913  (how it travels, by name)
        self,
        to: NodeId,
        method: str,
        payload: bytes,
        *,
        timeout_s: float,
        bulk: bool = False,
        behind_routes: bool = False,
    ) -> bytes:
        """The answer. Raises PeerUnavailableError, CallTimeoutError, RemoteCallError.

        With `behind_routes` the request goes behind the core messages for that node that wait by now: it is a client's,
        which may have published before.
        """
        finished = trio.Event()
        number, call = self._count + 1, _Call(to, bulk=bulk, done=finished.set)
        self._open[number] = call
        try:
            channel = CHANNEL_BULK if bulk else CHANNEL_RPC
            if not self._send_request(to, channel, method, payload, behind_routes=behind_routes):
                raise PeerUnavailableError(f"no link to {to}")
            with trio.move_on_after(timeout_s):
                await finished.wait()
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
            call.end(error=PeerUnavailableError(reason))

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
        if call is None or call.to != sender:
            return  # the caller has given up
        if status == _STATUS_OK:
            call.end(answer=body)
        else:
            call.end(error=RemoteCallError(body.decode(errors="replace")))

    def _on_request(self, channel: int, sender: NodeId, payload: memoryview) -> None:
        _, number, name_bytes = _REQUEST.unpack_from(payload)
        body_at = _REQUEST.size + name_bytes
        if body_at > len(payload):
            raise RemoteProtocolError("a request ends inside its method")
        method = str(payload[_REQUEST.size : body_at], "utf-8", "replace")
        handler = self._handlers.get(method)
        if handler is None and method not in self._prompt:
            self._answer(channel, sender, number, _STATUS_ERROR, b"no such method: " + method[:100].encode())
        elif len(payload) - body_at > self._request_bytes_max[method]:
            self._answer(channel, sender, number, _STATUS_ERROR, b"the request is too large")
        elif self._nursery is None or self._served_now >= SERVED_AT_ONCE_MAX:
            self._answer(channel, sender, number, _STATUS_ERROR, b"busy")
        elif handler is None:
            self._serve_at_once(method, channel, sender, number, bytes(payload[body_at:]))
        else:
            self._served_now += 1
            self._nursery.start_soon(self._serve_one, method, channel, sender, number, bytes(payload[body_at:]))

    def _serve_at_once(self, method: str, channel: int, sender: NodeId, number: int, body: bytes) -> None:
        try:
            self._prompt[method](sender, body, partial(self._answer, channel, sender, number, _STATUS_OK))
        except RemoteProtocolError as error:  # of a handler that could not read the request
            self._complain((sender, method), f"with {sender}: {method}: {error}")
            self._answer(channel, sender, number, _STATUS_ERROR, str(error).encode())

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
