"""Requests on `$SYS.REQ.>`: captured by sinks, answered one after the other by this node for itself.

In the system account all of them are served, from clients of every node; in other accounts what is about the account
itself (OWN_PAGES) and `$SYS.REQ.USER.INFO`. Other subjects are ordinary ones there, as with nats-server.

Answers are made one at a time, large ones in slices (api/monitor/steps.py), and what was made is followed by a pause as
long as it took, so they take half of the node's time at most; requests that find the queue of their account full are
refused.
"""

import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final

import attrs
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.monitor.questions import ArgumentError, PageError, from_pairs, pairs_of
from jetraft.api.monitor.steps import Pace, Steps, TooLargeError, json_parts
from jetraft.api.system.answers import ACCOUNT_PAGES, OWN_PAGES, SERVER_PAGES, Answers, Made, NoAnswerError
from jetraft.api.system.control import Control
from jetraft.api.system.filters import ServerFilter
from jetraft.api.system.head import ServerHead
from jetraft.api.system.waiting import RequestLines, SystemRequest
from jetraft.api.turns.outbox import PlaneOutbox
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import SinkKind
from jetraft.store.model.encoding.gojson import Object
from jetraft.store.model.encoding.jsoncodec import encode

WORKERS: Final = 8  # HEALTHZ may wait for other nodes
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
BAD_REQUEST, TOO_MANY, FAILED = 400, 429, 500
USER_INFO: Final = "$SYS.REQ.USER.INFO"
PING: Final = "$SYS.REQ.SERVER.PING"
CONTROLS: Final = ("KICK", "LDM", "RELOAD", "DRAIN")

log = logging.getLogger(__name__)
Document = dict[str, Any]


def error_of(code: int, text: str) -> Document:
    """An error, as nats-server writes it."""
    return {"error": {"code": code, "description": text}}


def written(made: Document | Steps[Document]) -> Steps[bytes]:
    """The text of an answer."""
    document = (yield from made) if isinstance(made, Generator) else made
    return b"".join((yield from json_parts(document, is_indented=False)))


@attrs.define(kw_only=True, eq=False)
class SystemRequests:
    """Serves them. `system` is the name of the system account."""

    head: ServerHead
    answers: Answers
    control: Control
    accounts: LiveAccounts
    new_outbox: Callable[[str], PlaneOutbox]
    system: str
    kick: Callable[[], None]
    waiting: RequestLines = attrs.field(init=False)
    refused: int = 0
    _outboxes: dict[str, PlaneOutbox] = attrs.field(factory=dict)  # those of accounts that are gone stay
    _sinks: dict[str, tuple[int, int]] = attrs.field(factory=dict)  # by account
    _is_running: bool = False
    _idle: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)  # workers
    _pace: Pace = attrs.field(factory=Pace)

    def __attrs_post_init__(self) -> None:
        self.waiting = RequestLines(system=self.system)
        self.accounts.changed.connect(self._follow)

    def subjects(self) -> list[str]:
        """Of the system account, but for USER_INFO."""
        own = f"$SYS.REQ.SERVER.{self.head.identity.server_id}"
        pages = (*SERVER_PAGES, "STATSZ", "IDZ", "PROFILEZ")
        return [
            PING,
            *(f"{PING}.{page}" for page in pages),
            *(f"{own}.{page}" for page in (*pages, *CONTROLS)),
            *(f"$SYS.REQ.ACCOUNT.*.{page}" for page in ACCOUNT_PAGES),
        ]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        self._is_running = True
        try:
            for account in self.accounts.limits:
                self._listen(account)
            async with trio.open_nursery() as nursery:
                for _ in range(WORKERS):
                    nursery.start_soon(self._work)
                task_status.started()
        finally:
            self._is_running = False
            for account in list(self._sinks):
                self._end(account)

    def _follow(self, account: str) -> None:
        """An account is new, or is gone."""
        if not self._is_running:
            return
        if account not in self.accounts.limits:
            self._end(account)
        elif account not in self._sinks:
            self._listen(account)

    def _listen(self, account: str) -> None:
        outbox = self._outboxes.get(account)
        if outbox is None:
            outbox = self._outboxes[account] = self.new_outbox(account)
        first, *others = self.subjects() if account == self.system else OWN_PAGES
        handler = partial(self.on_batch, account)
        handle = outbox.add_sink(first.encode(), handler, kind=SinkKind.SYSTEM)
        for subject in others:
            outbox.extend_sink(handle, subject.encode())
        # The node of the client answers that one alone, so other nodes are not told.
        self._sinks[account] = (
            handle,
            outbox.add_sink(USER_INFO.encode(), handler, kind=SinkKind.SYSTEM, local_only=True),
        )

    def _end(self, account: str) -> None:
        for handle in self._sinks.pop(account, ()):
            self._outboxes[account].remove_sink(handle)

    def on_batch(self, account: str, batch: bytes) -> None:
        """Take over the requests of a turn."""
        found = (
            SystemRequest(
                account=account,
                subject=capture.subject.decode(errors="replace"),
                reply=capture.reply,
                payload=capture.payload,
                client=capture.origin,
            )
            for capture in captures(batch)
            if capture.reply
        )
        for asked, waits in self.waiting.sorted_out(found):
            if waits:
                self._idle.unpark()
            else:
                self.refused += 1
                self._send(asked, encode({"server": self.head.next(), **error_of(TOO_MANY, "too many requests")}))

    async def _work(self) -> None:
        while True:
            asked = self.waiting.take()
            if asked is None:
                await self._idle.park()
                continue
            try:
                body = await self._body(asked)
            except Exception:  # a bug in a page must not stop the server
                log.exception("request on %s failed", asked.subject)
                body = encode({"server": self.head.next(), **error_of(FAILED, "internal error")})
            if body is not None:
                self._send(asked, body)

    def _send(self, asked: SystemRequest, body: bytes) -> None:
        self._outboxes[asked.account].send(asked.reply, payload=body)
        self.kick()

    # --- one request

    async def _body(self, asked: SystemRequest) -> bytes | None:
        """The whole answer; None when this server is not meant or has nothing to say."""
        try:
            made = await self._pace.once(lambda: self._made(asked))
            if not isinstance(made, dict | Generator):
                made = await made
            return await self._pace.finish(written(made), lambda: ANSWER_BYTES_MAX)
        except NoAnswerError:
            return None
        except ArgumentError as error:
            return encode({"server": self.head.next(), **error_of(BAD_REQUEST, str(error))})
        except PageError as error:
            return encode({"server": self.head.next(), "data": None, **error_of(FAILED, str(error))})
        except TooLargeError:
            text = f"the answer has more than {ANSWER_BYTES_MAX} bytes: ask for less (offset, limit)"
            return encode({"server": self.head.next(), **error_of(FAILED, text)})

    def _made(self, asked: SystemRequest) -> Made:
        if asked.subject == USER_INFO:
            return self._data(self.answers.user_info(asked.client, asked.account))
        words = asked.subject.split(".")
        page = words[-1] if asked.subject != PING else "STATSZ"
        if page == "IDZ":
            return self.head.short()
        control = self._control(page)
        go_name = self._go_name(page, of_account=words[2] == "ACCOUNT")
        pairs = pairs_of(asked.payload, go_name)
        if control is not None:
            return self._controlled(control, pairs)
        if page != "CONNS" and not self._is_meant(pairs, go_name):
            raise NoAnswerError
        return self._page(asked, page, pairs)

    def _control(self, page: str) -> Callable[[Object], Document | None] | None:
        """What changes something, by the last word of its subject."""
        control = self.control
        return {"KICK": control.kick, "LDM": control.ldm, "RELOAD": control.reload, "DRAIN": control.drain}.get(page)

    def _page(self, asked: SystemRequest, page: str, pairs: Object) -> Made:
        words = asked.subject.split(".")
        if asked.account != self.system:
            own = self.answers.connz if page == "CONNZ" else self.answers.own_statz
            return self._data(own(asked.account, pairs))
        if words[2] == "ACCOUNT":
            if page == "CONNS":
                return self.answers.conns(words[3], pairs)
            return self._data(self.answers.of_account(page, ".".join(words[3:-1]), pairs))
        if page == "STATSZ":
            return self.answers.events.statsz()
        return self._data(self.answers.of_server(page, pairs))

    def _go_name(self, page: str, *, of_account: bool) -> str:
        """Go's type of a request, for texts of errors."""
        if page == "STATZ":
            return "AccountStatzEventOptions"
        if page in ("STATSZ", "PROFILEZ"):
            return f"{page.capitalize()}EventOptions"
        kind = self.answers.pages.kinds.get(page)
        return kind.go_name if kind is not None and not (of_account and page == "INFO") else "AccInfoEventOptions"

    def _is_meant(self, pairs: Object, go_name: str) -> bool:
        options = self.head.sessions.options
        return from_pairs(ServerFilter, pairs, go_name).admits(
            name=self.head.identity.server_name,
            cluster=self.head.identity.cluster_name,
            host=options.host,
            tags=options.server_tags,
            domain=self.head.domain,
        )

    def _controlled(self, control: Callable[[Object], Document | None], pairs: Object) -> Document:
        """Carry out a request that changes something; errors have no data, as most of them have none."""
        try:
            data = control(pairs)
        except PageError as error:
            return {"server": self.head.next(), **error_of(FAILED, str(error))}
        return {"server": self.head.next(), **({} if data is None else {"data": data})}

    def _data(self, data: Made) -> Made:
        if isinstance(data, Generator):
            return self._gathered(data)
        if not isinstance(data, dict):
            return self._awaited(data)
        return {"server": self.head.next(), "data": data}

    def _gathered(self, data: Steps[Document]) -> Steps[Document]:
        found = yield from data
        return {"server": self.head.next(), "data": found}

    async def _awaited(self, data: Awaitable[Document]) -> Document:
        return {"data": await data, "server": self.head.next()}

    def statistics(self) -> dict[str, int]:
        """Requests that wait, and those that were refused."""
        return {"waiting": self.waiting.count, "refused": self.refused}
