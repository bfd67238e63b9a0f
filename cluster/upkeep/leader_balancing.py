"""Hands over what this node leads while its disk has no room for messages and another member's has.

A leader below the reserve (store/disk/space.py) refuses publishes, though the other members could take them: it keeps
up as a follower, as the reserve is for what the log must go on writing, and a majority does not wait for it. So each
node tells the others whether it is short, and one that is gives its groups to members that are not; it also stands back
in elections (`Group.prefer_others`). Where no member has room the leader stays, and refuses with JetStream's own error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.meta.profile import NOT_SHORT
from jetraft.raft.group_spec import StandsBack
from jetraft.raft.transfer_candidates import TransferCandidates
from jetraft.store.model.clock import NS_PER_S, tick_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.raft.group import Group
    from jetraft.raft.transfer_candidates import Rank
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import GroupId

LOOK_S: Final = 0.5
AGAIN_NS: Final = 10 * NS_PER_S  # the target may have a reason of its own (raft/engine/disk_lag.py) to hand it back
TRANSFERS_MAX: Final = 64  # in one look: each is an election


@attrs.frozen(kw_only=True, slots=True)
class LeaderBalancingStatistics:
    """A snapshot."""

    is_short: bool
    handed_over: int  # transfers that began


class LeaderBalancing:
    """See the module. `groups` gives those with a log on disk; `tell` is called when `is_short` has changed."""

    def __init__(
        self,
        *,
        clock: Clock,
        space: SpaceWatch,
        groups: Callable[[], Sequence[Group]],
        ranking: Callable[[], Rank[Group]],
        tell: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._space = space
        self._groups = groups
        self.ranking = ranking
        self._tell = tell
        self._handed_ns: dict[GroupId, int] = {}
        self._handed_over = 0
        self.is_short = False

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await trio.sleep_until(tick_s(trio.current_time(), LOOK_S))

    def look(self) -> None:
        """Hand over what can be handed over now."""
        now_ns = self._clock.mono_ns()
        was_short, self.is_short = self.is_short, self._space.is_low(now_ns)
        if self.is_short != was_short:
            self._tell()
        if not self.is_short and not was_short:
            return
        groups = self._groups()
        for group in groups:
            group.prefer_others(StandsBack.NO_ROOM, wanted=self.is_short)
        if self.is_short:
            self._hand_over(groups, now_ns)

    def _hand_over(self, groups: Sequence[Group], now_ns: int) -> None:
        self._handed_ns = {name: then for name, then in self._handed_ns.items() if now_ns < then + AGAIN_NS}
        candidates = TransferCandidates(groups, self.ranking())
        begun = 0
        for group in groups:
            if not group.is_leader or group.group_id in self._handed_ns:
                continue
            target = candidates.choose(group, below=NOT_SHORT)
            if target is not None and group.transfer_leadership(target):
                self._handed_ns[group.group_id] = now_ns
                begun += 1
            if begun == TRANSFERS_MAX:
                break
        self._handed_over += begun

    def statistics(self) -> LeaderBalancingStatistics:
        """Figures for monitoring and tests."""
        return LeaderBalancingStatistics(is_short=self.is_short, handed_over=self._handed_over)
