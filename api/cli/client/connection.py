"""A connection of one command, and requests to JetStream and to other subjects on it.

A request ends with its answer, with the server's refusal of the permission, or after the time that the user gives;
each failure is one CommandError.
"""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import attrs
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from jetraft.api.cli.client.contexts import without_secrets
from jetraft.api.cli.client.errors import AnsweredError, CommandError, UnansweredError
from jetraft.api.cli.client.login import ClientLogin, check_files
from jetraft.api.cli.client.output import Printer, clean, note

T = TypeVar("T")
CLOSE_TIMEOUT_S: Final = 5.0
PAGES_MAX: Final = 100_000  # of a list, so that a wrong total ends
REFUSED: Final = ("permissions violation",)
LOGIN_REFUSED: Final = ("authorization violation", "authentication", "user authentication expired")


class NoResponderError(UnansweredError):
    """Nothing has subscribed to the subject of a request."""


@attrs.define(eq=False, kw_only=True)
class CommandConnection:
    """An open connection, and how its command prints."""

    nc: Client
    login: ClientLogin
    out: Printer
    timeout_s: float
    last_error: Exception | None = None  # what nats-py reports before it gives up a connection
    _refused: asyncio.Future[str] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future())

    async def heard(self, error: Exception) -> None:
        """An error that the server reports beside answers; nats-py calls it."""
        self.last_error = error
        text = clean(str(error)).removeprefix("nats: ").strip("'\" ")
        if any(each in text.lower() for each in REFUSED) and not self._refused.done():
            self._refused.set_result(text)

    async def unless_refused(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work. Raises CommandError as soon as the server says that the user may not do this."""
        task = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self._refused}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise CommandError(f"{self._refused.result()}: the user may not do this, log in as another")
            return task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float | None = None,
        advice: str = "`jetraft server report` shows what has no leader; --timeout waits longer",
    ) -> Msg:
        """One answer, within `timeout_s` or the user's time. Raises CommandError; without one it has `advice`."""
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            return await self.unless_refused(self.nc.request(subject, payload, wait_s, headers=headers))
        except nats.errors.NoRespondersError:
            raise NoResponderError(f"no responder on {clean(subject)}: {self._advice(subject)}") from None
        except (nats.errors.TimeoutError, TimeoutError):
            raise UnansweredError(f"no answer on {clean(subject)} within {wait_s:g}s: {advice}") from None
        except nats.errors.Error as error:
            raise UnansweredError(f"{clean(subject)}: {clean(str(error)).removeprefix('nats: ')}") from None
        except ValueError as error:
            raise CommandError(f"{clean(subject)}: {clean(str(error)).removeprefix('nats: ')}") from None

    async def api(self, subject: str, body: object = None, **waiting: Any) -> dict[str, Any]:
        """The answer of a JetStream request; `subject` without $JS.API. Raises CommandError, AnsweredError.

        `waiting` has `timeout_s` and `advice` of `request`.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        answer = await self.request(f"{self.login.api}.{subject}", payload, **waiting)
        found = parsed(answer.data)
        if isinstance(found.get("error"), dict):
            raise AnsweredError(found["error"])
        return found

    async def pages(self, subject: str, key: str, body: dict[str, Any] | None = None) -> list[Any]:
        """All pages of a list; `key` names the list in an answer. Raises CommandError.

        An item without a leader to answer for it has a place in a page all the same, and is named in a line of its own.
        """
        found: list[Any] = []
        silent: list[str] = []
        for _ in range(PAGES_MAX):
            page = await self.api(subject, {**(body or {}), "offset": len(found) + len(silent)})
            items, missing = page.get(key) or [], page.get("missing") or []
            found += items
            silent += map(str, missing)
            if not (items or missing) or len(found) + len(silent) >= int(page.get("total", 0)):
                break
        if silent:
            note(f"no leader answers for {', '.join(silent)}: `jetraft server health` shows which servers are away")
        return found

    def _advice(self, subject: str) -> str:
        if subject.startswith("$SYS."):
            return "log in as a user of the system account"
        if subject.startswith(("$JS.", self.login.api)):
            return "JetStream is off in this server, account or domain: start the server with -js, or see --js-domain"
        return "start one with `jetraft reply`, or check the subject and the account"


async def together(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all; the first that fails ends the others. Raises what that one raises."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parsed(data: bytes) -> dict[str, Any]:
    """The object of an answer. Raises CommandError."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandError("the answer is no JSON object: is this a NATS server?")
    return found


def token(name: str, what: str) -> str:
    """A name that becomes a token of a subject. Raises CommandError."""
    if not name or any(char in ".*> \t\r\n\0/\\" for char in name):
        raise CommandError(f"{clean(name)!r} is no name of a {what}: no spaces, `.`, `*`, `>`, `/` and `\\`")
    return name


def subject_text(text: str) -> str:
    """A subject that can be sent. Raises CommandError."""
    if not text or any(char.isspace() or char == "\0" for char in text) or "" in text.split("."):
        raise CommandError(f"{clean(text)!r} is no subject: tokens without spaces, with dots between them")
    return text


@asynccontextmanager
async def connected(login: ClientLogin, out: Printer, timeout_s: float) -> AsyncIterator[CommandConnection]:
    """A connection to the first server that takes it. Raises CommandError."""
    check_files(login)
    urls, connection = login.urls, CommandConnection(nc=Client(), login=login, out=out, timeout_s=timeout_s)
    try:
        for place, url in enumerate(urls):
            try:
                await connection.nc.connect(url, error_cb=connection.heard, **_arguments(login, url, timeout_s))
                break
            except (OSError, nats.errors.Error, TimeoutError, ValueError, AttributeError) as error:
                await _end(connection.nc)
                if place + 1 == len(urls):
                    cause = connection.last_error if isinstance(error, nats.errors.NoServersError) else error
                    raise CommandError(_reason(url, cause or error)) from None
                connection = CommandConnection(nc=Client(), login=login, out=out, timeout_s=timeout_s)
        connection.nc.options |= {"allow_reconnect": True, "max_reconnect_attempts": -1, "reconnect_time_wait": 1}
        yield connection
    finally:
        await _end(connection.nc)


def unconnected(login: ClientLogin, out: Printer, timeout_s: float) -> CommandConnection:
    """For a command that reads pages of monitors: it must not send a request."""
    return CommandConnection(nc=Client(), login=login, out=out, timeout_s=timeout_s)


async def _end(nc: Client) -> None:
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await nc.close()


def _arguments(login: ClientLogin, url: str, timeout_s: float) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": "jetraft command line",
        "allow_reconnect": False,  # until there is a connection: a server that is not there is said at once
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": max(1, round(timeout_s)),
        "user": login.user or None,
        "password": login.password or None,
        "token": login.token or None,
        "user_credentials": login.creds or None,
        "nkeys_seed": login.nkey or None,
        "tls_handshake_first": login.tls_first,
    }
    if login.inbox_prefix:
        given["inbox_prefix"] = login.inbox_prefix
    if login.tlsca or login.tlscert or login.tls_first or url.startswith(("tls://", "wss://")):
        given["tls"] = _tls(login)
    return {name: value for name, value in given.items() if value is not None}


def _tls(login: ClientLogin) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=login.tlsca or None)
        if login.tlscert:
            context.load_cert_chain(login.tlscert, login.tlskey or None)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"--tlsca, --tlscert or --tlskey: {error.strerror or error}") from None
    return context


def _reason(url: str, error: Exception) -> str:
    place, text = without_secrets(url), clean(str(error)).removeprefix("nats: ").strip("'\" ")
    if any(each in text.lower() for each in LOGIN_REFUSED):
        return f"{place} refused the login: check --user, --creds, --nkey, --token or --context"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{place}: the certificate is not trusted ({error.verify_message}): name its authority with --tlsca"
    if isinstance(error, nats.errors.SecureConnRequiredError):
        return f"{place} requires TLS: write tls:// in --server"
    if isinstance(error, AttributeError | ValueError):  # nats-py, of a file of credentials that is none
        return f"{place}: the credentials cannot be read: check --creds or --nkey"
    if isinstance(error, TimeoutError | nats.errors.TimeoutError | nats.errors.NoServersError) and not text:
        text = "no answer"
    number = getattr(error, "errno", None)
    detail = os.strerror(number) if isinstance(number, int) and number > 0 else text or type(error).__name__
    return f"cannot connect to {place}: {detail}: check that the server runs, or name another with --server"
