"""PySyncObj as the guard sees it: a port with the decisions that are left to the library. Pure."""

from collections.abc import Sequence
from typing import Final, Protocol

from jetraft.raft.engine.messages import VoteRequest
from jetraft.raft.engine.port import Proposal
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry

OWN_DISK: Final = NodeId("own disk")  # the second voter of a group of one: it grants and holds what is durable


class PySyncObjReplica(Protocol):
    """PySyncObj as the guard sees it. Indices are the log's; every method returns when its effect is in the log."""

    @property
    def term(self) -> int:
        """The current term."""
        ...

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        ...

    @property
    def stands(self) -> bool:
        """Whether it is a candidate."""
        ...

    @property
    def commit_index(self) -> int:
        """The index that it takes for committed, durable or not."""
        ...

    def stand(self) -> None:
        """Begin an election in the next term, with its own vote."""
        ...

    def raise_term(self, term: int) -> None:
        """Be a follower in a higher term, without a vote and a leader."""
        ...

    def asked_for_vote(self, candidate: NodeId, request: VoteRequest) -> bool:
        """Take over the candidate's term if it is higher; returns whether the vote is given."""
        ...

    def count_vote(self, voter: NodeId) -> None:
        """One more vote of the current term."""
        ...

    def follow(self, leader: NodeId, term: int) -> None:
        """Be a follower of this leader."""
        ...

    def take(self, leader: NodeId, *, prev_index: int, entries: Sequence[Entry], commit_index: int) -> None:
        """Cut what follows `prev_index`, append, and move the commit index up to `commit_index` at most."""
        ...

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Append one entry each, as leader."""
        ...

    def holds(self, member: NodeId, index: int) -> None:
        """A voter holds the log up to `index`: count what a majority has now."""
        ...
