"""A service that says who clients are, for auth callout: it answers each request with what a function makes of it."""

import base64
import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from nacl.public import Box, PrivateKey, PublicKey

from tests.harness.raw import Message, RawClient
from tests.harness.tokens import Keys, claims_of

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
SEALED: Final = b"xkv1"
Request = dict[str, Any]
LOOK_S: Final = 0.1
UNLIMITED: Final = {"subs": -1, "data": -1, "payload": -1}


def read(token: bytes) -> Request:
    """The claims of a token, not verified."""
    part = token.split(b".")[1]
    found = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    assert isinstance(found, dict)
    return found


def user_token(issuer: Keys, request: Request, *, claims: dict[str, Any] | None = None, **nats: Any) -> str:
    """A user for the client of a request, in the account A."""
    named = {"aud": "A", "name": "called", **(claims or {})}
    return issuer.token(claims_of("user", request["nats"]["user_nkey"], {**UNLIMITED, **nats}, named))


def answer(issuer: Keys, request: Request, *, claims: dict[str, Any] | None = None, **nats: Any) -> bytes:
    """An answer to a request: `jwt` of a user, or `error`."""
    named = {"aud": request["nats"]["server_id"]["id"], **(claims or {})}
    return issuer.token(claims_of("authorization_response", request["nats"]["user_nkey"], nats, named)).encode()


class CalloutService:
    """`with CalloutService(address, login, decide):` answers until its end; None is no answer."""

    def __init__(
        self,
        address: tuple[str, int],
        login: dict[str, Any],
        decide: Callable[[Request], bytes | None],
        *,
        secret: PrivateKey | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self._secret = secret  # requests are sealed for it, and so are the answers
        self._client = RawClient(address, **login)
        self._decide = decide
        self._client.subscribe(SUBJECT)
        self._client.settle()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while not self._ended.is_set() and not self._client.closed:
            event = self._client.next_event(LOOK_S)
            if isinstance(event, Message):
                box = self._box(event)
                request = read(event.payload if box is None else box.decrypt(event.payload[len(SEALED) :]))
                self.requests.append(request)
                payload = self._decide(request)
                if payload is not None:
                    self._client.publish(event.reply, payload if box is None else SEALED + box.encrypt(payload))

    def _box(self, event: Message) -> Box | None:
        """What opens a request and seals its answer."""
        if self._secret is None:
            return None
        sender = base64.b32decode(dict(event.headers)["Nats-Server-Xkey"])
        return Box(self._secret, PublicKey(sender[1:-2]))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()
