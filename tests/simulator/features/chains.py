"""A chained stream: an auditor's own tree, of the messages that were committed, says what every head has to be.

On any node, at any moment, whatever it has restored or caught up. Leaders are asked for heads and proofs meanwhile, and
what they said of a size they say of it for ever.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from jetraft.api.cli.chain_tree import AuditTree
from jetraft.cluster.streams.gets.chain_reading import Consistency, Inclusion, read_chain
from jetraft.store.model import message
from tests.simulator.features.batches import block
from tests.simulator.features.coroutines import drive
from tests.simulator.features.feature import INBOX, Feature, Stored
from tests.simulator.world import ViolationError, World
from tests.store.stream import naive_merkle as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.store.model.config import StreamConfig
    from tests.simulator.host import Host


class Chains(Feature):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._tree = AuditTree()
        self._heads = {0: self._tree.head()}  # by size
        self._leaves: dict[int, bytes] = {}  # by sequence
        self._told: dict[int, bytes] = {}  # what leaders said, by size
        self._numbers = 0

    def configure(self, config: StreamConfig) -> StreamConfig:
        return attrs.evolve(
            super().configure(config), metadata={"jetraft.chain": "sha256"}, deny_delete=True, deny_purge=True
        )

    def start(self) -> None:
        self.often(8, self._publish)
        self.often(20, self._look)
        self.often(4, self._ask)

    def before_fault(self) -> None:
        self._publish()
        self._ask()

    def _publish(self) -> None:
        for host in self.leaders():
            self._numbers += 1
            fields = {message.MSG_ID: b"h%d" % self._numbers, b"Colour": b"red"}
            reply = INBOX + b"h.%d" % self._numbers
            host.publish(b"s.h", reply=reply, hdr=block(fields), payload=b"with headers %d" % self._numbers)

    # The log.

    def on_messages(self, messages: Sequence[Stored]) -> None:
        for stored in messages:
            if stored.seq > self._tree.next_seq:
                self._tree.add_gap(self._tree.next_seq, stored.seq - 1)
            self._tree.add(stored.seq, stored.ts_ns, stored.subject, stored.hdr, stored.payload)
            self._leaves[stored.seq] = naive.message(*stored)
            self._heads[self._tree.size] = self._tree.head()

    # Nodes and leaders.

    def _look(self) -> None:
        for host in self.hosts.values():
            self._check(host)

    def _check(self, host: Host) -> None:
        if host.replica is None or host.replica.machine.config is None:
            return
        chain = host.replica.machine.chain
        if chain is None:
            raise ViolationError(f"the stream has no chain on {host.node_id}")
        size, head = chain.size, chain.tree.root()
        if self._heads.get(size) != head:
            raise ViolationError(f"the head of size {size} is {head.hex()} on {host.node_id}")
        self.world.counts["heads"] += 1

    def _ask(self) -> None:
        for host in self.leaders():
            assert host.replica is not None
            machine = host.replica.machine
            if machine.chain is None or not machine.chain.size:
                continue
            reading = read_chain(machine, 0)
            size, head = reading.size, machine.chain.tree.root()
            if self._told.setdefault(size, head) != head:
                raise ViolationError(f"the head of size {size} was {self._told[size].hex()}, and is {head.hex()} now")
            older = self.world.rng.choice(sorted(self._told))
            seq = self.world.rng.choice(sorted(self._leaves))
            if older <= size:
                drive(reading.consistency(older), partial(self._on_consistency, older, size))
            if machine.chain.leaf_of(seq) is not None:
                drive(reading.proof(seq), partial(self._on_inclusion, seq, size))

    def _on_consistency(self, older: int, newer: int, found: Consistency | Exception) -> None:
        if isinstance(found, Exception):
            raise ViolationError(f"there is no proof from {older} to {newer}: {found}")
        heads = self._told[older], self._told[newer]
        if (found.older_head, found.head) != heads or not naive.consistent(older, newer, found.path, *heads):
            raise ViolationError(f"the proof from {older} to {newer} does not fit the heads that were told")
        self.world.counts["consistency proofs"] += 1

    def _on_inclusion(self, seq: int, size: int, found: Inclusion | Exception) -> None:
        if isinstance(found, Exception):
            raise ViolationError(f"there is no proof of message {seq}: {found}")
        leaf, head = self._leaves[seq], self._told[size]
        if found.leaf != leaf or not naive.included(leaf, found.leaf_index, size, found.path, head):
            raise ViolationError(f"the proof of message {seq} does not fit the head that was told")
        self.world.counts["inclusion proofs"] += 1

    # The end.

    def judge(self) -> str | None:
        self._look()
        leader = self.some_leader()
        assert leader is not None
        assert leader.replica is not None
        chain = leader.replica.machine.chain
        if chain is None or chain.size != self._tree.size:
            return f"liveness: the chain of the leader does not have {self._tree.size} leaves"
        return None
