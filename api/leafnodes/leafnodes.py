"""All connections to leaf nodes and hubs: their handshakes, their ends, and what of them goes wrong.

    accepted    INFO >    CONNECT <    is judged      INFO > with the account, interest >
    solicited   INFO <    CONNECT >    INFO < with the account, interest >

The plane parses what comes and calls `on_text` with the lines that are not interest or messages.
"""

import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.auth.hashing import PasswordChecks
from jetraft.api.auth.login import reason_of
from jetraft.api.auth.verifying import Verifications
from jetraft.api.credentials.verdicts import Credentials, LoginRefusal, Verdict, log_refusal
from jetraft.api.leafnodes.accepting import AcceptedSide
from jetraft.api.leafnodes.admission import as_told, of_user, own_domain
from jetraft.api.leafnodes.entry import LeafEntry
from jetraft.api.leafnodes.handshake import HandshakeError, LeafPeer, OwnNames, connect_of
from jetraft.api.leafnodes.hubs import HubSide
from jetraft.api.leafnodes.judging import Judging
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.loops import LoopSubjects
from jetraft.api.leafnodes.names import DomainNames
from jetraft.api.leafnodes.texts import (
    CLIENT_ON_LEAF_PORT,
    CONNECT,
    DENIALS,
    EARLY,
    ERR,
    INFO,
    LOOP_CHECK,
    LOOP_DELAY_NS,
    SAME_CLUSTER,
    TOO_MANY,
    VIOLATION_DELAY_NS,
    err,
)
from jetraft.api.logs.logger import Logger
from jetraft.api.options.leafnodes import LeafOptions, RemoteOptions, RemoteUrl
from jetraft.api.plane._permissions import UserPermissions
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import TEXTS, Reason
from jetraft.api.sessions.deadlines import AuthDeadlines
from jetraft.api.sessions.session import new_nonce
from jetraft.api.tls.clients import TlsClients
from jetraft.api.tls.facts import TlsState
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import Clock
from jetraft.store.model.events import PERMISSION_DENIED
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.signal import Signal

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from jetraft.api.credentials.claims import AccountClaims

LINKS_MAX: Final = 4096  # with those that have not said who they are
JETSTREAM_SPACES: Final = (b"$JS.", b"$KV.", b"$OBJ.")


@attrs.define(eq=False)
class Leafnodes:
    """See the module. `attach` gives it the plane before the first connection."""

    options: LeafOptions
    identity: OwnNames
    clock: Clock
    say: Logger
    entry: LeafEntry
    checks: PasswordChecks
    verifications: Verifications
    names: DomainNames
    on_over: Callable[[int], None]  # a connection is admitted or closed
    listener: dict[str, Any] = attrs.field(factory=dict)  # what INFO says of it
    tls: TlsClients | None = None  # handshakes of the listener
    links: dict[int, LeafLink] = attrs.field(factory=dict)
    loops: LoopSubjects = attrs.field(factory=LoopSubjects)
    counted: Signal[[str]] = attrs.field(factory=Signal, init=False)  # an account may have another number of them
    deadlines: AuthDeadlines = attrs.field(init=False)
    hubs: HubSide = attrs.field(init=False)
    accepted: AcceptedSide = attrs.field(init=False)
    judging: Judging = attrs.field(init=False)
    _plane: Plane | None = None
    _reactor: Reactor | None = None
    _mesh: Any = None

    def __attrs_post_init__(self) -> None:
        self.deadlines = AuthDeadlines(self.options.auth_timeout_ns, self.clock, self.on_over)
        self.hubs = HubSide(self.identity, self, self.admit)
        self.judging = Judging(
            entry=self.entry,
            checks=self.checks,
            verifications=self.verifications,
            clock=self.clock,
            present=self.links,
            settle=self._settle,
            refuse=self._refuse,
        )
        self.accepted = AcceptedSide(self.identity, self, lambda: self.listener, lambda: self.options.compression)

    def attach(self, plane: Plane, reactor: Reactor, mesh: Any) -> None:
        """Use this plane from now on, and the mesh, or None on a server that stands alone."""
        self._plane, self._reactor, self._mesh = plane, reactor, mesh
        self.judging.attach(plane, reactor)
        if mesh is not None:
            for signal in (mesh.on_peer_up, mesh.on_peer_down, mesh.on_peer_changed):
                signal.connect(lambda _node: self._update_names())

    def _update_names(self) -> None:
        assert self._reactor is not None
        self.names.update(self.links.values(), self.plane.write, self._mesh)
        self._reactor.kick_outside()

    @property
    def plane(self) -> Plane:
        """The plane, which is there before the first connection."""
        assert self._plane is not None
        return self._plane

    async def run(self) -> None:
        """Close those that do not say in time who they are, until cancelled."""
        assert self._reactor is not None
        await self.deadlines.run(self.plane.close, self._reactor.end_turn)

    # -- beginnings

    def accept(self, sock: socket.socket, ip: str, port: int) -> int:
        """A server has connected as a leaf node; returns the id of the connection."""
        cid = self.plane.open_leaf(sock.detach(), solicited=False)
        link = LeafLink(cid=cid, ip=ip, port=port, start_unix_ns=self.clock.unix_ns(), nonce=new_nonce())
        if self._has_room(link) and self.tls is not None:
            self.tls.welcome(link, is_full=False)
        elif cid in self.links:
            self.began(link)
            self.plane.write(cid, self.accepted.greeting(link))
        return cid

    def upgraded(self, cid: int, ip: str, port: int, tls: TlsState | None, *, deflates: bool) -> None:
        """A server has connected as a leaf node at the listener for WebSocket, whose handshakes are behind it."""
        self.plane.become_leaf(cid, solicited=False)
        start_ns = self.clock.unix_ns()
        link = LeafLink(cid=cid, ip=ip, port=port, start_unix_ns=start_ns, nonce=new_nonce(), tls=tls, web=True)
        link.deflates = deflates
        if self._has_room(link):
            self.began(link)
            self.plane.write(cid, self.accepted.greeting(link))

    def _has_room(self, link: LeafLink) -> bool:
        """Note a connection that was accepted; False when there are too many."""
        if len(self.links) >= LINKS_MAX:
            self.plane.close(link.cid, Reason.MAXIMUM_CONNECTIONS_EXCEEDED, err("maximum connections exceeded"))
            return False
        self.links[link.cid] = link
        log.info("%s - Leafnode connection created", link.title)
        return True

    def began(self, link: LeafLink) -> None:
        """Its time to say who it is begins."""
        self.deadlines.begin(link.cid)

    def solicit(self, sock: socket.socket, remote: RemoteOptions, url: RemoteUrl) -> LeafLink:
        """This server has connected to a hub, which speaks first."""
        cid = self.plane.open_leaf(sock.detach(), solicited=True)
        link = LeafLink(
            cid=cid,
            ip=url.host,
            port=url.port,
            start_unix_ns=self.clock.unix_ns(),
            remote=remote,
            url=url,
            account=remote.account,
            web=url.web,
        )
        self.links[cid] = link
        self.say.info(f"{link.title} - Leafnode connection created for account: {remote.account}")
        return link

    # -- lines

    def on_text(self, cid: int, kind: int, text: bytes) -> None:
        """Act on a line that the plane does not act on itself."""
        link = self.links.get(cid)
        if link is None:
            self.plane.close(cid, Reason.PROTOCOL_VIOLATION)
        elif kind == CONNECT:
            self._on_connect(link, text)
        elif kind == INFO and link.remote is not None:
            self.hubs.on_info(link, text)
        elif kind == INFO:
            self.accepted.on_choice(link, text)
        elif kind == ERR:
            self._on_err(link, text)
        elif kind == EARLY:
            self._refuse(link, Credentials(), "no CONNECT")
        elif kind == LOOP_CHECK:
            self._on_loop_check(link, text)
        elif kind in DENIALS:
            self._on_denied(link, text, *DENIALS[kind])

    def _on_connect(self, link: LeafLink, text: bytes) -> None:
        """A leaf node says who it is, once."""
        if link.remote is not None or link.peer is not None:
            self.fail(link, "unexpected CONNECT")
            return
        try:
            link.peer, document = connect_of(text)
        except HandshakeError as error:
            self.fail(link, str(error))
            return
        self.accepted.told(link, document.get("compress_mode"))
        if document.get("lang"):
            self.end(link, CLIENT_ON_LEAF_PORT, Reason.WRONG_PORT)
            return
        link.document = document
        self.judging.begin(link)

    def _settle(self, link: LeafLink, offered: Credentials, outcome: Verdict | LoginRefusal) -> None:
        """Admit a leaf node whose user is known, if nothing else speaks against it."""
        assert link.peer is not None
        link.document = {}
        if isinstance(outcome, LoginRefusal):
            reason = Reason.PROXY_REQUIRED if outcome.needs_proxy else Reason.AUTHENTICATION_FAILURE
            self._refuse(link, offered, outcome.why, reason)
            return
        outcome = self.entry.bounded(outcome)
        objection = self.entry.objection(link)
        if objection is not None:
            self.end(link, *objection)
            return
        link.account, link.verdict = self.entry.account_of(outcome), outcome
        if self.entry.is_full(link, self.links.values()):
            self.end(link, TOO_MANY, Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED)
            return
        link.is_spoke = link.peer.is_hub
        self._replace_stale(link)
        about: dict[str, Any] = {"client_id": link.cid, "connect_info": True, "remote_account": link.account}
        about |= as_told(outcome.permissions)
        self.plane.write(link.cid, self.identity.info(self.listener, about, link.compression))
        denied = own_domain(self.identity.domain, link.peer.domain)
        self.admit(link, link.peer, of_user(outcome.permissions, denied))
        self._bound(link, outcome)

    def _bound(self, link: LeafLink, verdict: Verdict) -> None:
        """Limits and the end of a connection are those of its user."""
        self.plane.limit_connection(link.cid, max_payload=verdict.max_payload, max_subs=verdict.max_subs)
        self.deadlines.expire(link.cid, verdict.expires_unix_ns, verdict.last_words)

    def account_changed(self, account: str, claims: "AccountClaims | None") -> None:
        """An account of an operator has another token, or none: its connections have what that says, or end."""
        for link, outcome in self.entry.judged_again(account, claims, self.links.values(), self.clock.unix_ns()):
            if isinstance(outcome, Verdict):
                link.verdict = outcome
                self._bound(link, outcome)
            else:
                self.plane.close(link.cid, reason_of(outcome), outcome.last_words)

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """How many admitted connections accounts have, and how many of them came from the other end."""
        links = [link for link in self.links.values() if link.admitted]
        return Counter(link.account for link in links), Counter(link.account for link in links if link.remote is None)

    def _came(self, account: str) -> list[LeafLink]:
        links = self.links.values()
        return [link for link in links if link.admitted and link.remote is None and link.account == account]

    def count_since(self, account: str, unix_ns: int) -> int:
        """How many of those of an account that came from the other end have come since then."""
        return sum(link.start_unix_ns > unix_ns for link in self._came(account))

    def close_youngest(self, account: str, count: int) -> None:
        """Close so many of those of an account that came from the other end."""
        came = self._came(account)
        for link in came[len(came) - count :]:
            self.end(link, TOO_MANY, Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED)

    def _replace_stale(self, link: LeafLink) -> None:
        """A server that connects again has lost its connection, whatever the old one looks like from here."""
        for old in list(self.links.values()):
            if old is not link and old.admitted and link.is_duplicate_of(old):
                self.end(old, "Duplicate Remote LeafNode Connection", Reason.DUPLICATE_LEAFNODE)
                self.say.warning(f"{link.title} - Replacing connection from same server")

    def admit(self, link: LeafLink, peer: LeafPeer, permissions: UserPermissions) -> None:
        """Exchange interest and messages from now on."""
        self.deadlines.named(link.cid)
        own, its = self.identity.domain, peer.domain
        if own != its:
            self.say.info(f"{link.title} - JetStream using domains: local {go_quote(own)}, remote {go_quote(its)}")
        link.admitted = self.plane.admit_leaf(
            link.cid,
            account=link.account,
            cluster=(peer.cluster or peer.name).encode()[:255],
            spoke=link.is_spoke,
            isolated=not link.is_spoke and (self.options.isolate_interest or peer.is_isolated or link.isolates),
            headers=peer.headers,
            permissions=permissions,
        )
        self.plane.write(link.cid, b"LS+ %s\r\n" % self.loops.subject(link.account))
        self._update_names()
        self.counted.emit(link.account)

    # -- what goes wrong

    def _on_err(self, link: LeafLink, text: bytes) -> None:
        said = text.decode(errors="replace").strip()
        log.error("%s - Leafnode Error %s", link.title, said)
        if "Loop detected" in said:
            self._loop(link, says=False)
        elif SAME_CLUSTER in said or "ermissions Violation" in said:
            link.delay_ns = VIOLATION_DELAY_NS

    def _on_loop_check(self, link: LeafLink, subject: bytes) -> None:
        if self.loops.is_own(link.account, subject):
            self._loop(link, says=True)

    def _loop(self, link: LeafLink, *, says: bool) -> None:
        delay = "30s" if link.remote is not None else "0s"
        if link.remote is not None:
            link.delay_ns = LOOP_DELAY_NS
        text = f"Loop detected for leafnode account={go_quote(link.account)}. Delaying attempt to reconnect for {delay}"
        log.error("%s - %s", link.title, text)
        self.plane.close(link.cid, Reason.PROTOCOL_VIOLATION, err(text) if says else b"")

    def _on_denied(self, link: LeafLink, subject: bytes, deed: str, noun: str) -> None:
        """A leaf node knows what its user may do, so one that does something else is configured wrongly.

        JetStream's API is denied to all and asked for by all; that is passed over, and so is what a hub asks for.
        """
        if subject.startswith(JETSTREAM_SPACES) or link.is_spoke:
            return
        quoted = go_quote(subject.decode(errors="replace"))
        violation = f"{noun} Violation on {quoted} - Check other side configuration"
        PERMISSION_DENIED.log(client=link.title, violation=violation)
        text = f"Permissions Violation for {deed} {quoted}"
        link.delay_ns = VIOLATION_DELAY_NS
        self.plane.close(link.cid, Reason.PROTOCOL_VIOLATION, err(text))

    def _refuse(
        self, link: LeafLink, offered: Credentials, why: str, reason: Reason = Reason.AUTHENTICATION_FAILURE
    ) -> None:
        link.document = {}
        log_refusal(link.title, link.ip, offered, why)
        self.plane.close(link.cid, reason, err("Authorization Violation"))

    def end(self, link: LeafLink, text: str, reason: Reason) -> None:
        """Close, and tell the other end why."""
        log.error("%s - %s", link.title, text)
        self.plane.close(link.cid, reason, err(text))

    def fail(self, link: LeafLink, text: str, reason: Reason = Reason.PROTOCOL_VIOLATION) -> None:
        """Close without an -ERR, as nats-server does where the other end would not understand it."""
        log.error("%s - %s", link.title, text)
        self.plane.close(link.cid, reason)

    def on_closed(self, cid: int, reason: int) -> bool:
        """Forget a connection that the plane has closed; False for one that is not of a leaf node."""
        link = self.links.pop(cid, None)
        if link is None:
            return False
        self.deadlines.gone(cid)
        for event in (link.spoken, link.secured, link.upgraded, link.ended):
            event.set()
        self._update_names()
        self.counted.emit(link.account)
        remote = f" - Remote: {link.peer.name}" if link.peer is not None and link.peer.name else ""
        text = TEXTS.get(Reason(reason), "Unknown")
        log.info("%s - Leafnode connection closed: %s%s", link.title, text, remote)
        return True
