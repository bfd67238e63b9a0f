"""/varz: who this server is, how it is configured and what it has done; and the figures of STATSZ.

A server without JetStream, a cluster or another feature says so with an empty block, as nats-server does. What
describes Go's file layer (`disk_io_wait_stats`) has no counterpart and is missing.
"""

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs

from jetraft import __version__
from jetraft.api.monitor.routez import Routez
from jetraft.api.monitor.steps import Steps, in_steps
from jetraft.api.monitor.values import resident_bytes, uptime_text
from jetraft.api.options.feature_flags import flags_in_force
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import ServerIdentity, Session, Sessions
from jetraft.api.tls.facts import varz_head, varz_limits
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.encoding.gojson import number
from jetraft.store.model.gotime import format_time
from jetraft.store.model.versioning import SERVER_VERSION


class JetStreamFigures(Protocol):
    """JetStream as these pages see it. Implemented by api/jetstream/node.py."""

    def varz(self) -> Steps[dict[str, Any]]:
        """Configuration, statistics and limits."""


class LeafStatus(Protocol):
    """Leaf nodes as the pages see them. Implemented by api/leafnodes/status.py."""

    @property
    def count(self) -> int:
        """The connections over which interest is exchanged."""

    def sessions(self) -> Iterator[Session]:
        """Those that are open, as /connz shows them beside clients."""

    def session_of(self, cid: int) -> Session | None:
        """One of them, if it is open."""

    def counts(self) -> Counter[str]:
        """How many each account has."""

    def rows(self, account: str, *, subs: bool) -> Steps[list[dict[str, Any]]]:
        """One for each of them, or for those of an account."""

    def varz(self) -> dict[str, Any]:
        """The configuration."""


@attrs.define(kw_only=True, eq=False)
class Varz:
    """Makes the pages. `requests` counts the requests for pages over HTTP by path."""

    identity: ServerIdentity
    sessions: Sessions
    reactor: Reactor
    clock: Clock
    jetstream: JetStreamFigures | None
    routez: Routez
    requests: Counter[str] = attrs.field(factory=Counter)
    leafnodes: LeafStatus | None = None
    extra: Callable[[], dict[str, Any]] = dict
    started_unix_ns: int = 0
    started_mono_ns: int = 0
    _cpu_then: tuple[float, float] = (0.0, 0.0)
    _cpu: float = 0.0

    def _cpu_percent(self) -> float:
        """Processor time since the last look, a second ago or more, in percent of one core."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now, spent = time.monotonic(), usage.ru_utime + usage.ru_stime
        then, spent_then = self._cpu_then
        if now - then >= 1:
            self._cpu_then = (now, spent)
            self._cpu = round(100 * (spent - spent_then) / (now - then), 1) if then else 0.0
        return self._cpu

    def page(self) -> Steps[dict[str, Any]]:
        """The whole page."""
        jetstream = {} if self.jetstream is None else {"jetstream": (yield from self.jetstream.varz())}
        blocks = self._blocks(jetstream)
        document = {**self._who(), **self._options(), **blocks, **self._limits(), **self._figures()}
        arrivals = self.sessions.arrivals.statistics()
        extra = {"plane": self.reactor.statistics(), "arrivals": arrivals, **self.extra()}
        return document | {"jetraft": extra}

    def _who(self) -> dict[str, Any]:
        return {
            "server_id": self.identity.server_id,
            "server_name": self.identity.server_name,
            "version": SERVER_VERSION,
            "jetraft_version": __version__,
            "proto": 1,
            "git_commit": self.identity.git_commit,
            "go": self.identity.runtime,
        }

    def _options(self) -> dict[str, Any]:
        options = self.sessions.options
        return {
            "host": options.host,
            "port": self.sessions.port,
            "auth_required": self.sessions.auth_required,
            **varz_head(options.tls),
            "max_connections": options.max_connections,
            **({"max_subscriptions": options.max_subscriptions} if options.max_subscriptions else {}),
            "ping_interval": options.ping_interval_ns,
            "ping_max": options.ping_max,
            "http_host": options.http_host or options.host,
            "http_port": options.http_port,
            "http_base_path": options.http_base_path,
            "https_port": options.https_port,
            "auth_timeout": number(options.auth_timeout_ns / NS_PER_S),
            "max_control_line": options.max_control_line_bytes,
            "max_payload": options.max_payload_bytes,
            "max_pending": options.max_pending_bytes,
        }

    def _blocks(self, jetstream: dict[str, Any]) -> dict[str, Any]:
        options, cluster = self.sessions.options, self.sessions.options.cluster
        named: dict[str, Any] = {}
        if self.identity.cluster_name:
            named = {"name": self.identity.cluster_name}
        if cluster is not None:
            urls = [route.rpartition("@")[2].rpartition("//")[2] for route in cluster.routes]
            from jetraft.raft.mesh.connector import HANDSHAKE_S  # noqa: PLC0415  of a cluster alone

            whole_s = number(HANDSHAKE_S)  # of a handshake: one time for TLS and who the peer is
            named |= {"addr": cluster.host, "cluster_port": cluster.port, "auth_timeout": whole_s, "urls": urls}
            named |= {"tls_timeout": whole_s, "pool_size": 1}  # what is routed to a node goes over one link
            named |= {"tls_required": True, "tls_verify": True} if cluster.tls is not None else {}
        blocks: dict[str, Any] = {"cluster": named, "gateway": {}, "leaf": {}, "mqtt": {}, "websocket": {}}
        if self.leafnodes is not None:
            blocks["leaf"] = self.leafnodes.varz()
        blocks |= jetstream
        if options.proxies:
            blocks["proxies"] = {"trusted": [{"key": key} for key in options.proxies]}
        return {**blocks, **self.sessions.listeners_varz(), "system_account": options.system_account}

    def _limits(self) -> dict[str, Any]:
        options = self.sessions.options
        tls = varz_limits(options.tls, self.sessions.tls_not_after) or {"tls_timeout": 2}
        policy = {"write_timeout": options.write_timeout} if options.write_timeout else {}
        return {**tls, "write_deadline": options.write_deadline_ns, **policy}

    def _figures(self) -> dict[str, Any]:
        options, counters, clock = self.sessions.options, self.reactor.statistics(), self.clock
        slow, stale = counters["slow_consumers"], self.sessions.ended[Reason.STALE_CONNECTION]
        of_routes = {"routes": 0, "gateways": 0, "leafs": 0}
        moved = {
            f"{way}_{unit}": counters[f"{way}_{unit}"] + counters[f"routed_{way}_{unit}"]
            for way in ("in", "out")
            for unit in ("msgs", "bytes")
        }
        clients = {
            f"{way}_client_{unit}": counters[f"{way}_{unit}"] for way in ("in", "out") for unit in ("msgs", "bytes")
        }
        return {
            "start": format_time(self.started_unix_ns),
            "now": format_time(clock.unix_ns()),
            "uptime": uptime_text((clock.mono_ns() - self.started_mono_ns) // NS_PER_S),
            "mem": resident_bytes(),
            "cores": os.cpu_count(),
            "gomaxprocs": 1,  # one thread serves clients
            "cpu": number(self._cpu_percent()),
            "connections": counters["connections"],
            "total_connections": counters["total_connections"],
            "routes": counters["routes"],
            "remotes": counters["routes"],
            "leafnodes": 0 if self.leafnodes is None else self.leafnodes.count,
            **moved,
            **clients,
            "slow_consumers": slow,
            "stale_connections": stale,
            "stalled_clients": counters["stalls"],
            "subscriptions": counters["subscriptions"],
            "http_req_stats": dict(sorted(self.requests.items())),
            "config_load_time": format_time(self.started_unix_ns),
            "config_digest": options.config_digest,
            "tags": list(options.server_tags),
            **({"metadata": dict(options.server_metadata)} if options.server_metadata else {}),
            "feature_flags": flags_in_force(options.feature_flags),
            "slow_consumer_stats": {"clients": slow, **of_routes},
            "stale_connection_stats": {"clients": stale, **of_routes},
        }

    def statsz(self, *, active_servers: int) -> Steps[dict[str, Any]]:
        """The fields of STATSZ."""
        jetstream = {}
        if self.jetstream is not None:
            shown = yield from self.jetstream.varz()
            where = shown["config"].pop("store_dir")  # which only who may ask the server itself is told
            assert where, "JetStream has a directory"
            jetstream = {"jetstream": shown}
        active: set[str] = set()
        yield from in_steps(list(self.sessions.by_cid.values()), lambda session: active.add(session.account))
        counters = self.reactor.statistics()
        moved = {
            name: {unit: counters[f"{way}_{unit}"] + counters[f"routed_{way}_{unit}"] for unit in ("msgs", "bytes")}
            for name, way in (("sent", "out"), ("received", "in"))
        }
        clients = {
            name: {unit: counters[f"{way}_{unit}"] for unit in ("msgs", "bytes")}
            for name, way in (("sent_to_clients", "out"), ("received_from_clients", "in"))
        }
        routes = self.routez.statz()
        return {
            "start": format_time(self.started_unix_ns),
            "mem": resident_bytes(),
            "cores": os.cpu_count(),
            "cpu": number(self._cpu_percent()),
            "connections": counters["connections"],
            "total_connections": counters["total_connections"],
            "active_accounts": len(active),
            "subscriptions": counters["subscriptions"],
            "sent": moved["sent"],
            "sent_to_clients": clients["sent_to_clients"],
            "received": moved["received"],
            "received_from_clients": clients["received_from_clients"],
            "slow_consumers": counters["slow_consumers"],
            **({"routes": routes} if routes else {}),
            "active_servers": active_servers,
            **jetstream,
            "gomaxprocs": 1,
        }
