"""Connections to hubs over WebSocket: the request for an upgrade, and what is agreed on by its answer.

    (TLS)    GET .../leafnode >    101 <    frames, in which the protocol of leaf nodes begins with INFO

Answers are read by h11. An answer that is not to this request, or that agrees to what was not asked for, ends the
connection; nothing behind it is read.
"""

import base64
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs
import h11
import trio

from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.logs.logger import Logger
from jetraft.api.plane.reasons import Reason
from jetraft.api.turns.reactor import Reactor
from jetraft.api.websocket._common import WebSocketCommon
from jetraft.api.websocket.upgrade import DEFLATE, DEFLATE_ANSWER, LEAF_PATH, VERSION, accept_of
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from jetraft.api.plane._web import WebPlane

ANSWER_BYTES_MAX: Final = 16 * 1024
KEY_BYTES: Final = 16
SWITCHED: Final = 101
NO_MASKING: Final = "nats-no-masking"
BOTH_FORGET: Final = {"server_no_context_takeover", "client_no_context_takeover"}
NOT_WEBSOCKET: Final = "invalid websocket connection"
NOT_AGREED: Final = "compression negotiation error"


class AnswerError(ValueError):
    """The bytes are no answer to the request; the text is for the log."""


@attrs.frozen
class Agreed:
    """The rules for the frames of a connection."""

    masks: bool
    deflates: bool


def request_of(link: LeafLink, key: str) -> list[tuple[str, str]]:
    """The headers of a request for an upgrade."""
    assert link.url is not None
    assert link.remote is not None
    return [
        ("Host", link.url.address),
        ("Connection", "Upgrade"),
        *([("Nats-No-Masking", "true")] if link.remote.ws_no_masking else []),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", VERSION),
        *([("Sec-WebSocket-Extensions", DEFLATE_ANSWER)] if link.remote.ws_compression else []),
        ("Upgrade", "websocket"),
    ]


def agreed(link: LeafLink, key: str, status: int, headers: Mapping[str, str]) -> Agreed:
    """Judge an answer. Names of headers are in small letters. Raises AnswerError."""
    assert link.remote is not None
    switches = (status, headers.get("upgrade", "").lower(), headers.get("connection", "").lower())
    if switches != (SWITCHED, "websocket", "upgrade") or headers.get("sec-websocket-accept") != accept_of(key):
        raise AnswerError(NOT_WEBSOCKET)
    extension, *parameters = (part.strip().lower() for part in headers.get("sec-websocket-extensions", "").split(";"))
    deflates = extension == DEFLATE
    is_asked_for = link.remote.ws_compression and set(parameters) == BOTH_FORGET
    if extension and not (deflates and is_asked_for):
        raise AnswerError(NOT_AGREED)
    return Agreed(masks=not link.remote.ws_no_masking or headers.get(NO_MASKING) != "true", deflates=deflates)


@attrs.define(eq=False)
class HubRequest:
    """A request whose answer has not come."""

    link: LeafLink
    key: str
    http: h11.Connection

    def read(self, data: bytes) -> Agreed | None:
        """Take a part of the answer; None before its end. Raises AnswerError, or h11.RemoteProtocolError."""
        self.http.receive_data(data)
        event = self.http.next_event()
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.InformationalResponse):
            raise AnswerError(NOT_WEBSOCKET)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return agreed(self.link, self.key, event.status_code, headers)


@attrs.define(eq=False)
class HubWeb:
    """Upgrades connections to hubs. `share` makes what they have in common."""

    plane: "WebPlane"
    reactor: Reactor
    say: Logger
    share: Callable[[Callable[[int, bytes], None]], WebSocketCommon] = attrs.field(repr=False)
    _common: WebSocketCommon = attrs.field(init=False)
    _asked: dict[int, HubRequest] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._common = self.share(self._on_http)
        self.plane.serve_websocket(self._common)

    async def upgrade(self, link: LeafLink) -> None:
        """Have a connection exchange frames; it is closed where the hub does not agree to that in time."""
        assert link.remote is not None
        assert link.url is not None
        key = base64.b64encode(os.urandom(KEY_BYTES)).decode()
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES_MAX)
        headers = request_of(link, key)
        request = h11.Request(method="GET", target=link.url.path + LEAF_PATH, headers=headers)
        self._asked[link.cid] = HubRequest(link, key, http)
        self.plane.expect_upgrade(link.cid, self._common)
        self.plane.write(link.cid, (http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        self.reactor.end_turn()
        try:
            with trio.move_on_after(link.remote.first_info_timeout_ns / NS_PER_S):
                await link.upgraded.wait()
        finally:
            self._asked.pop(link.cid, None)
        if not link.upgraded.is_set():
            self._fail(link, "i/o timeout")
            self.reactor.end_turn()

    def _on_http(self, cid: int, data: bytes) -> None:
        """Read a part of an answer."""
        asked = self._asked.get(cid)
        if asked is None:
            self.plane.close(cid, Reason.READ_ERROR)
            return
        try:
            found = asked.read(data)
        except h11.RemoteProtocolError as error:
            self._fail(asked.link, f"malformed HTTP response: {error}")
        except AnswerError as error:
            self._fail(asked.link, str(error))
        else:
            if found is not None:
                self._open(asked, found)

    def _open(self, asked: HubRequest, found: Agreed) -> None:
        """Exchange frames from now on."""
        link = asked.link
        del self._asked[link.cid]
        deflates, masks = str(found.deflates).lower(), str(found.masks).lower()
        self.say.debug(f"{link.title} - Leafnode compression={deflates} masking={masks}")
        first, _ = asked.http.trailing_data
        link.upgraded.set()
        self.plane.upgraded(link.cid, first, masks=found.masks, deflates=found.deflates)

    def _fail(self, link: LeafLink, text: str) -> None:
        self.say.error(f"{link.title} - Error soliciting websocket connection: {text}")
        self._asked.pop(link.cid, None)
        self.plane.close(link.cid, Reason.READ_ERROR)
