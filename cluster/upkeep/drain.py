"""Lets other nodes lead all that this node leads, at the request of an operator (`jetraft server drain`).

The operator asks again until nothing is left: each question hands some groups over and answers how many there are. From
the first one until the drain ends the other nodes know of it and give this one nothing, and it stands back in elections
(`Group.prefer_others`): it leads again where no other member can, so nothing is without a leader because of a drain.
`run` hands over what comes back that way, and groups that begin meanwhile. A restart ends it.

Nothing is handed to a node that is drained as well, or for another reason should not lead: it stays here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import attrs
import trio

from jetraft.cluster.meta.profile import NOT_DRAINED
from jetraft.raft.group_spec import StandsBack
from jetraft.raft.transfer_candidates import Handed, HandingOver, Rank
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jetraft.store.model.clock import Clock

AGAIN_NS: Final = 10 * NS_PER_S  # a member that handed a group back may take it now
LOOK_S: Final = 1.0  # from one look to the next while there is no question


class DrainedGroup(Handed, Protocol):
    """The group as a drain looks at it; raft.group.Group has this."""

    def prefer_others(self, why: StandsBack, *, wanted: bool) -> None:
        """Whether other members stand first in elections."""


G = TypeVar("G", bound=DrainedGroup)


@attrs.frozen(kw_only=True, slots=True)
class DrainStatistics:
    """A snapshot."""

    draining: bool
    led: int  # groups that this node leads and that have another member
    stay: int  # of them, those whose other members should not lead either
    leaderless: int  # groups that another one could lead, and this node knows none that does
    alone: int  # groups that have no other member: nothing can be handed over


class Drain(Generic[G]):
    """See the module. `groups` gives those that run here, `is_handed` says whether a transfer of one runs.

    `ranking` says how little nodes should lead now, `tell` is called when `draining` may have changed.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        groups: Callable[[], Iterable[G]],
        is_handed: Callable[[G], bool],
        ranking: Callable[[], Rank[G]],
        tell: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._is_handed = is_handed
        self._ranking = ranking
        self._tell = tell
        self._handing_over = self._anew()
        self._began_ns = 0
        self.draining = False

    def _anew(self) -> HandingOver[G]:
        return HandingOver(self._is_handed, self._ranking, below=NOT_DRAINED)

    async def run(self) -> None:
        """Go on with a drain until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            if self.draining:
                self.look()

    def look(self, *, anew: bool = False) -> DrainStatistics:
        """Begin, or go on: hand over what can be handed over now. `anew`: also what was handed back before."""
        now_ns, groups = self._clock.mono_ns(), list(self._groups())
        if anew or not self.draining or now_ns >= self._began_ns + AGAIN_NS:
            self._handing_over, self._began_ns = self._anew(), now_ns
        self.draining = True
        self._tell()
        for group in groups:
            group.prefer_others(StandsBack.DRAINED, wanted=len(group.configuration.members) > 1)
        self._handing_over.step(groups)
        return self.statistics()

    def end(self) -> DrainStatistics:
        """Stand in elections as ever; what others lead stays with them."""
        if self.draining:
            for group in self._groups():
                group.prefer_others(StandsBack.DRAINED, wanted=False)
        self.draining = False
        self._tell()
        return self.statistics()

    def statistics(self) -> DrainStatistics:
        """Figures for the operator."""
        groups = list(self._groups())
        shared = [group for group in groups if len(group.configuration.members) > 1]
        led, rank = [group for group in shared if group.is_leader], self._ranking()
        return DrainStatistics(
            draining=self.draining,
            led=len(led),
            stay=sum(
                all(rank(group, node) >= NOT_DRAINED for node in group.configuration.voters if node != group.leader)
                for group in led
            ),
            leaderless=sum(group.leader is None for group in shared),
            alone=len(groups) - len(shared),
        )
