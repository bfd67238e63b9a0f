"""TLS of leaf node connections: of those that are accepted, and of those that this server makes.

    accepted    as a client's (api/tls/clients.py): INFO in the clear, or the handshake first
    solicited   the handshake first, or after the INFO of a hub that asks for it; CONNECT is sent in a record

A connection to a hub is held from its INFO on until the handshake begins: nothing else of what came in the clear is
taken for the hub's.
"""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import attrs
import trio

from jetraft.api.leafnodes.accepting import AcceptedSide
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.logs.logger import Logger
from jetraft.api.options.tls import TlsError, TlsOptions
from jetraft.api.plane.reasons import Reason
from jetraft.api.tls.clients import TlsClients
from jetraft.api.tls.facts import TlsState
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from jetraft.api.plane._secure import Judged, SecurePlane
    from jetraft.api.tls._context import TlsContext
    from jetraft.api.tls._handshakes import HandshakePool

THREADS: Final = 1  # for the handshakes of this server's own connections
BY_DEFAULT: Final = TlsOptions()  # towards a hub that asks for TLS where the configuration does not


class LeafTls(TlsClients):
    """Handshakes of the listener for leaf nodes, which it knows as its sessions (AcceptedLinks)."""

    starting: ClassVar[str] = "Starting TLS leafnode server handshake"
    mark: ClassVar[str] = "lid"
    failing: ClassVar[str] = "TLS leafnode handshake"


class Greeter(Protocol):
    """Leafnodes as it is needed here."""

    links: dict[int, LeafLink]
    accepted: AcceptedSide

    def began(self, link: LeafLink) -> None:
        """Its time to say who it is begins."""


@attrs.define(eq=False)
class AcceptedLinks:
    """Accepted connections as TlsClients asks about them."""

    leafnodes: Greeter
    options: Any  # LeafOptions: host
    port: int
    tls_not_after: str = ""

    @property
    def by_cid(self) -> dict[int, LeafLink]:
        """Those that are there."""
        return self.leafnodes.links

    def info(self, link: LeafLink) -> bytes:
        """INFO."""
        return self.leafnodes.accepted.greeting(link)

    def is_secure(self, link: LeafLink, state: TlsState) -> None:
        """Its handshake is complete."""
        link.tls = state
        self.leafnodes.began(link)


@attrs.define(eq=False)
class HubTls:
    """Handshakes of connections to hubs. `on_secure` is called with each whose handshake is complete."""

    plane: "SecurePlane"
    reactor: Reactor
    say: Logger
    pins: frozenset[str]  # of the listener: nats-server compares the keys of hubs with them, too
    on_secure: Callable[[LeafLink], None]
    _pool: "HandshakePool | None" = None
    _links: dict[int, LeafLink] = attrs.field(factory=dict)
    _contexts: dict[tuple[TlsOptions, str], "TlsContext"] = attrs.field(factory=dict)

    async def secure(self, link: LeafLink) -> None:
        """Do the handshake of a connection, which is closed where that fails or takes too long."""
        assert link.remote is not None
        options = link.remote.tls or BY_DEFAULT
        self.say.debug(f"{link.title} - Starting TLS leafnode client handshake")
        try:
            context = self._context(options, link)
        except TlsError as error:
            self._refuse(link, str(error))
            return
        if self._pool is None:
            from jetraft.api.tls._handshakes import HandshakePool  # noqa: PLC0415  where a hub asks for TLS

            self._pool = HandshakePool(THREADS)
            self.reactor.watch(self._pool.event_fd, self._take_judged)
        self._links[link.cid] = link
        self.plane.connect_tls(link.cid, context, self._pool)
        self.reactor.end_turn()
        is_waiting = None
        try:
            with trio.move_on_after(options.timeout_ns / NS_PER_S):
                await link.secured.wait()
        finally:
            is_waiting = self._links.pop(link.cid, None)
        if is_waiting is not None and not link.ended.is_set():
            self._refuse(link, "i/o timeout")
            self.reactor.end_turn()

    def forget(self) -> None:
        """Read the files again for the next connections."""
        self._contexts.clear()

    def _context(self, options: TlsOptions, link: LeafLink) -> "TlsContext":
        """The parts that connections to one server are made from. Its files are read once."""
        assert link.url is not None
        key = options, link.url.expected_name
        if key not in self._contexts:
            from jetraft.api.tls.material import load  # noqa: PLC0415  as above

            self._contexts[key] = load(options, link.url.expected_name).context
        return self._contexts[key]

    def _take_judged(self) -> None:
        assert self._pool is not None
        for judged in self.plane.judged(self._pool):
            link = self._links.pop(judged.cid, None)
            if link is None:
                self.plane.close(judged.cid, Reason.TLS_HANDSHAKE_FAILURE)
            elif judged.complete and self._is_pinned(link, judged):
                version = judged.version.removeprefix("TLSv")
                self.say.debug(f"{link.title} - TLS handshake complete, version {version}, {judged.cipher}")
                link.tls = TlsState(version=version, cipher=judged.cipher, first=False)
                self.plane.admit(link.cid)
                self.on_secure(link)
                link.secured.set()
            else:
                self._fail(link, judged)

    def _is_pinned(self, link: LeafLink, judged: "Judged") -> bool:
        assert link.remote is not None
        pins = link.remote.tls.pinned_certs if link.remote.tls is not None else frozenset[str]()
        if not (pins or self.pins):
            return True
        from cryptography import x509  # noqa: PLC0415

        from jetraft.api.tls.identity import public_key_info  # noqa: PLC0415

        if not judged.certificates:
            return False
        certificate = x509.load_der_x509_certificate(judged.certificates[0])
        digest = hashlib.sha256(public_key_info(certificate)).hexdigest()
        return all(digest in wanted for wanted in (pins, self.pins) if wanted)

    def _fail(self, link: LeafLink, judged: "Judged") -> None:
        if judged.complete:
            self._refuse(link, "certificate not pinned")
            return
        from jetraft.api.tls.reasons import quiet, text_of  # noqa: PLC0415

        assert link.url is not None
        expected = link.url.expected_name
        text = text_of(judged, local="", remote=link.url.address, has_certificates=True, expected=expected)
        self._refuse(link, text, is_quiet=quiet(judged))

    def _refuse(self, link: LeafLink, text: str, *, is_quiet: bool = False) -> None:
        (self.say.debug if is_quiet else self.say.error)(f"{link.title} - TLS leafnode handshake error: {text}")
        self.plane.close(link.cid, Reason.TLS_HANDSHAKE_FAILURE)
        link.secured.set()
