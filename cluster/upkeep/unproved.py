"""Hands over what this node leads and must not serve, because its table of streams is not proved to be current.

A restarted node takes part in its groups at once, and may be elected, but serves nothing before the meta leader has
confirmed its table (cluster/meta/currency.py). That takes a moment. Where it does not come to that, because this node
has lost its link to the meta leader alone, or its meta log waits for repair, the others see a leader that is alive, and
look for no other one. So it hands over; and again, should the groups come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from jetraft.raft.transfer_candidates import TransferCandidates
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.raft.group import Group
    from jetraft.raft.transfer_candidates import Rank
    from jetraft.store.model.clock import Clock

LOOK_S: Final = 1.0
PATIENCE_NS: Final = 10 * NS_PER_S  # a meta leader is found and asked within some four seconds; the target may wait too
TRANSFERS_MAX: Final = 64  # in one look: each is an election


class Unproved:
    """See the module. `groups` are those of this node's replicas."""

    def __init__(
        self,
        *,
        clock: Clock,
        groups: Callable[[], Sequence[Group]],
        is_proved: Callable[[], bool],
        ranking: Callable[[], Rank[Group]],
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._is_proved = is_proved
        self._ranking = ranking

    async def run(self) -> None:
        """Look until the table is proved: then it is for the life of the process."""
        while not self._is_proved():
            self.look()
            await trio.sleep(LOOK_S)

    def look(self) -> None:
        """Hand over what has been led for long enough without being served."""
        now_ns = self._clock.mono_ns()
        groups = self._groups()
        led = [group for group in groups if group.is_leader and group.leader_since_ns + PATIENCE_NS <= now_ns]
        candidates = TransferCandidates(groups, self._ranking())
        for group in led[:TRANSFERS_MAX]:
            target = candidates.choose(group)
            if target is not None:
                group.transfer_leadership(target)
