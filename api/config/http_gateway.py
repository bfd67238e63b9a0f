"""The `http_gateway` block: keys in, one `HttpGatewayOptions` out. jetraft's own."""

from collections.abc import Mapping

from jetraft.api.config.blocks import Apply, apply_all
from jetraft.api.config.settings import PORT_MAX, OptionsError, Settings
from jetraft.api.config.values import address
from jetraft.api.options.http_gateway import HttpGatewayOptions
from jetraft.api.options.options import RANDOM_PORT


def listen(settings: Settings, value: object) -> None:
    """`listen`: host and port, or a port of this machine alone."""
    host, settings["port"] = address("listen", value, default_port=0)
    if host:
        settings["host"] = host


def tls(settings: Settings, value: object) -> None:
    """TLS for this listener, its files looked at."""
    from jetraft.api.config.tls import checked, tls_options  # noqa: PLC0415  only servers with TLS pay for it

    settings["tls"] = checked(tls_options(value))


KEYS: Mapping[str, Apply] = {"listen": listen, "tls": tls}


def http_gateway(settings: Settings, value: object) -> None:
    """The top-level block."""
    found: Settings = {}
    apply_all("http_gateway", value, KEYS, found)
    port = found.get("port", 0)
    if not port:
        return
    if not RANDOM_PORT <= port <= PORT_MAX:
        raise OptionsError(f"http_gateway port: expected a port from {RANDOM_PORT} to {PORT_MAX}, got {port}")
    settings["http_gateway"] = HttpGatewayOptions(**found)
