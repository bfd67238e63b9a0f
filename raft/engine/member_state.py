"""What one member of one group keeps, and how its role and term change, whatever engine decides. Pure, deterministic.

Handlers of messages and deciders work on this state; `Member` (member.py) adds the events and calls the handlers. The
term changes in `enter_term` alone; leadership begins in `lead` and ends in `follow`. The rule numbers are those of
docs/raft.md.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from jetraft.raft.engine.election_timer import ElectionTimer
from jetraft.raft.engine.leadership import Leadership
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Resigned, Role, SnapshotOffer
from jetraft.raft.engine.port import CoreSetup
from jetraft.raft.engine.ready import Effects
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog

if TYPE_CHECKING:
    from jetraft.raft.engine.ballot import Ballot
    from jetraft.raft.engine.decider import Decider


class MemberState:
    """The state of one member and its changes of role; `Member` adds the events."""

    __slots__ = (
        "_snapshot_offer",
        "ballot",
        "claimed",
        "commit_index",
        "configurations",
        "decider",
        "effects",
        "handed_by",
        "has_handed_over",
        "is_removed",
        "leader",
        "leadership",
        "log",
        "node_id",
        "pre_ballot",
        "progress",
        "reluctant",
        "role",
        "setup",
        "term",
        "timer",
        "told_index",
        "up",
        "verified_index",
    )

    def __init__(  # noqa: PLR0913  (what a member is made of)
        self,
        setup: CoreSetup,
        *,
        decider: "Decider[MemberState]",
        log: GroupLog,
        configurations: ConfigurationHistory,
        commit_index: int,
        snapshot_offer: Callable[[int], SnapshotOffer | None],
    ) -> None:
        self.setup = setup
        self.decider = decider
        self._snapshot_offer = snapshot_offer
        self.node_id = setup.node_id
        self.log = log
        self.progress = log.progress
        self.configurations = configurations
        self.term = log.hard_state.term
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.leadership: Leadership | None = None  # exactly while leader
        self.ballot: Ballot | None = None  # of the present term, while asking for votes; a pre-vote leaves it alone
        self.pre_ballot: Ballot | None = None  # of the next term, while asking whether that could be won
        self.timer = ElectionTimer(setup)
        self.claimed = False  # the leader spoke in this link session
        self.told_index: int | None = None  # the commit index that it spoke of last, since the claim began
        self.is_removed = False  # a leader has said so, and none has claimed the group since
        self.commit_index = commit_index
        self.verified_index = 0  # the log equals that of this term's leader up to here
        self.up: set[NodeId] = set()  # nodes with a link session
        self.reluctant = False  # waits longer than others before it stands
        self.handed_by: NodeId | None = None  # as leader: the leader before, if that one had asked for it
        self.has_handed_over = False  # it was the leader before, and had asked another member to lead
        self.effects = Effects(log, role=self.role, term=self.term, leader=self.leader)

    @property
    def members_may_change(self) -> bool:
        """Whether `change_members` ever succeeds with this engine."""
        return self.decider.members_may_change

    @property
    def vote(self) -> NodeId | None:
        """Whom this member voted for in the current term."""
        return self.log.hard_state.vote

    @property
    def applicable_index(self) -> int:
        """The highest index that may be applied: committed and durable here (rule 5)."""
        commit_index, durable_index = self.commit_index, self.progress.durable_index
        return commit_index if commit_index < durable_index else durable_index  # noqa: FURB136  (min() takes 200 ns)

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.configurations.current

    @property
    def has_leader(self) -> bool:
        """Whether votes are refused because a leader is alive (rule 18)."""
        return self.leadership is not None or self.claimed

    # Roles and terms.

    def enter_term(self, term: int, now_ns: int) -> None:
        """The log's hard state is of a higher term; what was promised in a lower one and has not left yet is void."""
        assert term > self.term
        self.term, self.verified_index = term, 0
        self.effects.void_promises()
        self.note_promise(now_ns)

    def note_promise(self, now_ns: int) -> None:
        """Term or vote may have been set: until they are durable this member waits for nothing else (rule 41)."""
        if self.log.hard_state_token > self.log.durable_token:
            self.timer.promise(now_ns)

    def follow(self, leader: NodeId | None, now_ns: int) -> None:
        """Be a follower in the current term, of `leader` when it is known."""
        if self.leadership is not None:
            for node in self.leadership.replication.peers:
                self.effects.send_now(node, Resigned(term=self.leadership.term))
            self.has_handed_over = self.leadership.transfer is not None and self.leadership.transfer.told
            self.leadership = None
        self.role, self.leader = Role.FOLLOWER, leader
        self.ballot = self.pre_ballot = None
        self.claimed = False
        self.restart_timer(now_ns)

    def lead(self, now_ns: int, *, noop_index: int | None = None) -> None:
        """The election is won. `noop_index`: where the decider has appended the no-op of the term already."""
        assert self.role is Role.CANDIDATE
        self.role, self.leader = Role.LEADER, self.node_id
        if self.ballot is None or not self.ballot.transfer:
            self.handed_by = None
        self.has_handed_over = False
        self.ballot = self.pre_ballot = None
        self.timer.stop()
        self.timer.ballots = 0
        self.leadership = Leadership(
            self.setup,
            log=self.log,
            term=self.term,
            configurations=self.configurations,
            up=self.up,
            commit_index=self.commit_index,
            now_ns=now_ns,
            append=partial(self.decider.propose, self),
            send=self.effects.send_in_term,
            snapshot_offer=self._snapshot_offer,
            noop_index=noop_index,
        )

    def restart_timer(self, now_ns: int) -> None:
        """Wait for a leader for a random while; for a long one when this member was told that none is to come."""
        if not self.may_stand:
            self.timer.stop()
        elif self.is_removed:
            self.timer.wait_slowly(now_ns)
        else:
            self.timer.wait(now_ns, is_reluctant=self.reluctant)

    @property
    def is_preferred(self) -> bool:
        """Whether the others would rather have this one: the group is new, and was given to it."""
        return self.setup.eager and self.log.last_index == 0

    @property
    def is_founder(self) -> bool:
        """Whether the group is this member alone, and nothing was ever written in it.

        Its vote need not be durable before it leads (decision 116): there is no other member that it could give it to
        or speak to, no entry that it could contradict, and what it writes is durable with the vote or not at all.
        """
        return self.configuration.members == (self.node_id,) and not self.log.last_index and self.term == 1

    @property
    def may_stand(self) -> bool:
        """Only voters stand for election: a learner waits to be promoted, a removed member for its removal."""
        return self.node_id in self.configuration.voters
