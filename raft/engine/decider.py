"""The decisions that differ between the two engines, behind one Protocol.

A member (raft/engine/member_state.py) keeps what every member of a group has, whatever decides for it: role and term,
claims and timers, votes that were asked for, messages that wait, sessions, reads. It asks its decider where Raft itself
decides: the vote of a term, who has won, what an append does to the log, what is committed. `Core` decides by the rules
of this project (raft/engine/core.py), `Guard` lets PySyncObj decide (raft/pysyncobj/guard.py).

A decider gets the member with every call. It writes to the member's log and moves `commit_index`, and it changes term
and role only through `enter_term`, `follow` and `lead` of the member.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from jetraft.raft.engine.acceptor import AppendRefused
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Append, VoteRequest
from jetraft.raft.engine.port import Proposal
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.raft.engine.ballot import Ballot


MemberT_contra = TypeVar("MemberT_contra", contravariant=True)  # the state of a member, which holds its decider


class Decider(Protocol[MemberT_contra]):
    """The decisions of an engine. Each method returns when its effect is in the log, which is durable later."""

    @property
    def members_may_change(self) -> bool:
        """Whether this engine follows changes of a group's members."""
        ...

    @property
    def founders_lead_at_once(self) -> bool:
        """Whether the only member of an empty group leads before its vote is durable (decision 116)."""
        ...

    # Terms and votes.

    def stand(self, member: MemberT_contra, now_ns: int) -> None:
        """Enter the next term with a vote for itself, and without a leader."""
        ...

    def follow(self, member: MemberT_contra, leader: NodeId | None, term: int, now_ns: int) -> None:
        """Follow `leader`, None when it is unknown, in `term`, which is the current one or a higher one."""
        ...

    def step_down(self, member: MemberT_contra, now_ns: int) -> None:
        """As leader: become a follower without a leader, as no majority is in contact (rule 19)."""
        ...

    def grants_vote(self, member: MemberT_contra, candidate: NodeId, request: VoteRequest, now_ns: int) -> bool:
        """Judge a request of the current or a higher term; whether a grant shall be sent, which waits for the disk."""
        ...

    def count_own_vote(self, member: MemberT_contra, ballot: "Ballot", now_ns: int) -> None:
        """Term and own vote are durable while the ballot of the term runs (rule 4)."""
        ...

    def count_vote(self, member: MemberT_contra, voter: NodeId, now_ns: int) -> None:
        """A voter has granted its vote for the first time in this term: lead if that decides the election."""
        ...

    # The log.

    def propose(self, member: MemberT_contra, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal, as leader; returns the index of the first."""
        ...

    def take(self, member: MemberT_contra, leader: NodeId, append: Append, now_ns: int) -> int | AppendRefused:
        """Bring the log in line; returns up to where it equals the leader's. Raises LogDivergedError."""
        ...

    def learn_commit(self, member: MemberT_contra, leader: NodeId, leader_commit: int) -> None:
        """The leader says what is committed: true as far as the log was verified against its own (rule 10)."""
        ...

    def count_durable(self, member: MemberT_contra, now_ns: int) -> None:
        """More of the log is durable."""
        ...

    def count_match(self, member: MemberT_contra, node: NodeId) -> None:
        """As leader: another member holds more of the log."""
        ...

    # Members.

    def change_members(self, member: MemberT_contra, configuration: Configuration, now_ns: int) -> int:
        """Append a configuration entry and return its index. Raises MembershipChangeRefusedError."""
        ...

    def outlive(self, member: MemberT_contra, configuration: Configuration, term: int, now_ns: int) -> None:
        """Lead alone in a term beyond all others. Requires `members_may_change`; see raft/recovery/survivor.py."""
        ...
