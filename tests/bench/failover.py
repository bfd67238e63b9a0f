"""Thousands of groups lose their leader at once, on this machine's disk: how long until each has another.

PYTHONPATH=src:. python -m tests.bench.failover [--groups 1000,3000] [--tail] [--directory /var/tmp]

Three nodes in one process: engine, groups, managers, logs, ledgers and writer threads are real, the links are calls.
The node that leads them all (its logs are in memory, as it only has to die) is unlinked; the two that are left share
one processor, and each has its own ledger and logs on the disk. With `--tail` each group has an entry at that moment
that is not committed yet, so each leader writes a no-op. Also shown: the longest turn, and what a turn is that tells
groups of a link.
"""

import argparse
import gc
import random
import select
import shutil
import tempfile
import time
from collections import deque
from pathlib import Path

import attrs

from jetraft.api.startup.collector import GC_YOUNG_OBJECTS
from jetraft.api.turns.clock import SystemClock
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.manager import Manager
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import LabLinks, ListMachine

A, B, C = NODES = (NodeId("AAAAAAAA"), NodeId("BBBBBBBB"), NodeId("CCCCCCCC"))
LIMIT_NS = 120 * NS_PER_S
LOOK_NS = 5 * NS_PER_MS
FLOORS_NS = NS_PER_S


@attrs.define
class Cluster:
    """The lab's links (tests/raft/lab.py) over real logs and real time."""

    root: Path
    clock: SystemClock = attrs.Factory(SystemClock)
    queue: deque[tuple[NodeId, NodeId, int, bytes]] = attrs.Factory(deque)
    links: dict[NodeId, LabLinks] = attrs.Factory(dict)
    managers: dict[NodeId, Manager] = attrs.Factory(dict)
    writers: dict[NodeId, Writer] = attrs.Factory(dict)
    ledgers: dict[NodeId, Ledger] = attrs.Factory(dict)
    cut: bool = False
    longest_turn_ns: int = 0
    floors_ns: int = 0

    def __attrs_post_init__(self) -> None:
        for seed, node in enumerate(NODES):
            self.links[node] = LabLinks(self, node)  # type: ignore[arg-type]
            setting = GroupSetting(node_id=node, seal=seal, rng=random.Random(seed))
            self.managers[node] = Manager(setting, links=self.links[node], clock=self.clock)
            if node != A:
                self.writers[node] = Writer()
                self.ledgers[node] = Ledger.open(LocalDisk(self.writers[node]), self.root / node)

    def is_linked(self, one: NodeId, other: NodeId) -> bool:
        """See LabLinks."""
        return one != other and not (self.cut and A in {one, other})

    def create(self, count: int) -> list[GroupId]:
        """So many groups, which A shall lead."""
        names = [GroupId(f"S-R3F-{number:08d}") for number in range(count)]
        cache = BlockCache(64 << 20)
        for incarnation, name in enumerate(names, 1):
            spec = GroupSpec(group_id=name, incarnation=incarnation, members=NODES, preferred_leader=A)
            self.managers[A].create(spec, MemLog(), ListMachine())
            for node in (B, C):
                identity = Identity(node_id=node, group_id=name, incarnation=incarnation)
                log = open_log(self.ledgers[node], self.root / node / "groups" / name, identity, cache)
                self.managers[node].create(spec, log, ListMachine())
            self.turn()
        return names

    def turn(self) -> None:
        """One turn of each node, and what it has sent."""
        for node, manager in self.managers.items():
            if self.cut and node == A:
                continue
            began_ns = time.monotonic_ns()
            if node in self.writers:
                self.writers[node].drain()
            manager.tick(self.clock.mono_ns())
            manager.flush()
            self.longest_turn_ns = max(self.longest_turn_ns, time.monotonic_ns() - began_ns)
        if self.clock.mono_ns() - self.floors_ns > FLOORS_NS:
            self.floors_ns = self.clock.mono_ns()
            for node in (B, C):
                self.managers[node].note_floors()
        for _ in range(len(self.queue)):
            sender, to, channel, payload = self.queue.popleft()
            if self.is_linked(sender, to):
                self.links[to].handlers[channel](sender, memoryview(payload))
        if not self.queue:
            select.select([writer.fileno() for writer in self.writers.values()], [], [], 0.001)

    def run_until_led(self, names: list[GroupId], nodes: tuple[NodeId, ...]) -> list[int]:
        """How long each group had no leader among these, in nanoseconds, from now on."""
        began_ns = looked_ns = time.monotonic_ns()
        waiting, waits_ns = set(names), list[int]()
        while waiting and looked_ns < began_ns + LIMIT_NS:
            self.turn()
            if time.monotonic_ns() - looked_ns < LOOK_NS:
                continue
            looked_ns = time.monotonic_ns()
            led = [name for name in waiting if any(self.managers[node].groups[name].is_leader for node in nodes)]
            waits_ns += [looked_ns - began_ns] * len(led)
            waiting.difference_update(led)
        assert not waiting, f"{len(waiting)} of {len(names)} groups have no leader"
        return waits_ns

    def unlink_leader(self) -> int:
        """A is gone; returns how long the longer of the two turns is that hears of it, in nanoseconds."""
        self.cut = True
        longest_ns = 0
        for node in (B, C):
            began_ns = time.monotonic_ns()
            self.links[node].on_peer_down.emit(A)
            longest_ns = max(longest_ns, time.monotonic_ns() - began_ns)
        return longest_ns

    def stop(self) -> None:
        """End the threads."""
        for writer in self.writers.values():
            writer.stop()


def measure(count: int, directory: str, *, tail: bool) -> None:
    """One failover of so many groups."""
    root = Path(tempfile.mkdtemp(prefix="jetraft-failover-", dir=directory))
    cluster = Cluster(root)
    try:
        names = cluster.create(count)
        cluster.run_until_led(names, NODES)
        while any(not cluster.managers[A].groups[name].is_leader for name in names):
            for node in (B, C):
                for group in cluster.managers[node].groups.values():
                    if group.is_leader:
                        group.transfer_leadership(A)
            cluster.turn()
        for name in names:
            cluster.managers[A].groups[name].propose(Proposal(kind=Kind.META, body=b"entry"))
        until_ns = time.monotonic_ns() + 5 * NS_PER_S
        while time.monotonic_ns() < until_ns:
            cluster.turn()
        if tail:
            for name in names:
                cluster.managers[A].groups[name].propose(Proposal(kind=Kind.META, body=b"tail"))
            cluster.managers[A].flush()
            for _ in range(len(cluster.queue)):
                sender, to, channel, payload = cluster.queue.popleft()
                cluster.links[to].handlers[channel](sender, memoryview(payload))
        gc.collect()  # as the server does at its start (api/server.py)
        gc.freeze()
        gc.set_threshold(GC_YOUNG_OBJECTS, *gc.get_threshold()[1:])
        before = [cluster.ledgers[node].statistics().batches for node in (B, C)]
        cluster.longest_turn_ns = 0
        cpu_s = time.process_time()
        hears_ns = cluster.unlink_leader()
        waits_ns = sorted(cluster.run_until_led(names, (B, C)))
        cpu_s = time.process_time() - cpu_s
        batches = max(
            cluster.ledgers[node].statistics().batches - was for node, was in zip((B, C), before, strict=True)
        )
        row = [waits_ns[count // 2], waits_ns[count * 99 // 100], waits_ns[-1], hears_ns, cluster.longest_turn_ns]
        cells = " | ".join(f"{value / NS_PER_MS:.0f}" for value in row)
        print(f"| {count} | {'yes' if tail else 'no'} | {cells} | {1e6 * cpu_s / 2 / count:.0f} | {batches} |")
    finally:
        cluster.stop()
        shutil.rmtree(root)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--groups", default="1000,3000", help="how many, one row each (default: %(default)s)")
    parser.add_argument("--tail", action="store_true", help="each has an entry that is not committed")
    parser.add_argument("--directory", default="/var/tmp", help="on the disk to be measured")
    options = parser.parse_args()
    print("| groups | tail | p50 ms | p99 ms | all ms | told ms | longest turn ms | CPU us a group | ledger batches |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count in map(int, options.groups.split(",")):
        measure(count, options.directory, tail=options.tail)


if __name__ == "__main__":
    main()
