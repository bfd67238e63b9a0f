"""What the meta leader looks after is looked at again until it is done, whatever stood in the way at first."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.meta.leader_duties import LeaderDuties
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.store.model import errors
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.ports import Timers
    from jetraft.raft.group import Group


class Failing:
    """A frontend whose first attempts come to nothing."""

    def __init__(self, attempts: list[Exception | Mapping[str, str]]) -> None:
        self.attempts = attempts
        self.healed = trio.Event()

    async def raise_to_base(self) -> None:
        await trio.lowlevel.checkpoint()

    async def name_nodes(self) -> None:
        await trio.lowlevel.checkpoint()

    async def heal(self, _members: Sequence[NodeId]) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        if not self.attempts:
            self.healed.set()
            return {}
        attempt = self.attempts.pop(0)
        if isinstance(attempt, Exception):
            raise attempt
        return attempt


class FollowedGroup:
    """A group that takes no step."""

    is_leader = False
    members = ()


@pytest.mark.parametrize(
    "first",
    [Moved(), AnswerLost(), errors.CLUSTER_NOT_AVAILABLE.with_values(), {"stream S": "its row has changed"}],
    ids=["moved", "lost", "refused", "stuck"],
)
async def test_a_first_attempt_that_fails_is_made_up_for_without_any_event(
    first: Exception | Mapping[str, str], autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    machine = MetaMachine()
    frontend = Failing([first, first])
    duties = LeaderDuties(
        machine=machine,
        frontend=cast("MetaFrontend", frontend),
        timers=cast("Timers", None),
        clock=ManualClock(),
    )
    duties.look_after(cast("Group", FollowedGroup()))
    machine.became_leader(1)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(duties.loop.run)
            await frontend.healed.wait()
            nursery.cancel_scope.cancel()
