"""A process that can crash, be paused and start again, and its end of the network."""

from collections.abc import Callable
from typing import Protocol

from jetraft.store.model.ids import NodeId
from jetraft.store.model.signal import Signal
from tests.simulator.network import Network, Ports
from tests.simulator.world import World


class Crashing(Protocol):
    """What a process's disk does when the process ends."""

    stall_ns: int
    broken: bool

    def stop(self, *, power: bool) -> None: ...


class Process:
    """Implements the manager's Links. Subclasses say what a process does: `start`, `observe`, `schedule_turn`."""

    disk: Crashing

    def __init__(self, world: World, network: Network, *, node_id: NodeId, members: tuple[NodeId, ...]) -> None:
        self.node_id = node_id
        self.alive = False
        self.number = 0  # of the process; callbacks of an earlier one are void
        self.others = tuple(node for node in members if node != node_id)
        self.on_peer_up: Signal[[NodeId]] = Signal()
        self.on_peer_down: Signal[[NodeId]] = Signal()
        self._world = world
        self._network = network
        self._members = members
        self._paused: list[Callable[[], object]] | None = None
        self._handlers: dict[int, Callable[[NodeId, memoryview], None]] = {}
        network.ports[node_id] = Ports(
            is_alive=lambda: self.alive,
            deliver=lambda sender, channel, payload: self.do(
                lambda: self._handlers[channel](sender, memoryview(payload))
            ),
            peer_up=lambda node: self.do(lambda: self.on_peer_up.emit(node)),
            peer_down=lambda node: self.do(lambda: self.on_peer_down.emit(node)),
        )

    # What it is connected by.

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        return self._network.send(self.node_id, to, channel, payload)

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        self._handlers[channel] = handler

    def is_up(self, node: NodeId) -> bool:
        return self._network.is_up(self.node_id, node)

    # Life.

    def start(self) -> None:
        """A new process over what the disk kept."""
        raise NotImplementedError

    def begin_process(self) -> None:
        assert not self.alive
        self.alive = True
        self.number += 1
        self.on_peer_up, self.on_peer_down = Signal(), Signal()
        self._paused = None

    @property
    def has_failed(self) -> bool:
        """Whether an operator would start it again."""
        return False

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader, and takes commands."""
        raise NotImplementedError

    def crash(self, *, power: bool) -> None:
        """The process ends; `power` also takes what was not fsynced."""
        if self.alive:
            self.alive = False
            self.disk.stop(power=power)
            self._network.crashed(self.node_id)

    def restart(self) -> None:
        if not self.alive:
            self.start()

    def later(self, delay_ns: int, event: Callable[[], object]) -> None:
        """Let something happen after a while, if this process still runs then."""
        number = self.number
        self._world.after(delay_ns, lambda: self.do(event) if self.number == number else None)

    @property
    def answers(self) -> bool:
        """Whether it runs and is not stopped."""
        return self.alive and self._paused is None

    # Being stopped.

    def pause(self) -> None:
        """SIGSTOP: nothing happens here until `resume`; peers will notice the silence."""
        if self.alive and self._paused is None:
            self._paused = []

    def resume(self) -> None:
        events, self._paused = self._paused or [], None
        for event in events:
            self.do(event)

    def do(self, event: Callable[[], object]) -> None:
        """One event of the process's loop."""
        if not self.alive:
            return
        if self._paused is not None:
            self._paused.append(event)
            return
        event()
        self.schedule_turn()

    def schedule_turn(self) -> None:
        """What ends every event."""
