"""How this server and its clients are described in answers and events. Names and order are nats-server's."""

from collections.abc import Callable
from typing import Any, Final

import attrs

from jetraft.api.exchange.values import Sharing, SharingKind
from jetraft.api.monitor.varz import LeafStatus
from jetraft.api.options.feature_flags import flags_in_force
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.session import ServerIdentity, Session, Sessions
from jetraft.store.model.clock import Clock
from jetraft.store.model.gotime import format_time
from jetraft.store.model.versioning import SERVER_VERSION

JETSTREAM_FLAG: Final = 1  # of "flags"; nats-server's others are of features that this server does not have


@attrs.define(kw_only=True, eq=False)
class ServerHead:
    """Describes this server. Each answer and event has the next number."""

    identity: ServerIdentity
    sessions: Sessions
    clock: Clock
    has_jetstream: bool
    name_of: Callable[[str], str]  # of an account, for people
    _seq: int = 0

    @property
    def domain(self) -> str:
        """The domain of JetStream."""
        return self.identity.domain

    def next(self) -> dict[str, Any]:
        """The server, as the next answer or event says it."""
        self._seq += 1
        options, identity = self.sessions.options, self.identity
        return {
            "name": identity.server_name,
            "host": options.host,
            "id": identity.server_id,
            **({"cluster": identity.cluster_name} if identity.cluster_name else {}),
            **({"domain": self.domain} if self.domain else {}),
            "ver": SERVER_VERSION,
            **({"tags": list(options.server_tags)} if options.server_tags else {}),
            **({"metadata": dict(options.server_metadata)} if options.server_metadata else {}),
            "feature_flags": flags_in_force(options.feature_flags),
            "jetstream": self.has_jetstream,
            "flags": JETSTREAM_FLAG if self.has_jetstream else 0,
            "seq": self._seq,
            "time": format_time(self.clock.unix_ns()),
        }

    def short(self) -> dict[str, Any]:
        """The answer to IDZ."""
        return {
            "name": self.identity.server_name,
            "host": self.sessions.options.host,
            "id": self.identity.server_id,
        }


def client_info(
    session: Session, *, name_of: Callable[[str], str], rtt_ns: int, stop_unix_ns: int | None = None
) -> dict[str, Any]:
    """A client in an event; `stop_unix_ns` for one that has left. Its token is not in it, which may be a secret."""
    verdict, options = session.verdict, session.options
    claims = None if verdict is None else verdict.claims
    user = session.named if verdict is None else verdict.user
    named = {"user": user, "name": options.name, "lang": options.lang, "ver": options.version}
    return {
        "start": format_time(session.start_unix_ns),
        "host": session.ip,
        "id": session.cid,
        "acc": session.account,
        **{key: value for key, value in named.items() if value},
        **({"rtt": rtt_ns} if rtt_ns else {}),
        **({"stop": format_time(stop_unix_ns)} if stop_unix_ns is not None else {}),
        **({"issuer_key": claims.issuer} if claims is not None else {}),
        "name_tag": name_of(session.account),
        "kind": "Client",
        "client_type": session.client_type,
    }


@attrs.frozen(kw_only=True, eq=False)
class ClientDirectory:
    """Describes who asks, by the id of the connection, for JetStream's audit events."""

    sessions: Sessions
    plane: Plane
    identity: ServerIdentity
    sharing: Callable[[str], Sharing]  # of an account
    leafnodes: LeafStatus | None = None

    def describe(self, cid: int, account: str) -> dict[str, Any]:
        """A client or a leaf node; one that has left, or whose request came from another node, is its account alone.

        Of one that asks through an import the exporter is told the account, and the rest where all that is imported
        from it is shared.
        """
        session, counters = self.sessions.by_cid.get(cid), self.plane.connection(cid)
        cluster = {"cluster": self.identity.cluster_name} if self.identity.cluster_name else {}
        here: dict[str, Any] = {"server": self.identity.server_name} | cluster
        kind = {"kind": "Client", "client_type": session.client_type} if session is not None else {"kind": "Leafnode"}
        if session is None and self.leafnodes is not None and (session := self.leafnodes.session_of(cid)) is not None:
            here = {"server": session.options.name} | cluster
        if session is None or counters is None:
            return {"acc": account}
        rtt_ns = counters["rtt_ns"]
        if session.account != account and not self._shares(session.account, account):
            return {"acc": session.account, "svc": account, **({"rtt": rtt_ns} if rtt_ns else {})} | here
        found = client_info(session, name_of=str, rtt_ns=rtt_ns)
        for key in ("name_tag", "kind", "client_type"):
            del found[key]
        return found | ({"svc": account} if session.account != account else {}) | here | kind

    def _shares(self, importer: str, exporter: str) -> bool:
        imports = [one for one in self.sharing(importer).imports if one.kind is SharingKind.SERVICE]
        shared = [one.share for one in imports if one.account == exporter]
        return bool(shared) and all(shared)
