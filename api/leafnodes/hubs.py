"""The greeting to a hub after connecting: who it is, and with what it proves that.

    INFO <    (TLS)    CONNECT >    INFO < with the account, interest >

A file of credentials is read at each connection, so that it can be replaced while the server runs.
"""

from collections.abc import Callable
from typing import Final, Protocol

import attrs

from jetraft.api.credentials.seeds import SeedError, UserCredentials, UserKey
from jetraft.api.leafnodes.admission import of_remote, own_domain
from jetraft.api.leafnodes.handshake import HandshakeError, HubInfo, LeafPeer, OwnNames, info_of
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.packing import negotiate
from jetraft.api.leafnodes.texts import LOOP_DELAY_NS, SAME_CLUSTER
from jetraft.api.options.compression import CompressionError
from jetraft.api.plane._permissions import UserPermissions
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason

NOT_A_LEAF_PORT: Final = "attempted to connect to a port that is not one for leafnodes"
Admit = Callable[[LeafLink, LeafPeer, UserPermissions], None]


class Ends(Protocol):
    """How a connection ends that cannot go on."""

    @property
    def plane(self) -> Plane:
        """The plane with the connections."""

    def end(self, link: LeafLink, text: str, reason: Reason) -> None:
        """Close, and tell the other end why."""

    def fail(self, link: LeafLink, text: str, reason: Reason = ...) -> None:
        """Close without a word."""


def proofs(link: LeafLink) -> dict[str, str]:
    """The fields of CONNECT that say who this server is. Raises SeedError, or OSError."""
    remote, url, hub = link.remote, link.url, link.hub
    assert remote is not None
    assert url is not None
    assert hub is not None
    nonce = hub.nonce.encode()
    if remote.credentials:
        credentials = UserCredentials.read(remote.credentials)
        return {"jwt": credentials.jwt, "sig": credentials.key.sign(nonce)}
    if remote.seed:
        key = UserKey.read(remote.seed.offered_by_default)
        return {"nkey": key.public, "sig": key.sign(nonce)}
    fields = {"user": url.user, "pass": url.password}
    return {name: value for name, value in fields.items() if value}


@attrs.frozen(eq=False)
class HubSide:
    """Speaks with hubs. `admit` lets interest and messages be exchanged."""

    identity: OwnNames
    ends: Ends
    admit: Admit

    def on_info(self, link: LeafLink, text: bytes) -> None:
        """A hub says who it is, or that this server is admitted."""
        try:
            info = info_of(text)
        except HandshakeError as error:
            self.ends.fail(link, str(error))
            return
        if link.hub is None:
            self._greet(link, info)
        elif link.is_negotiated and not link.is_greeted:
            self._introduce(link, info)
        elif info.is_admission and not link.admitted:
            self._admit(link, attrs.evolve(info, peer=attrs.evolve(info.peer, domain=link.hub.peer.domain)))

    def _greet(self, link: LeafLink, info: HubInfo) -> None:
        remote, url = link.remote, link.url
        assert remote is not None
        assert url is not None
        link.hub, link.peer = info, info.peer
        if not info.is_leaf_port:
            self.ends.fail(link, NOT_A_LEAF_PORT, Reason.WRONG_PORT)
            return
        if self.identity.cluster and info.peer.cluster == self.identity.cluster:
            link.delay_ns = LOOP_DELAY_NS
            self.ends.end(link, SAME_CLUSTER, Reason.CLUSTER_NAMES_IDENTICAL)
            return
        if link.tls is None and not link.web and (remote.tls is not None or url.tls or info.tls_required):
            link.needs_tls = True
            self.ends.plane.hold(link.cid)  # until the handshake begins
        else:
            self._connect(link, info)
        link.spoken.set()

    def on_secure(self, link: LeafLink) -> None:
        """The handshake with a hub is complete: where it has said its INFO already, this server says who it is."""
        if link.hub is not None:
            self._connect(link, link.hub)

    def _connect(self, link: LeafLink, info: HubInfo) -> None:
        """Agree on compression, and say who this server is: at once, or when the hub has confirmed that."""
        assert link.remote is not None
        own, its = link.remote.wish, info.compression
        try:
            compresses = negotiate(self.ends.plane, link, own, its, self.identity.chosen)
        except CompressionError as error:
            self.ends.end(link, str(error), Reason.PROTOCOL_VIOLATION)
            return
        if not compresses:
            self._introduce(link, info)

    def _introduce(self, link: LeafLink, info: HubInfo) -> None:
        link.is_greeted = True
        remote = link.remote
        assert remote is not None
        try:
            proved = proofs(link)
        except SeedError as error:
            self.ends.fail(link, f"credentials of a remote: {error}")
            return
        except OSError as error:
            why = f"open {remote.credentials}: {(error.strerror or '').lower()}"
            self.ends.fail(link, why)
            return
        isolates = remote.request_isolation
        line = self.identity.connect(
            proved, account=remote.account, is_hub=remote.hub, isolate=isolates, compression=link.compression
        )
        self.ends.plane.write(link.cid, line)
        if not info.announces_admission:
            self._admit(link, info)

    def _admit(self, link: LeafLink, info: HubInfo) -> None:
        assert link.remote is not None
        link.is_spoke = not link.remote.hub
        self.admit(link, info.peer, of_remote(link.remote, info, own_domain(self.identity.domain, info.peer.domain)))
