"""Opens the gateway's listener where the options ask for it. Servers without one load nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.api.listeners.listener import ClientListener, ListenError, bind
from jetraft.api.options.interfaces import join_host_port

if TYPE_CHECKING:
    import ssl

    from jetraft.api.listeners.listener import ListenerParts
    from jetraft.api.options.options import Options
    from jetraft.api.options.tls import TlsOptions


def gateway_listeners(options: Options, parts: ListenerParts) -> list[ClientListener]:
    """The bound listener, or none. Raises ListenError, TlsError with one line."""
    wanted = options.http_gateway
    if wanted is None:
        return []
    from jetraft.api.http_gateway.serving import GatewayListener  # noqa: PLC0415  only where it is served

    context = None
    if wanted.tls is not None:
        from jetraft.api.tls.monitoring import context_of  # noqa: PLC0415  the same

        context = context_of(wanted.tls)
        if wanted.tls.verify or wanted.tls.verify_and_map or wanted.tls.pinned_certs:
            _require_certificates(context, wanted.tls)
    try:
        sock = bind(wanted.host, wanted.port)
    except ListenError as error:
        raise ListenError(f"Unable to listen for HTTP requests: {error}") from error
    where = join_host_port(wanted.host, int(sock.getsockname()[1]))
    parts.say.info(f"Listening for HTTP publishes on {wanted.scheme}://{where}")
    return [GatewayListener(sock, parts.plane, parts.reactor, parts.sessions, parts.clock, secure=context)]


def _require_certificates(context: ssl.SSLContext, options: TlsOptions) -> None:
    """Admit only peers with a certificate of the `ca_file`, or of the system's authorities. Raises TlsError."""
    import ssl  # noqa: PLC0415  the same

    from jetraft.api.options.tls import TlsError  # noqa: PLC0415  the same

    if options.verify_and_map or options.pinned_certs:
        raise TlsError("http_gateway: verify_and_map and pinned_certs are not served: a login is in the request")
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        if options.ca_file:
            context.load_verify_locations(cafile=options.ca_file)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"http_gateway: ca_file: {error}") from error
