"""The options of an `http_gateway` block, as one frozen value."""

import attrs

from jetraft.api.options.tls import TlsOptions


@attrs.frozen(kw_only=True)
class HttpGatewayOptions:
    """`http_gateway { ... }`."""

    host: str = "127.0.0.1"  # of a listener without a host: name one to serve other machines
    port: int = 0
    tls: TlsOptions | None = None

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return "http" if self.tls is None else "https"
