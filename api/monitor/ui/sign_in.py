"""Sign-ins of the dashboard: who they are, what is remembered of them, and when they end.

A sign-in is a connection of a client inside the server (user_client.py), and a number that the browser has in a cookie
which no script reads. The server remembers a hash of the number, in memory alone. A sign-in ends with its connection,
at a sign-out, after IDLE_S without a request, or after LIFE_S.
"""

import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

import attrs
import orjson
import trio

from jetraft.api.http_gateway.inside import InsideDoor
from jetraft.api.http_gateway.requests import Login, RefusedRequestError
from jetraft.api.listeners.address_share import AddressShare
from jetraft.api.monitor.page import Page
from jetraft.api.monitor.ui.answers import answer, problem
from jetraft.api.monitor.ui.guards import is_local, why_not_own
from jetraft.api.monitor.ui.user_client import UserClient
from jetraft.api.monitor.web_request import WebRequest
from jetraft.api.sessions.session import Session

SIGN_INS_MAX: Final = 64  # each has a connection and a task: some 100 KiB
PER_ADDRESS_MAX: Final = 32  # of those; a proxy is one address
LOGINS_AT_ONCE: Final = 4  # that wait for a password to be hashed, or for a service that decides
LIFE_S: Final = 8 * 3600.0  # a day of work
IDLE_S: Final = 30 * 60.0
SWEEP_S: Final = 10.0
TOKEN_BYTES: Final = 32
FIELDS: Final[Mapping[str, str]] = {  # of a login -> of CONNECT
    "user": "user", "pass": "pass", "token": "auth_token", "jwt": "jwt", "nkey": "nkey", "sig": "sig",
}  # fmt: skip
TICKET: Final = "ticket"
CHALLENGES_MAX: Final = 8  # that wait for their signature, which a browser makes at once; the oldest gives way
CHALLENGE_S: Final = 10.0  # longer than the time in which a client names itself (authorization { timeout })
NAME: Final = "dashboard"  # of the connection, on /connz and in advisories


@attrs.define(eq=False)
class SignIn:
    """One user of one browser. Times are trio's."""

    client: UserClient
    session: Session
    ip: str
    ends_s: float
    used_s: float
    _on_end: Callable[[], None] | None = None

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call this, and nothing else, when it has ended."""
        self._on_end = callback

    def end(self) -> None:
        """It has ended."""
        if self._on_end is not None:
            self._on_end()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or does now."""
        now_s = trio.current_time()
        return self.client.is_over or now_s >= self.ends_s or now_s - self.used_s >= IDLE_S


@attrs.frozen(eq=False)
class Challenge:
    """A connection whose nonce a browser signs."""

    stream: trio.SocketStream
    session: Session
    ends_s: float


@attrs.define(eq=False)
class SignIns:
    """All of them."""

    door: InsideDoor
    base_path: str
    has_clients_tls: Callable[[], bool]  # whether clients have to use TLS
    needs_certificates: Callable[[], bool]  # whether clients have to show one
    share: AddressShare = attrs.field(
        factory=lambda: AddressShare(places=SIGN_INS_MAX, per_address_max=PER_ADDRESS_MAX)
    )
    _by_digest: dict[bytes, SignIn] = attrs.field(factory=dict)
    _challenges: dict[bytes, Challenge] = attrs.field(factory=dict)  # the oldest first
    _logins: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(LOGINS_AT_ONCE))
    _nursery: trio.Nursery | None = None

    @property
    def cookie(self) -> str:
        """Its name: browsers give cookies of one host to all its ports, and servers of a cluster may share a host."""
        return f"jetraft_{self.door.sessions.identity.server_id[:12]}"

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                await trio.sleep(SWEEP_S)
                for digest, found in list(self._by_digest.items()):
                    if found.is_over:
                        self._end(digest)
                for digest, challenge in list(self._challenges.items()):
                    if trio.current_time() >= challenge.ends_s:
                        await trio.aclose_forcefully(self._challenges.pop(digest).stream)

    def of(self, asked: WebRequest) -> SignIn | None:
        """The sign-in of a request. It counts as used now."""
        digest = self._digest_of(asked)
        found = None if digest is None else self._by_digest.get(digest)
        if found is None or digest is None:
            return None
        if found.is_over:
            self._end(digest)
            return None
        found.used_s = trio.current_time()
        return found

    def why_not(self, asked: WebRequest, *, has_login: bool) -> str:
        """Why there is no sign-in over this connection; empty if there is."""
        if self.needs_certificates():
            return "clients of this server show a certificate, which the dashboard cannot pass on"
        is_plain = not asked.is_secure and not is_local(asked)
        if has_login and is_plain and self.has_clients_tls():
            return "clients of this server use TLS: sign in over https_port, or on the server's own machine"
        if not has_login and not is_local(asked):
            return "without a user or a token one signs in on the server's own machine, by its address or as localhost"
        return ""

    async def status(self, asked: WebRequest) -> Page:
        """GET: who is signed in, or whether one can."""
        if asked.method != "GET":
            return problem(405, "it is GET")
        found = self.of(asked)
        if found is not None:
            return answer(self.described(found))
        needs = self.door.sessions.auth_required
        has_operators = self.door.sessions.options.trust is not None
        why = self.why_not(asked, has_login=needs)
        said = {"needs_login": needs, "has_operators": has_operators, "has_keys": self.door.sessions.needs_nonce}
        return answer({"signed_in": False, **said, "why_not": why})

    def described(self, found: SignIn) -> dict[str, Any]:
        """The user of a session, as the server knows it by now."""
        verdict = found.session.verdict
        return {
            "signed_in": True,
            "user": "" if verdict is None else verdict.user,
            "account": found.session.account,
            "is_system": found.session.account == self.door.sessions.options.system_account,
            "ends_in_s": round(found.ends_s - trio.current_time()),
        }

    async def challenge(self, asked: WebRequest) -> Page:
        """POST: a nonce for a key that does not leave the browser, and a ticket that comes back with its signature."""
        if why := why_not_own(asked) or self.why_not(asked, has_login=True):
            return problem(403, why)
        if not self.door.sessions.needs_nonce:
            return problem(400, "users of this server have no keys")
        try:
            stream, session = self.door.connect(asked.ip, asked.port)
        except RefusedRequestError as refused:
            return problem(refused.status, refused.reason)
        while len(self._challenges) >= CHALLENGES_MAX:
            await trio.aclose_forcefully(self._challenges.pop(next(iter(self._challenges))).stream)
        ticket = secrets.token_urlsafe(TOKEN_BYTES)
        self._challenges[digest_of(ticket)] = Challenge(stream, session, trio.current_time() + CHALLENGE_S)
        return answer({TICKET: ticket, "nonce": session.nonce})

    async def sign_in(self, asked: WebRequest) -> Page:
        """POST: an object of texts: FIELDS of a login, with the TICKET of a challenge if it has a signature."""
        if why := why_not_own(asked):
            return problem(403, why)
        try:
            login, ticket = login_in(asked.body)
            self._take_place(asked, login)
            try:
                found = await self._connected(asked, login, ticket)
            except BaseException:
                self.share.give_back(asked.ip)
                raise
        except RefusedRequestError as refused:
            return problem(refused.status, refused.reason)
        if (old := self._digest_of(asked)) is not None:
            self._end(old)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_digest[digest_of(token)] = found
        return answer(self.described(found), ("Set-Cookie", self._cookie(token, LIFE_S, asked)))

    def _take_place(self, asked: WebRequest, login: Login) -> None:
        """Raise RefusedRequestError if there is no sign-in over this connection, or there are too many."""
        if why := self.why_not(asked, has_login=bool(login.fields)):
            raise RefusedRequestError(403, why)
        if not self.share.take(asked.ip):
            raise RefusedRequestError(503, f"{SIGN_INS_MAX} are signed in already")

    def _opened(self, asked: WebRequest, ticket: str) -> tuple[trio.SocketStream, Session]:
        """The connection of a login: that whose nonce was signed, or a new one. Raises RefusedRequestError."""
        if not ticket:
            return self.door.connect(asked.ip, asked.port)
        found = self._challenges.pop(digest_of(ticket), None)
        if found is None:
            raise RefusedRequestError(401, "the signature came too late")
        return found.stream, found.session

    async def _connected(self, asked: WebRequest, login: Login, ticket: str) -> SignIn:
        async with self._logins:
            stream, session = self._opened(asked, ticket)
            line_bytes_max = self.door.sessions.options.max_control_line_bytes
            try:
                client = await UserClient.connect(stream, login, line_bytes_max, NAME)
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
        assert self._nursery is not None
        self._nursery.start_soon(client.run)
        now_s = trio.current_time()
        return SignIn(client, session, asked.ip, now_s + LIFE_S, now_s)

    async def sign_out(self, asked: WebRequest) -> Page:
        """POST: end the sign-in."""
        if why := why_not_own(asked):
            return problem(403, why)
        if (digest := self._digest_of(asked)) is not None:
            self._end(digest)
        return answer({"signed_in": False}, ("Set-Cookie", self._cookie("", 0, asked)))

    def _end(self, digest: bytes) -> None:
        found = self._by_digest.pop(digest, None)
        if found is None:
            return
        self.share.give_back(found.ip)
        found.end()
        assert self._nursery is not None
        self._nursery.start_soon(found.client.close)

    def _cookie(self, token: str, life_s: float, asked: WebRequest) -> str:
        path = f"/{self.base_path.strip('/')}/ui".replace("//", "/")
        secure = "; Secure" if asked.is_secure else ""
        return f"{self.cookie}={token}; Path={path}; Max-Age={int(life_s)}; HttpOnly; SameSite=Strict{secure}"

    def _digest_of(self, asked: WebRequest) -> bytes | None:
        """Of the number in the request's cookie."""
        from http.cookies import CookieError, SimpleCookie  # noqa: PLC0415  most servers have no visitor

        try:
            found = SimpleCookie(asked.header("cookie")).get(self.cookie)
        except CookieError:
            return None
        return None if found is None else digest_of(found.value)

    def statistics(self) -> dict[str, int]:
        """Those that are signed in, and for which there was no place."""
        return self.share.statistics()


def digest_of(token: str) -> bytes:
    """The hash that the server remembers of a number: how long a look-up takes says nothing of the number itself."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def login_in(body: bytes) -> tuple[Login, str]:
    """The login in the body of a request, and the ticket of a challenge or nothing. Raises RefusedRequestError."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise RefusedRequestError(400, "a login is an object of texts")
    ticket = found.pop(TICKET, "")
    if found.keys() - FIELDS.keys():
        raise RefusedRequestError(400, "a login has user and pass, token, jwt, or nkey and sig")
    return Login(fields=tuple((FIELDS[name], value) for name, value in found.items() if value)), ticket
