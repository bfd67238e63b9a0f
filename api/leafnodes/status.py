"""Connections to leaf nodes and hubs as the monitoring pages show them. Field names are nats-server's."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from jetraft.api.credentials.verdicts import Verdict
from jetraft.api.leafnodes.handshake import LeafPeer
from jetraft.api.leafnodes.leafnodes import Leafnodes
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.packing import shown
from jetraft.api.monitor.steps import Steps
from jetraft.api.monitor.subjects import subscriptions_of, texts
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.api.sessions.session import Session
from jetraft.api.tls.facts import varz_head, varz_limits
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.encoding.gojson import number
from jetraft.store.model.gotime import format_duration

TLS_TIMEOUT_S = 2  # shown by nats-server where there is no TLS, too


@attrs.frozen(eq=False)
class LeafPages:
    """Implements monitor.pages.LeafStatus."""

    leafnodes: Leafnodes
    plane: Plane
    port: int

    @property
    def count(self) -> int:
        """The connections over which interest is exchanged."""
        return sum(link.admitted for link in self.leafnodes.links.values())

    def sessions(self) -> Iterator[Session]:
        """Those that are open, as /connz shows them beside clients: one that this server made has no name there."""
        for cid in self.leafnodes.links:
            if (session := self.session_of(cid)) is not None:
                yield session

    def session_of(self, cid: int) -> Session | None:
        """One of them."""
        link = self.leafnodes.links.get(cid)
        if link is None or not link.admitted or link.peer is None:
            return None
        peer = link.peer if link.remote is None else LeafPeer()
        return Session(
            cid=link.cid,
            ip=link.ip,
            port=link.port,
            start_unix_ns=link.start_unix_ns,
            options=ConnectOptions(name=peer.name, version=peer.version),
            verdict=attrs.evolve(link.verdict or Verdict(), account=link.account),
            tls=link.tls,
            proxy_key=link.proxy_key,
        )

    def counts(self) -> Counter[str]:
        """How many each account has."""
        return self.leafnodes.counts()[0]

    def rows(self, account: str, *, subs: bool) -> Steps[list[dict[str, Any]]]:
        """One for each of them, or for those of an account."""
        found = []
        for link in list(self.leafnodes.links.values()):  # they come and go between two steps
            if link.admitted and account in ("", link.account) and (row := self._row(link)):
                if subs:
                    held = yield from subscriptions_of(self.plane, link.cid)
                    row["subscriptions_list"] = yield from texts([subject for _, subject, *_ in held])
                found.append(row | {"compression": shown(self.plane, link)} | self._proxy(link))
            yield 0
        return found

    @staticmethod
    def _proxy(link: LeafLink) -> dict[str, Any]:
        return {"proxy": {"key": link.proxy_key}} if link.proxy_key else {}

    def _row(self, link: LeafLink) -> dict[str, Any]:
        counters = self.plane.connection(link.cid)
        if counters is None or link.peer is None:
            return {}
        return {
            "id": link.cid,
            "name": link.peer.name,
            "is_spoke": link.is_spoke,
            "account": link.account,
            "ip": link.ip,
            "port": link.port,
            **({"rtt": format_duration(counters["rtt_ns"])} if counters["rtt_ns"] else {}),
            **{key: counters[key] for key in ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")},
        }

    def varz(self) -> dict[str, Any]:
        """The configuration, without users and passwords."""
        options = self.leafnodes.options
        listener = {
            "host": options.host,
            "port": self.port,
            "auth_timeout": number(options.auth_timeout_ns / NS_PER_S),
            **({} if options.tls is not None else {"tls_timeout": TLS_TIMEOUT_S}),
            **varz_head(options.tls),
            **varz_limits(options.tls, ""),
        }
        remotes = [
            {
                "local_account": remote.account,
                **varz_limits(remote.tls, ""),
                "urls": [url.address for url in remote.urls],
            }
            for remote in options.remotes
        ]
        return {**(listener if self.port else {}), **({"remotes": remotes} if remotes else {})}
