"""How this server and its clients are described in answers and events. Names and order are nats-server's."""

from collections.abc import Callable
from typing import Any, Final

import attrs

from jetraft.api.config.feature_flags import flags_in_force
from jetraft.api.plane._plane import Plane
from jetraft.api.session import ServerIdentity, Session, Sessions
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
    """Describes clients by their ids, for JetStream's audit events."""

    sessions: Sessions
    plane: Plane
    identity: ServerIdentity

    def describe(self, cid: int, account: str) -> dict[str, Any]:
        """A client; one that has left, or whose request came from another node, is its account alone."""
        session, counters = self.sessions.by_cid.get(cid), self.plane.connection(cid)
        if session is None or counters is None or session.account != account:
            return {"acc": account}
        found = client_info(session, name_of=str, rtt_ns=counters["rtt_ns"])
        del found["name_tag"]
        kind = {key: found.pop(key) for key in ("kind", "client_type")}
        cluster = {"cluster": self.identity.cluster_name} if self.identity.cluster_name else {}
        return found | {"server": self.identity.server_name} | cluster | kind
