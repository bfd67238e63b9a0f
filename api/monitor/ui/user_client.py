"""The connection of a user who has signed in: requests of a browser are this client's, at most some at a time.

It is a client like others: who it is, what it may do and when its user expires is decided where that is decided for all
clients, and when the server closes it (its user is gone after a reload, or has expired) the sign-in is over.
"""

from collections.abc import Callable
from typing import Final

import attrs
import trio

from jetraft.api.http_gateway.client import FORBIDDEN, UNAUTHORIZED, GatewayAnswer, GatewayClient, status_of
from jetraft.api.http_gateway.requests import RefusedRequestError

REQUESTS_AT_ONCE: Final = 8  # a browser has six connections to a host
MESSAGES_AT_ONCE: Final = 64  # read between two checkpoints, some 10 us each
SEND_S: Final = 5.0
DENIED_SUBSCRIPTION: Final = "permissions violation for subscription"

OnEvent = Callable[[str, bytes], None]


@attrs.define(eq=False)
class OpenRequest:
    """A request that waits for its answer."""

    subject: bytes
    done: trio.Event = attrs.field(factory=trio.Event)
    found: GatewayAnswer | None = None
    refused: RefusedRequestError | None = None

    def settle(self, found: GatewayAnswer) -> None:
        """It has one."""
        self.found = found
        self.done.set()

    def refuse(self, status: int, reason: str) -> None:
        """It has no answer."""
        self.refused = RefusedRequestError(status, reason)
        self.done.set()


class UserClient(GatewayClient):
    """See the module. `run` has to run from the end of `connect` on."""

    def __init__(self, stream: trio.SocketStream, inbox: bytes) -> None:
        super().__init__(stream, inbox)
        self._on_event: OnEvent | None = None
        self.why_over = ""
        self._waiting: dict[bytes, OpenRequest] = {}
        self._places = trio.Semaphore(REQUESTS_AT_ONCE)
        self._sending = trio.Lock()
        self._runs = False

    async def run(self) -> None:
        """Read until the connection is over, then close it."""
        self._runs = True
        count = 0
        try:
            while True:
                subject, hdr, payload = await self._next_message()
                waiting = self._waiting.pop(subject, None)
                if waiting is not None:
                    waiting.settle(GatewayAnswer(hdr, payload))
                elif self._on_event is not None and not subject.startswith(self._inbox):
                    self._on_event(subject.decode("utf-8", "replace"), payload)
                count += 1
                if count % MESSAGES_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        except RefusedRequestError as over:
            self.why_over = over.reason
        finally:
            self.is_over = True
            for waiting in self._waiting.values():
                waiting.refuse(UNAUTHORIZED, self.why_over or "the sign-in is over")
            with trio.CancelScope(shield=True):
                await self.close()

    async def request(self, subject: bytes, hdr: bytes, payload: bytes, timeout_s: float) -> GatewayAnswer:
        """The answer to a message. Raises RefusedRequestError: also when it is not allowed, or none comes in time."""
        async with self._places:
            if self.is_over:
                raise RefusedRequestError(UNAUTHORIZED, self.why_over or "the sign-in is over")
            self._number += 1
            reply = b"%b.%d" % (self._inbox, self._number)
            head = b"PUB %b %b %d\r\n" % (subject, reply, len(payload))
            if hdr:
                head = b"HPUB %b %b %d %d\r\n" % (subject, reply, len(hdr), len(hdr) + len(payload))
            waiting = self._waiting[reply] = OpenRequest(subject)
            try:
                await self._send(b"".join((head, hdr, payload, b"\r\n")))
                with trio.move_on_after(timeout_s):
                    await waiting.done.wait()
            finally:
                self._waiting.pop(reply, None)
            if waiting.refused is not None:
                raise waiting.refused
            if waiting.found is None:
                raise RefusedRequestError(504, "there is no answer in time")
            return waiting.found

    def listen(self, on_event: OnEvent) -> None:
        """Call this with subject and payload of what is subscribed to."""
        self._on_event = on_event

    async def subscribe(self, sid: int, subject: bytes) -> None:
        """Have messages of a subject given to who listens. If it is not allowed, that is given instead."""
        await self._send(b"SUB %b %d\r\n" % (subject, sid))

    async def unsubscribe(self, sid: int) -> None:
        """The end of that."""
        await self._send(b"UNSUB %d\r\n" % sid)

    async def _send(self, data: bytes) -> None:
        """Send all of it: half of a message would make the next one nonsense, so a server that takes none is left."""
        async with self._sending:
            if self.is_over:
                return
            with trio.move_on_after(SEND_S, shield=True) as scope:
                await super()._send(data)
            if scope.cancelled_caught:
                self.is_over = True
                await self.close()

    async def _heed(self, line: bytes) -> None:
        if not (self._runs and line.startswith(b"-ERR")):
            await super()._heed(line)
            return
        reason = line[4:].strip().strip(b"'").decode("utf-8", "replace")
        if status_of(reason) != FORBIDDEN:
            raise RefusedRequestError(status_of(reason), reason)  # the server closes the connection
        if reason.lower().startswith(DENIED_SUBSCRIPTION):
            if self._on_event is not None:
                self._on_event("", reason.encode())
            return
        for waiting in self._waiting.values():
            if b'"%b"' % waiting.subject in line:
                waiting.refuse(FORBIDDEN, reason)
