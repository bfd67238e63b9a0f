"""Whom to hand groups to, so that they spread: when a server stops, a thousand groups must not go to one node."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.group_spec import ReplicaLag
from jetraft.store.model.ids import GroupId, NodeId

TRANSFERS_AT_ONCE: Final = 32  # some 20 ms on a machine at rest, which serves a publisher in between


class LedGroup(Protocol):
    """The group as choosing looks at it; raft.group.Group has this."""

    @property
    def group_id(self) -> GroupId:
        """Which group it is."""

    @property
    def leader(self) -> NodeId | None:
        """The known leader."""

    @property
    def configuration(self) -> Configuration:
        """The members."""

    def replica_lag(self) -> Sequence[ReplicaLag]:
        """The other members as the leader sees them."""


L = TypeVar("L", bound=LedGroup)
Rank = Callable[[L, NodeId], int]  # how little a node should lead a group: 0 where nothing speaks against it


def no_rank(_group: LedGroup, _node: NodeId) -> int:
    """All may lead alike."""
    return 0


class TransferCandidates(Generic[L]):
    """Counts what each node leads of the groups that this one knows, and what `choose` has given it."""

    def __init__(self, groups: Iterable[LedGroup], rank: Rank[L] = no_rank) -> None:
        self._rank = rank
        self._led = Counter(group.leader for group in groups if group.leader is not None)

    @property
    def led(self) -> Mapping[NodeId, int]:
        """How many groups each node leads."""
        return self._led

    def choose(self, group: L, *, below: int | None = None) -> NodeId | None:
        """The voter with everything committed of the lowest rank, of several the one that leads least; None for none.

        Those whose rank is not below a bound get nothing: who hands over what it need not hand over names its own.
        """
        voters = group.configuration.voters
        ready = [lag.node for lag in group.replica_lag() if lag.node in voters and lag.current and not lag.offline]
        ranked = [(self._rank(group, node), self._led[node], node) for node in ready]
        chosen = min((each for each in ranked if below is None or each[0] < below), default=(0, 0, None))[2]
        if chosen is not None:
            self._led[chosen] += 1
        return chosen


class Handed(LedGroup, Protocol):
    """A group that a stopping node may lead."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads it."""

    @property
    def term(self) -> int:
        """Its term."""

    def transfer_leadership(self, to: NodeId | None) -> bool:
        """Hand leadership over; whether that has begun."""


G = TypeVar("G", bound=Handed)


class HandingOver(Generic[G]):
    """Hands over all that a stopping node leads. `is_handed` says whether a transfer of a group runs.

    `rank` and `below` are those of TransferCandidates.

    A group that comes back in a later term was handed back by a node that stops too: it stays. Nodes that are stopped
    together would hand it to each other until the last of them has gone.
    """

    def __init__(
        self,
        is_handed: Callable[[G], bool],
        rank: Callable[[], Rank[G]] = lambda: no_rank,
        *,
        below: int | None = None,
    ) -> None:
        """`rank` is asked for in each step."""
        self._is_handed = is_handed
        self._rank = rank
        self._below = below
        self._handed_in: dict[GroupId, int] = {}  # term in which a transfer began

    def step(self, groups: Iterable[G]) -> bool:
        """Hand over some of the groups that this node leads and others can; whether any transfer runs.

        To be called again until none does. A few at a time: each is an election with two fsyncs, and a group is silent
        from the beginning of its transfer to the end, so the others had better go on serving until it is their turn.
        """
        all_groups = list(groups)
        led = [group for group in all_groups if group.is_leader and len(group.configuration.members) > 1]
        candidates, running = TransferCandidates(all_groups, self._rank()), sum(map(self._is_handed, led))
        for group in led:
            if running >= TRANSFERS_AT_ONCE:
                break
            if self._is_handed(group) or self._handed_in.get(group.group_id, group.term) < group.term:
                continue
            target = candidates.choose(group, below=self._below)
            if target is None and self._below is not None:
                continue
            if group.transfer_leadership(target):  # None: the most advanced member
                self._handed_in[group.group_id] = group.term
                running += 1
        return running > 0
