"""The monitoring pages: /healthz, /varz, /jsz, /connz and the list of them at /.

Field names and order are nats-server's (server/monitor.go); what this server does not have is left out, not invented.
"""

import html
import os
import resource
import time
from collections.abc import Callable
from typing import Any, Protocol

import attrs
import orjson

from jetraft import __version__
from jetraft.api.monitor.http import Handler, Page
from jetraft.api.reactor import Reactor
from jetraft.api.session import COMPATIBLE_VERSION, ServerIdentity, Sessions
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.gotime import format_time

CONNZ_LIMIT = 1024  # nats-server's page
NUMBER_DIGITS_MAX = 9
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@attrs.frozen(kw_only=True)
class Health:
    """What /healthz says: the HTTP status and, when it is not 200, why; `notice` fails no probe."""

    status: int = 200
    error: str = ""
    notice: str = ""


class JetStreamStatus(Protocol):
    """What the cluster layer tells the pages."""

    async def health(self, *, js_enabled_only: bool, js_server_only: bool) -> Health:
        """Whether this node serves what it should."""

    def jsz(self, arguments: dict[str, str]) -> dict[str, Any]:
        """The body of /jsz below the head."""

    def varz(self) -> dict[str, Any]:
        """Configuration, figures and limits, for /varz."""


def uptime_text(seconds: int) -> str:
    """`1d2h3m4s` as nats-server writes it."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return "".join(f"{value}{unit}" for value, unit in parts)


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123  a proc file, read on every request
        return int(statm.read().split()[1]) * PAGE_BYTES


def number_of(text: str | None, default: int) -> int:
    """The number of an argument; the default where there is none, or nonsense."""
    return int(text) if text and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX else default


def as_json(document: dict[str, Any], *, status: int = 200) -> Page:
    """An indented JSON page, as nats-server's."""
    return Page(body=orjson.dumps(document, option=orjson.OPT_INDENT_2), status=status)


@attrs.define(eq=False)
class Pages:
    """Makes the pages from what the parts of the server count."""

    identity: ServerIdentity
    sessions: Sessions
    reactor: Reactor
    clock: Clock
    jetstream: JetStreamStatus | None
    extra: Callable[[], dict[str, Any]] = dict
    started_unix_ns: int = 0
    started_mono_ns: int = 0
    _cpu_then: tuple[float, float] = (0.0, 0.0)

    def table(self) -> dict[str, Handler]:
        """Path -> handler."""
        return {
            "/": self.root,
            "/healthz": self.healthz,
            "/varz": self.varz,
            "/jsz": self.jsz,
            "/connz": self.connz,
        }

    def root(self, _arguments: dict[str, str]) -> Page:
        """Links to the other pages."""
        links = "".join(f'<a href=".{path}">{path[1:]}</a><br/>' for path in self.table() if path != "/")
        name = html.escape(self.identity.server_name)
        body = f"<html><head><title>jetraft {name}</title></head><body><h1>jetraft {name}</h1>{links}</body></html>"
        return Page(body=body.encode(), content_type="text/html; charset=utf-8")

    async def healthz(self, arguments: dict[str, str]) -> Page:
        """`{"status":"ok"}`, or 503 and the reason."""
        health = Health()
        if self.jetstream is not None:
            health = await self.jetstream.health(
                js_enabled_only=arguments.get("js-enabled-only") in ("1", "true"),
                js_server_only=arguments.get("js-server-only") in ("1", "true"),
            )
        elif arguments.get("js-enabled-only") in ("1", "true"):
            health = Health(status=503, error="JetStream not enabled")
        document: dict[str, Any] = {"status": "ok"}
        if health.status != 200:  # noqa: PLR2004
            document = {"status": "unavailable", "status_code": health.status, "error": health.error}
        if health.notice:
            document["notice"] = health.notice
        return Page(body=orjson.dumps(document), status=health.status)

    def _cpu_percent(self) -> float:
        """Processor time since the last call, in percent of one core."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now, spent = time.monotonic(), usage.ru_utime + usage.ru_stime
        then, spent_then = self._cpu_then
        self._cpu_then = (now, spent)
        return round(100 * (spent - spent_then) / max(now - then, 1e-3), 1) if then else 0.0

    def varz(self, _arguments: dict[str, str]) -> Page:
        """Who this server is, its limits and its counters."""
        options, counters = self.sessions.options, self.reactor.statistics()
        now_ns = self.clock.unix_ns()
        document: dict[str, Any] = {
            "server_id": self.identity.server_id,
            "server_name": self.identity.server_name,
            "version": COMPATIBLE_VERSION,
            "jetraft_version": __version__,
            "proto": 1,
            "go": self.identity.go_version,
            "host": options.host,
            "port": self.sessions.port,
            "auth_required": self.sessions.auth_required,
            "max_connections": options.max_connections,
            "max_subscriptions": options.max_subscriptions,
            "ping_interval": options.ping_interval_ns,
            "ping_max": options.ping_max,
            "http_host": options.http_host or options.host,
            "http_port": options.http_port,
            "http_base_path": options.http_base_path,
            "auth_timeout": options.auth_timeout_ns / NS_PER_S,
            "max_control_line": options.max_control_line_bytes,
            "max_payload": options.max_payload_bytes,
            "max_pending": options.max_pending_bytes,
            "write_deadline": options.write_deadline_ns,
            "start": format_time(self.started_unix_ns),
            "now": format_time(now_ns),
            "uptime": uptime_text((self.clock.mono_ns() - self.started_mono_ns) // NS_PER_S),
            "mem": resident_bytes(),
            "cores": os.cpu_count(),
            "cpu": self._cpu_percent(),
            "connections": counters["connections"],
            "total_connections": counters["total_connections"],
            "routes": counters["routes"],
            "in_msgs": counters["in_msgs"],
            "out_msgs": counters["out_msgs"],
            "in_bytes": counters["in_bytes"],
            "out_bytes": counters["out_bytes"],
            "slow_consumers": counters["slow_consumers"],
            "slow_consumer_stats": {"clients": counters["slow_consumers"], "routes": 0, "gateways": 0, "leafs": 0},
            "subscriptions": counters["subscriptions"],
            "connect_urls": list(self.sessions.connect_urls),
            "config_load_time": format_time(self.started_unix_ns),
            "config_digest": options.config_digest,
            "tags": list(options.server_tags),
            "metadata": dict(options.server_metadata),
        }
        if self.identity.cluster_name:
            document["cluster"] = {"name": self.identity.cluster_name}
        if self.jetstream is not None:
            document["jetstream"] = self.jetstream.varz()
        document["jetraft"] = {"plane": counters, **self.extra()}
        return as_json(document)

    def jsz(self, arguments: dict[str, str]) -> Page:
        """What JetStream holds."""
        head: dict[str, Any] = {"server_id": self.identity.server_id, "now": format_time(self.clock.unix_ns())}
        if self.jetstream is None:
            return as_json(head | {"disabled": True})
        return as_json(head | self.jetstream.jsz(arguments))

    def connz(self, arguments: dict[str, str]) -> Page:
        """The open client connections, a page of at most 1024."""
        offset, limit = number_of(arguments.get("offset"), 0), number_of(arguments.get("limit"), CONNZ_LIMIT)
        cids = sorted(self.sessions.by_cid)
        subs = arguments.get("subs") in ("1", "true")
        rows = [self._connection(cid, subs=subs) for cid in cids[offset : offset + limit]]
        document = {
            "server_id": self.identity.server_id,
            "now": format_time(self.clock.unix_ns()),
            "num_connections": len(rows),
            "total": len(cids),
            "offset": offset,
            "limit": limit,
            "connections": [row for row in rows if row],
        }
        return as_json(document)

    def _connection(self, cid: int, *, subs: bool) -> dict[str, Any]:
        session, counters = self.sessions.by_cid[cid], self.reactor.plane.connection(cid)
        if counters is None:
            return {}
        now_ns = self.clock.mono_ns()
        row: dict[str, Any] = {
            "cid": cid,
            "kind": "Client",
            "type": "nats",
            "ip": session.ip,
            "port": session.port,
            "start": format_time(session.start_unix_ns),
            "last_activity": format_time(self.clock.unix_ns() - (now_ns - counters["last_active_ns"])),
            "uptime": uptime_text((now_ns - counters["started_ns"]) // NS_PER_S),
            "idle": uptime_text((now_ns - counters["last_active_ns"]) // NS_PER_S),
            "pending_bytes": counters["pending_bytes"],
            "in_msgs": counters["in_msgs"],
            "out_msgs": counters["out_msgs"],
            "in_bytes": counters["in_bytes"],
            "out_bytes": counters["out_bytes"],
            "subscriptions": counters["subscriptions"],
        }
        for key in ("name", "lang", "version"):
            if getattr(session.options, key):
                row[key] = getattr(session.options, key)
        if session.options.user:
            row["authorized_user"] = session.options.user
        if subs:
            subjects = self.reactor.plane.subscriptions(cid)
            row["subscriptions_list"] = [subject.decode(errors="replace") for subject in subjects]
        return row
