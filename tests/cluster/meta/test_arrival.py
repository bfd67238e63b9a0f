"""The ways to a seat in the meta group, over a seat that only notes what is done with it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import pytest

from jetraft.cluster.meta.arrival import Arrival
from jetraft.cluster.meta.founding import Founders, founders_of
from jetraft.cluster.meta.seat import META_GROUP
from jetraft.raft.joining import Admission, Begins
from jetraft.raft.membership import Configuration
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import HardStateLost, StoreCorrupt, StoreMisplaced, StoreNewer, StoreRefused
from tests.cluster.meta.makers import N1, N2, N3
from tests.cluster.wire import Wire, WireMesh

if TYPE_CHECKING:
    from jetraft.cluster.meta.bootstrap import Bootstrap
    from jetraft.cluster.meta.seat import MetaSeat
    from jetraft.cluster.streams.memory_groups import MemoryGroups
    from jetraft.raft.joining import Joining

FOUNDERS = founders_of("C", [N1, N2, N3])
ADMITTED_AT = 9


class Story:
    """Plays everything that an arrival works with, and writes down what happens."""

    def __init__(
        self,
        *,
        founds: bool = True,
        alone: bool = False,
        loses: type[Exception] | None = None,
        unknown: tuple[GroupId, ...] = (),
    ) -> None:
        self.events: list[str] = []
        self.founds = founds
        self.loses = loses  # what the first attempt to open the log meets
        self.noted: set[tuple[GroupId, int]] = set()
        self.elsewhere = FOUNDERS
        wire = Wire()
        wire.link(N1, N2, N3)
        self.arrival = Arrival(
            node_id=N1,
            bootstrap=cast("Bootstrap", self),
            seat=cast("MetaSeat", FakeSeat(self)),
            memory_groups=cast("MemoryGroups", self),
            joining=None if alone else cast("Joining", FakeJoining(self)),
            mesh=None if alone else WireMesh(wire, N1),
            unknown=lambda: unknown,
        )

    async def arrive(self) -> list[str]:
        await self.arrival.run(waits=lambda: self.events.append("waits"))
        return self.events

    # Bootstrap

    async def run(self) -> Founders | None:
        return FOUNDERS if self.founds else None

    async def joined(self, founders: Founders, index: int) -> None:
        assert founders is FOUNDERS
        self.events.append(f"written down: joined at {index}")

    # MemoryGroups

    def __contains__(self, group: tuple[GroupId, int]) -> bool:
        return group in self.noted


class FakeSeat:
    def __init__(self, story: Story) -> None:
        self._story = story

    async def take(self, founders: Founders, *, is_known: bool) -> None:
        assert founders is FOUNDERS
        loses, self._story.loses = self._story.loses, None
        if loses is not None:
            raise loses("lost")
        self._story.events.append("taken, known" if is_known else "taken")

    async def join(
        self, founders: Founders, ask: Callable[[], Awaitable[Admission]], *, give_up: Callable[[], Awaitable[None]]
    ) -> Admission:
        assert founders is FOUNDERS
        admission = await ask()
        await give_up()
        return admission

    async def trash(self) -> None:
        self._story.events.append("thrown away")

    async def set_aside(self) -> None:
        self._story.events.append("set aside")


class FakeJoining:
    def __init__(self, story: Story) -> None:
        self._story = story

    async def ask(
        self, group_id: GroupId, incarnation: int, *, own: NodeId, others: list[NodeId], begins: Begins
    ) -> Admission:
        assert (group_id, incarnation, own) == (META_GROUP, FOUNDERS.incarnation, N1)
        assert (others, begins) == ([N2, N3], Begins.NEVER), "everybody who is up; it never begins anew"
        self._story.events.append("asks, outside" if self._story.arrival.is_outside else "asks")
        return Admission(configuration=Configuration(voters=(N2, N3), learners=(N1,)), commit_index=ADMITTED_AT)


async def test_a_founder_takes_its_seat_without_asking() -> None:
    story = Story()
    assert await story.arrive() == ["taken"]


async def test_one_that_joins_is_written_down_before_the_group_starts() -> None:
    story = Story(founds=False)
    assert await story.arrive() == ["asks, outside", "thrown away", "written down: joined at 9", "taken"]
    assert not story.arrival.is_outside


@pytest.mark.parametrize("loses", [HardStateLost, StoreCorrupt, StoreMisplaced])
async def test_a_log_of_no_use_is_given_up_only_when_it_is_noted_that_its_promises_are_forgotten(
    loses: type[Exception],
) -> None:
    story = Story(loses=loses)
    assert await story.arrive() == [
        "waits",
        "asks, outside",
        "written down: joined at 9",  # groups in memory may be forgotten with it
        "set aside",
        "taken, known",
    ]
    assert not story.arrival.is_outside


async def test_what_was_noted_in_an_earlier_life_is_said_to_the_seat() -> None:
    story = Story()
    story.noted.add((META_GROUP, FOUNDERS.incarnation))
    assert await story.arrive() == ["taken, known"]


@pytest.mark.parametrize("loses", [StoreCorrupt, StoreMisplaced])
async def test_a_server_that_stands_alone_begins_a_meta_group_anew_when_its_ledger_knows_all_streams(
    loses: type[Exception],
) -> None:
    story = Story(alone=True, loses=loses)
    assert await story.arrive() == ["set aside", "taken"]


async def test_a_server_that_stands_alone_stays_away_when_only_the_lost_log_knew_a_stream() -> None:
    story = Story(alone=True, loses=StoreCorrupt, unknown=(GroupId("S-R1F-unknown0"),))
    with pytest.raises(StoreCorrupt, match=r"S-R1F-unknown0.*restore the store from a backup"):
        await story.arrive()
    assert story.events == []


@pytest.mark.parametrize("loses", [StoreRefused, StoreNewer])
async def test_what_is_refused_is_never_given_up(loses: type[Exception]) -> None:
    for alone in (False, True):
        story = Story(alone=alone, loses=loses)
        with pytest.raises(loses):
            await story.arrive()
        assert story.events == []
