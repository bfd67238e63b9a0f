"""The compiled plane of a server: with WebSocket or TLS where the options ask for them, and with its handlers.

Servers without TLS load neither OpenSSL's context nor the libraries that read certificates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.protocol_log import ProtocolLog

if TYPE_CHECKING:
    from jetraft.api.auth.login import Logins
    from jetraft.api.logs.logger import Logger
    from jetraft.api.options.options import Options
    from jetraft.api.sessions.session import Sessions
    from jetraft.api.traces.tracing import Tracer

LeafHandler = Callable[[int, int, bytes], None]


def make_plane(  # noqa: PLR0913, PLR0917  (the handlers of the plane)
    options: Options,
    sessions: Sessions,
    logins: Logins,
    tracer: Tracer,
    say: Logger,
    on_leaf_text: LeafHandler | None = None,
) -> Plane:
    """The data plane, with or without WebSocket and TLS, with the limits of the options and of memory."""
    plane = _plane_of(options, sessions, logins, tracer, say, on_leaf_text)
    plane.limit_tokens(options.max_sub_tokens)
    if options.max_unread_bytes:
        from jetraft.cluster.memory_budget import MemoryBudget  # noqa: PLC0415  only below a memory limit

        sessions.memory = MemoryBudget.of_process()
        plane.limit_unread(options.max_unread_bytes)
    plane.stall_producers(not options.no_fast_producer_stall)
    plane.log_protocol(options.trace)
    plane.trace_external(tracer.has_destinations)
    return plane


def _plane_of(  # noqa: PLR0913, PLR0917  (the handlers of the plane)
    options: Options,
    sessions: Sessions,
    logins: Logins,
    tracer: Tracer,
    say: Logger,
    on_leaf_text: LeafHandler | None,
) -> Plane:
    settings: dict[str, Any] = {
        "max_payload": options.max_payload_bytes,
        "max_control_line": options.max_control_line_bytes,
        "max_pending": options.max_pending_bytes,
        "max_subscriptions": options.max_subscriptions,
        "connect_handler": logins.on_connect,
        "first_ping_handler": sessions.on_first_ping,
        "violation_handler": logins.on_violation,
        "request_info": sessions.request_info,
        "leaf_handler": on_leaf_text,
        "trace_handler": tracer,
        "protocol_handler": ProtocolLog(sessions, say).on_line,
    }
    leaf = options.leafnodes
    if options.websocket is not None or (leaf is not None and leaf.uses_websocket):
        from jetraft.api.plane._web import WebPlane  # noqa: PLC0415  only servers with WebSocket load h11 and zlib

        return WebPlane(**settings)
    if options.tls is None and not options.config_file and (leaf is None or not leaf.may_use_tls):
        return Plane(**settings)
    # A reload of the file can bring TLS; until then the class costs its import, half a millisecond.
    from jetraft.api.plane._secure import SecurePlane  # noqa: PLC0415

    return SecurePlane(**settings)
