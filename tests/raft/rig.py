"""One core under test, with its peers played by the test: messages in, messages out, fsyncs when told."""

import random
from typing import Any, TypedDict

from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory, SettledUpTo
from jetraft.raft.engine.messages import Message, Role, SnapshotOffer, VoteGrant
from jetraft.raft.engine.port import CoreSetup, Limits
from jetraft.raft.outbox import RaftOutbox
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, HardState

INCARNATION = 7
A, B, C, D, E = (NodeId(name) for name in "ABCDE")


def role_of(rig: "Rig") -> Role:
    """What the core is now: for tests that ask twice, as a type checker takes an attribute for what it was."""
    return rig.core.role


def entry(index: int, term: int, body: bytes = b"x", kind: int = Kind.META) -> Entry:
    frame = seal(kind, index=index, term=term, incarnation=INCARNATION, body=body)
    return Entry(index=index, term=term, kind=kind, frame=frame)


def entries(*terms: int, first: int = 1) -> list[Entry]:
    """Entries of these terms from index `first` on."""
    return [entry(index, term) for index, term in enumerate(terms, first)]


class RigOptions(TypedDict, total=False):
    """What a test says to a rig by name."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...]
    log: list[Entry]
    term: int
    vote: NodeId
    commit_index: int
    limits: Limits
    eager: bool
    settled: SettledUpTo | None


class Rig:
    """Node A of a group; time stands still unless the test moves `now_ns`."""

    def __init__(  # noqa: PLR0913  (each test says what matters to it)
        self,
        *,
        voters: tuple[NodeId, ...] = (A, B, C),
        learners: tuple[NodeId, ...] = (),
        log: list[Entry] | None = None,
        term: int = 0,
        vote: NodeId | None = None,
        commit_index: int = 0,
        limits: Limits | None = None,
        eager: bool = False,
        settled: SettledUpTo | None = None,
    ) -> None:
        self.now_ns = 1_000_000_000
        self.outbox = RaftOutbox()
        self.log = MemLog(durable_on_submit=False)
        if log:
            self.log.append(log)
        if term:
            self.log.set_hard_state(HardState(term=term, vote=vote))
        self.sync_log()
        self.offer: SnapshotOffer | None = None
        setup = CoreSetup(
            node_id=A,
            incarnation=INCARNATION,
            seal=seal,
            rng=random.Random(1),
            limits=limits or Limits(),
            eager=eager,
        )
        self.core = create_engine(
            setup,
            log=self.log,
            configurations=ConfigurationHistory(Configuration(voters=voters, learners=learners), settled=settled),
            commit_index=commit_index,
            snapshot_offer=lambda _term: self.offer,
        )
        for node in (*voters, *learners):
            if node != A:
                self.core.peer_up(node, self.now_ns)

    def sync_log(self) -> None:
        self.log.submit()
        self.log.complete()

    def sync(self) -> None:
        """The fsync of everything written so far is done."""
        self.sync_log()
        self.outbox.put(self.core.take_ready())
        self.outbox.release(self.log.durable_token)
        self.core.persisted(self.now_ns)

    def step(self, sender: NodeId, message: Message) -> None:
        self.core.step(sender, message, self.now_ns)

    def flush(self) -> None:
        self.core.flush(self.now_ns)

    def sent(self, kind: type[Any] | None = None) -> list[tuple[NodeId, Any]]:
        """What has left since the last look, of one type or of all."""
        self.outbox.put(self.core.take_ready())
        return [(to, message) for to, message in self.outbox.take_sends() if kind is None or isinstance(message, kind)]

    def offered(self) -> tuple[NodeId, SnapshotOffer] | None:
        """The snapshot that shall be fetched since the last look."""
        self.outbox.put(self.core.take_ready())
        return self.outbox.take_offer()

    def tick_at_deadline(self) -> None:
        deadline_ns = self.core.deadline_ns
        assert deadline_ns is not None
        self.now_ns = max(self.now_ns, deadline_ns)
        self.core.tick(self.now_ns)

    def make_leader(self) -> "Rig":
        """Win an election the long way: pre-votes, durable own vote, votes."""
        self.core.start(self.now_ns)
        if self.core.pre_ballot is None and self.core.role is Role.FOLLOWER:
            self.tick_at_deadline()
        others = [voter for voter in self.core.configuration.voters if voter != A]
        if others:
            from jetraft.raft.engine.messages import PreVoteGrant  # noqa: PLC0415  (only here)

            for voter in others:
                self.step(voter, PreVoteGrant(term=self.core.term + 1))
        self.sync()
        for voter in others:
            self.step(voter, VoteGrant(term=self.core.term))
        assert self.core.role is Role.LEADER
        return self
