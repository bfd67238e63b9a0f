"""The lease of the table: from when to when a node may act on what it knows of the streams."""

import pytest
import trio
import trio.testing

from jetraft.cluster.calls.messages.inquiries import MetaState
from jetraft.cluster.meta.lease_grants import MARGIN_NS, LeaseGrants
from jetraft.cluster.meta.members.exclusion import Exclusion
from jetraft.cluster.meta.table_lease import ANSWER_S, ASK_S, LEASE_NS, RENEW_NS, TableLease
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from tests.doubles.meta_group import AppliedMetaGroup

N2 = NodeId("node0002")
LEASE_S = LEASE_NS / NS_PER_S
CLOCKS_DIFFER_BY = 1.05  # of a second of the other


class TrioClock:
    """Trio's time; it runs faster or slower than another."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate

    def mono_ns(self) -> int:
        return int(trio.current_time() * NS_PER_S * self._rate)

    unix_ns = mono_ns


class Town:
    """A node, and a meta leader that answers it."""

    def __init__(self, rate: float = 1.0) -> None:
        self.clock, self.leader_clock = TrioClock(rate), TrioClock()
        self.meta_group = AppliedMetaGroup(5)
        self.index = 5
        self.is_member = True
        self.is_reached = True
        self.way_s = 0.01
        self.questions = 0
        self.grants = LeaseGrants()
        self.grants.lead(1, 0)
        self.lease = TableLease(clock=self.clock, ask=self.ask, wait_applied=self.meta_group.wait_applied)
        self.told: list[str] = []
        self.lease.on_held.connect(lambda: self.told.append("held"))
        self.lease.on_lapsed.connect(lambda: self.told.append("lapsed"))
        self.lease.on_excluded.connect(lambda: self.told.append("excluded"))

    async def ask(self) -> MetaState | None:
        self.questions += 1
        await trio.sleep(self.way_s)
        if not self.is_reached:
            return None
        state = MetaState(index=self.index, is_member=self.is_member)
        self.grants.answered(N2, self.leader_clock.mono_ns())
        await trio.sleep(self.way_s)
        return state


async def test_the_lease_is_kept_while_the_leader_answers_with_one_question_per_interval(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    town = Town()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(town.lease.run)
        await trio.sleep(60)
        assert town.lease.is_held
        assert town.told == ["held"]
        assert town.questions <= 60 * NS_PER_S // RENEW_NS + 1
        nursery.cancel_scope.cancel()


async def test_it_runs_out_when_the_leader_is_not_heard_and_comes_back_when_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    town = Town()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(town.lease.run)
        await trio.sleep(1.5)
        town.is_reached = False
        await trio.sleep(LEASE_S + 0.1)
        assert not town.lease.is_held
        assert town.told == ["held", "lapsed"]
        town.is_reached = True
        await trio.sleep(0.5)
        assert town.lease.is_held
        assert town.told == ["held", "lapsed", "held"]
        nursery.cancel_scope.cancel()


async def test_an_answer_counts_when_that_much_is_applied_here(autojump_clock: trio.testing.MockClock) -> None:
    """The leader is heard over a third node, and its entries are not."""
    del autojump_clock
    town = Town()
    await town.lease.renew()
    assert town.lease.is_held
    town.index = 6
    for _ in range(10):
        await town.lease.renew()
    assert trio.current_time() > LEASE_S
    assert not town.lease.is_held


async def test_it_runs_from_the_question_not_from_the_answer(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    town = Town()
    town.way_s = ASK_S / 2 - 0.01
    asked = trio.current_time()
    await town.lease.renew()
    assert trio.current_time() - asked >= 2 * town.way_s
    await trio.sleep(asked + LEASE_S - trio.current_time() + 0.001)
    assert not town.lease.is_held


@pytest.mark.parametrize(
    ("round_trip_s", "is_held"), [(ASK_S + 0.1, True), (ANSWER_S - 0.1, True), (ANSWER_S + 0.1, False)]
)
async def test_a_far_leader_keeps_it_as_long_as_its_answer_comes_in_time(
    autojump_clock: trio.testing.MockClock,
    round_trip_s: float,
    is_held: bool,  # noqa: FBT001  (a row of the table)
) -> None:
    """What a page waits for (ASK_S) is no bound of the question: streams of one replica stood still beyond it."""
    del autojump_clock
    town = Town()
    town.way_s = round_trip_s / 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(town.lease.run)
        await trio.sleep(60)
        assert town.lease.is_held is is_held
        assert town.told == (["held"] if is_held else []), "not for a moment"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("rate", [1 / CLOCKS_DIFFER_BY, 1.0, CLOCKS_DIFFER_BY])
async def test_the_leader_waits_until_no_lease_can_run_whatever_the_clocks_do(
    rate: float, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    town = Town(rate)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(town.lease.run)
        for pause_s in (0.37, 1.02, 2.3, 0.01):
            await trio.sleep(pause_s)
            town.index += 1  # committed: this node does not apply it
            over_s = town.grants.over_ns(N2) / NS_PER_S
            await trio.sleep(over_s - trio.current_time())
            assert not town.lease.is_held
            town.meta_group.apply_to(town.index)
            await trio.sleep(1)
            assert town.lease.is_held
        nursery.cancel_scope.cancel()


def test_a_new_leader_counts_on_what_earlier_ones_have_answered() -> None:
    grants = LeaseGrants()
    grants.lead(1, 0)
    grants.answered(N2, 5)
    grants.lead(2, 1000)
    assert grants.over_ns(N2) == 1000 + LEASE_NS + MARGIN_NS
    grants.lead(2, 3000)
    assert grants.over_ns(N2) == 1000 + LEASE_NS + MARGIN_NS, "the same term"


class Replicas:
    """A directory whose replicas take a while to end."""

    def __init__(self) -> None:
        self.has_ended = False

    async def settle(self) -> None:
        await trio.sleep(0.3)
        self.has_ended = True


class Excluded:
    """A node that the meta group does not count any more."""

    def __init__(self, *, took_part: bool) -> None:
        self.town = Town()
        self.town.is_member = False
        self.replicas = Replicas()
        self.left = 0
        self.rejoined = 0
        self.is_swapping = False
        self.exclusion = Exclusion(
            lease=self.town.lease,
            took_part=lambda: took_part,
            leave=self.leave,
            rejoin=self.rejoin,
            directory=self.replicas,
        )

    def leave(self) -> bool:
        self.left += not self.is_swapping
        return not self.is_swapping

    async def rejoin(self) -> None:
        self.rejoined += 1
        self.town.is_member = True
        await trio.lowlevel.checkpoint()


async def test_a_server_that_is_removed_while_it_runs_has_ended_its_replicas_when_that_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    node = Excluded(took_part=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.exclusion.run)
        assert await node.exclusion.look()
        assert node.replicas.has_ended
        assert node.exclusion.is_removed
        for _ in range(3):
            await node.exclusion.look()
        assert (node.left, node.rejoined) == (1, 0)
        assert not node.town.lease.is_held
        nursery.cancel_scope.cancel()


async def test_a_question_from_before_the_removal_says_nothing_of_it(autojump_clock: trio.testing.MockClock) -> None:
    """It is on its way when the meta leader tells this node to look."""
    del autojump_clock
    node = Excluded(took_part=True)
    node.town.is_member = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.exclusion.run)
        nursery.start_soon(node.town.lease.renew)
        await trio.sleep(node.town.way_s * 1.5)
        node.town.is_member = False
        assert await node.exclusion.look()
        assert node.exclusion.is_removed
        nursery.cancel_scope.cancel()


async def test_who_has_heard_nothing_of_a_removal_confirms_none(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    node = Excluded(took_part=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.exclusion.run)
        node.town.is_reached = False
        assert not await node.exclusion.look()
        nursery.cancel_scope.cancel()


async def test_a_server_that_was_removed_while_it_was_away_asks_to_be_admitted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    node = Excluded(took_part=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.exclusion.run)
        nursery.start_soon(node.town.lease.run)
        await trio.sleep(3)
        assert (node.left, node.rejoined) == (1, 1)
        assert not node.exclusion.is_removed
        assert node.town.lease.is_held
        nursery.cancel_scope.cancel()


async def test_what_stands_in_the_way_of_ending_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    """The log of the meta group is being replaced: the next answer tells again."""
    del autojump_clock
    node = Excluded(took_part=True)
    node.is_swapping = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.exclusion.run)
        nursery.start_soon(node.town.lease.run)
        await trio.sleep(2)
        assert not node.exclusion.is_removed
        node.is_swapping = False
        await trio.sleep(2)
        assert node.exclusion.is_removed
        nursery.cancel_scope.cancel()
