"""The listener for the pages, over HTTP or HTTPS, as the options ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.api.listeners.listener import ListenError, bind
from jetraft.api.logs.start_errors import MONITOR_ERROR

if TYPE_CHECKING:
    from jetraft.api.listeners.listener import ListenerParts
    from jetraft.api.monitor.http import MonitorServer
    from jetraft.api.monitor.pages import Pages
    from jetraft.api.options.options import Options


def open_monitor(options: Options, pages: Pages, parts: ListenerParts) -> MonitorServer | None:
    """The bound listener; None without a port. Raises ListenError, TlsError with one line."""
    context = None
    if options.http_port and options.https_port:
        both = f"HTTP ({options.http_port}) and HTTPs ({options.https_port})"
        raise ListenError(f"Can't start monitoring: can't specify both {both} ports")
    if options.https_port:
        if options.tls is None or not options.tls.certificates:
            raise ListenError("Can't start monitoring: TLS cert and key required for HTTPS")
        from jetraft.api.tls.monitoring import context_of  # noqa: PLC0415  servers without it do not pay

        context = context_of(options.tls)
    port = options.https_port or options.http_port
    if not port:
        return None
    from jetraft.api.http_gateway.inside import InsideDoor  # noqa: PLC0415  the same
    from jetraft.api.monitor.http import MonitorServer  # noqa: PLC0415  the same
    from jetraft.api.monitor.ui.table import ui_site, ui_table  # noqa: PLC0415  the same

    sock = bind(options.http_host or options.host, port, MONITOR_ERROR)
    table = {**pages.table(), **ui_table(pages)}
    door = InsideDoor(parts.plane, parts.reactor, parts.sessions, parts.clock)
    requests, site = pages.varz.requests, ui_site(pages, door, options.http_base_path)
    return MonitorServer(sock, table, options.http_base_path, requests, context, site=site)
