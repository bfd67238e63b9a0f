"""One member of one group: its events, whatever engine decides. Pure and deterministic.

The state and the changes of role are in `member_state`. The effects of messages are in the files of handlers that the
table `HANDLERS` names: `elections` (finding a leader), `following` (a leader's messages), `answers` (answers to one).
When an election begins is decided in `candidacy` and `election_timer`, votes are collected in `ballot`. What the two
engines decide in different ways is behind `decider`. The rule numbers are those of docs/raft.md.

The log is written through its port: buffered at once, durable later, and a token names how far. A message that promises
something waits for the token that covers every log write made before it; only appends wait for less, the term and vote
(rules 2 and 3). `effects` collects what is to be sent, and `take_ready` hands it to the shell as one value.
"""

from collections.abc import Sequence

from jetraft.raft.engine import candidacy, elections
from jetraft.raft.engine.handlers import HANDLERS
from jetraft.raft.engine.member_state import MemberState
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Message, Resigned
from jetraft.raft.engine.port import PeerProgress, Proposal
from jetraft.raft.engine.ready import NOTHING, Ready
from jetraft.store.model.ids import NodeId


class Member(MemberState):
    """Implements jetraft.raft.engine.port.Engine over a decider."""

    __slots__ = ()

    # What the shell reads.

    @property
    def term_start_index(self) -> int:
        """As leader: the state is complete when this index is applied. Else 0."""
        return self.leadership.term_start_index if self.leadership is not None else 0

    @property
    def accepts_proposals(self) -> bool:
        """Whether this member leads and no transfer is running."""
        return self.leadership is not None and self.leadership.transfer is None

    @property
    def told_commit_index(self) -> int | None:
        """The commit index that the leader told last in this link session; None without a leader's claim."""
        return self.told_index if self.claimed else None

    @property
    def confirmed_read_round(self) -> int:
        """The newest read round that a majority answered; 0 when not leader."""
        return self.leadership.confirmed_read_round if self.leadership is not None else 0

    def is_majority_with(self, node: NodeId, term: int) -> bool:
        """Whether this member leads in that term, and the node and it are a majority of the voters (rule 21)."""
        return self.leadership is not None and term == self.term and self.configuration.has_quorum([self.node_id, node])

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` is due; None for a member that waits for events only."""
        if self.leadership is not None:
            return self.leadership.deadline_ns(self.commit_index)
        due_ns = self.timer.deadline_ns
        if due_ns is None:
            return None
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None:
                due_ns = min(due_ns, ballot.resend_ns)
        return due_ns

    def peer_progress(self) -> list[PeerProgress]:
        """The leader's knowledge of the members; nothing elsewhere."""
        return self.leadership.replication.report() if self.leadership is not None else []

    # Events.

    def start(self, now_ns: int) -> None:
        """Begin: a group of one stands for election at once, others wait for a leader or their timer."""
        if self.configuration.voters == (self.node_id,):
            elections.stand(self, now_ns, transfer=False)
        elif self.is_preferred:
            elections.ask_pre_votes(self, now_ns)
        else:
            self.restart_timer(now_ns)
            candidacy.look_soon(self, now_ns)

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message arrived. Raises LogDivergedError, after which the group must stop."""
        HANDLERS[type(message)](self, sender, message, now_ns)

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        if self.leadership is not None:
            if self.leadership.tick(now_ns):
                self.decider.step_down(self, now_ns)
            return
        due_ns = self.timer.deadline_ns
        if due_ns is None:
            return
        if due_ns <= now_ns:
            elections.look_for_leader(self, now_ns)
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None and ballot.resend_ns <= now_ns:
                elections.ask(self, ballot, now_ns)

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved: count this member's vote and entries."""
        if self.timer.pending_ns is not None and self.log.hard_state_token <= self.progress.durable_token:
            elections.on_promise_kept(self, now_ns)
        self.decider.count_durable(self, now_ns)

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal; returns the index of the first."""
        assert self.leadership is not None, "only a leader proposes"
        return self.decider.propose(self, proposals)

    def flush(self, now_ns: int) -> None:
        """End of a turn: send the appends and commit notices that became due."""
        leadership = self.leadership
        if leadership is not None and leadership.replication.peers:  # who is alone has no one to tell or hand over to
            leadership.pump(now_ns, self.commit_index)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A new link session with the node began."""
        self.up.add(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=True, now_ns=now_ns)
            return
        for ballot in (self.ballot, self.pre_ballot):
            if ballot is not None:
                ballot.resend_ns = now_ns
        candidacy.look_soon(self, now_ns)

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """The link session ended: its claim and what was in flight are gone."""
        self.up.discard(node)
        if self.leadership is not None:
            self.leadership.link_changed(node, up=False, now_ns=now_ns)
        elif node == self.leader:
            candidacy.drop_claim(self, now_ns)

    def transfer(self, target: NodeId | None, now_ns: int) -> bool:
        """Hand leadership over, to the most advanced voter when `target` is None. Returns whether that has begun."""
        return self.leadership is not None and self.leadership.begin_transfer(target, now_ns) is not None

    def begin_read(self, now_ns: int) -> int:
        """Start a read round (rule 21): the commit index of now may be read when the round is confirmed."""
        assert self.leadership is not None, "only a leader confirms reads"
        return self.leadership.begin_read(now_ns)

    def change_members(self, configuration: Configuration, now_ns: int) -> int:
        """Append a configuration entry and return its index. Raises MembershipChangeRefusedError."""
        return self.decider.change_members(self, configuration, now_ns)

    def outlive(self, configuration: Configuration, term: int, now_ns: int) -> None:
        """Lead alone in a term beyond all others (raft/recovery/survivor.py)."""
        self.decider.outlive(self, configuration, term, now_ns)

    def forget_member(self, node: NodeId) -> None:
        """The member has lost its memory: what it acknowledged to this leader counts no more."""
        if self.leadership is not None and self.members_may_change:
            self.leadership.forget_member(node)

    def resign(self, now_ns: int) -> None:
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        if self.leadership is not None:
            self.follow(None, now_ns)
        elif self.leader is not None:
            self.effects.send_now(self.leader, Resigned(term=self.term))
        self.timer.stop()
        self.ballot = self.pre_ballot = None
        self.effects.void_promises()

    # Effects.

    def take_ready(self) -> Ready:
        """The effects of the events since the last call; NOTHING, which is one object, when there is nothing to do."""
        effects = self.effects
        if not effects.has_something and effects.told == (self.role, self.term, self.leader):
            return NOTHING  # what most calls end with: no object is made for it
        return effects.take(self.role, self.term, self.leader)
