"""One run: a cluster under load and faults, then healing, then convergence or a reason why not."""

import attrs

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.membership import Configuration
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from tests.simulator.checkers import Checker
from tests.simulator.host import Host
from tests.simulator.network import Network
from tests.simulator.world import MS, ViolationError, World

FAULTS_NS = 12 * NS_PER_S
HEALING_NS = 6 * NS_PER_S


@attrs.frozen(kw_only=True)
class Mode:
    """What a run is made of."""

    members: int = 3
    hosts: int = 0  # more than members: some wait to be added
    changes_members: bool = False
    chaos: bool = False
    loses_disks: bool = False
    checkpoint_entries: int = 1 << 30


MODES = {
    "base": Mode(),
    "chaos": Mode(chaos=True),
    "five": Mode(members=5, chaos=True, checkpoint_entries=40),
    "one": Mode(members=1, checkpoint_entries=40),
    "snap": Mode(checkpoint_entries=25),
    "chaos-snap": Mode(chaos=True, checkpoint_entries=25),
    "member": Mode(hosts=5, changes_members=True, checkpoint_entries=40),
    "member-chaos": Mode(hosts=5, changes_members=True, chaos=True, checkpoint_entries=40),
    "forget": Mode(loses_disks=True, checkpoint_entries=40),
    "forget-chaos": Mode(loses_disks=True, chaos=True, checkpoint_entries=40),
    "forget-five": Mode(members=5, loses_disks=True, chaos=True, checkpoint_entries=40),
}


@attrs.frozen(kw_only=True)
class Result:
    """How a run ended: `problem` is None when everything held."""

    seed: int
    problem: str | None
    counts: dict[str, int]
    history: list[str]


class Simulation:
    """One seed in one mode."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.seed = seed
        self.world = World(seed)
        self.checker = Checker(self.world)
        nodes = [NodeId(f"node000{number}") for number in range(1, max(mode.members, mode.hosts) + 1)]
        self.network = Network(self.world, nodes, chaos=mode.chaos)
        policy = CheckpointPolicy(
            applied_bytes_min=1 << 40, applied_entries_min=mode.checkpoint_entries, state_bytes_factor=0
        )
        self.hosts = {
            node: Host(
                self.world,
                self.network,
                self.checker,
                node_id=node,
                members=tuple(nodes[: mode.members]),
                policy=policy,
                tends_members=mode.loses_disks,
            )
            for node in nodes
        }
        self._commands = 0
        self._mode = mode
        self._faults_end_ns = self.world.now_ns + FAULTS_NS

    def run(self) -> Result:
        """Play the seed."""
        problem = None
        try:
            for host in self.hosts.values():
                host.start()
            self.network.connect_all()
            self.world.after(100 * MS, self._client)
            self.world.after(1000 * MS, self._fault)
            if self._mode.changes_members:
                self.world.after(1200 * MS, self._change_members)
            if self._mode.loses_disks:
                self.world.after(1200 * MS, self._lose_disk)
            self.world.run_until(self._faults_end_ns)
            self._heal()
            self.world.run_until(self._faults_end_ns + HEALING_NS)
            problem = self._judge()
        except ViolationError as violation:
            problem = f"violation: {violation}"
        return Result(seed=self.seed, problem=problem, counts=dict(self.world.counts), history=self.world.history)

    # Load and faults.

    def _client(self) -> None:
        world = self.world
        if world.now_ns >= self._faults_end_ns:
            return
        for host in self.hosts.values():
            if host.leads and world.chance(0.8):
                for _ in range(world.rng.choice((1, 1, 3, 8))):
                    self._commands += 1
                    host.propose(
                        self._commands, b"command %d " % self._commands + b"." * world.rng.choice((0, 0, 20, 300))
                    )
        world.after(int(world.rng.expovariate(20) * NS_PER_S), self._client)

    def _change_members(self) -> None:
        """One step towards another membership: add a learner, promote one, or remove a member (rules 28 to 32)."""
        world = self.world
        if world.now_ns >= self._faults_end_ns:
            return
        leaders = [host for host in self.hosts.values() if host.leads]
        if leaders:
            leader = max(leaders, key=lambda host: host.group.term)
            now = leader.group.configuration
            node = world.rng.choice([node for node in self.hosts if node != leader.node_id])
            voters, learners = set(now.voters), set(now.learners)
            if node in voters:
                voters.discard(node)
            elif node in learners:
                learners.discard(node)
                voters.add(node)
            else:
                learners.add(node)
            leader.change_members(Configuration(voters=voters, learners=learners))
        world.after(int(world.rng.expovariate(2.0) * NS_PER_S), self._change_members)

    def _lose_disk(self) -> None:
        """One disk at a time, and the next when all vote again: more is more than a majority can make up for."""
        world = self.world
        if world.now_ns >= self._faults_end_ns:
            return
        victim = world.rng.choice(list(self.hosts.values()))
        if victim.alive and self._all_vote():
            world.note(f"{victim.node_id} loses its disk")
            victim.lose_disk()
            world.after(world.between(50 * MS, 1000 * MS), victim.restart)
        world.after(int(world.rng.expovariate(2.0) * NS_PER_S), self._lose_disk)

    def _all_vote(self) -> bool:
        """Whether nobody remembers a configuration, committed or not, in which some do not vote."""
        hosts = self.hosts.values()
        return all(
            host.alive
            and not host.forgetful
            and set(host.group.configuration.voters) == set(self.hosts)
            and host.group.configuration_is_committed
            for host in hosts
        )

    def _fault(self) -> None:
        world = self.world
        if world.now_ns >= self._faults_end_ns:
            return
        hosts = list(self.hosts.values())
        leaders = [host for host in hosts if host.leads]
        victim = world.rng.choice(leaders if leaders and world.chance(0.5) else hosts)
        others = [host for host in hosts if host is not victim]
        kind = world.rng.random()
        if kind < 0.35 or not others:
            self._crash_some(victim, hosts)
        elif kind < 0.75:
            self._partition(victim, others if kind < 0.55 else [world.rng.choice(others)])
        elif kind < 0.83:
            self._stall_disk(victim)
        elif kind < 0.90:
            self._pause(victim)
        elif kind < 0.93:
            self._break_disk(victim)
        else:
            self.network.close(victim.node_id, world.rng.choice(others).node_id)
        world.after(int(world.rng.expovariate(1.2) * NS_PER_S), self._fault)

    def _crash_some(self, victim: Host, hosts: list[Host]) -> None:
        world = self.world
        victims = [victim]
        if world.chance(0.3):
            victims = world.rng.sample(hosts, min(len(hosts), 2 if world.chance(0.7) else 3))
        power = world.chance(0.8)
        for host in victims:
            if host.alive:
                world.note(f"{host.node_id} {'loses power' if power else 'is killed'}")
                host.crash(power=power)
                world.after(world.between(50 * MS, 2000 * MS), host.restart)

    def _partition(self, victim: Host, others: list[Host]) -> None:
        world = self.world
        directions = world.rng.choice(("both", "both", "in", "out"))
        pairs = []
        for other in others:
            if directions != "out":
                pairs.append((other.node_id, victim.node_id))
            if directions != "in":
                pairs.append((victim.node_id, other.node_id))
        world.note(f"{victim.node_id} is cut off ({directions}) from {[other.node_id for other in others]}")
        self.network.block(pairs, world.between(200 * MS, 4000 * MS))

    def _stall_disk(self, victim: Host) -> None:
        victim.disk.stall_ns = self.world.rng.choice((100, 500, 1500)) * MS

        def again() -> None:
            victim.disk.stall_ns = 0

        self.world.after(self.world.between(200 * MS, 1500 * MS), again)

    def _break_disk(self, victim: Host) -> None:
        """An fsync error is final for the process (rule 7); it is started again later."""
        self.world.note(f"{victim.node_id}: the next fsync fails")
        victim.disk.broken = True

        def replace() -> None:
            victim.crash(power=True)
            victim.restart()

        self.world.after(self.world.between(1000 * MS, 3000 * MS), replace)

    def _pause(self, victim: Host) -> None:
        world = self.world
        world.note(f"{victim.node_id} is paused")
        process = victim.process
        victim.pause()
        duration_ns = world.between(200 * MS, 4000 * MS)
        others = [node for node in self.hosts if node != victim.node_id]
        self.network.block([(victim.node_id, node) for node in others], duration_ns)

        def resume() -> None:
            if victim.process == process and victim.alive:
                victim.resume()

        world.after(duration_ns, resume)

    # The end.

    def _heal(self) -> None:
        self.world.note("healing begins")
        self.network.heal(sorted(self.network.blocked))
        for host in self.hosts.values():
            host.disk.stall_ns = 0
            if host.disk.broken or (host.alive and not host.forgetful and host.group.failed is not None):
                host.crash(power=True)
            host.disk.broken = False
            host.resume()
            host.restart()

    def _judge(self) -> str | None:
        leaders = [host for host in self.hosts.values() if host.leads]
        if len(leaders) != 1:
            return f"liveness: {len(leaders)} leaders after healing"
        have = set(leaders[0].machine.bodies)
        lost = [body for body in self.checker.acknowledged if body not in have]
        if lost:
            return f"violation: {len(lost)} of {len(self.checker.acknowledged)} acknowledged commands are lost"
        if len(have) != len(leaders[0].machine.bodies):
            return "violation: a command was applied twice"
        members = leaders[0].group.members
        behind = [node for node in members if self.hosts[node].machine.bodies != leaders[0].machine.bodies]
        if behind:
            return f"liveness: {behind} have not caught up"
        return None
