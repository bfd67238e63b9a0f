"""Tokens of accounts from a web server: `resolver: URL(...)`.

One request for each account, with nats-server's deadline over all of it: name, connection, handshake, redirects and
answer. An answer is read up to a bound, and nothing of it is believed before it is verified (`lookups.py`). Errors
are worded as those of Go's client; a URL is in them without its user.
"""

import base64
import itertools
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import attrs
import h11
import trio

from jetraft.api.auth.token_source import AccountLookupError
from jetraft.api.credentials.tokens import TOKEN_BYTES_MAX
from jetraft.api.options.options import ResolverOptions
from jetraft.api.options.tls import TlsOptions
from jetraft.api.tls.suites import CIPHERS
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.url import redacted

PORTS: Final = {"http": 80, "https": 443}
REDIRECTS_MAX: Final = 10
REDIRECTS: Final = (301, 302, 303, 307, 308)
HEAD_BYTES_MAX: Final = 16 << 10  # parsed at once: 5 ms where each line of it has five bytes
RECEIVE_BYTES: Final = 16 << 10
EVENTS_PER_STEP: Final = 32  # parts of an answer, 10 us each: a chunk may have one byte
INFORMATIONAL_MAX: Final = 5  # answers before the answer, as in Go's client
OK: Final = 200
TIMEOUT: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@attrs.frozen(eq=False)
class WebSource:
    """See the module. `url` ends with a slash."""

    url: str = attrs.field(repr=False)
    context: ssl.SSLContext = attrs.field(repr=False)
    timeout_s: float

    async def fetch(self, key: str) -> bytes:
        """The server's token for the key; with an empty one, whether there is one. Raises AccountLookupError."""
        url = self.url + key
        shown = go_quote(redacted(url))
        try:
            with trio.fail_after(self.timeout_s):
                status, reason, body = await self._get(url)
        except trio.TooSlowError:
            raise AccountLookupError(f"could not fetch <{shown}>: Get {shown}: {TIMEOUT}") from None
        except AccountLookupError as error:
            raise AccountLookupError(f"could not fetch <{shown}>: Get {shown}: {error}") from None
        if status != OK:
            raise AccountLookupError(f"could not fetch <{shown}>: {status} {reason}")
        return body

    async def _get(self, url: str) -> tuple[int, str, bytes]:
        """Follow redirects to an answer."""
        for _ in range(REDIRECTS_MAX):
            try:
                parts = urlsplit(url)
                known_port = parts.port
            except ValueError:
                raise AccountLookupError("invalid URL") from None
            if parts.scheme not in PORTS:
                raise AccountLookupError(f"unsupported protocol scheme {go_quote(parts.scheme)}")
            if not parts.hostname:
                raise AccountLookupError("http: no Host in request URL")
            stream = await self._connect(parts, known_port or PORTS[parts.scheme])
            try:
                answer, body = await _exchange(stream, parts)
            except h11.RemoteProtocolError as error:
                raise AccountLookupError(f"malformed HTTP response: {error}") from None
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise AccountLookupError(_broken(error)) from None
            finally:
                with trio.move_on_after(0):
                    await stream.aclose()
            to = next((value for name, value in answer.headers if name == b"location"), b"")
            if answer.status_code not in REDIRECTS or not to:
                return answer.status_code, answer.reason.decode(errors="replace"), body
            url = _led_to(url, to.decode(errors="replace"))
        raise AccountLookupError(f"stopped after {REDIRECTS_MAX} redirects")

    async def _connect(self, parts: SplitResult, port: int) -> trio.abc.Stream:
        host = parts.hostname or ""
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise AccountLookupError(_unreached(error, host, port)) from None
        except (UnicodeError, ValueError):
            raise AccountLookupError(f"dial tcp: lookup {host}: no such host") from None
        if parts.scheme == "http":
            return stream
        return trio.SSLStream(stream, self.context, server_hostname=host, https_compatible=True)


@attrs.define(eq=False)
class FollowingSource:
    """A web server as the options in force name it; a reload may name another."""

    in_force: Callable[[], ResolverOptions]
    _used: ResolverOptions | None = None
    _source: WebSource | None = None

    async def fetch(self, key: str) -> bytes:
        """As for WebSource."""
        wanted = self.in_force()
        if self._source is None or self._used != wanted:
            try:
                self._source, self._used = web_source(wanted), wanted
            except OSError as error:
                raise AccountLookupError(f"the files of resolver_tls: {error.strerror or error}") from None
        return await self._source.fetch(key)


def web_source(options: ResolverOptions) -> "WebSource":
    """The source of a configuration. Raises ssl.SSLError, OSError for files that cannot be used any more."""
    return WebSource(options.url, client_context(options.tls), options.timeout_ns / NS_PER_S)


def client_context(options: TlsOptions | None) -> ssl.SSLContext:
    """How connections are secured: with the authorities of the system, or with that of `resolver_tls`."""
    context = ssl.create_default_context(cafile=(options and options.ca_file) or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options is not None:
        context.minimum_version = VERSIONS[options.min_version]
        ciphers = [CIPHERS[name] for name in options.cipher_suites if name in CIPHERS]
        if ciphers:
            context.set_ciphers(":".join(ciphers))
        for files in options.certificates[:1]:
            context.load_cert_chain(files.cert_file, files.key_file)
        if options.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _led_to(url: str, location: str) -> str:
    """The URL that a redirect leads to."""
    try:
        return urljoin(url, location)
    except ValueError:
        raise AccountLookupError(f"failed to parse Location header {go_quote(location)}") from None


def _request(connection: h11.Connection, parts: SplitResult) -> bytes:
    """The bytes that ask for it."""
    headers = [("Host", parts.netloc.rpartition("@")[2]), ("User-Agent", "jetraft"), ("Connection", "close")]
    if "@" in parts.netloc:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        headers.append(("Authorization", "Basic " + base64.b64encode(pair.encode()).decode()))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        asked = connection.send(h11.Request(method="GET", target=target, headers=headers))
    except h11.LocalProtocolError:
        raise AccountLookupError("invalid URL") from None
    return (asked or b"") + (connection.send(h11.EndOfMessage()) or b"")


async def _exchange(stream: trio.abc.Stream, parts: SplitResult) -> tuple[h11.Response, bytes]:
    """Ask, and read the answer up to its end; in steps, as it may come in a million parts."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    await stream.send_all(_request(connection, parts))
    answer, body, informational = None, bytearray(), 0
    for number in itertools.count(1):
        if number % EVENTS_PER_STEP == 0:
            await trio.lowlevel.checkpoint()
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
        elif isinstance(event, h11.Response):
            answer = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > TOKEN_BYTES_MAX:
                raise AccountLookupError(f"the answer is longer than {TOKEN_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage) and answer is not None:
            return answer, bytes(body)
        elif not isinstance(event, h11.InformationalResponse):
            break
        else:
            informational += 1
            if informational > INFORMATIONAL_MAX:
                raise AccountLookupError("net/http: too many 1xx informational responses")
    raise AccountLookupError("EOF")


def _broken(error: BaseException) -> str:
    """Why a connection ended."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"tls: {(cause.reason or 'handshake failed').lower().replace('_', ' ')}"
    return "EOF"


def _unreached(error: OSError, host: str, port: int) -> str:
    """Why there is no connection. trio groups the errors of all addresses of a name."""
    causes = getattr(error.__cause__, "exceptions", None) or (error.__cause__ or error,)
    first = causes[0]
    if isinstance(first, socket.gaierror) or not isinstance(first, OSError):
        return f"dial tcp: lookup {host}: no such host"
    reason = os.strerror(first.errno).lower() if first.errno else str(first)
    return f"dial tcp {f'[{host}]' if ':' in host else host}:{port}: connect: {reason}"
