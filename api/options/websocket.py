"""The options of a `websocket` block, as one frozen value. Names are nats-server's keys with the unit last."""

import attrs

from jetraft.api.credentials.secret import Secret
from jetraft.api.options.origins import Origin
from jetraft.api.options.tls import TlsOptions
from jetraft.store.model.clock import NS_PER_S

HANDSHAKE_TIMEOUT_NS = 5 * NS_PER_S  # nats-server waits for ever


@attrs.frozen(kw_only=True)
class Cookies:
    """The cookies of a request that stand for fields of CONNECT: their names here, their values in a session."""

    jwt: str = attrs.field(default="", repr=False)
    user: str = attrs.field(default="", repr=False)
    password: str = attrs.field(default="", repr=False)
    token: str = attrs.field(default="", repr=False)


@attrs.frozen(kw_only=True)
class WebSocketOptions:
    """`websocket { ... }`."""

    host: str = "0.0.0.0"  # noqa: S104  nats-server's default
    port: int = 0
    advertise: str = ""
    no_tls: bool = False
    tls: TlsOptions | None = None
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()  # the same, read
    compression: bool = False
    handshake_timeout_ns: int = HANDSHAKE_TIMEOUT_NS  # from the accepted socket to the answer, TLS included
    ping_interval_ns: int = 0  # 0: the server's
    auth_timeout_ns: int = 0  # 0: the server's
    username: str = ""
    password: Secret = attrs.field(factory=lambda: Secret(""))
    token: Secret = attrs.field(factory=lambda: Secret(""))
    no_auth_user: str = ""
    cookies: Cookies = attrs.field(factory=Cookies)
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def overrides_auth(self) -> bool:
        """Whether its clients name themselves by other rules than those of the listener for clients."""
        return bool(self.username or self.token or self.no_auth_user)

    @property
    def at_once(self) -> TlsOptions | None:
        """TLS as this listener has it: clients begin with the handshake."""
        return attrs.evolve(self.tls, handshake_first=True, first_delay_ns=0) if self.tls is not None else None

    @property
    def scheme(self) -> str:
        """`ws` or `wss`."""
        return "ws" if self.tls is None else "wss"
