"""Serves the subjects of JetStream's tech preview, where `jetstream { legacy_api: true }` asks for them.

Each request becomes one of today's API, sent in the account where it came in, and its answer becomes one of then. What
waits for an answer is bounded; the API answers everything, late requests too. The requester has to be allowed both: the
subject that it publishes to, which the plane judges as always, and the one of today that the request becomes. A request
that no connection of this server has sent is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.api.jetstream.legacy import BAD_REQUEST, BadLegacyRequestError, OldRequest, asked_of, next_of, refusal
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.store.model import errors

if TYPE_CHECKING:
    from jetraft.api.auth.accounts import LiveAccounts
    from jetraft.api.plane._plane import Plane
    from jetraft.cluster.capture._capture import Capture
    from jetraft.cluster.ports import Outbox, Outboxes

PREFIX: Final = b"$JS."
CAPTURED: Final = (
    b"$JS.ENABLED",
    b"$JS.INFO",
    b"$JS.STREAM.>",
    b"$JS.NEXT.*.*",
    b"$JS.TEMPLATE.>",
    b"$JS.TEMPLATES.LIST",
)
UNREADABLE: Final = "an answer that cannot be read"
TOKEN_BYTES: Final = 8  # of the inbox: no client knows where answers are waited for
WAITING_MAX: Final = 1024  # requests of an account without an answer
NOT_ALLOWED: Final = "Permissions Violation for Publish to "  # as connections are told
MaySend = Callable[[int, bytes], bool]  # whether a connection of this server may publish to a subject
WAIT_S: Final = 30.0  # then an answer is not expected any more, and its place is another's


@attrs.frozen(kw_only=True, slots=True)
class WaitingRequest:
    """A request that today's API has, and who asked."""

    asked: OldRequest
    reply: bytes
    origin: int
    since_s: float


class LegacyAccount:
    """The requests of one account on this node."""

    def __init__(self, outbox: Outbox, inbox: bytes, may_send: MaySend) -> None:
        """Listen. `inbox` is where the answers of today's API come, with a number behind it."""
        self._outbox = outbox
        self._may_send = may_send
        self._inbox = inbox
        self._waiting: dict[bytes, WaitingRequest] = {}  # by the subject of the answer, the oldest first
        self._number = 0
        self._sinks = [
            outbox.add_sink(subject, self._on_requests, kind=SinkKind.API, local_only=True) for subject in CAPTURED
        ]
        self._sinks.append(outbox.add_sink(inbox + b".*", self._on_answers, kind=SinkKind.REPLY))

    def end(self) -> None:
        """Stop listening."""
        for handle in self._sinks:
            self._outbox.remove_sink(handle)
        self._sinks = []

    def _on_requests(self, batch: bytes) -> None:
        for request in captures(batch):
            if request.reply:
                self._take(request)

    def _take(self, request: Capture) -> None:
        tokens = request.subject.removeprefix(PREFIX).decode(errors="replace").split(".")
        following = next_of(tokens)
        if following:
            if self._is_allowed(following, request.origin, request.reply):
                self._outbox.send(
                    following.encode(), reply=request.reply, payload=request.payload, origin=MessageOrigin.SERVER
                )
            return
        try:
            asked = asked_of(tokens, request.payload)
        except BadLegacyRequestError:
            self._outbox.send(request.reply, payload=BAD_REQUEST)
            return
        if asked is not None:
            self._ask(asked, request.reply, request.origin)

    def _is_allowed(self, subject: str, origin: int, reply: bytes) -> bool:
        """Whether who asks may publish to a subject of today's API; if not, that is said."""
        if origin and self._may_send(origin, subject.encode()):
            return True
        self._outbox.send(reply, payload=refusal(f'{NOT_ALLOWED}"{subject}"'))
        return False

    def _ask(self, asked: OldRequest, reply: bytes, origin: int) -> None:
        if not self._is_allowed(asked.subject, origin, reply):
            return
        now_s = trio.current_time()
        while self._waiting and (oldest := next(iter(self._waiting.items())))[1].since_s + WAIT_S < now_s:
            del self._waiting[oldest[0]]
        if len(self._waiting) >= WAITING_MAX:
            self._outbox.send(reply, payload=refusal(errors.STREAM_TOO_MANY_REQUESTS.with_values().description))
            return
        self._number += 1
        inbox = b"%s.%d" % (self._inbox, self._number)
        self._waiting[inbox] = WaitingRequest(asked=asked, reply=reply, origin=origin, since_s=now_s)
        self._outbox.send(asked.subject.encode(), reply=inbox, payload=asked.body, origin=MessageOrigin.SERVER)

    def _on_answers(self, batch: bytes) -> None:
        for answer in captures(batch):
            waiting = self._waiting.pop(answer.subject, None)
            if waiting is None:
                continue
            try:
                taken = waiting.asked.taken(answer.payload)
            except (ValueError, KeyError, TypeError, AttributeError):
                taken = refusal(UNREADABLE)  # not of a server: any client may publish to the subject, if it knows it
            if isinstance(taken, OldRequest):
                self._ask(taken, waiting.reply, waiting.origin)
            else:
                self._outbox.send(waiting.reply, payload=taken)


class LegacyApi:
    """The accounts that have JetStream, as they come and go."""

    def __init__(self, accounts: LiveAccounts, outboxes: Outboxes, plane: Plane) -> None:
        """Listen for all of them."""
        self._plane = plane
        self._accounts = accounts
        self._outboxes = outboxes
        self._inbox = f"$JSC.R.{secrets.token_hex(TOKEN_BYTES)}".encode()
        self._open: dict[str, LegacyAccount] = {}
        for account in accounts.limits:
            self._follow(account)
        accounts.changed.connect(self._follow)

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            for account in self._open.values():
                account.end()

    def _judge_of(self, account: str) -> MaySend:
        return lambda origin, subject: self._plane.may_send(origin, account, subject)

    def _follow(self, account: str) -> None:
        if self._accounts.is_answered(account):
            if account not in self._open:
                self._open[account] = LegacyAccount(self._outboxes(account), self._inbox, self._judge_of(account))
        elif account in self._open:
            self._open.pop(account).end()
