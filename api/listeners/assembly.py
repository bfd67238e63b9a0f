"""The listener for clients and, where the options ask for TLS, the parts that serve its handshakes.

Servers without TLS load neither OpenSSL's context nor the libraries that read certificates.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from jetraft.api.listeners.listener import ClientListener, ListenerParts

if TYPE_CHECKING:
    import socket

    from jetraft.api.options.options import Options
    from jetraft.api.options.tls import TlsOptions
    from jetraft.api.plane._secure import SecurePlane
    from jetraft.api.tls.clients import Log, TlsClients
    from jetraft.api.tls.material import Material

THREADS_MAX = 4


def handshake_threads() -> int:
    """As many as leave the turn a processor of its own, one at least."""
    return max(1, min(THREADS_MAX, len(os.sched_getaffinity(0)) - 1))


def serve_handshakes(
    options: TlsOptions,
    parts: ListenerParts,
    sessions: Any,
    kind: type[TlsClients] | None = None,
    material: Material | None = None,
) -> tuple[TlsClients, str]:
    """Load the files and start the threads for handshakes of a listener; returns when its certificate ends, too.

    `sessions` knows its connections, `material` what the files have (None: they are read). Raises TlsError.
    """
    from jetraft.api.tls._handshakes import HandshakePool  # noqa: PLC0415
    from jetraft.api.tls.clients import TlsClients  # noqa: PLC0415
    from jetraft.api.tls.material import load  # noqa: PLC0415

    plane = cast("SecurePlane", parts.plane)
    material = material or load(options)
    pool = HandshakePool(handshake_threads())
    plane.serve_tls(material.context, pool)
    make = kind or TlsClients
    clients = make(options, plane, pool, parts.clock, parts.say, sessions, parts.call_at, material.has_certificates)
    parts.reactor.watch(pool.event_fd, clients.take_judged)
    return clients, material.not_after


def serve_clients(options: TlsOptions, parts: ListenerParts, material: Material | None = None) -> TlsClients:
    """Serve handshakes of the listener for clients. Raises TlsError with one line."""
    clients, parts.sessions.tls_not_after = serve_handshakes(options, parts, parts.sessions, material=material)
    return clients


def serve_tls(options: Options, parts: ListenerParts, leaf: Any) -> TlsClients | None:
    """Serve handshakes of clients and of leaf nodes, where the options ask for TLS; returns what serves the clients."""
    if leaf is not None:
        leaf.serve_tls(parts)
    return serve_clients(options.tls, parts) if options.tls is not None else None


def client_listener(sock: socket.socket, parts: ListenerParts, tls: TlsClients | None) -> ClientListener:
    """The listener for clients, behind a proxy or not. It is the first one: those of all wait from now on."""
    parts.sessions.arrivals.attach(parts.reactor.next_turn, parts.call_at)
    if parts.sessions.options.proxy_protocol:
        from jetraft.api.listeners.proxied import proxied_listener  # noqa: PLC0415  only servers behind a proxy

        return proxied_listener(sock, parts, tls)
    return ClientListener(sock, parts.plane, parts.reactor, parts.sessions, parts.clock, tls)


def log_start(options: Options, say: Log) -> None:
    """Say whether there is a proxy, whether clients need TLS, and which of them cannot come."""
    if options.proxy_protocol:
        say.info("PROXY protocol enabled for client connections")
    tls = options.tls
    if tls is None:
        return
    must_begin = tls.handshake_first and not tls.first_delay_ns
    say.info(f"TLS {'available' if tls.allow_non_tls and not must_begin else 'required'} for client connections")
    if must_begin:
        say.warning('Clients that are not using "TLS Handshake First" option will fail to connect')
