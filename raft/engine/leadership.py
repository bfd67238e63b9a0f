"""One term of leadership: proposals, counting, the quorum check, transfer and linearizable reads.

It begins with a no-op of its term (only entries of its term are committed by counting, rule 16) and ends when
the core drops it: a higher term, or no majority in contact for a second (rule 19).

There is nothing to find out if everything that the new leader holds is known to be committed: it holds all that was
ever committed, so its state is complete, and the first entry that is proposed does what the no-op would. So a
thousand idle groups change their leader without writing to a thousand files. A change of members asks for the no-op all
the same: an entry of its term has to be committed before it (rule 28). So does a member whose log goes on where
this one ends: that was never committed, but a configuration there is in force at the member until it is cut.
"""

from collections.abc import Callable, Sequence

import attrs

from jetraft.raft.engine.disk_lag import DiskLag
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import (
    AppendAccepted,
    AppendRejected,
    Message,
    ReadProbeSeen,
    Resigned,
    SnapshotOffer,
    TransferNow,
)
from jetraft.raft.engine.port import CoreSetup, Proposal
from jetraft.raft.engine.read_rounds import ReadRounds
from jetraft.raft.engine.replication import PeerState, Replication
from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog

NEARLY_CAUGHT_UP_ENTRIES = 64  # a learner this close to the end may vote: the quorum will not wait long for it


class MembershipChangeRefusedError(Exception):
    """The configuration cannot change now: the message says which rule stands in the way."""


@attrs.define(slots=True)
class Transfer:
    """A leadership transfer under way; the target is told once, when it has everything."""

    target: NodeId
    deadline_ns: int
    waits_for_disk: bool  # of this node: the leader still owes answers for what is not durable here
    told: bool = False


class Leadership:
    """The state that a leader has and others have not."""

    def __init__(  # noqa: PLR0913  (what the member lends it)
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        term: int,
        configurations: ConfigurationHistory,
        up: set[NodeId],
        commit_index: int,
        now_ns: int,
        append: Callable[[Sequence[Proposal]], int],
        send: Callable[[NodeId, Message], None],
        snapshot_offer: Callable[[int], SnapshotOffer | None],
        noop_index: int | None = None,
    ) -> None:
        """`append` puts entries of this term into the log and returns the index of the first.

        `noop_index` is where the term's no-op stands already; None when this is to append it, if one is needed.
        """
        self._setup = setup
        self._log = log
        self._progress = log.progress
        self.term = term
        self._configurations = configurations
        self._up = up
        self._append = append
        self._send = send
        self._quorum_lost_ns: int | None = now_ns  # since when no majority is in contact; no member has answered yet
        self._renewal_ns = now_ns + setup.rng.randrange(setup.timing.renewal_min_ns, setup.timing.renewal_max_ns)
        self._disk_lag = DiskLag()
        self.transfer: Transfer | None = None
        self.replication = Replication(
            log=log,
            term=term,
            timing=setup.timing,
            limits=setup.limits,
            send=send,
            snapshot_offer=snapshot_offer,
        )
        self._reads = ReadRounds(setup.node_id, term=term, replication=self.replication, send=send)
        self._first_index = noop_index or log.last_index + 1  # where the entries of this term begin
        self._follow_members(next_index=self._first_index)
        self.term_start_index = log.last_index  # once this is applied the state is complete
        has_others = configurations.current.members != (setup.node_id,)
        if noop_index is None and (commit_index < log.last_index or (has_others and not log.last_index)):
            self._first_index = self.term_start_index = self._begin_term()
        self.check_contact(now_ns)

    # Entries.

    def _begin_term(self) -> int:
        """Append the no-op that makes everything before it committed as soon as it is (rule 16)."""
        return self.propose([Proposal(kind=Kind.NOOP)])

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal and return the first index. `pump` sends them."""
        return self._append(proposals)

    def quorum_index(self) -> int:
        """The highest index that may be committed by counting; 0 while none of this term has a majority."""
        configuration, index = self._configurations.current, self._progress.durable_index
        if configuration.voters != (self._setup.node_id,):
            index = self.replication.quorum_index(configuration, self._setup.node_id, index)
        return index if index >= self._first_index else 0

    def pump(self, now_ns: int, commit_index: int) -> None:
        """Send what became due."""
        self.replication.pump(now_ns, self._told_index(commit_index))
        if self._is_waited_for(now_ns):
            self.begin_transfer(None, now_ns, waits_for_disk=False)
        transfer = self.transfer
        if transfer is not None and not transfer.told and self._is_settled(transfer, commit_index):
            transfer.told = True
            self._send(transfer.target, TransferNow(term=self.term))

    def _is_settled(self, transfer: Transfer, commit_index: int) -> bool:
        """Whether the target has everything, and nothing waits for an answer of this leader (decision 92)."""
        peer, last_index = self.replication.peers.get(transfer.target), self._log.last_index
        if peer is None or peer.match_index != last_index or commit_index < last_index:
            return False
        return not transfer.waits_for_disk or self._progress.durable_index == last_index

    def _told_index(self, commit_index: int) -> int:
        """The commit index that members are told: never beyond what is durable here (rule 5).

        0 until the state here is complete: up to then more may be committed than is known, and a member that has
        applied what it was told would take itself for current (`Group.behind_entries`).
        """
        durable_index = self._progress.durable_index
        index = min(durable_index, commit_index)
        return index if index >= self.term_start_index else 0

    def _is_waited_for(self, now_ns: int) -> bool:
        """Whether only this member's disk has kept entries from being committed, for too long."""
        durable_index, others_index = self._progress.durable_index, 0
        if durable_index < self._log.last_index:
            others_index = self.replication.quorum_index(self._configurations.current, self._setup.node_id, 0)
        return self._disk_lag.note(now_ns, durable_index=durable_index, others_index=others_index)

    # Answers.

    def on_accepted(self, sender: NodeId, message: AppendAccepted, now_ns: int) -> bool:
        """The sender's log equals ours up to the verified index; returns whether that is more than was known."""
        peer = self.replication.heard(sender, now_ns)
        if peer is None:
            return False
        match_index = peer.match_index
        self.replication.accepted(peer, message.verified_index, now_ns)
        self.check_contact(now_ns)
        return peer.match_index > match_index

    def on_rejected(self, sender: NodeId, message: AppendRejected, now_ns: int) -> None:
        """The sender's log does not match ours at the point asked for; or it goes on where ours ends."""
        peer = self.replication.heard(sender, now_ns)
        if peer is not None and message.prev_index > self._log.last_index:
            if self._log.last_index < self._first_index:
                self._begin_term()  # there is something to find out after all: what the sender has is cut off
        elif peer is not None:
            self.replication.rejected(peer, message.prev_index, message.hint_index)
            self.check_contact(now_ns)

    def on_seen(self, sender: NodeId, now_ns: int) -> None:
        """The sender follows us."""
        if self.replication.heard(sender, now_ns) is not None:
            self.check_contact(now_ns)

    def on_gone(self, sender: NodeId, now_ns: int) -> None:
        """The sender takes no part any more (its disk failed, or the replica was removed)."""
        if self.replication.lose_contact(sender):
            self.check_contact(now_ns)

    # Contact with a majority.

    def link_changed(self, node: NodeId, *, up: bool, now_ns: int) -> None:
        """A link session began or ended."""
        self.replication.set_link(node, up=up)
        if not up:
            self._reads.hurry(now_ns)
        self.check_contact(now_ns)

    def check_contact(self, now_ns: int) -> None:
        """Note when contact with a majority was lost, or that it is back."""
        nodes = [self._setup.node_id, *self.replication.in_contact()]
        if self._configurations.current.has_quorum(nodes):
            self._quorum_lost_ns = None
        elif self._quorum_lost_ns is None:
            self._quorum_lost_ns = now_ns

    def _step_down_ns(self) -> int | None:
        return None if self._quorum_lost_ns is None else self._quorum_lost_ns + self._setup.timing.quorum_check_ns

    def tick(self, now_ns: int) -> bool:
        """Do what is due; returns whether leadership is over because a majority is out of contact."""
        self.replication.tick(now_ns)
        self._reads.tick(self._configurations.current, now_ns)
        if self._renewal_ns <= now_ns:
            self._renew(now_ns)
        if self.transfer is not None and self.transfer.deadline_ns <= now_ns:
            self.transfer = None
        step_down_ns = self._step_down_ns()
        return step_down_ns is not None and step_down_ns <= now_ns

    def _renew(self, now_ns: int) -> None:
        """Renew the claim with members that have not been heard for long; who does not answer is not in contact."""
        timing = self._setup.timing
        self.replication.renew(now_ns)
        self._renewal_ns = now_ns + self._setup.rng.randrange(timing.renewal_min_ns, timing.renewal_max_ns)
        self.check_contact(now_ns)

    def deadline_ns(self, commit_index: int) -> int | None:
        """When `tick` or `pump` has something to do without another event."""
        if not self.replication.peers and self._quorum_lost_ns is None and self.transfer is None:
            return None
        due_ns = self._renewal_ns
        for other_ns in (
            self.replication.deadline_ns(self._told_index(commit_index)),
            self._step_down_ns(),
            self._reads.due_ns,
            self._disk_lag.due_ns,
            None if self.transfer is None else self.transfer.deadline_ns,
        ):
            if other_ns is not None and other_ns < due_ns:
                due_ns = other_ns
        return due_ns

    # Transfer.

    def begin_transfer(self, target: NodeId | None, now_ns: int, *, waits_for_disk: bool = True) -> NodeId | None:
        """Hand leadership to `target`, or to the voter that has most; None when no voter can take it (rule 20)."""
        voters = self._configurations.current.voters
        ready = [
            peer
            for peer in self.replication.peers.values()
            if peer.node in voters and peer.up and peer.state is PeerState.REPLICATE and target in {None, peer.node}
        ]
        if not ready or self.transfer is not None:
            return None
        best = max(ready, key=lambda peer: peer.match_index)
        deadline_ns = now_ns + self._setup.timing.transfer_ns
        self.transfer = Transfer(target=best.node, deadline_ns=deadline_ns, waits_for_disk=waits_for_disk)
        return best.node

    # Linearizable reads.

    def begin_read(self, now_ns: int) -> int:
        """Start a round of contact; when it is confirmed, reads at the commit index of now are linearizable."""
        return self._reads.begin(self._configurations.current, now_ns)

    def on_read_seen(self, sender: NodeId, message: ReadProbeSeen, now_ns: int) -> None:
        """The sender still followed us when it got the probe."""
        peer = self.replication.heard(sender, now_ns)
        if peer is not None:
            self._reads.seen(peer, message.round)
            self.check_contact(now_ns)

    @property
    def confirmed_read_round(self) -> int:
        """The newest round that a majority answered."""
        return self._reads.confirmed(self._configurations.current)

    # Membership.

    def change_members(self, configuration: Configuration, commit_index: int, now_ns: int) -> int:
        """Append a configuration entry and return its index; it is in force at once.

        Raises MembershipChangeRefusedError: an earlier change or the no-op of this term is not committed yet, or more
        than one voter differs (rule 28), a new voter has not caught up (29), this leader would be removed (31), or a
        voter is to go and those that remain have no majority in contact (32): the group could not even take that back.
        """
        current = self._configurations.current
        settled_index = min(commit_index, self._progress.durable_index)
        if self._log.last_index < self._first_index:
            self._begin_term()  # asked for again when it is committed
        if settled_index < max(self._first_index, self._configurations.current_index):
            raise MembershipChangeRefusedError("an earlier change, or the beginning of this term, is not committed yet")
        if not self._log.is_secure:  # a crash may take its beginning, and another one would be written (decision 124)
            self._log.note_floor()
            raise MembershipChangeRefusedError("the beginning of the log may not outlive a crash yet")
        if not current.differs_by_one_voter(configuration):
            raise MembershipChangeRefusedError("one voter at a time")
        if self._setup.node_id not in configuration.voters:
            raise MembershipChangeRefusedError("a leader is removed last, after a transfer")
        for node in sorted(set(configuration.voters).difference(current.voters)):
            peer = self.replication.peers.get(node)
            # And it has the configuration that made it a learner: until then it gives no vote (rule 30).
            enough_index = max(self._configurations.current_index, self._log.last_index - NEARLY_CAUGHT_UP_ENTRIES)
            if peer is None or peer.match_index < enough_index:
                raise MembershipChangeRefusedError(f"{node} has not caught up as a learner yet")
        shrinks = not set(current.voters) <= set(configuration.voters)
        if shrinks and not configuration.has_quorum([self._setup.node_id, *self.replication.in_contact()]):
            raise MembershipChangeRefusedError("those that would remain have no majority in contact")
        index = self.propose([Proposal(kind=Kind.RAFT_CONFIG, body=configuration.encode())])
        self._configurations.append(index, self.term, configuration)
        for node in sorted(set(current.members).difference(configuration.members)):
            # It is sent nothing any more, and should this change be rolled back, the others need its vote.
            self._send(node, Resigned(term=self.term))
        self._follow_members(next_index=self._log.last_index + 1)
        self.check_contact(now_ns)
        return index

    def forget_member(self, node: NodeId) -> None:
        """Follow the member from the beginning. It must not vote: the commit index may rest on what it acknowledged."""
        assert node not in self._configurations.current.voters
        self.replication.peers.pop(node, None)
        self._follow_members(next_index=self._log.last_index + 1)

    def _follow_members(self, *, next_index: int) -> None:
        others = self._configurations.current.others(self._setup.node_id)
        self.replication.set_members(others, up=self._up, next_index=next_index)
