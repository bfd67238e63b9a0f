"""The machines of a run, the processes on them, and what is seen of all of them after each turn."""

import traceback
from typing import TYPE_CHECKING

import attrs

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.store.disk.io import DiskSize
from tests.simulator.nodes.disk import LARGE
from tests.simulator.nodes.life import Life, Machine
from tests.simulator.nodes.watching import Watcher
from tests.simulator.nodes.wires import Net
from tests.simulator.world import MS, HostClock, ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from tests.simulator.nodes.virtual import VirtualWorld


@attrs.frozen(kw_only=True)
class Shape:
    """How large a run is, and what its nodes are told."""

    machines: int = 3
    founders: int = 3
    checkpoint_entries: int = 1 << 30
    disk: DiskSize = LARGE
    keeps_memory: bool = False  # no majority of a memory stream is ever away at once


class SimCluster:
    """See the module. Its nursery is the run's."""

    def __init__(self, world: "VirtualWorld", shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.names = [f"n{number}" for number in range(1, shape.machines + 1)]
        self.net = Net(world, self.names)
        self.machines = {
            name: Machine(name=name, number=number, clock=HostClock(world), size=shape.disk)
            for number, name in enumerate(self.names)
        }
        self.gone: set[str] = set()  # machines that do not come back
        self.watcher = Watcher(world, watches_memory=shape.keeps_memory)
        self.look: Callable[[Life], None] = lambda _life: None  # after every turn
        self.receive: Callable[[Life, bytes, bytes, bytes], None] = lambda *_: None
        self.nursery: trio.Nursery
        self._policy = CheckpointPolicy(
            applied_bytes_min=1 << 40, applied_entries_min=shape.checkpoint_entries, state_bytes_factor=0
        )

    @property
    def lives(self) -> list[Life]:
        """The newest process of each machine, but those that are gone."""
        machines = [machine for name, machine in self.machines.items() if name not in self.gone]
        return [machine.life for machine in machines if machine.life is not None]

    def alive(self) -> list[Life]:
        """Those that run."""
        return [life for life in self.lives if life.is_alive]

    def meta_leader(self) -> str | None:
        """The machine that leads the meta group, as it believes."""
        nodes = [(life.name, life.node) for life in self.alive() if life.node is not None]
        return next((name for name, node in nodes if node.machine.leading_term is not None), None)

    def start(self, name: str) -> None:
        """Begin a process, where none runs."""
        machine = self.machines[name]
        if name in self.gone or (machine.life is not None and machine.life.is_alive):
            return
        self.world.note(f"start {name}")
        self.world.mark(f"start {name}")
        machine.life = Life(
            self.world,
            self.net,
            machine,
            names=self.names,
            founders=self.shape.founders,
            policy=self._policy,
            receive=lambda *arrived: self.receive(*arrived),  # noqa: PLW0108  (it is set later)
            on_turn=self._look,
            on_error=self._on_error,
        )
        self.nursery.start_soon(machine.life.run)

    def _look(self, life: Life) -> None:
        self.watcher.look(life)
        self.look(life)

    def kill(self, name: str, *, power: bool) -> None:
        """End the process, or the machine."""
        life = self.machines[name].life
        if life is not None and life.is_alive:
            self.world.note(f"{'power cut' if power else 'kill'} {name}")
            life.die(power=power)

    async def restart(self, name: str, after_ns: int, *, power: bool) -> None:
        """Kill, wait, start."""
        self.kill(name, power=power)
        await self.world.sleep(after_ns + MS)
        self.start(name)

    def _on_error(self, life: Life, error: BaseException) -> None:
        """A process died of something that was raised."""
        violation = _violation_in(error)
        if violation is not None:
            raise violation
        text = "".join(traceback.format_exception(error))
        self.world.note(f"{life.name} died:\n{text}")
        raise ViolationError(f"{life.name}: raised out of a task: {_innermost(error)!r}")


def _violation_in(error: BaseException) -> ViolationError | None:
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_violation_in, error.exceptions)), None)
    return error if isinstance(error, ViolationError) else None


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
