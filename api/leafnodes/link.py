"""One connection to another server: what is known of it."""

from typing import Any

import attrs
import trio

from jetraft.api.credentials.verdicts import Verdict
from jetraft.api.leafnodes.handshake import HubInfo, LeafPeer
from jetraft.api.options.compression import NOT_SUPPORTED, Compression
from jetraft.api.options.interfaces import join_host_port
from jetraft.api.options.leafnodes import RemoteOptions, RemoteUrl
from jetraft.api.tls.facts import TlsState


@attrs.define(eq=False, kw_only=True)
class LeafLink:
    """`remote` and `url` are of connections that this server made. `admitted`: interest and messages are exchanged.

    `spoken` is set when the hub has sent its INFO, `secured` when the handshake is complete or has failed, `upgraded`
    when frames of WebSocket are exchanged with the hub, and all of them at the end.
    """

    cid: int
    ip: str
    port: int
    start_unix_ns: int
    nonce: str = attrs.field(default="", repr=False)
    remote: RemoteOptions | None = None
    url: RemoteUrl | None = None
    hub: HubInfo | None = None
    peer: LeafPeer | None = None
    account: str = ""
    is_spoke: bool = False
    admitted: bool = False
    delay_ns: int = 0  # until this server connects again, where it is longer than usual
    document: dict[str, Any] = attrs.field(factory=dict, repr=False)  # while it is judged: it has secrets
    proxy_key: str = ""  # of the trusted proxy that speaks for it
    verdict: Verdict | None = None  # of an accepted one whose user is known
    tls: TlsState | None = None
    compression: str = NOT_SUPPORTED  # what was agreed on
    wish: Compression | None = None  # of this end, when it was agreed on
    is_negotiated: bool = False  # and both ends know that
    is_greeted: bool = False  # the hub has been told who this server is
    needs_tls: bool = False  # CONNECT waits for the handshake
    web: bool = False  # over WebSocket
    deflates: bool = False  # whose messages are compressed
    spoken: trio.Event = attrs.field(factory=trio.Event)
    secured: trio.Event = attrs.field(factory=trio.Event)
    upgraded: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def title(self) -> str:
        """How log lines begin that speak of this connection."""
        return f"{join_host_port(self.ip, self.port)} - {'lid_ws' if self.web else 'lid'}:{self.cid}"

    @property
    def isolates(self) -> bool:
        """Whether the configuration of this server says that its hub hears of no interest of other leaf nodes."""
        return self.remote is not None and self.remote.isolate

    def is_duplicate_of(self, other: "LeafLink") -> bool:
        """Whether both are from one server, for one account of it: the older one is stale."""
        mine, its = self.peer, other.peer
        if mine is None or its is None or not mine.name or not mine.account or other.remote is not None:
            return False
        same = (mine.name, mine.cluster, mine.account) == (its.name, its.cluster, its.account)
        return same and self.account == other.account
