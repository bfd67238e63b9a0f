"""A wire before a link has it: a task sends and receives fixed sizes over it, plain or inside TLS.

TLS is mutual, for both ends prove with a certificate of the cluster's authority who they are; version 1.3 only, because
both ends are this program. The dialer also wants the certificate to be one for the host that it dialled.
"""

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from jetraft.raft.mesh.handshake import HandshakeRefusedError
from jetraft.raft.mesh.wires import SocketWire, Wire

_T = TypeVar("_T")


class TlsFilesError(Exception):
    """The configured certificate, key or authority cannot be used; the text is one line."""


@attrs.frozen(kw_only=True, slots=True)
class TlsFiles:
    """The paths of this node's certificate, its key and the cluster's authority, as PEM files.

    `insecure`: the dialer believes any certificate. `known_hosts`: who accepts wants one for one of these; None: any.
    `pinned_certs`: hex digests (SHA-256) of the public keys that the other end may have; empty: any.
    """

    cert_file: str
    key_file: str
    ca_file: str
    insecure: bool = False
    known_hosts: tuple[str, ...] | None = None
    pinned_certs: frozenset[str] = frozenset()


@attrs.define(kw_only=True, slots=True, eq=False)
class Tls:
    """Both roles of a node; a node dials and accepts with the same certificate."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    known_hosts: tuple[str, ...] | None = None
    pinned_certs: frozenset[str] = frozenset()

    @classmethod
    def load(cls, files: TlsFiles) -> "Tls":
        """Read the files. Raises TlsFilesError."""
        return cls(
            accepting=_context(ssl.PROTOCOL_TLS_SERVER, files),
            dialling=_context(ssl.PROTOCOL_TLS_CLIENT, files),
            known_hosts=files.known_hosts,
            pinned_certs=files.pinned_certs,
        )

    def follow(self, read: "Tls") -> None:
        """Begin the next links with what was read; those that are there stay as they are."""
        self.accepting, self.dialling = read.accepting, read.dialling
        self.known_hosts, self.pinned_certs = read.known_hosts, read.pinned_certs

    def check(self, sock: ssl.SSLSocket, *, accepted: bool) -> None:
        """Look at the certificate of a handshake that is done. Raises HandshakeRefusedError."""
        if self.pinned_certs:
            from jetraft.raft.mesh.pins import key_digest  # noqa: PLC0415  few clusters have pins

            if key_digest(sock.getpeercert(binary_form=True) or b"") not in self.pinned_certs:
                raise HandshakeRefusedError("TLS: certificate not pinned")
        if accepted and self.known_hosts is not None:
            names: Any = (sock.getpeercert() or {}).get("subjectAltName", ())  # pairs of a kind and a name
            if not any(is_for(str(name), host) for _, name in names for host in self.known_hosts):
                raise HandshakeRefusedError("TLS: certificate is for no host of a route")


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if protocol == ssl.PROTOCOL_TLS_CLIENT and files.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # sessions are not resumed: every link begins with certificates
    try:
        context.load_cert_chain(files.cert_file, files.key_file)
        context.load_verify_locations(files.ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = f"{files.cert_file}, {files.key_file}, {files.ca_file}"
        raise TlsFilesError(f"cluster tls: cannot use {what}: {error}") from error
    return context


class Connection:
    """Owns the wire until `take`. One task uses it at a time; `close` is safe at any time."""

    __slots__ = ("_wire",)

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def accept_tls(self, tls: Tls) -> None:
        """Be the accepting end of TLS. Raises HandshakeRefusedError, trio.BrokenResourceError."""
        tls.check(await self._shake(tls.accepting, None), accepted=True)

    async def dial_tls(self, tls: Tls, host: str) -> None:
        """Be the dialling end of TLS. Raises HandshakeRefusedError, trio.BrokenResourceError."""
        tls.check(await self._shake(tls.dialling, host), accepted=False)

    async def _shake(self, context: ssl.SSLContext, host: str | None) -> ssl.SSLSocket:
        assert isinstance(self._wire, SocketWire)
        try:
            sock = context.wrap_socket(
                self._wire.sock, server_side=host is None, server_hostname=host, do_handshake_on_connect=False
            )
        except (ssl.SSLError, ValueError) as error:  # a host that cannot stand in a certificate
            raise HandshakeRefusedError(f"TLS: {error}") from error
        except OSError as error:  # the other end has gone already
            raise trio.BrokenResourceError(str(error.strerror or error)) from error
        self._wire = wire = SocketWire(sock)
        await self._until_done(sock.do_handshake, wire.wait_readable)
        return sock

    async def send_all(self, data: bytes) -> None:
        """Send everything. Raises HandshakeRefusedError (TLS alerts), trio.BrokenResourceError."""
        rest = memoryview(data)
        while rest:
            rest = rest[await self._until_done(partial(self._wire.send, rest), self._wire.wait_writable) :]

    async def receive_exactly(self, count: int) -> bytes:
        """Exactly `count` bytes; nothing of what follows is read. Raises as `send_all`, also at the end."""
        received = b""
        while len(received) < count:
            receive = partial(self._wire.receive, count - len(received))
            part = await self._until_done(receive, self._wire.wait_readable)
            if not part:
                raise trio.BrokenResourceError("the connection ended inside the handshake")
            received += part
        return received

    async def _until_done(self, operation: Callable[[], _T], wait: Callable[[], Awaitable[None]]) -> _T:
        """Try until it does not block; `wait` is what a plain stream then needs, TLS says it itself."""
        while True:
            try:
                return operation()
            except BlockingIOError:
                await wait()
            except ssl.SSLWantReadError:
                await self._wire.wait_readable()
            except ssl.SSLWantWriteError:
                await self._wire.wait_writable()
            except ssl.SSLEOFError as error:
                raise trio.BrokenResourceError("the connection ended inside the TLS handshake") from error
            except ssl.SSLError as error:  # in TLS 1.3 a dialer hears with the first answer that it was refused
                raise HandshakeRefusedError(f"TLS: {_reason(error)}") from error
            except OSError as error:
                raise trio.BrokenResourceError(str(error.strerror or error)) from error

    def take(self) -> Wire:
        """The wire, for its link."""
        return self._wire

    def close(self) -> None:
        """End the connection without a word."""
        self._wire.close()


def is_for(name: str, host: str) -> bool:
    """Whether a name of a certificate is that of a host; its first label may be a wildcard."""
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:] != "")


def _reason(error: ssl.SSLError) -> str:
    """The part of OpenSSL's text that says something to an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    return str(error.reason or error).replace("_", " ").lower()
