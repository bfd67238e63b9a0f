"""What happens to the machines of a run, to what is between them, and to the streams on them.

Each seed has some kinds of faults and not the others, so that rare ones meet each other often enough.
"""

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import trio

from jetraft.cluster.meta.health import HTTP_OK
from jetraft.cluster.state.assignment import StreamKey
from jetraft.raft.freshness import STALENESS_MAX_NS
from jetraft.store.frames.format import BLOCK_SUFFIX, GENERATION_PREFIX
from jetraft.store.model.clock import NS_PER_S
from tests.doubles.lossy_tree import LossyDirectory
from tests.simulator.nodes.clients import Clients, Stream
from tests.simulator.nodes.disk import LifeDisk
from tests.simulator.nodes.life import ROOT
from tests.simulator.world import MS, ViolationError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulator.nodes.cluster import SimCluster
    from tests.simulator.nodes.life import Life, Machine

HOUR_NS = 3600 * NS_PER_S
HEALTHY_WITHIN_S = 20.0
CUT_OPERATIONS_MAX = 60
NO_ROOM_BYTES = 1 << 20
LONG_NS = STALENESS_MAX_NS + 4 * NS_PER_S
OPERATOR_LOOK_S = 0.5
REMOVE_TRIES = 6
REMOVAL_MACHINES_MIN = 4  # three are left


class Faults:
    """See the module."""

    def __init__(self, cluster: "SimCluster", clients: Clients, kinds: Sequence[str], *, first: str = "") -> None:
        self._cluster = cluster
        self._clients = clients
        self._world = cluster.world
        self._kinds = kinds
        self._first = first  # the kind of the first fault; empty: any
        self._damaged: set[str] = set()  # machines
        self._made = 0
        self._is_cut = False  # a machine is, for long
        self._is_removing = False  # a machine, for good
        self._publish: Callable[[Stream], None] = lambda _stream: None

    async def run(self, end_ns: int, publish: Callable[[Stream], None]) -> None:
        """One fault after the other, and some at once, until `end_ns`. `publish` begins to publish to a new stream."""
        world, self._publish = self._world, publish
        kinds = {kind: getattr(self, f"_{kind.replace('-', '_')}") for kind in self._kinds}
        async with trio.open_nursery() as nursery:
            while True:
                await world.sleep(world.between(150 * MS, 1500 * MS))
                if world.now_ns >= end_ns:
                    nursery.cancel_scope.cancel()
                    return
                kind, self._first = self._first or world.rng.choice(self._kinds), ""
                world.counts[kind] += 1
                nursery.start_soon(self._one, kinds[kind])

    async def _one(self, fault: Callable[[], Awaitable[None]]) -> None:
        await fault()

    def heal(self) -> None:
        """All is well from now on, and every machine has power."""
        cluster = self._cluster
        self._world.note("heal")
        cluster.net.heal()
        for machine in cluster.machines.values():
            self._set_stall(machine, 0)
            self._set_room(machine, None)
        for life in cluster.alive():
            life.disk.cut_after(None)
        for name in cluster.names:
            cluster.start(name)

    async def start_what_was_removed(self) -> None:
        """The operator's word, without which a server that was removed while it ran stays out. A request that was made
        before all was well may be carried out after that, so it is given for as long as the run lasts.
        """
        while True:
            for life in self._cluster.alive():
                if life.node is not None and life.node.parts.exclusion.is_removed:
                    self._cluster.kill(life.name, power=False)
                    self._cluster.start(life.name)
                    self._world.counts["started after a removal"] += 1
            await trio.sleep(OPERATOR_LOOK_S)

    def _name(self) -> str:
        return self._world.rng.choice(self._cluster.names)

    def _some(self, count_min: int = 1) -> list[str]:
        names = self._cluster.names
        return self._world.rng.sample(names, self._world.rng.randint(count_min, len(names)))

    # Processes and machines.

    async def _kill(self) -> None:
        await self._down([self._name()], power=False)

    async def _power(self) -> None:
        await self._down([self._name()], power=True)

    async def _power_of_some(self) -> None:
        await self._down(self._some(2), power=True)

    async def _down(self, names: list[str], *, power: bool) -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                pause_ns = self._world.between(20 * MS, 2500 * MS)
                nursery.start_soon(lambda name=name, pause_ns=pause_ns: self._restart(name, pause_ns, power=power))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    async def _restart(self, name: str, pause_ns: int, *, power: bool) -> None:
        await self._cluster.restart(name, pause_ns, power=power)

    async def _cut_in_work(self) -> None:
        """Power goes in the middle of an opening, an installation, a repair."""
        name = self._name()
        machine = self._cluster.machines[name]
        self._cluster.kill(name, power=False)
        await self._world.sleep(self._world.between(10 * MS, 1500 * MS))
        self._cluster.start(name)
        life = machine.life
        assert life is not None
        life.disk.cut_after(self._world.rng.randint(1, CUT_OPERATIONS_MAX))
        with trio.move_on_after(2):
            await life.ended.wait()
        if not life.is_alive:
            self._world.note(f"power cut in the work of {name}")
            self._cluster.start(name)

    # The network.

    async def _partition(self) -> None:
        """A group of machines is cut off from the others, in one direction or both."""
        names = self._cluster.names
        apart = self._world.rng.sample(names, self._world.rng.randint(1, len(names) - 1))
        pairs = [(a, b) for a in apart for b in names if b not in apart]
        await self._block(
            self._world.rng.choice([pairs, [(b, a) for a, b in pairs], pairs + [(b, a) for a, b in pairs]])
        )

    async def _cut_one(self) -> None:
        """One pair of machines does not hear each other."""
        a, b = self._world.rng.sample(self._cluster.names, 2)
        await self._block([(a, b), (b, a)])

    async def _long_cut(self) -> None:
        """One machine hears nobody for longer than what it answers may be old; one at a time."""
        if self._is_cut:
            return
        self._is_cut = True
        name = self._name()
        pairs = [pair for other in self._cluster.names if other != name for pair in ((name, other), (other, name))]
        self._world.note(f"{name} is cut off for long")
        self._cluster.net.block(pairs)
        await self._world.sleep(LONG_NS)
        self._cluster.net.heal(pairs)
        self._is_cut = False

    async def _block(self, pairs: list[tuple[str, str]]) -> None:
        self._world.note(f"block {pairs}")
        self._cluster.net.block(pairs)
        await self._world.sleep(self._world.between(100 * MS, 4000 * MS))
        self._cluster.net.heal(pairs)

    # Disks.

    async def _slow(self) -> None:
        """Every fsync of a majority takes long for a while."""
        stall_ns = self._world.between(50 * MS, 600 * MS)
        machines = [self._cluster.machines[name] for name in self._some(len(self._cluster.names) // 2 + 1)]
        for machine in machines:
            self._set_stall(machine, stall_ns)
        await self._world.sleep(self._world.between(1000 * MS, 4000 * MS))
        for machine in machines:
            self._set_stall(machine, 0)

    def _set_stall(self, machine: "Machine", stall_ns: int) -> None:
        machine.stall_ns = stall_ns
        if machine.life is not None:
            machine.life.disk.stall_ns = stall_ns

    async def _full(self) -> None:
        """Some disks have no room for a while."""
        machines = [self._cluster.machines[name] for name in self._some()]
        for machine in machines:
            self._set_room(machine, NO_ROOM_BYTES)
        await self._world.sleep(self._world.between(500 * MS, 3000 * MS))
        for machine in machines:
            self._set_room(machine, None)

    def _set_room(self, machine: "Machine", free_bytes: int | None) -> None:
        machine.free_bytes = free_bytes
        if machine.life is not None:
            machine.life.disk.set_room(free_bytes)

    async def _unreadable(self) -> None:
        """The next read of a disk fails."""
        life = self._cluster.machines[self._name()].life
        if life is not None and life.is_alive:
            self._world.note(f"a read of {life.name} fails")
            life.disk.fail_next("read", errno.EIO)

    async def _rot(self) -> None:
        """Bits of one machine's blocks flip, wherever in them; of a second one where messages may be lost."""
        name = self._name()
        if not self._damaged:
            self._damaged.add(name)
        if name not in self._damaged and len(self._damaged) > 1:
            return
        if name not in self._damaged and not self._two_may_be_damaged:
            name = next(iter(self._damaged))
        self._damaged.add(name)
        if len(self._damaged) > 1:
            for stream in self._clients.streams.values():
                stream.may_lose = True
        self._flip(self._cluster.machines[name])

    @property
    def _two_may_be_damaged(self) -> bool:
        return "two-rot" in self._kinds

    async def _two_rot(self) -> None:
        await self._rot()

    async def _wipe(self) -> None:
        """A machine comes back with an empty disk; one machine of a run, and no other one is damaged."""
        if self._damaged:
            return
        name = self._name()
        self._damaged.add(name)
        self._world.note(f"the disk of {name} is wiped")
        self._cluster.kill(name, power=True)
        self._cluster.machines[name].root = LossyDirectory()
        await self._world.sleep(self._world.between(50 * MS, 1500 * MS))
        self._cluster.start(name)

    def _flip(self, machine: "Machine") -> None:
        disk = LifeDisk(self._world, machine.root, lambda _event: None)
        groups = disk.list_directory(ROOT / "groups")
        if not groups:
            return
        group = ROOT / "groups" / self._world.rng.choice(groups)
        logs = [name for name in disk.list_directory(group) if name.startswith(GENERATION_PREFIX) and "." not in name]
        blocks = [group / log / name for log in logs for name in disk.list_directory(group / log)]
        self._flip_in(disk, [path for path in blocks if path.name.endswith(BLOCK_SUFFIX)], machine.name)

    def _flip_in(self, disk: LifeDisk, blocks: "list[Path]", name: str) -> None:
        if not blocks:
            return
        path = self._world.rng.choice(blocks)
        written = len(disk.read_whole(path).rstrip(b"\0"))
        if written < 2:
            return
        place = self._world.rng.randrange(written // 2)  # the newest writes are not protected yet (docs/storage.md)
        disk.flip_bit(path, place)
        self._world.note(f"bit rot on {name}: {path} at {place}")

    # Clocks.

    async def _clock(self) -> None:
        """An operator sets a machine's clock; it is right again after a while."""
        machine = self._cluster.machines[self._name()]
        machine.clock.unix_offset_ns = self._world.rng.choice([-HOUR_NS, HOUR_NS, -NS_PER_S, NS_PER_S, 24 * HOUR_NS])
        self._world.note(f"the clock of {machine.name} is off by {machine.clock.unix_offset_ns / NS_PER_S} s")
        await self._world.sleep(self._world.between(200 * MS, 3000 * MS))
        machine.clock.unix_offset_ns = 0

    # Operators.

    async def _create(self) -> None:
        self._made += 1
        rng = self._world.rng
        replicas = 1 if rng.random() < 0.2 and not self._needs_three else 3
        storage = "memory" if rng.random() < 0.2 else "file"
        stream = Stream(
            name=f"T{self._made}", replicas=replicas, storage=storage, may_lose=storage == "memory", load_per_s=3
        )
        stream.is_read = any(other.is_read for other in self._clients.streams.values())
        if await self._clients.create(stream):
            self._publish(stream)

    @property
    def _damages(self) -> bool:
        return bool({"rot", "two-rot", "unreadable", "wipe"} & set(self._kinds))

    @property
    def _needs_three(self) -> bool:
        """Whether a stream of fewer replicas may lose its only one for good."""
        return self._damages or "remove-for-good" in self._kinds

    def _stream(self) -> Stream | None:
        there = [each for each in self._clients.streams.values() if each.exists and not each.may_be_gone]
        return self._world.rng.choice(there) if there else None

    async def _delete(self) -> None:
        stream = self._stream()
        if stream is not None and stream.name.startswith("T"):
            await self._clients.delete(stream)

    async def _scale(self) -> None:
        stream = self._stream()
        if stream is not None and stream.storage == "file":
            replicas = self._world.rng.choice([3] if self._needs_three else [1, 2, 3])
            await self._clients.scale(stream, replicas)

    async def _remove_peer(self) -> None:
        stream = self._stream()
        if stream is not None:
            await self._clients.remove_peer(stream, self._name())

    async def _move_and_restart(self) -> None:
        """A replica goes somewhere else, and the machine that had it begins again with what it knew before."""
        stream = self._stream()
        if stream is None or stream.storage != "file":
            return
        name = self._name()
        await self._clients.remove_peer(stream, name)
        await self._world.sleep(self._world.between(0, 2000 * MS))
        await self._begin_alone(name) if self._world.chance(0.5) else await self._down([name], power=False)

    async def _move_and_cancel(self) -> None:
        """A stream leaves a machine, and may be told to come back at any moment of that."""
        stream = self._stream()
        if stream is not None:
            await self._clients.move(stream, self._name())
            await self._world.sleep(self._world.between(0, 1000 * MS))
            await self._clients.cancel_move(stream)

    async def _delete_and_restart(self) -> None:
        """The only machine of a stream is away while that is deleted, and begins again with what it knew."""
        if self._is_cut:
            return
        self._is_cut = True
        self._made += 1
        stream = Stream(name=f"T{self._made}", replicas=1, load_per_s=10, is_read=True)
        if await self._clients.create(stream):
            self._publish(stream)
            await self._delete_while_away(stream)
        self._is_cut = False

    async def _delete_while_away(self, stream: Stream) -> None:
        await self._world.sleep(self._world.between(300 * MS, 800 * MS))
        key = StreamKey("$G", stream.name)
        holders = {
            node
            for life in self._cluster.alive()
            if life.node is not None and (row := life.node.machine.table.get(key)) is not None
            for node in row.holders
        }
        for life in self._cluster.alive():
            if life.mesh.node_id in holders:
                self._cluster.kill(life.name, power=False)
                await self._clients.delete(stream)
                await self._begin_alone(life.name)

    async def _delete_behind_a_cut(self) -> None:
        """A stream of one replica is deleted while its machine has lost one link, beside the meta leader, or all."""
        if self._needs_three:
            return
        self._made += 1
        stream = Stream(name=f"T{self._made}", replicas=1, load_per_s=3)
        pairs = await self._cut_beside_the_meta_leader(stream)
        if pairs is None:
            return
        self._publish(stream)
        await self._world.sleep(self._world.between(0, 3000 * MS))
        await self._clients.delete(stream)
        await self._clients.publish_to_deleted(stream)
        self._cluster.net.heal(pairs)

    async def _update_behind_a_cut(self) -> None:
        """The subjects of a stream of one replica go to another stream, while its machine has lost a link, or all."""
        if self._needs_three:
            return
        self._made += 1
        former = Stream(name=f"U{self._made}", replicas=1, prefix=f"V{self._made}")
        pairs = await self._cut_beside_the_meta_leader(former)
        if pairs is None:
            return
        await self._world.sleep(self._world.between(0, 3000 * MS))
        now = Stream(name=f"W{self._made}", replicas=1, prefix=former.prefix)
        if await self._clients.rename(former, f"X{self._made}") and await self._clients.create(now):
            self._world.counts["subjects moved behind a cut"] += 1
            await self._clients.publish_to_former(former, now)
        self._cluster.net.heal(pairs)

    async def _cut_beside_the_meta_leader(self, stream: Stream) -> list[tuple[str, str]] | None:
        """Have a stream, and its machine not hear the meta leader, or nobody; return the links that are lost."""
        holder = await self._clients.create(stream) and self._clients.holder_of(stream)
        leader = self._cluster.meta_leader()
        if not holder or leader in (None, holder):
            return None
        others = [leader] if self._world.chance(0.5) else [name for name in self._cluster.names if name != holder]
        pairs = [(holder, other) for other in others] + [(other, holder) for other in others]
        self._world.note(f"block {pairs}")
        self._cluster.net.block(pairs)
        return pairs

    async def _remove_server(self) -> None:
        """A machine is taken out of the cluster while it runs, or while it is away; its operator starts it again."""
        name = self._name()
        life = self._cluster.machines[name].life
        if len(self._cluster.names) < REMOVAL_MACHINES_MIN or life is None:
            return
        if self._world.chance(0.3):
            self._cluster.kill(name, power=False)
        # One that has yet to hear what it is counts as away: it asks to be admitted, and may be again by the answer.
        took_part = life.node is not None and life.node.parts.currency.is_proved
        if await self._clients.remove_server(name) and took_part and life.is_alive and life.node is not None:
            left = [row.config.name for row, replica in life.node.directory.replicas() if replica.is_leader]
            if left:
                raise ViolationError(f"{name} was removed, and leads {left}")
            self._world.counts["removed while running"] += 1
        await self._world.sleep(self._world.between(0, 2000 * MS))
        await self._restart(name, self._world.between(20 * MS, 500 * MS), power=False)

    async def _remove_for_good(self) -> None:
        """A machine is gone, and is taken out of the cluster: its replicas go to others. One of a run."""
        if self._is_removing or self._damaged or len(self._cluster.names) <= REMOVAL_MACHINES_MIN:
            return
        self._is_removing = True
        name = self._name()
        self._damaged.add(name)
        self._cluster.kill(name, power=True)
        self._cluster.gone.add(name)
        for _ in range(REMOVE_TRIES):
            if await self._clients.remove_server(name):
                self._world.counts["removed for good"] += 1
                return
            await self._world.sleep(500 * MS)
        self._cluster.gone.discard(name)  # nobody could say so: it comes back

    async def _restart_alone(self) -> None:
        await self._begin_alone(self._name())

    async def _begin_alone(self, name: str) -> None:
        """A machine begins while it hears nobody; clients reach it."""
        self._cluster.kill(name, power=self._world.chance(0.5))
        others = [other for other in self._cluster.names if other != name]
        pairs = [(name, other) for other in others] + [(other, name) for other in others]
        self._world.note(f"{name} is alone")
        self._cluster.net.block(pairs)
        await self._world.sleep(self._world.between(20 * MS, 500 * MS))
        self._cluster.start(name)
        await self._world.sleep(self._world.between(300 * MS, 3000 * MS))
        self._cluster.net.heal(pairs)

    async def _step_down(self) -> None:
        stream = self._stream()
        if stream is not None:
            await self._clients.step_down(stream)

    # Rolling restarts.

    async def restart_by_health(self) -> None:
        """One machine after the other, each when all say that they are healthy. Raises nothing when one never does."""
        for name in self._world.rng.sample(self._cluster.names, len(self._cluster.names)):
            if not await self._until_healthy():
                self._world.note("not healthy: no restart")
                return
            await self._cluster.restart(name, self._world.between(20 * MS, 800 * MS), power=self._world.chance(0.3))
            self._world.counts["restarts by health"] += 1

    async def _until_healthy(self) -> bool:
        with trio.move_on_after(HEALTHY_WITHIN_S):
            while True:
                if all([await _is_healthy(life) for life in self._cluster.lives]):
                    return True
                await trio.sleep(0.05)  # as a probe does
        return False


async def _is_healthy(life: "Life") -> bool:
    """What a probe of `/healthz` would be told."""
    if not life.is_alive or life.node is None or not life.is_listening:
        return False
    return (await life.node.health()).http_status == HTTP_OK
