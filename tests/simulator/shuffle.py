"""A directed generator: engines alone, and an adversary who delivers their messages in any order, twice, or never.

The runs of `run` are mild where a rule needs one certain message to be late: most of their messages arrive in order.
Here there is no time and no link; what was sent lies in a bag, and luck draws what happens next: one message of the bag
arrives, and may stay in it; somebody's fsync ends; a link is reset; a timer runs out; a process crashes and keeps what
was durable; a leader is given a command. Elections are frequent, and messages of long ago arrive in their midst. The
checkers are the same. A run takes some milliseconds, so a rule that falls once in a hundred of them falls soon.
"""

import random
from typing import TYPE_CHECKING

import attrs

from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Message, Role
from jetraft.raft.engine.port import CoreSetup, Engine, EngineFactory, Limits, Proposal
from jetraft.raft.outbox import RaftOutbox
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.ids import NodeId
from tests.simulator.checkers import Checker
from tests.simulator.kept import Kept, synced
from tests.simulator.world import ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 700
BAG_MAX = 80  # more than that were never late, but lost
INCARNATION = 7


@attrs.define(eq=False)
class Member:
    """One process of one node, and what its disk would keep."""

    node: NodeId
    process: int
    log: MemLog
    core: Engine
    kept: Kept
    outbox: RaftOutbox = attrs.Factory(RaftOutbox)
    led_term: int = 0
    committed: int = 0


class Shuffle:
    """One seed."""

    def __init__(self, seed: int, *, engine: EngineFactory = create_engine) -> None:
        self.rng = random.Random(seed)
        self._engine = engine
        self._checker = Checker(World(seed))
        self._nodes = tuple(NodeId(f"node000{number}") for number in range(1, self.rng.choice((3, 3, 5)) + 1))
        self._now_ns = 1_000_000_000
        self._bag: list[tuple[NodeId, NodeId, Message]] = []
        self._members: dict[NodeId, Member] = {}
        self.steps = 0
        self.committed = 0

    def run(self) -> str | None:
        """Play the seed; what was violated, or None."""
        try:
            for node in self._nodes:
                self._start(node, 1, Kept())
            while self.steps < STEPS:
                self.steps += 1
                self._now_ns += self.rng.randrange(NS_PER_MS)
                member = self._members[self.rng.choice(self._nodes)]
                self._one(member)
        except (ViolationError, AssertionError, KeyError) as problem:
            return f"violation: step {self.steps}: {problem!r}"
        self.committed = len(self._checker.committed)
        return None

    def _one(self, member: Member) -> None:
        """Something happens, at this member or with a message."""
        events: list[tuple[int, Callable[[Member], None]]] = [
            (70, self._deliver),
            (15, self._sync),
            (5, self._propose),
            (5, self._lose_link),
            (4, self._time_out),
            (1, self._crash),
        ]
        kind = self.rng.choices([event for _, event in events], [weight for weight, _ in events])[0]
        kind(member)

    def _deliver(self, _member: Member) -> None:
        if not self._bag:
            return
        place = self.rng.randrange(len(self._bag))
        sender, to, message = self._bag[place]
        if self.rng.random() > 0.15:
            self._bag[place] = self._bag[-1]
            self._bag.pop()
        receiver = self._members[to]
        receiver.core.step(sender, message, self._now_ns)
        self._look(receiver)

    def _sync(self, member: Member) -> None:
        member.kept = synced(member.log)
        member.outbox.put(member.core.take_ready())
        member.outbox.release(member.log.durable_token)
        member.core.persisted(self._now_ns)
        self._look(member)

    def _propose(self, member: Member) -> None:
        if member.core.accepts_proposals:
            member.core.propose([Proposal(kind=Kind.META, body=b"%d" % self.steps)])
            self._look(member)

    def _lose_link(self, member: Member) -> None:
        """Both ends begin a new session; who followed looks for a leader again."""
        other = self.rng.choice(self._nodes)
        if other == member.node:
            return
        for here, there in ((member.node, other), (other, member.node)):
            end = self._members[here]
            end.core.peer_down(there, self._now_ns)
            end.core.peer_up(there, self._now_ns)
            self._look(end)

    def _time_out(self, member: Member) -> None:
        deadline_ns = member.core.deadline_ns
        if deadline_ns is not None:
            self._now_ns = max(self._now_ns, deadline_ns)
            member.core.tick(self._now_ns)
            self._look(member)

    def _crash(self, member: Member) -> None:
        self._start(member.node, member.process + 1, member.kept)

    def _start(self, node: NodeId, process: int, kept: Kept) -> None:
        log = kept.opened()
        self._checker.watch_log(log)
        setup = CoreSetup(
            node_id=node,
            incarnation=INCARNATION,
            seal=seal,
            rng=random.Random(self.rng.getrandbits(32)),
            limits=Limits(append_bytes_max=150, window_bytes=600),
        )
        core = self._engine(
            setup,
            log=log,
            configurations=ConfigurationHistory(Configuration(voters=self._nodes)),
            commit_index=0,
            snapshot_offer=lambda _term: None,
        )
        member = self._members[node] = Member(node=node, process=process, log=log, core=core, kept=kept)
        core.start(self._now_ns)
        for other in self._nodes:
            if other != node:
                core.peer_up(other, self._now_ns)
        self._look(member)

    def _look(self, member: Member) -> None:
        """End the member's turn: take what it sends, see what it leads and commits."""
        core = member.core
        core.flush(self._now_ns)
        member.outbox.put(core.take_ready())
        self._bag += [(member.node, to, message) for to, message in member.outbox.take_sends()]
        while len(self._bag) > BAG_MAX:
            self._bag.pop(self.rng.randrange(len(self._bag)))
        if core.role is Role.LEADER and core.term != member.led_term:
            member.led_term = core.term
            self._checker.on_leader(core.term, member.node, member.process, member.log)
        top = core.applicable_index
        if core.commit_index < member.committed:
            raise ViolationError(f"{member.node}: commit index goes back to {core.commit_index}")
        if top > member.committed:
            for entry in member.log.entries(member.committed + 1, top, 1 << 30):
                self._checker.on_commit(member.node, core.term, entry)
            member.committed = top
