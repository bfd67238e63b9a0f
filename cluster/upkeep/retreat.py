"""Lets other nodes lead the streams of an account whose hub this node does not reach (`js_cluster_migrate`).

A follower of such streams by way of the hub finds their leader at a node that the hub still reaches. Nodes tell each
other which accounts have lost their hub, so a group goes to none that is cut off as well; meanwhile this node stands
back in elections, and leads where no other can. nats-server lets a node that is cut off not lead at all: there a
cluster whose nodes all lose the hub has no leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.meta.profile import NOT_LOST
from jetraft.raft.group_spec import StandsBack
from jetraft.raft.transfer_candidates import TransferCandidates
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from jetraft.raft.group import Group
    from jetraft.raft.transfer_candidates import Rank
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import GroupId

AGAIN_NS: Final = 10 * NS_PER_S  # the target may have a reason of its own to hand it back
TRANSFERS_MAX: Final = 64  # in one look: each is an election


class Retreat:
    """See the module. `groups` gives those of streams that run here, with their accounts."""

    def __init__(
        self,
        *,
        clock: Clock,
        groups: Callable[[], Iterable[tuple[str, Group]]],
        ranking: Callable[[Mapping[GroupId, str]], Rank[Group]],
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._ranking = ranking
        self._accounts: AbstractSet[str] = frozenset()
        self._handed_ns: dict[GroupId, int] = {}
        self.handed_over = 0  # transfers that began

    def look(self, accounts: AbstractSet[str]) -> None:
        """Hand over what is led here of these accounts; those that are among them no more are led as ever."""
        left, self._accounts = self._accounts - accounts, accounts
        if not accounts and not left:
            return
        groups, now_ns = list(self._groups()), self._clock.mono_ns()
        for account, group in groups:
            if account in accounts or account in left:
                group.prefer_others(StandsBack.NO_HUB, wanted=account in accounts)
        self._handed_ns = {name: then for name, then in self._handed_ns.items() if now_ns < then + AGAIN_NS}
        begun = 0
        rank = self._ranking({group.group_id: account for account, group in groups})
        for account in sorted(accounts):
            candidates = TransferCandidates((group for _, group in groups), rank)
            for group in (group for owner, group in groups if owner == account):
                if begun == TRANSFERS_MAX or not group.is_leader or group.group_id in self._handed_ns:
                    continue
                target = candidates.choose(group, below=NOT_LOST)
                if target is not None and group.transfer_leadership(target):
                    self._handed_ns[group.group_id] = now_ns
                    begun += 1
        self.handed_over += begun
