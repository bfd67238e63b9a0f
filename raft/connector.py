"""Where links come from: the listener, the dialers, and the handshakes of both.

Dialling never ends for configured routes: a node that is away may come back. An address learned from a peer is given up
after some minutes of failure. Complaints are logged once per address and reason in a while: a stranger that knocks
every second must not fill the log.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import attrs
import trio

from jetraft.raft.establish import Established, Identity, accept_handshake, dial_handshake
from jetraft.raft.handshake import HandshakeRefusedError, Hello, Verdict
from jetraft.raft.routes import Address
from jetraft.raft.wire import RemoteProtocolError
from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

HANDSHAKE_S: Final = 2.0  # nats-server's time for authentication
HANDSHAKES_MAX: Final = 64  # strangers at once
REDIAL_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
LEARNED_DIAL_DELAY_S: Final = 0.5  # of the node with the larger id: the other dials a learned address first
LEARNED_FAILURES_MAX: Final = 300  # about five minutes
ADDRESSES_MAX: Final = 256  # bounds what peers can make a node dial
COMPLAINT_S: Final = 10.0


class LinkTable(Protocol):
    """What the connector asks of the mesh."""

    def judge(self, hello: Hello) -> Verdict:
        """Whether a link with this node may begin; KEEP reserves the place until `release`."""
        ...

    def release(self, node: NodeId) -> None:
        """The place that `judge` reserved is not needed (any more)."""
        ...

    def ended(self, node: NodeId) -> trio.Event | None:
        """Set when the node's link is gone; None when there is no link."""
        ...

    async def serve_link(self, established: Established, stream: trio.SocketStream, host: str) -> None:
        """Run the link until its session ends."""
        ...


@attrs.define(slots=True)
class _Target:
    """An address with a dialer. `node` is who answered there, or who is said to live there."""

    address: Address
    node: NodeId | None
    learned: bool


class Connector:
    """Listens and dials for one mesh."""

    def __init__(self, identity: Identity, table: LinkTable) -> None:
        self._identity = identity
        self._table = table
        self._nursery: trio.Nursery | None = None
        self._targets: dict[Address, _Target] = {}
        self._complained_s: dict[str, float] = {}
        self._attempts = 0
        self.refused = 0
        self.own_routes = 0  # configured addresses that turned out to be this server
        self.listen_address: Address | None = None

    async def start(self, nursery: trio.Nursery, listen: Address | None) -> None:
        """Bind the listener, if any, and accept in the nursery. Raises OSError."""
        self._nursery = nursery
        if listen is None:
            return
        listeners = await trio.open_tcp_listeners(listen.port, host=listen.host)
        self.listen_address = Address(listen.host, int(listeners[0].socket.getsockname()[1]))
        limiter = trio.CapacityLimiter(HANDSHAKES_MAX)
        for listener in listeners:
            nursery.start_soon(self._accept_loop, listener, limiter)

    # Accepting.

    async def _accept_loop(self, listener: trio.SocketListener, limiter: trio.CapacityLimiter) -> None:
        assert self._nursery is not None
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:  # out of descriptors: some will be closed
                    self._complain("listener", str(error))
                    await trio.sleep(REDIAL_S[-1])
                    continue
                if limiter.available_tokens < 1:
                    await trio.aclose_forcefully(stream)
                else:
                    self._nursery.start_soon(self._accept_one, stream, limiter)

    async def _accept_one(self, stream: trio.SocketStream, limiter: trio.CapacityLimiter) -> None:
        host = _remote_host(stream)
        with suppress(HandshakeRefusedError):
            async with limiter:
                established = await self._shake(accept_handshake, stream, host)
            if established is not None:
                await self._adopt(established, stream, host)

    # Dialling.

    def dial(self, address: Address, *, node: NodeId | None = None) -> None:
        """Keep a link with whoever is at this address. `node` is who a peer said lives there."""
        assert self._nursery is not None
        if address == self.listen_address:
            self.own_routes += node is None
            return
        if address in self._targets or len(self._targets) >= ADDRESSES_MAX:
            return
        target = self._targets[address] = _Target(address=address, node=node, learned=node is not None)
        delay_s = LEARNED_DIAL_DELAY_S if node is not None and node < self._identity.node_id else 0.0
        self._nursery.start_soon(self._dial_loop, target, delay_s)

    async def _dial_loop(self, target: _Target, delay_s: float) -> None:
        """Dial until linked, wait for the end of the link, and again. Ends when this is the server itself."""
        await trio.sleep(delay_s)
        failures = 0
        while not (target.learned and failures > LEARNED_FAILURES_MAX):
            ended = self._table.ended(target.node) if target.node is not None else None
            if ended is not None:
                await ended.wait()
                failures = 0
            try:
                served = await self._dial_once(target)
            except HandshakeRefusedError as error:
                if error.is_self:
                    self.own_routes += not target.learned
                    return
                served = False
            failures = 0 if served else failures + 1
            await trio.sleep(REDIAL_S[min(failures, len(REDIAL_S) - 1)])
        del self._targets[target.address]

    async def _dial_once(self, target: _Target) -> bool:
        """One attempt, with the whole session when it succeeds; returns whether there was one."""
        address = target.address
        try:
            with trio.fail_after(HANDSHAKE_S):
                stream = await trio.open_tcp_stream(address.host, address.port)
        except (OSError, trio.TooSlowError):
            return False  # not there yet: normal while a cluster starts
        established = await self._shake(dial_handshake, stream, str(address))
        if established is None:
            return False
        target.node = established.hello.node_id
        return await self._adopt(established, stream, address.host)

    # Both.

    async def _shake(
        self,
        handshake: Callable[..., Awaitable[Established]],
        stream: trio.SocketStream,
        where: str,
    ) -> Established | None:
        """The handshake within its time; None when it failed, with one line in the log."""
        self._attempts += 1
        established: Established | None = None
        reserved: list[NodeId] = []

        def judge(hello: Hello) -> Verdict:
            verdict = self._table.judge(hello)
            if verdict is Verdict.KEEP:
                reserved.append(hello.node_id)
            return verdict

        try:
            with trio.fail_after(HANDSHAKE_S):
                established = await handshake(stream, self._identity, self._attempts, judge)
        except HandshakeRefusedError as error:
            self.refused += 1
            if not error.is_self:
                self._complain(where, f"refused: {error}")
            raise
        except trio.TooSlowError:
            self.refused += 1
            self._complain(where, "refused: the handshake takes too long")
        except RemoteProtocolError as error:
            self.refused += 1
            self._complain(where, f"refused: {error}")
        except (trio.BrokenResourceError, OSError) as error:
            self._complain(where, f"lost in the handshake: {error}")
        finally:
            if established is None:
                for node in reserved:
                    self._table.release(node)
                await trio.aclose_forcefully(stream)
        return established

    async def _adopt(self, established: Established, stream: trio.SocketStream, host: str) -> bool:
        if established.verdict is not Verdict.KEEP:
            await trio.aclose_forcefully(stream)
            return False
        await self._table.serve_link(established, stream, host)
        return True

    def _complain(self, where: str, what: str) -> None:
        """Log once per place and reason in a while."""
        key, now_s = f"{where}: {what}", trio.current_time()
        if self._complained_s.get(key, -COMPLAINT_S) + COMPLAINT_S <= now_s:
            if len(self._complained_s) >= ADDRESSES_MAX:
                self._complained_s.clear()
            self._complained_s[key] = now_s
            log.warning("cluster connection %s", key)


def _remote_host(stream: trio.SocketStream) -> str:
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return "unknown"
