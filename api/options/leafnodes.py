"""The `leafnodes` block as one frozen value. Names are nats-server's keys with the unit last."""

import attrs

from jetraft.api.credentials.rules import AuthRules
from jetraft.api.credentials.secret import Secret
from jetraft.api.options.compression import DEFAULT, OFF, Compression
from jetraft.api.options.interfaces import join_host_port
from jetraft.api.options.tls import TlsOptions
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import GLOBAL_ACCOUNT

DEFAULT_LEAF_PORT = 7422
RECONNECT_NS = NS_PER_S
FIRST_INFO_TIMEOUT_NS = NS_PER_S
DIAL_TIMEOUT_NS = NS_PER_S
AUTH_TIMEOUT_NS = 2 * NS_PER_S


class ProxyError(Exception):
    """A proxy that does not connect to the hub; the text is for the log."""


@attrs.frozen(kw_only=True)
class RemoteUrl:
    """An address of a hub. The user and password are in no text.

    `tls_name` is the name that the hub was configured by, where it has told this address itself.
    """

    host: str
    port: int
    user: str = attrs.field(default="", repr=False)
    password: str = attrs.field(default="", repr=False)
    tls: bool = False  # tls://, wss://
    tls_name: str = ""
    web: bool = False  # ws://, wss://
    path: str = ""  # of the request for an upgrade, before what its end is

    @property
    def shown(self) -> str:
        """The URL without its user."""
        schemes = ("ws", "wss") if self.web else ("nats", "tls")
        return f"{schemes[self.tls]}://{self.address}{self.path}"

    @property
    def expected_name(self) -> str:
        """The name that the certificate of the hub has to be for."""
        return self.tls_name or self.host

    @property
    def address(self) -> str:
        """Host and port, as log lines have them."""
        return join_host_port(self.host, self.port)


@attrs.frozen(kw_only=True)
class LeafProxy:
    """A proxy for HTTP through which a hub is reached. The user and password are in no text."""

    host: str
    port: int
    username: str = attrs.field(default="", repr=False)
    password: Secret = attrs.field(factory=lambda: Secret(""))
    timeout_ns: int = 0  # 0: that of a connection

    @property
    def address(self) -> str:
        """Host and port."""
        return join_host_port(self.host, self.port)


@attrs.frozen(kw_only=True)
class RemoteOptions:
    """A hub that this server connects to, for one of its accounts."""

    urls: tuple[RemoteUrl, ...]
    account: str = GLOBAL_ACCOUNT
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    no_randomize: bool = False
    hub: bool = False  # the other end is the leaf node, although this one connects
    isolate: bool = False  # of a hub: it does not hear of the interest of other leaf nodes
    request_isolation: bool = False
    ignore_discovered_servers: bool = False
    first_info_timeout_ns: int = FIRST_INFO_TIMEOUT_NS
    dial_timeout_ns: int = 0  # not above 0: that of the block
    tls: TlsOptions | None = None
    compression: Compression = DEFAULT
    credentials: str = ""  # a file
    cluster_migrate: bool = False  # leaders of the account move away while the hub is not reached
    migrate_delay_ns: int = 0  # for so long
    ws_compression: bool = False
    ws_no_masking: bool = False
    proxy: LeafProxy | None = None

    @property
    def key(self) -> tuple[tuple[RemoteUrl, ...], str]:
        """The key that it is known by: two remotes of one account have other addresses."""
        return self.urls, self.account

    @property
    def wish(self) -> Compression:
        """How the connection is to be compressed; not twice, as nats-server decides."""
        return Compression(mode=OFF) if self.ws_compression and self.urls[0].web else self.compression

    seed: Secret = attrs.field(factory=lambda: Secret(""))


@attrs.frozen(kw_only=True)
class LeafOptions:
    """`leafnodes { ... }`. Port 0: no listener."""

    host: str = "0.0.0.0"  # noqa: S104  nats-server's default
    port: int = 0
    advertise: str = ""
    no_advertise: bool = False
    auth: AuthRules = attrs.field(factory=AuthRules)
    account: str = ""  # of the one user; empty: `$G`
    auth_timeout_ns: int = AUTH_TIMEOUT_NS
    min_version: tuple[int, int, int] | None = None
    write_deadline_ns: int = 0  # how long a connection may take nothing; 0: that of the server
    write_timeout: str = ""  # what follows
    isolate_interest: bool = False
    reconnect_ns: int = RECONNECT_NS
    dial_timeout_ns: int = 0  # how long a hub may take to accept a connection; not above 0: DIAL_TIMEOUT_NS
    remotes: tuple[RemoteOptions, ...] = ()
    tls: TlsOptions | None = None  # of the listener
    compression: Compression = DEFAULT  # of connections that were accepted

    @property
    def listens(self) -> bool:
        """Whether leaf nodes are accepted."""
        return self.port != 0

    def dial_timeout_of(self, remote: RemoteOptions) -> int:
        """How long an attempt to reach a hub may take, in nanoseconds."""
        return next((one for one in (remote.dial_timeout_ns, self.dial_timeout_ns) if one > 0), DIAL_TIMEOUT_NS)

    @property
    def may_use_tls(self) -> bool:
        """Whether a connection may have to speak TLS: a hub can ask for it, and a reload can bring one."""
        return True

    @property
    def uses_websocket(self) -> bool:
        """Whether this server connects to a hub over WebSocket."""
        return any(url.web for remote in self.remotes for url in remote.urls)
