"""What the meta leader answers to requests about streams; the group applies what is proposed at once."""

import random

import pytest
import trio
import trio.testing

from jetraft.cluster.forward import AnswerLost, Moved
from jetraft.cluster.meta.assignment import StreamKey
from jetraft.cluster.meta.commands import AssignStream, encode
from jetraft.cluster.meta.frontend import MetaFrontend
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.profile import KEY, NodeProfile
from jetraft.cluster.meta.view import ClusterView
from jetraft.raft.engine import Proposal
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError
from jetraft.store.format import Kind
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.config import Placement, StorageType, StreamConfig
from jetraft.store.model.errors import ApiError
from jetraft.store.model.ids import GroupId, NodeId
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, entry


class InstantGroup:
    """Commits and applies each proposal at once, unless told to fail, or to let another entry go first."""

    def __init__(self, machine: MetaMachine) -> None:
        self.machine = machine
        self.fails: Exception | None = None
        self.before: list[bytes] = []
        self.members_may_change = True
        self.proposed = 0
        self._index = 0

    async def propose_and_wait(self, proposal: Proposal) -> object:
        assert proposal.kind == Kind.META
        assert isinstance(proposal.body, bytes)
        if self.fails is not None:
            raise self.fails
        self.proposed += 1
        for body in [*self.before, proposal.body]:
            self._index += 1
            (verdict,) = self.machine.apply([entry(self._index, body)])
        self.before = []
        return verdict


class Desk:
    """A frontend with its surroundings."""

    def __init__(self, *, peers: dict[NodeId, str] | None = None, capacity: int | None = None) -> None:
        self.machine = MetaMachine()
        self.machine.became_leader(1)
        members = {N1: "one", **(peers or {})}
        self.group = InstantGroup(self.machine)
        view = ClusterView(
            node_id=N1,
            server_name="one",
            cluster_name="C",
            peers=None if peers is None else lambda: {node: Up(name, capacity) for node, name in peers.items()},
            machine=self.machine,
        )
        view.members = lambda: list(members)
        self.view = view
        if capacity is not None:
            view.own_profile = NodeProfile(capacity={StorageType.FILE: capacity})
        self.is_short = False
        self.frontend = MetaFrontend(
            machine=self.machine,
            cluster=view,
            clock=ManualClock(),
            rng=random.Random(1),
            is_short=lambda: self.is_short,
        )
        self.frontend.group = self.group

    async def create(self, config: StreamConfig) -> bool:
        return (await self.frontend.create(ACCOUNT, config, pedantic=False)).fresh


class Up:
    """A peer that is there."""

    up = True

    def __init__(self, name: str, capacity: int | None = None) -> None:
        self.name = name
        limits = {} if capacity is None else {StorageType.FILE: capacity}
        self.metadata = {KEY: NodeProfile(capacity=limits).pack()}


THREE = {N2: "two", N3: "three"}


async def test_a_new_stream_gets_a_place_a_group_and_a_time() -> None:
    desk = Desk(peers=THREE)
    created = await desk.frontend.create(ACCOUNT, StreamConfig(name="S", num_replicas=3), pedantic=False)
    row = created.assignment
    assert created.fresh
    assert row.peers == (N1, N2, N3)
    assert row.preferred in row.peers
    assert row.group_id.startswith("S-R3F-")
    assert len(row.group_id) == len("S-R3F-") + 8
    assert row.created_ns == ManualClock().unix_ns()
    assert row.config.subjects == ("S",)


async def test_the_same_request_again_is_answered_and_proposes_nothing() -> None:
    desk = Desk()
    config = StreamConfig(name="S", subjects=("a",))
    assert await desk.create(config) is True
    assert await desk.create(config) is False
    assert desk.group.proposed == 1


@pytest.mark.parametrize(
    ("config", "err_code"),
    [
        (StreamConfig(name="S", subjects=("other",)), 10058),
        (StreamConfig(name="T", subjects=("a.x",)), 10065),
        (StreamConfig(name="T", num_replicas=3), 10074),
        (StreamConfig(name="T", num_replicas=6), 10052),
        (StreamConfig(name="", subjects=("b",)), 10052),
        (StreamConfig(name="T", subjects=("b",), max_age=1), 10052),
    ],
)
async def test_refused_requests_propose_nothing(config: StreamConfig, err_code: int) -> None:
    desk = Desk()
    await desk.create(StreamConfig(name="S", subjects=("a.*",)))
    with pytest.raises(ApiError) as caught:
        await desk.create(config)
    assert caught.value.err_code == err_code
    assert desk.group.proposed == 1


async def test_more_replicas_than_nodes_find_no_place() -> None:
    with pytest.raises(ApiError, match="no suitable peers") as caught:
        await Desk(peers=THREE).create(StreamConfig(name="S", num_replicas=5))
    assert caught.value.err_code == 10005


async def test_placement_is_ignored_by_a_server_that_stands_alone() -> None:
    assert await Desk().create(StreamConfig(name="S", placement=Placement(cluster="x", tags=("y",)))) is True


async def test_a_race_that_is_lost_to_the_same_request_is_answered_as_success() -> None:
    """Two clients create the same stream at the same time; both leave happy."""
    desk = Desk()
    await desk.create(StreamConfig(name="S", subjects=("a",)))
    row = desk.machine.table.get(StreamKey(ACCOUNT, "S"))
    assert row is not None
    rival = Desk()
    rival.group.before = [_body(row.config)]
    created = await rival.frontend.create(ACCOUNT, StreamConfig(name="S", subjects=("a",)), pedantic=False)
    assert not created.fresh


async def test_a_race_that_is_lost_to_another_config_is_refused() -> None:
    desk = Desk()
    desk.group.before = [_body(assign("S", "b").config)]
    with pytest.raises(ApiError) as caught:
        await desk.create(StreamConfig(name="S", subjects=("a",)))
    assert caught.value.err_code == 10058


async def test_an_update_changes_what_may_change() -> None:
    desk = Desk()
    await desk.create(StreamConfig(name="S", subjects=("a",)))
    changed = await desk.frontend.update(ACCOUNT, StreamConfig(name="S", subjects=("b",), max_msgs=9), pedantic=False)
    assert (changed.config.subjects, changed.config.max_msgs) == (("b",), 9)
    assert changed.revision > changed.incarnation


@pytest.mark.parametrize(
    ("config", "err_code"),
    [
        (StreamConfig(name="NOPE"), 10059),
        (StreamConfig(name="S", subjects=("t",)), 10065),
        (StreamConfig(name="S", subjects=("a",), num_replicas=5), 10005),
    ],
)
async def test_an_update_that_may_not_be_is_refused(config: StreamConfig, err_code: int) -> None:
    desk = Desk(peers=THREE)
    await desk.create(StreamConfig(name="S", subjects=("a",)))
    await desk.create(StreamConfig(name="T", subjects=("t",)))
    with pytest.raises(ApiError) as caught:
        await desk.frontend.update(ACCOUNT, config, pedantic=False)
    assert caught.value.err_code == err_code


async def test_a_stream_gets_more_replicas_beside_those_it_has_and_fewer_of_them() -> None:
    desk = Desk(peers=THREE)
    await desk.create(StreamConfig(name="S"))
    (first,) = desk.machine.table.streams[StreamKey(ACCOUNT, "S")].peers
    grown = await desk.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=3), pedantic=False)
    assert grown.peers == (N1, N2, N3)
    assert set(grown.newcomers) == {N1, N2, N3} - {first}

    desk.frontend.leader_of = lambda _row: N3
    shrunk = await desk.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=1), pedantic=False)
    assert (shrunk.peers, set(shrunk.leaving)) == ((N3,), {N1, N2})


async def test_an_engine_that_keeps_its_members_refuses_to_change_them_and_proposes_nothing() -> None:
    desk = Desk(peers=THREE)
    await desk.create(StreamConfig(name="S", num_replicas=2))
    (row,) = desk.machine.table.streams.values()
    desk.group.members_may_change = False
    for replicas in (1, 3):
        with pytest.raises(ApiError) as caught:
            await desk.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=replicas), pedantic=False)
        assert caught.value.err_code == 10061
    with pytest.raises(ApiError) as caught:
        await desk.frontend.replace_peer(ACCOUNT, "S", row.peers[0])
    assert caught.value.err_code == 10061
    assert desk.group.proposed == 1
    await desk.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=2, max_msgs=5), pedantic=False)


async def test_the_replica_of_a_node_is_given_to_another_one_when_there_is_one() -> None:
    desk = Desk(peers=THREE)
    await desk.create(StreamConfig(name="S", num_replicas=2))
    row = desk.machine.table.streams[StreamKey(ACCOUNT, "S")]
    (other,) = {N1, N2, N3} - set(row.peers)
    await desk.frontend.replace_peer(ACCOUNT, "S", row.peers[0])
    assert set(desk.machine.table.streams[row.key].peers) == {row.peers[1], other}
    with pytest.raises(ApiError, match="peer not a member"):
        await desk.frontend.replace_peer(ACCOUNT, "S", row.peers[0])
    await desk.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=3), pedantic=False)
    with pytest.raises(ApiError, match="peer remap failed"):
        await desk.frontend.replace_peer(ACCOUNT, "S", row.peers[0])


async def test_replicas_of_nodes_that_are_gone_for_ever_are_made_up_for_when_there_is_another_node() -> None:
    desk = Desk(peers=THREE)
    await desk.create(StreamConfig(name="S", num_replicas=2))
    await desk.create(StreamConfig(name="ALL", num_replicas=3))
    await desk.create(StreamConfig(name="LOST"))
    before = {key.name: row.peers for key, row in desk.machine.table.streams.items()}
    (gone,) = before["LOST"]

    await desk.frontend.heal([node for node in (N1, N2, N3) if node != gone])

    after = {key.name: row.peers for key, row in desk.machine.table.streams.items()}
    assert after["LOST"] == before["LOST"], "there is nothing to copy from"
    assert after["ALL"] == before["ALL"], "there is nobody to copy to"
    assert gone not in after["S"]
    assert len(after["S"]) == 2


async def test_a_removed_stream_leaves_a_tombstone() -> None:
    desk = Desk()
    await desk.create(StreamConfig(name="S"))
    row = await desk.frontend.remove(ACCOUNT, "S")
    assert desk.machine.table.get(row.key) is None
    assert desk.machine.table.is_removed(row.group_id, N1)
    with pytest.raises(ApiError) as caught:
        await desk.frontend.remove(ACCOUNT, "S")
    assert caught.value.err_code == 10059


@pytest.mark.parametrize(("error", "answer"), [(NotLeaderError("x"), Moved), (OutcomeUnknownError("x"), AnswerLost)])
async def test_lost_leadership_is_told_apart_from_an_unknown_outcome(error: Exception, answer: type[Exception]) -> None:
    desk = Desk()
    desk.group.fails = error
    with pytest.raises(answer):
        await desk.create(StreamConfig(name="S"))


async def test_a_follower_names_the_leader_before_it_looks_at_the_request() -> None:
    desk = Desk(peers=THREE)
    desk.machine.became_follower(2, N2)
    with pytest.raises(Moved) as caught:
        await desk.create(StreamConfig(name=""))
    assert caught.value.hint == N2


async def test_names_of_nodes_are_noted_once() -> None:
    desk = Desk(peers=THREE)
    await desk.frontend.name_nodes()
    await desk.frontend.name_nodes()
    assert desk.machine.table.node_names == {N1: "one", **THREE}
    assert desk.group.proposed == 3


def _body(config: StreamConfig) -> bytes:
    return encode(
        AssignStream(
            account=ACCOUNT, config=config, group_id=GroupId("S-R1F-rival"), peers=(N1,), preferred=N1, created_ns=5
        )
    )


async def test_more_bytes_than_there_are_can_not_be_promised() -> None:
    desk = Desk(capacity=1000)
    await desk.create(StreamConfig(name="A", max_bytes=600))
    with pytest.raises(ApiError) as caught:
        await desk.create(StreamConfig(name="B", max_bytes=600))
    assert caught.value.err_code == 10047
    await desk.create(StreamConfig(name="C", max_bytes=400))
    await desk.create(StreamConfig(name="D", max_bytes=5000, storage=StorageType.MEMORY))


async def test_a_cluster_without_room_finds_no_place() -> None:
    desk = Desk(peers=THREE, capacity=1000)
    with pytest.raises(ApiError, match="insufficient storage") as caught:
        await desk.create(StreamConfig(name="B", max_bytes=1001, num_replicas=3))
    assert caught.value.err_code == 10005


async def test_a_server_whose_disk_is_full_says_so_and_still_makes_streams_in_memory() -> None:
    desk = Desk()
    desk.is_short = True
    with pytest.raises(ApiError) as caught:
        await desk.create(StreamConfig(name="S"))
    assert caught.value.err_code == 10047
    assert desk.group.proposed == 0
    await desk.create(StreamConfig(name="M", storage=StorageType.MEMORY))


async def test_a_stream_goes_to_nodes_whose_disk_has_room() -> None:
    desk = Desk(peers=THREE)
    desk.is_short = True
    await desk.create(StreamConfig(name="S", num_replicas=2))
    assert N1 not in next(iter(desk.machine.table.streams.values())).peers
    with pytest.raises(ApiError, match="insufficient storage") as caught:
        await desk.create(StreamConfig(name="T", num_replicas=3))
    assert caught.value.err_code == 10005


async def test_an_update_can_not_promise_more_than_its_nodes_have() -> None:
    desk = Desk(peers=THREE, capacity=1000)
    await desk.create(StreamConfig(name="S", max_bytes=600, num_replicas=3))
    await desk.create(StreamConfig(name="T", max_bytes=300, num_replicas=3))
    with pytest.raises(ApiError) as caught:
        await desk.frontend.update(ACCOUNT, StreamConfig(name="T", max_bytes=401, num_replicas=3), pedantic=False)
    assert caught.value.err_code == 10047
    await desk.frontend.update(ACCOUNT, StreamConfig(name="T", max_bytes=400, num_replicas=3), pedantic=False)


async def test_room_is_counted_for_each_node() -> None:
    desk = Desk(peers=THREE, capacity=1000)
    for name in "ABC":
        await desk.create(StreamConfig(name=name, max_bytes=700))
    placed = {row.peers for row in desk.machine.table.streams.values()}
    assert placed == {(N1,), (N2,), (N3,)}
    with pytest.raises(ApiError, match="insufficient storage"):
        await desk.create(StreamConfig(name="D", max_bytes=700))
    assert await desk.create(StreamConfig(name="E", max_bytes=300))


async def test_a_stream_moves_when_its_new_placement_excludes_its_node() -> None:
    desk = Desk(peers=THREE)
    desk.view.own_profile = NodeProfile(tags=frozenset({"hdd"}))
    await desk.create(StreamConfig(name="S", num_replicas=2))
    moved = await desk.frontend.update(
        ACCOUNT, StreamConfig(name="S", num_replicas=2, placement=Placement(tags=("!hdd",))), pedantic=False
    )
    assert moved.peers == (N2, N3)
    with pytest.raises(ApiError, match=r"tags not matched \['nope'\]"):
        await desk.frontend.update(
            ACCOUNT, StreamConfig(name="S", num_replicas=2, placement=Placement(tags=("nope",))), pedantic=False
        )
    assert desk.machine.table.streams[moved.key] == moved


async def test_creations_side_by_side_see_each_other() -> None:
    desk = Desk(peers=THREE)
    together = SlowGroup(desk.group)
    desk.frontend.group = together
    async with trio.open_nursery() as nursery:
        for name in "ABC":
            nursery.start_soon(desk.create, StreamConfig(name=name))
    assert {row.peers for row in desk.machine.table.streams.values()} == {(N1,), (N2,), (N3,)}


class SlowGroup:
    """Applies only when everybody has proposed."""

    def __init__(self, group: InstantGroup) -> None:
        self.members_may_change = True
        self._group = group

    async def propose_and_wait(self, proposal: Proposal) -> object:
        await trio.testing.wait_all_tasks_blocked()
        return await self._group.propose_and_wait(proposal)
