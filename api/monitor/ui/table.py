"""Which paths there are below `/ui`, and the parts behind them."""

from typing import Any

from jetraft.api.http_gateway.inside import InsideDoor
from jetraft.api.monitor.page import Handler
from jetraft.api.monitor.pages import Pages
from jetraft.api.monitor.ui.assets import asset_table
from jetraft.api.monitor.ui.events import Events
from jetraft.api.monitor.ui.lists import NoLists, list_table
from jetraft.api.monitor.ui.sign_in import SignIns
from jetraft.api.monitor.ui.site import DashboardSite
from jetraft.api.options.options import Options

SHOWN = (
    "connections",
    "subscriptions",
    "in_msgs",
    "in_bytes",
    "out_msgs",
    "out_bytes",
    "slow_consumers",
    "turns_ended",
)


def ui_table(pages: Pages) -> dict[str, Handler]:
    """Path -> handler of the page, its files and its lists."""
    lists = NoLists() if pages.jetstream is None else pages.jetstream.dashboard()
    return {**asset_table(), **list_table(lists)}


def ui_site(pages: Pages, door: InsideDoor, base_path: str) -> DashboardSite:
    """The rest of the dashboard."""
    reactor = pages.varz.reactor

    def figures() -> dict[str, Any]:
        counters = reactor.statistics()
        return {name: counters[name] for name in SHOWN}

    watched = None if pages.jetstream is None else pages.jetstream.dashboard()
    return DashboardSite(
        Events(clock=pages.clock, figures=figures, watched=watched),
        SignIns(
            door,
            base_path,
            has_clients_tls=lambda: door.sessions.options.tls is not None,
            needs_certificates=lambda: needs_certificates(door.sessions.options),
        ),
    )


def needs_certificates(options: Options) -> bool:
    """Whether clients have to show a certificate."""
    tls = options.tls
    return tls is not None and (tls.verify or tls.verify_and_map or bool(tls.pinned_certs))
