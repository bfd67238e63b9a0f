"""How clients are described in events. Names and order are nats-server's."""

from collections.abc import Callable
from typing import Any

import attrs

from jetraft.api.exchange.values import Sharing, SharingKind
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.session import ServerIdentity, Session, Sessions
from jetraft.store.model.gotime import format_time


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
    leaf_session_of: Callable[[int], Session | None] | None = None  # a leaf node by the id of its connection

    def describe(self, cid: int, account: str) -> dict[str, Any]:
        """A client or a leaf node; one that has left, or whose request came from another node, is its account alone.

        Of one that asks through an import the exporter is told the account, and the rest where all that is imported
        from it is shared.
        """
        session, counters = self.sessions.by_cid.get(cid), self.plane.connection(cid)
        cluster = {"cluster": self.identity.cluster_name} if self.identity.cluster_name else {}
        here: dict[str, Any] = {"server": self.identity.server_name} | cluster
        kind = {"kind": "Client", "client_type": session.client_type} if session is not None else {"kind": "Leafnode"}
        if session is None and self.leaf_session_of is not None and (session := self.leaf_session_of(cid)) is not None:
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
