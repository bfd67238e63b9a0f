"""The ways into the meta group, over a node that only notes what is done with its log."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from trio.testing import MockClock

from jetraft.cluster.meta.members.admission import NodeAdmission
from jetraft.cluster.meta.members.founding import Founders, founders_of
from jetraft.cluster.meta.members.meta_replica import META_GROUP
from jetraft.cluster.replica_logs import ReplicaLogs
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.recovery.joining import Begins, JoinPendingError, MemberAdmission
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.signal import Signal
from jetraft.store.port import GroupLog, HardStateLost, StoreCorrupt, StoreMisplaced, StoreNewer, StoreRefused
from tests.cluster.meta.makers import N1, N2, N3
from tests.cluster.wire import Wire, WireMesh

if TYPE_CHECKING:
    from jetraft.cluster.meta.members.bootstrap import Bootstrap
    from jetraft.cluster.meta.members.meta_replica import MetaReplica
    from jetraft.raft.recovery.joining import Joining
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.store.blocks.cache import BlockCache
    from jetraft.store.ledger.node_dir import NodeDir

FOUNDERS = founders_of("C", [N1, N2, N3])
ADMITTED_AT = 9


class Story:
    """Plays everything that an admission works with, and writes down what happens."""

    def __init__(
        self,
        *,
        founds: bool = True,
        alone: bool = False,
        loses: type[Exception] | None = None,
        unknown: tuple[GroupId, ...] = (),
        refusals: int = 0,
    ) -> None:
        self.events: list[str] = []
        self.founds = founds
        self.loses = loses  # what the first attempt to open the log meets
        self.is_begun = False  # the log has a beginning
        self.is_noted = False  # the ledger says that the group may know a self that is gone
        self.refusals = refusals  # of the leader, before it admits
        self.joined_index = 0
        self.elsewhere = self.founded = FOUNDERS
        wire = Wire()
        wire.link(N1, N2, N3)
        self.admission = NodeAdmission(
            node_id=N1,
            bootstrap=cast("Bootstrap", self),
            meta_replica=cast("MetaReplica", FakeMetaReplica(self)),
            logs=ReplicaLogs(
                node_dir=cast("NodeDir", FakeNodeDir(self)),
                cache=cast("BlockCache", None),
                repairs=cast("Repairs", FakeRepairs(self)),
            ),
            joining=None if alone else cast("Joining", FakeJoining(self)),
            mesh=None if alone else WireMesh(wire, N1),
            unknown=lambda: unknown,
            on_heard=Signal(),
        )

    async def arrive(self) -> list[str]:
        await self.admission.run(waits=lambda: self.events.append("waits"))
        return self.events

    # Bootstrap

    async def run(self) -> Founders | None:
        return FOUNDERS if self.founds else None

    async def joined(self, founders: Founders, index: int) -> None:
        assert founders is FOUNDERS
        self.joined_index = index
        self.events.append(f"written down: joined at {index}")


class FakeRepairs:
    """Opens logs in memory."""

    def __init__(self, story: Story) -> None:
        self._story = story

    async def open(self, *_arguments: object, **_options: object) -> GroupLog:
        story = self._story
        if story.loses is not None:
            raise story.loses("lost")
        log = MemLog()
        if story.is_begun:
            log.save_checkpoint(0, 0, Configuration(voters=(N1, N2, N3)).encode(), b"")
        return log


class FakeNodeDir:
    def __init__(self, story: Story) -> None:
        self._story = story
        self.node_id = N1
        self.ledger = SimpleNamespace(state=lambda _key: SimpleNamespace(is_noted=story.is_noted))

    def group(self, *_key: object) -> None:
        return None

    async def move_to_trash(self, *_key: object) -> None:
        self._story.events.append("thrown away")

    async def set_aside(self, *_key: object) -> None:
        self._story.loses = None
        self._story.is_noted = True
        self._story.events.append("set aside")


class FakeMetaReplica:
    def __init__(self, story: Story) -> None:
        self._story = story

    def take(self, founders: Founders, opened: GroupLog, *, open_again: Callable[[], Awaitable[GroupLog]]) -> None:
        assert founders is FOUNDERS
        assert open_again is not None
        checkpoint = opened.load_checkpoint()
        learns = checkpoint is not None and N1 in Configuration.decode(checkpoint.members).learners
        self._story.events.append("taken, as a learner" if learns else "taken")


class FakeJoining:
    def __init__(self, story: Story) -> None:
        self._story = story

    async def ask(
        self, group_id: GroupId, incarnation: int, *, own: NodeId, others: list[NodeId], begins: Begins
    ) -> MemberAdmission:
        assert (group_id, incarnation, own) == (META_GROUP, FOUNDERS.incarnation, N1)
        assert (others, begins) == ([N2, N3], Begins.NEVER), "everybody who is up; it never begins anew"
        assert self._story.admission.is_outside
        self._story.events.append("asks, outside")
        if self._story.refusals:
            self._story.refusals -= 1
            raise JoinPendingError("no leader")
        return MemberAdmission(configuration=Configuration(voters=(N2, N3), learners=(N1,)), commit_index=ADMITTED_AT)


async def test_a_founder_takes_its_seat_without_asking() -> None:
    story = Story()
    assert await story.arrive() == ["taken"]


async def test_one_that_joins_is_written_down_before_its_log_begins() -> None:
    """A crash in between leaves a member without a log, which asks again: it never begins as a founder."""
    story = Story(founds=False)
    assert await story.arrive() == [
        "thrown away",
        "waits",
        "asks, outside",
        "written down: joined at 9",
        "taken, as a learner",
    ]
    assert not story.admission.is_outside
    again = Story()
    again.joined_index = 9
    assert (await again.arrive())[-2:] == ["written down: joined at 9", "taken, as a learner"]
    again = Story()
    again.joined_index, again.is_begun = 9, True
    assert await again.arrive() == ["taken"]


async def test_who_is_not_admitted_yet_stays_outside_and_asks_again(autojump_clock: MockClock) -> None:
    del autojump_clock
    story = Story(founds=False, refusals=2)
    assert (await story.arrive()).count("asks, outside") == 3
    assert story.events[-1] == "taken, as a learner"


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
        "taken, as a learner",
    ]
    assert not story.admission.is_outside


async def test_a_removed_server_that_returns_has_forgotten_no_group() -> None:
    """A stream of one replica that was assigned to it, and that it never had, is founded; it would wait for ever."""
    story = Story()
    await story.arrive()
    story.events.clear()
    await story.admission.rejoin()
    assert story.events == [
        "waits",
        "asks, outside",
        "written down: joined at 0",
        "set aside",
        "taken, as a learner",
    ]


async def test_who_has_set_its_log_aside_in_an_earlier_life_has_to_be_admitted() -> None:
    story = Story()
    story.is_noted = True
    assert (await story.arrive())[-1] == "taken, as a learner"


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
