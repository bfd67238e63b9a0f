"""A stage for whole nodes: the simulator's hosts, without its faults, and a script that says what befalls them.

    > cluster 3             three nodes, one stream; a checkpoint every 25 entries, the 15 newest messages stay
    > run 2                 seconds pass
    > publish 40            messages, one after the other, each acknowledged
    > crash 3               node 3 loses power; `start 3`
    > wipe 3                it loses its disk, too

What comes of a step is what the nodes themselves note, and what is new about each afterwards.
"""

from typing import TYPE_CHECKING

from tests.simulator.host import Host
from tests.simulator.repairing import file_work_at_once
from tests.simulator.run import Mode, Simulation
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 4


class Calm(World):
    """A world without luck: everything takes as long as it usually does.

    So a scenario changes when the nodes do something else, not when they do one thing more.
    """

    def between(self, low_ns: float, high_ns: float) -> int:
        return int(low_ns + high_ns) // 2

    def chance(self, probability: float) -> bool:
        return probability > 0.5


class Cluster:
    """See the module."""

    def __init__(self) -> None:
        self._simulation = Simulation(SEED, Mode(), world=Calm(SEED))
        self._noted = 0
        self._shown: dict[str, str] = {}
        self._steps: dict[str, Callable[[int], None]] = {
            "cluster": self._on_cluster,
            "run": self._on_run,
            "publish": self._on_publish,
            "crash": lambda number: self._host(number).crash(power=True),
            "start": lambda number: self._host(number).restart(),
            "wipe": lambda number: self._host(number).lose_disk(),
        }

    def step(self, text: str) -> list[str]:
        """Play one step; the lines that say what came of it."""
        name, number = text.split()
        lines = []
        try:
            with file_work_at_once():
                self._steps[name](int(number))
        except ViolationError as violation:
            lines.append(f"VIOLATION: {violation}")
        history = self._simulation.world.history
        lines += [line.split(maxsplit=1)[1] for line in history[self._noted :]]
        self._noted = len(history)
        for node, host in self._simulation.hosts.items():
            state = _state(host)
            if state != self._shown.get(node):
                lines.append(f"{node}: {state}")
            self._shown[node] = state
        return [f"    {line}" for line in lines]

    def _host(self, number: int) -> Host:
        return self._simulation.hosts[self._names[number - 1]]

    def _on_cluster(self, members: int) -> None:
        mode = Mode(members=members, checkpoint_entries=25, chaos=False)
        self._simulation = Simulation(SEED, mode, world=Calm(SEED))
        self._names = list(self._simulation.hosts)
        for host in self._simulation.hosts.values():
            host.start()
        self._simulation.network.connect_all()

    def _on_run(self, seconds: int) -> None:
        world = self._simulation.world
        world.run_until(world.now_ns + seconds * 1000 * MS)

    def _on_publish(self, messages: int) -> None:
        world, client = self._simulation.world, self._simulation.client
        for _ in range(messages):
            client.publish_last()
            world.run_until(world.now_ns + 30 * MS)
        waiting = messages - len(client.acknowledged)
        assert waiting <= 0 or len(client.acknowledged) > 0, "somebody leads"


def _state(host: Host) -> str:
    """A node in one line."""
    if not host.alive:
        return "is down"
    if host.replica is None:
        return "has no memory of the group, and no part in it" if host.forgetful else "has no replica"
    group, machine = host.replica.group, host.replica.machine
    role = f"leads term {group.term}" if group.is_leader else f"follows {group.leader or 'nobody'} in term {group.term}"
    configuration = group.configuration
    learners = f", learners {' '.join(configuration.learners)}" if configuration.learners else ""
    return (
        f"{role}; {'trimmed ' if group.log.first_index > 1 else ''}log to {group.log.last_index}, "
        f"applied {group.applied_index}; "
        f"messages {machine.store.first_seq} to {machine.store.last_seq}; "
        f"voters {' '.join(configuration.voters)}{learners}"
    )
