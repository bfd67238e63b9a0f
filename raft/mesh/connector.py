"""The sources of links: the listener, the dialers, and the handshakes of both.

Dialling never ends for configured routes: a node that is away may come back. An address learned from a peer is given up
after some minutes of failure. Acts of strangers are logged once in a while and never more than so often; when too many
knock at once the one that has been silent for longest goes, so that idle connections keep no node out.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Hashable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.connection import Connection, Tls
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.establish import Established, Judge, PeerIdentity, accept_handshake, dial_handshake
from jetraft.raft.mesh.gossip import ADDRESSES_MAX
from jetraft.raft.mesh.handshake import HandshakeRefusedError, HandshakeVerdict, Hello, ProofRefusedError, Purpose
from jetraft.raft.mesh.log_limiter import LogLimiter
from jetraft.raft.mesh.wires import TcpTransport, Transport, Wire, WireListener
from jetraft.store.model.clock import Clock
from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

HANDSHAKE_S: Final = 2.0  # nats-server's time for authentication
HANDSHAKES_MAX: Final = 64  # strangers at once; one more, and the oldest goes
REDIAL_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
OWN_REDIAL_S: Final = 5.0  # a configured address where this server itself answered: rarely something else does later
LEARNED_DIAL_DELAY_S: Final = 0.5  # of the node with the larger id: the other dials a learned address first
LEARNED_FAILURES_MAX: Final = 300  # about five minutes


class LinkTable(Protocol):
    """The mesh as the connector needs it."""

    def check(self, hello: Hello) -> None:
        """Raises HandshakeRefusedError when this node is not wanted now, whatever it can prove."""
        ...

    def judge(self, hello: Hello) -> HandshakeVerdict:
        """Whether a link with this node may begin; KEEP reserves the place until `release`."""
        ...

    def release(self, node: NodeId, purpose: Purpose) -> None:
        """The place that `judge` reserved is not needed (any more)."""
        ...

    def ended(self, node: NodeId) -> trio.Event | None:
        """Set when the node's link is gone; None when there is no link."""
        ...

    async def serve_connection(self, made: "Made") -> None:
        """Run the link, or the bulk connection of one, until its session ends."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class Made:
    """A connection after its handshake. `dialled` is the address when this end made it, `host` the other end's."""

    established: Established
    connection: Connection
    host: str
    dialled: Address | None


@attrs.define(slots=True)
class _Target:
    """An address with a dialer. `node` is who answered there, or who is said to live there."""

    address: Address
    node: NodeId | None
    learned: bool
    is_own: bool = False  # this server answered when it was dialled last


class Connector:
    """Listens and dials for one mesh."""

    def __init__(
        self,
        identity: PeerIdentity,
        table: LinkTable,
        *,
        clock: Clock,
        tls: Tls | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._identity = identity
        self._transport = transport or TcpTransport()
        self._table = table
        self._clock = clock
        self._tls = tls
        self._nursery: trio.Nursery | None = None
        self._targets: dict[Address, _Target] = {}
        self._strangers: dict[int, trio.CancelScope] = {}  # accepted connections in their handshakes, oldest first
        self._log_limiter = LogLimiter()
        self._attempts = 0
        self.refused = 0
        self._own_listeners = 0  # configured addresses on which this server listens
        self._unproven: set[Address] = set()  # where a server did not take this node's proof, when it was dialled last
        self.listen_address: Address | None = None

    async def start(self, nursery: trio.Nursery, listen: Address | None) -> None:
        """Bind the listener, if any, and accept in the nursery. Raises OSError."""
        self._nursery = nursery
        if listen is None:
            return
        listeners, port = await self._transport.listen(listen)
        self.listen_address = Address(listen.host, port)
        for listener in listeners:
            nursery.start_soon(self._accept_loop, listener)

    # Accepting.

    async def _accept_loop(self, listener: WireListener) -> None:
        assert self._nursery is not None
        async with aclosing(listener):
            while True:
                try:
                    wire, host = await listener.accept()
                except OSError as error:  # out of descriptors: some will be closed
                    self.complain("listener", f"listener: {error}")
                    await trio.sleep(REDIAL_S[-1])
                    continue
                if len(self._strangers) >= HANDSHAKES_MAX:
                    number, oldest = next(iter(self._strangers.items()))
                    del self._strangers[number]
                    oldest.cancel()
                    self.complain("crowd", f"{HANDSHAKES_MAX} handshakes at once: the oldest is cut off")
                self._attempts += 1
                scope = self._strangers[self._attempts] = trio.CancelScope()
                self._nursery.start_soon(self._accept_one, wire, host, scope, self._attempts)

    async def _accept_one(self, wire: Wire, host: str, scope: trio.CancelScope, session: int) -> None:
        connection = Connection(wire)
        established: Established | None = None
        # `_shake` has counted and logged the refusal, except that of a node that has dialled itself.
        with suppress(HandshakeRefusedError), scope:
            established = await self._shake(partial(self._accept, connection, session), connection, host)
        self._strangers.pop(session, None)
        if established is not None:
            await self._adopt(Made(established=established, connection=connection, host=host, dialled=None))

    async def _accept(self, connection: Connection, session: int, judge: Judge) -> Established:
        if self._tls is not None:
            await connection.accept_tls(self._tls)
        return await accept_handshake(connection, self._identity, session, judge)

    # Dialling.

    def dial(self, address: Address, *, node: NodeId | None = None) -> None:
        """Maintain a link with the node at this address. `node` is its id, where a peer has reported it."""
        assert self._nursery is not None
        if address == self.listen_address:
            self._own_listeners += node is None
            return
        if address in self._targets or len(self._targets) >= ADDRESSES_MAX:
            return
        target = self._targets[address] = _Target(address=address, node=node, learned=node is not None)
        delay_s = LEARNED_DIAL_DELAY_S if node is not None and node < self._identity.node_id else 0.0
        self._nursery.start_soon(self._dial_loop, target, delay_s)

    @property
    def own_routes(self) -> int:
        """How many configured addresses are this server's own, or led to it when they were dialled last."""
        return self._own_listeners + sum(target.is_own and not target.learned for target in self._targets.values())

    @property
    def is_proof_refused(self) -> bool:
        """Whether a server at a configured address did not take this node's proof, when it was dialled last."""
        return any(not target.learned and target.address in self._unproven for target in self._targets.values())

    def routes_to(self, nodes: Container[NodeId]) -> int:
        """How many configured addresses led to one of these nodes when they were dialled last."""
        return sum(not target.learned and target.node in nodes for target in self._targets.values())

    def follow_routes(self, addresses: Sequence[Address]) -> None:
        """Keep links with these; others are given up as learned ones are, once no server answers there."""
        for target in self._targets.values():
            target.learned = target.address not in addresses
        for address in addresses:
            self.dial(address)

    async def _dial_loop(self, target: _Target, delay_s: float) -> None:
        """Dial until linked, wait for the end of the link, and again.

        A learned address ends when this server itself answers there. A configured one does not: that greeting proves
        nothing, and who sends this server's own back would have it given up.
        """
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
                if error.is_self and target.learned:
                    return
                target.is_own = error.is_self
                served = False
            else:
                target.is_own = False
            failures = 0 if served else failures + 1
            await trio.sleep(OWN_REDIAL_S if target.is_own else REDIAL_S[min(failures, len(REDIAL_S) - 1)])
        del self._targets[target.address]
        self._unproven.discard(target.address)

    async def _dial_once(self, target: _Target) -> bool:
        """One attempt, with the whole session when it succeeds; returns whether there was one."""
        self._attempts += 1
        made = await self._dial(target.address, self._identity.hello(self._attempts))
        if made is None:
            return False
        target.node = made.established.hello.node_id
        return await self._adopt(made)

    async def dial_bulk(self, address: Address, session: int) -> bool:
        """One attempt at a bulk connection beside a link that this end dialled; returns after its end."""
        made = None
        # `_shake` has counted and logged the refusal.
        with suppress(HandshakeRefusedError):
            made = await self._dial(address, self._identity.hello(session, Purpose.BULK))
        return made is not None and await self._adopt(made)

    async def _dial(self, address: Address, own: Hello) -> Made | None:
        try:
            with trio.fail_after(HANDSHAKE_S):
                wire = await self._transport.dial(address)
        except (OSError, trio.TooSlowError):
            return None  # not there yet: normal while a cluster starts
        connection = Connection(wire)
        handshake = partial(self._greet, connection, address, own)
        try:
            established = await self._shake(handshake, connection, str(address))
        except ProofRefusedError:
            self._unproven.add(address)
            raise
        self._unproven.discard(address)
        if established is None:
            return None
        return Made(established=established, connection=connection, host=address.host, dialled=address)

    async def _greet(self, connection: Connection, address: Address, own: Hello, judge: Judge) -> Established:
        if self._tls is not None:
            await connection.dial_tls(self._tls, address.host)
        return await dial_handshake(connection, self._identity, own, judge)

    # Both.

    async def _shake(
        self, handshake: Callable[[Judge], Awaitable[Established]], connection: Connection, where: str
    ) -> Established | None:
        """The handshake within its time; None when it failed. Raises HandshakeRefusedError."""
        established: Established | None = None
        reserved: list[Hello] = []

        def judge(hello: Hello) -> HandshakeVerdict:
            verdict = self._table.judge(hello)
            if verdict is HandshakeVerdict.KEEP:
                reserved.append(hello)
            return verdict

        try:
            with trio.fail_after(HANDSHAKE_S):
                finished = await handshake(judge)
            self._table.check(finished.hello)
            established = finished
        except HandshakeRefusedError as error:
            if not error.is_self:
                self._refuse(where, str(error))
            raise
        except trio.TooSlowError:
            self._refuse(where, "the handshake takes too long")
        except RemoteProtocolError as error:
            self._refuse(where, str(error))
        except trio.BrokenResourceError as error:
            self.complain((where, "lost"), f"{where}: lost in the handshake: {error}")
        finally:
            if established is None:
                for hello in reserved:
                    self._table.release(hello.node_id, hello.purpose)
                connection.close()
        return established

    async def _adopt(self, made: Made) -> bool:
        if made.established.verdict is not HandshakeVerdict.KEEP:
            made.connection.close()
            return False
        await self._table.serve_connection(made)
        return True

    def _refuse(self, where: str, why: str) -> None:
        """Count, and log once per place in a while: what a stranger says must not make another line."""
        self.refused += 1
        self.complain((where, "refused"), f"{where}: refused: {why}")

    @property
    def suppressed_log_lines(self) -> int:
        """How many messages were not logged."""
        return self._log_limiter.unsaid

    def complain(self, key: Hashable, text: str) -> None:
        """Log what a peer or a stranger did wrong, unless it was said just now."""
        line = self._log_limiter.line(key, text, self._clock.mono_ns())
        if line is not None:
            log.warning("cluster connection %s", line)
