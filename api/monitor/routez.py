"""/routez: the nodes that messages are exchanged with. There is one route per node, so its id stands for the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.monitor.questions import PageError, RoutezQuestion
from jetraft.api.monitor.steps import Rows, Steps
from jetraft.api.monitor.subjects import ROWS_PART, Row, detail, texts
from jetraft.api.monitor.values import uptime_text
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.gotime import format_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.routes import RouteFacts, Routes

SUBSCRIPTIONS_MAX: Final = 100_000


@attrs.frozen(kw_only=True, eq=False)
class Routez:
    """Makes the page. `routes` is None for a server without a cluster."""

    routes: Routes | None
    clock: Clock
    name_of: Callable[[str], str] = str  # of an account, for people

    def page(self, question: RoutezQuestion) -> Steps[dict[str, Any]]:
        """The page without its head. Raises PageError."""
        rows = []
        for facts in () if self.routes is None else self.routes.facts():
            row = self._row(facts)
            if question.subscriptions or question.subscriptions_detail:
                row |= yield from self._listed(facts, detailed=question.subscriptions_detail)
            rows.append(row | {"compression": "off"})
        own = {} if self.routes is None else self.routes.told_permissions
        return {"num_routes": len(rows), **own, "routes": rows}

    def statz(self) -> list[dict[str, Any]]:
        """The same in short, for STATSZ."""
        return [
            {
                "rid": facts.route,
                "name": facts.name,
                "sent": {"msgs": facts.figures["out_msgs"], "bytes": facts.figures["out_bytes"]},
                "received": {"msgs": facts.figures["in_msgs"], "bytes": facts.figures["in_bytes"]},
                "pending": facts.figures["pending_size"],
            }
            for facts in (self.routes.facts() if self.routes is not None else ())
        ]

    def _row(self, facts: RouteFacts) -> dict[str, Any]:
        now_ns, unix_ns, figures = self.clock.mono_ns(), self.clock.unix_ns(), facts.figures
        return {
            "rid": facts.route,
            "remote_id": facts.server_id,
            "remote_name": facts.name,
            "did_solicit": facts.configured,
            "is_configured": facts.configured,
            "ip": facts.host,
            "port": facts.port,
            "start": format_time(unix_ns - (now_ns - facts.since_ns)),
            "last_activity": format_time(unix_ns - (now_ns - facts.last_received_ns)),
            "uptime": uptime_text((now_ns - facts.since_ns) // NS_PER_S),
            "idle": uptime_text(max(0, now_ns - facts.last_received_ns) // NS_PER_S),
            **facts.permissions,
            "pending_size": figures["pending_size"],
            "in_msgs": figures["in_msgs"],
            "out_msgs": figures["out_msgs"],
            "in_bytes": figures["in_bytes"],
            "out_bytes": figures["out_bytes"],
            "subscriptions": figures["subscriptions"],
        }

    def _listed(self, facts: RouteFacts, *, detailed: bool) -> Steps[dict[str, Any]]:
        assert self.routes is not None
        if facts.figures["subscriptions"] > SUBSCRIPTIONS_MAX:
            raise PageError(f"a route has more than {SUBSCRIPTIONS_MAX} subscriptions")
        rows: list[Row] = []
        while more := self.routes.plane.route_rows(facts.route, ROWS_PART, len(rows)):
            rows += more
            yield 0
        if not rows:
            return {}
        if detailed:
            return {"subscriptions_list_detail": Rows(detail(row, name_of=self.name_of) for row in rows)}
        return {"subscriptions_list": (yield from texts([subject for _, subject, *_ in rows]))}
