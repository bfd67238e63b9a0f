"""What goes wrong in a run: one fault after the other, about one every 0.8 s, each healed after a while.

Disks are damaged one at a time and only while everybody votes: more is more than a majority can make up for.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from jetraft.cluster.state import commands
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from tests.simulator.checkers import Checker
from tests.simulator.host import GROUP, INCARNATION, PATH, ROOT, Host
from tests.simulator.network import Network
from tests.simulator.process import Process
from tests.simulator.world import MS, World

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULTS_PER_S = 1.2
LIVE_LOOKED_AT = 50  # messages, of which one is securely deleted
HOUR_NS = 3600 * NS_PER_S
UNIX_JUMP_NS = 1800 * NS_PER_S  # less than the window of duplicates: a leader that far ahead forgets their ids
TWICE = 0.4  # of all restarts end in another crash at once
TWICE_NS = 10 * MS  # most fsyncs take less
BEFORE_NS = 20 * MS  # messages are published so shortly before a fault that it meets them on their way


class Faults:
    """Everything that any process can meet: crashes, cuts, pauses, slow and failing disks."""

    def __init__(
        self,
        world: World,
        network: Network,
        processes: Mapping[NodeId, Process],
        *,
        end_ns: int,
        before: Callable[[], None],
    ) -> None:
        self._world = world
        self._network = network
        self._processes = processes
        self._end_ns = end_ns
        self._before = before

    def start(self) -> None:
        """Begin."""
        self._world.after(1000 * MS, self._one)

    def every(self, rate_per_s: float, event: Callable[[], None]) -> None:
        """Let something happen at random moments until the faults end."""

        def once() -> None:
            if self._world.now_ns < self._end_ns:
                event()
                self.every(rate_per_s, event)

        self._world.after(int(self._world.rng.expovariate(rate_per_s) * NS_PER_S), once)

    def _one(self) -> None:
        world = self._world
        if world.now_ns >= self._end_ns:
            return
        processes = list(self._processes.values())
        leaders = [process for process in processes if process.leads]
        victim = world.rng.choice(leaders if leaders and world.chance(0.5) else processes)
        others = [process for process in processes if process is not victim]
        kind = world.rng.random()
        if kind < 0.35 or not others:
            self._crash_some(victim, processes)
        elif kind < 0.75:
            self._partition(victim, others if kind < 0.55 else [world.rng.choice(others)])
        elif kind < 0.83:
            self._stall_disk(victim)
        elif kind < 0.90:
            self._pause(victim)
        elif kind < 0.93:
            self._break_disk(victim)
        else:
            self._network.close(victim.node_id, world.rng.choice(others).node_id)
        pause_ns = int(world.rng.expovariate(FAULTS_PER_S) * NS_PER_S)
        if world.now_ns + pause_ns < self._end_ns:
            world.after(max(0, pause_ns - world.between(0, BEFORE_NS)), self._before)
            world.after(pause_ns, self._one)

    def _crash_some(self, victim: Process, processes: "Sequence[Process]") -> None:
        world = self._world
        victims = [victim]
        if world.chance(0.3):
            victims = world.rng.sample(list(processes), min(len(processes), 2 if world.chance(0.7) else 3))
        power = world.chance(0.8)
        for process in victims:
            if process.alive:
                world.note(f"{process.node_id} {'loses power' if power else 'is killed'}")
                process.crash(power=power)
                world.after(world.between(50 * MS, 2000 * MS), partial(self._start_again, process))

    def _start_again(self, process: Process) -> None:
        """A process starts; what it promises in its first milliseconds, it may have to keep after the next crash."""
        world = self._world
        process.restart()
        if world.now_ns < self._end_ns and world.chance(TWICE):

            def crash_again() -> None:
                if process.alive:
                    world.note(f"{process.node_id} loses power again")
                    process.crash(power=True)
                    world.after(world.between(20 * MS, 200 * MS), process.restart)

            world.after(world.between(0, TWICE_NS), crash_again)

    def _partition(self, victim: Process, others: "Sequence[Process]") -> None:
        world = self._world
        directions = world.rng.choice(("both", "both", "in", "out"))
        pairs = []
        for other in others:
            if directions != "out":
                pairs.append((other.node_id, victim.node_id))
            if directions != "in":
                pairs.append((victim.node_id, other.node_id))
        world.note(f"{victim.node_id} is cut off ({directions}) from {[other.node_id for other in others]}")
        self._network.block(pairs, world.between(200 * MS, 4000 * MS))

    def _stall_disk(self, victim: Process) -> None:
        victim.disk.stall_ns = self._world.rng.choice((100, 500, 1500)) * MS

        def again() -> None:
            victim.disk.stall_ns = 0

        self._world.after(self._world.between(200 * MS, 1500 * MS), again)

    def _break_disk(self, victim: Process) -> None:
        """An fsync error is final for the process (rule 7); it is started again later."""
        self._world.note(f"{victim.node_id}: the next fsync fails")
        victim.disk.broken = True

        def replace() -> None:
            victim.crash(power=True)
            victim.restart()

        self._world.after(self._world.between(1000 * MS, 3000 * MS), replace)

    def _pause(self, victim: Process) -> None:
        world = self._world
        world.note(f"{victim.node_id} is paused")
        number = victim.number
        victim.pause()
        duration_ns = world.between(200 * MS, 4000 * MS)
        others = [node for node in self._processes if node != victim.node_id]
        self._network.block([(victim.node_id, node) for node in others], duration_ns)

        def resume() -> None:
            if victim.number == number and victim.alive:
                victim.resume()

        world.after(duration_ns, resume)

    def heal(self) -> None:
        """Everything is mended, everybody is started."""
        self._world.note("healing begins")
        self._world.is_calm = True
        self._network.calm_down()
        for process in self._processes.values():
            process.disk.stall_ns = 0
            if process.disk.broken or process.has_failed:
                process.crash(power=True)
            process.disk.broken = False
            process.resume()
            process.restart()


class HostFaults:
    """What the project's nodes meet besides: transfers, clocks that jump, changes of members, damaged disks."""

    def __init__(self, world: World, checker: Checker, hosts: Mapping[NodeId, Host], *, founding: int) -> None:
        self._world = world
        self._checker = checker
        self._hosts = hosts
        self._founding = founding

    def _leaders(self) -> list[Host]:
        return [host for host in self._hosts.values() if host.leads]

    def transfer(self) -> None:
        """An operator moves the leader, whatever else is going on."""
        for leader in self._leaders():
            group, to = leader.group, self._world.rng.choice([None, *self._hosts])
            if group is not None and to != leader.node_id:
                self._world.counts["transfers"] += 1
                self._world.note(f"{leader.node_id} is to hand over to {to or 'anybody'}")
                leader.do(lambda group=group, to=to: group.transfer_leadership(to))  # type: ignore[misc]  # mypy cannot infer a lambda with defaults

    def jump(self) -> None:
        """Somebody sets a clock; or a machine was frozen, and its monotonic clock shows it."""
        world = self._world
        host = world.rng.choice(list(self._hosts.values()))
        world.counts["clock jumps"] += 1
        if world.chance(0.6):
            host.clock.unix_offset_ns = world.between(-UNIX_JUMP_NS, UNIX_JUMP_NS)
        else:
            host.clock.mono_offset_ns += world.between(0, 5 * NS_PER_S)
            host.clock_jumped()

    def set_wall(self) -> None:
        """Somebody sets the wall clock of one machine, often a leader's, by an hour; one that is wrong is set right."""
        world = self._world
        wrong = [host for host in self._hosts.values() if host.clock.unix_offset_ns]
        world.counts["walls set"] += 1
        if wrong:
            wrong[0].clock.unix_offset_ns = 0
            world.note(f"{wrong[0].node_id}: its wall clock is right again")
            return
        leaders = self._leaders()
        host = world.rng.choice(leaders if leaders and world.chance(0.7) else list(self._hosts.values()))
        host.clock.unix_offset_ns = world.rng.choice((-HOUR_NS, HOUR_NS))
        world.note(f"{host.node_id}: its wall clock is {host.clock.unix_offset_ns / NS_PER_S:+.0f} s off")

    # Members.

    def change_members(self) -> None:
        """Another set of members is wanted (the leaders reshape the group), or one change is tried directly."""
        world = self._world
        leaders = self._leaders()
        if leaders and world.chance(0.6):
            leader = max(leaders, key=lambda host: host.group.term if host.group else 0)
            self._change_one(leader)
            return
        nodes = list(self._hosts)
        if leaders and world.chance(0.3):  # more than one voter at a time, or the leader itself: to be refused (28, 31)
            bold = Configuration(voters=world.rng.sample(nodes, world.rng.choice((1, 3, 5))))
            world.rng.choice(leaders).change_members(bold)
            return
        peers = tuple(sorted(world.rng.sample(nodes, world.rng.choice((1, 3, 3, 5)))))
        world.note(f"members are to be {peers}")
        world.counts["reshapes"] += 1
        revision = max(host.assignment.revision for host in self._hosts.values()) + 1
        for host in self._hosts.values():
            host.reconfigure(host.assignment.reshaped(host.assignment.config, peers, revision))

    def _change_one(self, leader: Host) -> None:
        """One step towards another membership: add a learner, promote one, or remove a member (rules 28 to 32)."""
        assert leader.group is not None
        now = leader.group.configuration
        node = self._world.rng.choice([node for node in self._hosts if node != leader.node_id])
        voters, learners = set(now.voters), set(now.learners)
        if node in voters:
            voters.discard(node)
        elif node in learners:
            learners.discard(node)
            voters.add(node)
        else:
            learners.add(node)
        leader.change_members(Configuration(voters=voters, learners=learners))

    # Disks.

    def damage_disk(self) -> None:
        """A disk is lost, or loses term and vote, or some bits of what lies at rest."""
        world = self._world
        victim = world.rng.choice(list(self._hosts.values()))
        if not victim.alive or not self._all_vote():
            return
        kind = world.rng.random()
        if kind < 0.4:
            world.note(f"{victim.node_id} loses its disk")
            victim.lose_disk()
        else:
            victim.crash(power=world.chance(0.5))
            if kind < 0.6 and victim.disk.lose_hard_state(ROOT, GROUP):
                world.note(f"{victim.node_id} loses term and vote")
                world.counts["lost hard states"] += 1
                self._checker.damage(victim.node_id)
            elif path := victim.disk.flip_bits(PATH):
                world.note(f"{victim.node_id}: bits flip in {path}")
                world.counts["bits flipped"] += 1
                self._checker.damage(victim.node_id)
        world.after(world.between(50 * MS, 1000 * MS), victim.restart)

    def damage_entries(self) -> None:
        """One disk loses any entries, or two disks lose such as the third has applied; the processes begin again.

        Some of them are of the newest block, and of its end: who leads next depends on what they were.
        """
        world = self._world
        hosts = list(self._hosts.values())
        if not all(host.alive for host in hosts) or not self._all_vote() or self._checker.is_incomplete(hosts):
            return
        spared, *others = world.rng.sample(hosts, len(hosts))
        two = world.chance(0.6)
        assert spared.group is not None
        last_index = spared.group.applied_index if two else 1 << 62
        for victim in others[: 2 if two else 1]:
            victim.crash(power=world.chance(0.5))
            identity = Identity(node_id=victim.node_id, group_id=GROUP, incarnation=INCARNATION)
            hurt = victim.disk.damage_entries(PATH, last_index, identity)
            world.note(f"{victim.node_id}: entries {hurt} are damaged")
            world.counts["entries damaged"] += len(hurt)
            world.after(world.between(50 * MS, 1000 * MS), victim.restart)
        if world.chance(0.5):
            self._restart_soon(spared)

    def lose_end(self) -> None:
        """A member is away for a moment, and misses what the others acknowledge."""
        hosts = list(self._hosts.values())
        if not all(host.alive and not host.has_damaged_end for host in hosts) or not self._all_vote():
            return  # two lost ends of three members wait for an operator
        absent, victim, holder = self._world.rng.sample(hosts, len(hosts))
        absent.crash(power=False)
        self._world.after(self._world.between(100 * MS, 600 * MS), partial(self._lose_end, absent, victim, holder))

    def _lose_end(self, absent: Host, victim: Host, holder: Host) -> None:
        """One of those that have it loses its newest block, and comes back before the other one, which has it all."""
        world = self._world
        groups = [host.group for host in (victim, holder) if host.alive]
        if len(groups) == 2 and all(group is not None and group.failed is None for group in groups):
            victim.crash(power=world.chance(0.5))
            holder.crash(power=world.chance(0.5))
            world.note(f"{victim.node_id}: {victim.disk.zero_newest_block(PATH)} is zeroed")
            world.counts["blocks zeroed"] += 1
            self._checker.damage(victim.node_id)
            world.after(world.between(0, 100 * MS), victim.restart)
            world.after(world.between(500 * MS, 2500 * MS), holder.restart)
        world.after(world.between(0, 100 * MS), absent.restart)

    def _restart_soon(self, host: Host) -> None:
        """Also whoever has everything is not there all the time."""
        self._world.after(self._world.between(0, 300 * MS), partial(host.crash, power=True))
        self._world.after(self._world.between(500 * MS, 2000 * MS), host.restart)

    def rot(self) -> None:
        """Bits flip in a block of a node that goes on: whoever reads it next has to notice."""
        world = self._world
        *others, spared = self._hosts.values()
        victim = world.rng.choice(others)
        if not (victim.alive and spared.alive and spared.group is not None):
            return
        if path := victim.disk.rot(PATH, spared.group.applied_index):  # what all others have lost is there
            world.note(f"{victim.node_id}: bits flip in {path}, unnoticed")
            world.counts["bits rotted"] += 1

    def erase(self) -> None:
        """A message is securely deleted, and bits flip between the commit of that and its applying."""
        world = self._world
        leaders = [host for host in self._hosts.values() if host.alive and host.group is not None]
        leaders = [
            host for host in leaders if host.group is not None and host.group.is_leader and host.replica is not None
        ]
        if not leaders:
            return
        leader = leaders[0]
        assert leader.group is not None
        assert leader.replica is not None
        store = leader.replica.machine.store
        live = store.next_matches((), store.first_seq, LIVE_LOOKED_AT)
        if live:
            removal = commands.Remove(commands.to_runs([world.rng.choice(live)]), erase=True)
            leader.group.propose(Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(removal)))
            world.counts["erased"] += 1
            self.rot()

    def _all_vote(self) -> bool:
        """Whether nobody remembers a configuration, committed or not, in which some do not vote."""
        groups = [host.group for host in self._hosts.values() if host.alive]
        return len(groups) == len(self._hosts) and all(
            group is not None
            and group.failed is None
            and set(group.configuration.voters) == set(self._hosts)
            and group.configuration_is_committed
            for group in groups
        )
