"""Connects to hubs, and again when a connection has ended: one task for each remote of the configuration.

The addresses are those of the configuration and, once a hub was reached, those of its cluster's servers. They are tried
in turn, with a pause that is a little different each time, so that many leaf nodes do not return at once.
"""

import ipaddress
import os
import random
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.api.leafnodes.leafnodes import Leafnodes
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.listener import prepare
from jetraft.api.leafnodes.secure import HubTls
from jetraft.api.logs.logger import Logger
from jetraft.api.options.leafnodes import DEFAULT_LEAF_PORT, ProxyError, RemoteOptions, RemoteUrl
from jetraft.api.plane.reasons import Reason
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from jetraft.api.leafnodes.migration import LostHubs
    from jetraft.api.leafnodes.web import HubWeb

REPORT_EVERY: Final = 3600  # attempts; the first is reported as well
JITTER_MAX_NS: Final = NS_PER_S
URLS_MAX: Final = 64


def discovered(text: str, like: RemoteUrl) -> RemoteUrl | None:
    """An address that a hub tells; the user is the one it was reached with."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65535:  # noqa: PLR2004
        return None
    name = like.tls_name or like.host
    tls_name = name if is_address(host) and not is_address(name) else ""
    return attrs.evolve(like, host=host, port=int(port) or DEFAULT_LEAF_PORT, tls_name=tls_name)


def is_address(host: str) -> bool:
    """Whether a host is an address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def dial_error(error: OSError | trio.TooSlowError | ProxyError, url: RemoteUrl) -> str:
    """Why an address was not reached, as Go says it. trio groups the errors of all addresses of a name."""
    if isinstance(error, ProxyError):
        return str(error)
    if isinstance(error, trio.TooSlowError):
        return f"dial tcp {url.address}: i/o timeout"
    causes = getattr(error.__cause__, "exceptions", None) or (error.__cause__ or error,)
    first = causes[0]
    if isinstance(first, socket.gaierror):
        return f"dial tcp: lookup {url.host}: no such host"
    reason = os.strerror(first.errno).lower() if isinstance(first, OSError) and first.errno else str(first)
    return f"dial tcp {url.address}: connect: {reason}"


@attrs.define(eq=False)
class Remotes:
    """All hubs of the configuration."""

    leafnodes: Leafnodes
    reactor: Reactor
    say: Logger
    hub_tls: HubTls
    hub_web: "HubWeb | None" = None
    lost: "LostHubs | None" = None  # where leaders move away from a node that does not reach its hub
    _random: random.Random = attrs.field(factory=random.Random)
    _kept: dict[object, trio.CancelScope] = attrs.field(factory=dict)  # by the key of the remote
    _nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Keep a connection to each of them until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self.follow(self.leafnodes.options.remotes)
            await trio.sleep_forever()

    def follow(self, remotes: Iterable[RemoteOptions]) -> None:
        """Leave the hubs that are not among these, and connect to those that are new."""
        assert self._nursery is not None
        self.hub_tls.forget()
        wanted = {remote.key: remote for remote in remotes}
        for key in self._kept.keys() - wanted.keys():
            self._kept.pop(key).cancel()
        for link in self.leafnodes.links.values():
            if link.remote is not None and link.remote.key not in wanted:
                self.leafnodes.plane.close(link.cid, Reason.CLIENT_CLOSED)
        for key in wanted.keys() - self._kept.keys():
            scope = self._kept[key] = trio.CancelScope()
            self._nursery.start_soon(self._keep, key, scope)

    async def _keep(self, key: object, scope: trio.CancelScope) -> None:
        with scope:
            await self._connect_again(key)

    def _remote(self, key: object) -> RemoteOptions:
        """The present configuration of a remote."""
        return next(remote for remote in self.leafnodes.options.remotes if remote.key == key)

    async def _connect_again(self, key: object) -> None:
        remote = self._remote(key)
        urls = list(remote.urls)
        if not remote.no_randomize:
            self._random.shuffle(urls)
        attempt = at = 0
        while True:
            remote = self._remote(key)
            url = urls[at % len(urls)]
            at, attempt = at + 1, attempt + 1
            self.say.debug(f'Trying to connect as leafnode to remote server on "{url.address}"')
            link = await self._connect(remote, url, attempt)
            delay_ns = self.leafnodes.options.reconnect_ns
            if link is not None:
                await self._attend(link, remote)
                if link.hub is not None and not remote.ignore_discovered_servers:
                    urls = self._merged(list(remote.urls), link, url)
                if link.admitted:
                    attempt = 0
                delay_ns = link.delay_ns or delay_ns
            if self.lost is not None:
                self.lost.failed(remote)
            jitter_ns = self._random.randrange(min(JITTER_MAX_NS, delay_ns + 1))
            await trio.sleep((delay_ns + jitter_ns) / NS_PER_S)

    @staticmethod
    def _merged(urls: list[RemoteUrl], link: LeafLink, url: RemoteUrl) -> list[RemoteUrl]:
        """The configured addresses, and behind them those that the hub told."""
        assert link.hub is not None
        found = [discovered(text, url) for text in link.hub.urls]
        return list(dict.fromkeys([*urls, *(one for one in found if one is not None)]))[:URLS_MAX]

    async def _connect(self, remote: RemoteOptions, url: RemoteUrl, attempt: int) -> LeafLink | None:
        """One attempt; None when it failed."""
        try:
            sock = await self._dial(remote, url)
        except (OSError, trio.TooSlowError, ProxyError) as error:
            to = f'as leafnode to remote server "{url.address}" (attempt {attempt})'
            line = f"Error trying to connect {to}: {dial_error(error, url)}"
            (self.say.error if attempt == 1 or attempt % REPORT_EVERY == 0 else self.say.debug)(line)
            return None
        prepare(sock)
        link = self.leafnodes.solicit(sock, remote, url)
        self.reactor.end_turn()
        return link

    async def _dial(self, remote: RemoteOptions, url: RemoteUrl) -> socket.socket:
        """A socket that leads to the hub."""
        proxy, timeout_ns = remote.proxy, self.leafnodes.options.dial_timeout_of(remote)
        if proxy is None:
            with trio.fail_after(timeout_ns / NS_PER_S):
                stream = await trio.open_tcp_stream(url.host, url.port)
                return socket.socket(fileno=stream.socket.detach())
        from jetraft.api.leafnodes.proxy import through  # noqa: PLC0415  where there is one

        with trio.fail_after((proxy.timeout_ns or timeout_ns) / NS_PER_S):  # with the answer to CONNECT
            return await through(proxy, url)

    async def _prepare(self, link: LeafLink, remote: RemoteOptions) -> bool:
        """The steps before INFO; False when the connection has ended by it."""
        assert link.url is not None
        if link.web:
            if remote.tls is not None or link.url.tls:
                await self.hub_tls.secure(link)
                if link.tls is None:
                    return False
            assert self.hub_web is not None
            await self.hub_web.upgrade(link)
        elif remote.tls is not None and remote.tls.handshake_first:
            await self.hub_tls.secure(link)
        return not link.ended.is_set()

    async def _attend(self, link: LeafLink, remote: RemoteOptions) -> None:
        """Wait for the end; a hub that does not greet in time is left."""
        if await self._prepare(link, remote):
            with trio.move_on_after(remote.first_info_timeout_ns / NS_PER_S):
                await link.spoken.wait()
        if link.hub is None and not link.ended.is_set():
            self.leafnodes.plane.close(link.cid, Reason.STALE_CONNECTION)
            self.reactor.end_turn()
        elif link.needs_tls and not link.ended.is_set():
            await self.hub_tls.secure(link)
        await link.ended.wait()
