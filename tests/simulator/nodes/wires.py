"""The network between whole nodes: streams in memory, with delays and cuts. Above them everything is real.

Bytes of one connection arrive in order, those of two connections as each is delayed. A blocked direction delivers
nothing and forgets nothing, as TCP does; a killed process closes its connections, a machine without power says nothing,
and resets what reaches it when it is back.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from jetraft.raft.mesh.addresses import Address
from tests.simulator.nodes.virtual import VirtualWorld
from tests.simulator.world import MS, US

if TYPE_CHECKING:
    from collections.abc import Callable

IN_FLIGHT_BYTES = 1 << 20  # what a connection takes before its receiver reads
BYTES_PER_MS = 100_000
PORT = 6222
LAGGING = 0.1  # of all connections: the one for bulk and the link overtake each other
LAG_MAX_MS = 700


class Wire:
    """One end of a connection. Implements jetraft.raft.mesh.wires.Wire."""

    is_tls = False
    has_decrypted = False

    def __init__(self, net: "Net", own: "Host", other: "Host") -> None:
        self._net = net
        self.own, self.other = own, other
        self.peer: Wire
        self._inbox = bytearray()
        self._ended = False  # after what is in the inbox
        self._reset = False
        self.is_closed = False
        self.is_dead = False  # its process ended
        self._under_way = 0  # bytes sent and not read by the peer
        self._last_arrival_ns = 0  # of what this end has sent
        self.lag_ns = 0  # of all that this end sends
        self._readable = trio.Event()
        self._writable = trio.Event()

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes | memoryview, /) -> int:
        if self.is_closed or self._reset:
            raise BrokenPipeError(32, "Broken pipe")
        room = IN_FLIGHT_BYTES - self._under_way
        if room <= 0:
            raise BlockingIOError
        piece = bytes(data[:room])
        self._under_way += len(piece)
        self._net.carry(self, lambda: self.peer.arrived(piece), len(piece))
        return len(piece)

    def receive(self, count: int, /) -> bytes:
        if self.is_closed or self._reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        if not self._inbox and not self._ended:
            raise BlockingIOError
        piece = bytes(self._inbox[:count])
        del self._inbox[: len(piece)]
        self.peer.was_read(len(piece))
        return piece

    def receive_into(self, space: memoryview, /) -> int:
        piece = self.receive(len(space))
        space[: len(piece)] = piece
        return len(piece)

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not (self._inbox or self._ended or self._reset or self.is_closed):
            self._readable = trio.Event()
            await self._readable.wait()
        self._check_open()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not (self._under_way < IN_FLIGHT_BYTES or self._reset or self.is_closed):
            self._writable = trio.Event()
            await self._writable.wait()
        self._check_open()

    def _check_open(self) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError("another task closed this wire")

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._wake()
            if not self.is_dead:
                self._net.carry(self, self.peer.ended, 0)

    # What the network does.

    def arrived(self, piece: bytes) -> None:
        if self.is_dead or self.is_closed:
            if self.own.has_power:
                self._net.carry(self, self.peer.was_reset, 0)
            return
        self._inbox += piece
        self._readable.set()

    def was_read(self, count: int) -> None:
        self._under_way -= count
        self._writable.set()

    def ended(self) -> None:
        self._ended = True
        self._readable.set()

    def was_reset(self) -> None:
        self._reset = True
        self._wake()

    def _wake(self) -> None:
        self._readable.set()
        self._writable.set()

    def die(self, *, silently: bool) -> None:
        """The process ended; the kernel of a machine that lives on closes the connection."""
        if not self.is_closed and not silently:
            self._net.carry(self, self.peer.ended, 0)
        self.is_dead = self.is_closed = True
        self._wake()


class Listener:
    """Implements WireListener."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[tuple[Wire, str]](64)

    def offer(self, wire: Wire) -> None:
        try:
            self._send.send_nowait((wire, wire.other.name))
        except (trio.WouldBlock, trio.BrokenResourceError):
            wire.close()

    async def accept(self) -> tuple[Wire, str]:
        return await self._receive.receive()

    async def aclose(self) -> None:
        self._receive.close()


class Host:
    """A machine on the network, and what its process of now has there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_power = True
        self.listener: Listener | None = None
        self.wires: list[Wire] = []

    def die(self, *, power: bool) -> None:
        """The process ends, with the machine when `power` is lost."""
        self.has_power = not power
        self.listener = None
        for wire in self.wires:
            wire.die(silently=power)
        self.wires = []


class HostTransport:
    """The network as one process sees it. Implements Transport."""

    def __init__(self, net: "Net", host: Host) -> None:
        self._net = net
        self._host = host

    async def listen(self, address: Address) -> tuple[Sequence[Listener], int]:
        del address
        await trio.lowlevel.checkpoint()
        self._host.listener = Listener()
        return [self._host.listener], PORT

    async def dial(self, address: Address) -> Wire:
        return await self._net.dial(self._host, address.host)


class Net:
    """All machines and what is between them. Directions in `blocked` deliver nothing."""

    def __init__(self, world: VirtualWorld, names: Sequence[str]) -> None:
        self._world = world
        self.hosts = {name: Host(name) for name in names}
        self.blocked: set[tuple[str, str]] = set()  # (from, to)
        self._held: list[tuple[Wire, Callable[[], None]]] = []

    def latency_ns(self) -> int:
        usual = self._world.chance(0.98)
        return self._world.between(200 * US, 2 * MS) if usual else self._world.between(2 * MS, 200 * MS)

    def carry(self, wire: Wire, arrive: "Callable[[], None]", size: int) -> None:
        """Let something arrive at the other end of a wire, after all that was sent there before."""
        delay_ns = self.latency_ns() + wire.lag_ns + size * MS // BYTES_PER_MS
        wire._last_arrival_ns = max(wire._last_arrival_ns + 1, self._world.now_ns + delay_ns)
        self._world.at(wire._last_arrival_ns, lambda: self._arrive(wire, arrive))

    def _arrive(self, wire: Wire, arrive: "Callable[[], None]") -> None:
        if (wire.own.name, wire.other.name) in self.blocked:
            self._held.append((wire, arrive))
            return
        self._world.mark(f"net {wire.own.name}>{wire.other.name}")
        arrive()

    def _lag_ns(self) -> int:
        return self._world.between(20 * MS, LAG_MAX_MS * MS) if self._world.chance(LAGGING) else 0

    async def dial(self, host: Host, name: str) -> Wire:
        other = self.hosts[name]
        await self._world.sleep(self.latency_ns())
        while not other.has_power or self.blocked & {(host.name, name), (name, host.name)}:  # noqa: ASYNC110  (silence)
            await trio.sleep(1)  # whoever dials has a deadline
        if other.listener is None:
            raise ConnectionRefusedError(111, "Connection refused")
        own, far = Wire(self, host, other), Wire(self, other, host)
        own.peer, far.peer = far, own
        own.lag_ns, far.lag_ns = self._lag_ns(), self._lag_ns()
        other.listener.offer(far)
        host.wires = [wire for wire in host.wires if not wire.is_closed] + [own]
        other.wires = [wire for wire in other.wires if not wire.is_closed] + [far]
        await self._world.sleep(self.latency_ns())
        return own

    # Faults.

    def block(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.blocked.update(pairs)

    def heal(self, pairs: Sequence[tuple[str, str]] | None = None) -> None:
        """These directions work again, or all; what was held back arrives in its order."""
        self.blocked.difference_update(list(self.blocked) if pairs is None else pairs)
        held, self._held = self._held, []
        for wire, arrive in held:
            if (wire.own.name, wire.other.name) in self.blocked:
                self._held.append((wire, arrive))
            else:
                arrive()
