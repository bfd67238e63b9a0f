"""What the meta leader answers to requests about streams; the group applies what is proposed at once."""

import random
from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.meta.commands import AssignStream, ReconfigureStream, encode
from jetraft.cluster.meta.frontend import Bounds, MetaFrontend
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.meta_group import MetaGroupRef
from jetraft.cluster.meta.profile import KEY, NodeProfile
from jetraft.cluster.meta.view import ClusterView
from jetraft.cluster.state.assignment import StreamKey
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError
from jetraft.store.frames.format import Kind
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.config import Placement, StorageType, StreamConfig
from jetraft.store.model.errors import ApiError
from jetraft.store.model.feature_level import MOVES
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.limits import ServerLimits
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, entry

if TYPE_CHECKING:
    from jetraft.cluster.meta.meta_group import MetaGroup


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


class Requests:
    """A frontend with its surroundings."""

    def __init__(
        self, *, peers: dict[NodeId, str] | None = None, capacity: int | None = None, bounds: Bounds | None = None
    ) -> None:
        self.machine = MetaMachine()
        self.machine.became_leader(1)
        self.members = {N1: "one", **(peers or {})}
        self.group = InstantGroup(self.machine)
        view = ClusterView(
            node_id=N1,
            server_name="one",
            cluster_name="C",
            peers=None if peers is None else lambda: {node: Up(name, capacity) for node, name in peers.items()},
            machine=self.machine,
            members=lambda: list(self.members),
        )
        self.view = view
        if capacity is not None:
            view.own_profile = NodeProfile(capacity={StorageType.FILE: capacity})
        self.is_short = False
        self.leaders: dict[str, NodeId] = {}
        self.meta_group = MetaGroupRef(cast("MetaGroup", self.group))
        self.frontend = MetaFrontend(
            machine=self.machine,
            cluster=view,
            meta_group=self.meta_group,
            clock=ManualClock(),
            rng=random.Random(1),
            leader_of=lambda row: self.leaders.get(row.config.name, row.preferred),
            is_short=lambda: self.is_short,
            bounds=bounds,
        )

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
    requests = Requests(peers=THREE)
    created = await requests.frontend.create(ACCOUNT, StreamConfig(name="S", num_replicas=3), pedantic=False)
    row = created.assignment
    assert created.fresh
    assert row.peers == (N1, N2, N3)
    assert row.preferred in row.peers
    assert row.group_id.startswith("S-R3F-")
    assert len(row.group_id) == len("S-R3F-") + 8
    assert row.created_ns == ManualClock().unix_ns()
    assert row.config.subjects == ("S",)


async def test_the_same_request_again_is_answered_and_proposes_nothing() -> None:
    requests = Requests()
    config = StreamConfig(name="S", subjects=("a",))
    assert await requests.create(config) is True
    assert await requests.create(config) is False
    assert requests.group.proposed == 1


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
    requests = Requests()
    await requests.create(StreamConfig(name="S", subjects=("a.*",)))
    with pytest.raises(ApiError) as caught:
        await requests.create(config)
    assert caught.value.err_code == err_code
    assert requests.group.proposed == 1


async def test_more_replicas_than_nodes_find_no_place() -> None:
    with pytest.raises(ApiError, match="no suitable peers") as caught:
        await Requests(peers=THREE).create(StreamConfig(name="S", num_replicas=5))
    assert caught.value.err_code == 10005


async def test_placement_is_ignored_by_a_server_that_stands_alone() -> None:
    assert await Requests().create(StreamConfig(name="S", placement=Placement(cluster="x", tags=("y",)))) is True


async def test_a_race_that_is_lost_to_the_same_request_is_answered_as_success() -> None:
    """Two clients create the same stream at the same time; both leave happy."""
    requests = Requests()
    await requests.create(StreamConfig(name="S", subjects=("a",)))
    row = requests.machine.table.get(StreamKey(ACCOUNT, "S"))
    assert row is not None
    rival = Requests()
    rival.group.before = [_body(row.config)]
    created = await rival.frontend.create(ACCOUNT, StreamConfig(name="S", subjects=("a",)), pedantic=False)
    assert not created.fresh


async def test_a_race_that_is_lost_to_another_config_is_refused() -> None:
    requests = Requests()
    requests.group.before = [_body(assign("S", "b").config)]
    with pytest.raises(ApiError) as caught:
        await requests.create(StreamConfig(name="S", subjects=("a",)))
    assert caught.value.err_code == 10058


async def test_an_update_changes_what_may_change() -> None:
    requests = Requests()
    await requests.create(StreamConfig(name="S", subjects=("a",)))
    changed = await requests.frontend.update(
        ACCOUNT, StreamConfig(name="S", subjects=("b",), max_msgs=9), pedantic=False
    )
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
    requests = Requests(peers=THREE)
    await requests.create(StreamConfig(name="S", subjects=("a",)))
    await requests.create(StreamConfig(name="T", subjects=("t",)))
    with pytest.raises(ApiError) as caught:
        await requests.frontend.update(ACCOUNT, config, pedantic=False)
    assert caught.value.err_code == err_code


async def test_a_stream_gets_more_replicas_beside_those_it_has_and_fewer_of_them() -> None:
    requests = Requests(peers=THREE)
    await requests.create(StreamConfig(name="S"))
    (first,) = requests.machine.table.streams[StreamKey(ACCOUNT, "S")].peers
    grown = await requests.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=3), pedantic=False)
    assert grown.peers == (N1, N2, N3)
    assert set(grown.newcomers) == {N1, N2, N3} - {first}

    requests.leaders["S"] = N3
    shrunk = await requests.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=1), pedantic=False)
    assert (shrunk.peers, set(shrunk.leaving)) == ((N3,), {N1, N2})


async def test_an_engine_that_keeps_its_members_refuses_to_change_them_and_proposes_nothing() -> None:
    requests = Requests(peers=THREE)
    await requests.create(StreamConfig(name="S", num_replicas=2))
    (row,) = requests.machine.table.streams.values()
    requests.group.members_may_change = False
    for replicas in (1, 3):
        with pytest.raises(ApiError) as caught:
            await requests.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=replicas), pedantic=False)
        assert caught.value.err_code == 10061
    with pytest.raises(ApiError) as caught:
        await requests.frontend.replace_peer(ACCOUNT, "S", row.peers[0])
    assert caught.value.err_code == 10061
    assert requests.group.proposed == 1
    await requests.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=2, max_msgs=5), pedantic=False)


async def test_the_replica_of_a_node_is_given_to_another_one_when_there_is_one() -> None:
    requests = Requests(peers=THREE)
    await requests.create(StreamConfig(name="S", num_replicas=2))
    row = requests.machine.table.streams[StreamKey(ACCOUNT, "S")]
    (other,) = {N1, N2, N3} - set(row.peers)
    await requests.frontend.replace_peer(ACCOUNT, "S", row.peers[0])
    assert set(requests.machine.table.streams[row.key].peers) == {row.peers[1], other}
    with pytest.raises(ApiError, match="peer not a member"):
        await requests.frontend.replace_peer(ACCOUNT, "S", row.peers[0])
    await requests.frontend.update(ACCOUNT, StreamConfig(name="S", num_replicas=3), pedantic=False)
    with pytest.raises(ApiError, match="peer remap failed"):
        await requests.frontend.replace_peer(ACCOUNT, "S", row.peers[0])


async def test_replicas_of_nodes_that_are_gone_for_ever_are_made_up_for_when_there_is_another_node() -> None:
    requests = Requests(peers=THREE)
    await requests.create(StreamConfig(name="S", num_replicas=2))
    await requests.create(StreamConfig(name="ALL", num_replicas=3))
    await requests.create(StreamConfig(name="LOST"))
    before = {key.name: row.peers for key, row in requests.machine.table.streams.items()}
    (gone,) = before["LOST"]

    unhealed = await requests.frontend.heal([node for node in (N1, N2, N3) if node != gone])

    assert unhealed == {
        f"stream {ACCOUNT} > ALL": f"no other server can take the replica of {requests.view.name_of(gone)}",
        f"stream {ACCOUNT} > LOST": f"only {requests.view.name_of(gone)} has its messages; it is served again when that"
        " server is a member again",
    }
    after = {key.name: row.peers for key, row in requests.machine.table.streams.items()}
    assert after["LOST"] == before["LOST"], "there is nothing to copy from"
    assert after["ALL"] == before["ALL"], "there is nobody to copy to"
    assert gone not in after["S"]
    assert len(after["S"]) == 2


async def test_a_row_that_changes_while_replicas_are_given_to_others_holds_up_no_other_stream() -> None:
    """Another command comes between the look at the row and the change that goes by it."""
    requests = Requests(peers={**THREE, NodeId("n4"): "four"})
    for number in range(5):
        await requests.create(StreamConfig(name=f"S{number}", num_replicas=3))
    rows = list(requests.machine.table.streams.values())
    gone = next(node for node in (N2, N3) if sum(node in row.peers for row in rows) > 1)
    first = next(row for row in rows if gone in row.peers)
    changed = ReconfigureStream(
        account=ACCOUNT, incarnation=first.incarnation, config=first.config, peers=(), based_on=first.revision
    )
    requests.group.before = [encode(changed)]
    members = [node for node in requests.view.members if node != gone]

    unhealed = await requests.frontend.heal(members)

    assert list(unhealed) == [f"stream {ACCOUNT} > {first.config.name}"]
    assert not await requests.frontend.heal(members), "the next look finds the row as it is now"
    assert all(gone not in row.peers for row in requests.machine.table.streams.values())


async def test_a_removed_stream_leaves_a_tombstone() -> None:
    requests = Requests()
    await requests.create(StreamConfig(name="S"))
    row = await requests.frontend.remove(ACCOUNT, "S")
    assert requests.machine.table.get(row.key) is None
    assert requests.machine.table.is_removed(row.group_id, N1)
    with pytest.raises(ApiError) as caught:
        await requests.frontend.remove(ACCOUNT, "S")
    assert caught.value.err_code == 10059


@pytest.mark.parametrize(("error", "answer"), [(NotLeaderError("x"), Moved), (OutcomeUnknownError("x"), AnswerLost)])
async def test_lost_leadership_is_told_apart_from_an_unknown_outcome(error: Exception, answer: type[Exception]) -> None:
    requests = Requests()
    requests.group.fails = error
    with pytest.raises(answer):
        await requests.create(StreamConfig(name="S"))


async def test_a_follower_names_the_leader_before_it_looks_at_the_request() -> None:
    requests = Requests(peers=THREE)
    requests.machine.became_follower(2, N2)
    with pytest.raises(Moved) as caught:
        await requests.create(StreamConfig(name=""))
    assert caught.value.hint == N2


async def test_names_of_nodes_are_noted_once() -> None:
    requests = Requests(peers=THREE)
    await requests.frontend.name_nodes()
    await requests.frontend.name_nodes()
    assert requests.machine.table.node_names == {N1: "one", **THREE}
    assert requests.group.proposed == 3


def _body(config: StreamConfig) -> bytes:
    return encode(
        AssignStream(
            account=ACCOUNT, config=config, group_id=GroupId("S-R1F-rival"), peers=(N1,), preferred=N1, created_ns=5
        )
    )


async def test_more_bytes_than_there_are_can_not_be_promised() -> None:
    requests = Requests(capacity=1000)
    await requests.create(StreamConfig(name="A", max_bytes=600))
    with pytest.raises(ApiError) as caught:
        await requests.create(StreamConfig(name="B", max_bytes=600))
    assert caught.value.err_code == 10047
    await requests.create(StreamConfig(name="C", max_bytes=400))
    await requests.create(StreamConfig(name="D", max_bytes=5000, storage=StorageType.MEMORY))


async def test_a_cluster_without_room_finds_no_place() -> None:
    requests = Requests(peers=THREE, capacity=1000)
    with pytest.raises(ApiError, match="insufficient storage") as caught:
        await requests.create(StreamConfig(name="B", max_bytes=1001, num_replicas=3))
    assert caught.value.err_code == 10005


async def test_a_server_whose_disk_is_full_says_so_and_still_makes_streams_in_memory() -> None:
    requests = Requests()
    requests.is_short = True
    with pytest.raises(ApiError) as caught:
        await requests.create(StreamConfig(name="S"))
    assert caught.value.err_code == 10047
    assert requests.group.proposed == 0
    await requests.create(StreamConfig(name="M", storage=StorageType.MEMORY))


async def test_streams_with_several_replicas_are_bounded_on_a_server() -> None:
    requests = Requests(peers=THREE, bounds=Bounds(limits=ServerLimits(max_ha_assets=1)))
    await requests.create(StreamConfig(name="S", num_replicas=3))
    with pytest.raises(ApiError, match="no suitable peers for placement, miscellaneous issue") as caught:
        await requests.create(StreamConfig(name="T", num_replicas=3))
    assert caught.value.err_code == 10005
    await requests.create(StreamConfig(name="T"))
    with pytest.raises(ApiError) as caught:
        await requests.frontend.update(ACCOUNT, StreamConfig(name="T", num_replicas=3), pedantic=False)
    assert caught.value.err_code == 10023
    assert requests.machine.table.promised_load.replicated(N1) == 1


async def test_a_stream_goes_to_nodes_whose_disk_has_room() -> None:
    requests = Requests(peers=THREE)
    requests.is_short = True
    await requests.create(StreamConfig(name="S", num_replicas=2))
    assert N1 not in next(iter(requests.machine.table.streams.values())).peers
    with pytest.raises(ApiError, match="insufficient storage") as caught:
        await requests.create(StreamConfig(name="T", num_replicas=3))
    assert caught.value.err_code == 10005


async def test_an_update_can_not_promise_more_than_its_nodes_have() -> None:
    requests = Requests(peers=THREE, capacity=1000)
    await requests.create(StreamConfig(name="S", max_bytes=600, num_replicas=3))
    await requests.create(StreamConfig(name="T", max_bytes=300, num_replicas=3))
    with pytest.raises(ApiError) as caught:
        await requests.frontend.update(ACCOUNT, StreamConfig(name="T", max_bytes=401, num_replicas=3), pedantic=False)
    assert caught.value.err_code == 10047
    await requests.frontend.update(ACCOUNT, StreamConfig(name="T", max_bytes=400, num_replicas=3), pedantic=False)


async def test_room_is_counted_for_each_node() -> None:
    requests = Requests(peers=THREE, capacity=1000)
    for name in "ABC":
        await requests.create(StreamConfig(name=name, max_bytes=700))
    placed = {row.peers for row in requests.machine.table.streams.values()}
    assert placed == {(N1,), (N2,), (N3,)}
    with pytest.raises(ApiError, match="insufficient storage"):
        await requests.create(StreamConfig(name="D", max_bytes=700))
    assert await requests.create(StreamConfig(name="E", max_bytes=300))


async def test_a_stream_moves_when_its_new_placement_excludes_its_node() -> None:
    requests = Requests(peers=THREE)
    requests.view.own_profile = NodeProfile(tags=frozenset({"hdd"}))
    await requests.create(StreamConfig(name="S", num_replicas=2))
    moved = await requests.frontend.update(
        ACCOUNT, StreamConfig(name="S", num_replicas=2, placement=Placement(tags=("!hdd",))), pedantic=False
    )
    assert moved.peers == (N2, N3)
    with pytest.raises(ApiError, match=r"tags not matched \['nope'\]"):
        await requests.frontend.update(
            ACCOUNT, StreamConfig(name="S", num_replicas=2, placement=Placement(tags=("nope",))), pedantic=False
        )
    assert requests.machine.table.streams[moved.key] == moved


async def test_a_move_leaves_a_node_or_any_but_the_leaders_and_keeps_the_config() -> None:
    requests = Requests(peers=THREE)
    requests.machine.table.feature_level = MOVES
    await requests.create(StreamConfig(name="S", num_replicas=2))
    row = requests.machine.table.streams[StreamKey(ACCOUNT, "S")]
    leader, other = row.peers
    (spare,) = {N1, N2, N3} - set(row.peers)
    requests.leaders["S"] = leader
    with pytest.raises(ApiError, match="peer not a member"):
        await requests.frontend.move(ACCOUNT, "S", None, away=spare)
    with pytest.raises(ApiError, match="no suitable peers"):
        await requests.frontend.move(ACCOUNT, "S", Placement(cluster="Z"), away=None)
    moved = await requests.frontend.move(ACCOUNT, "S", None, away=None)
    assert (set(moved.peers), moved.leaving, moved.config) == ({leader, spare}, (other,), row.config)
    with pytest.raises(ApiError, match="stream move already in progress"):
        await requests.frontend.move(ACCOUNT, "S", None, away=None)
    cancelled = await requests.frontend.cancel_move(ACCOUNT, "S")
    assert (set(cancelled.peers), cancelled.leaving) == (set(row.peers), (spare,))
    assert await requests.frontend.cancel_move(ACCOUNT, "S") == cancelled
    await requests.frontend.settle(ACCOUNT, "S", incarnation=row.incarnation, revision=cancelled.revision)
    with pytest.raises(ApiError, match="stream reconfiguration not in progress"):
        await requests.frontend.cancel_move(ACCOUNT, "S")


async def test_a_change_is_not_taken_back_to_a_node_that_is_no_member_any_more() -> None:
    requests = Requests(peers=THREE)
    requests.machine.table.feature_level = MOVES
    await requests.create(StreamConfig(name="S", num_replicas=2))
    gone, *_ = requests.machine.table.streams[StreamKey(ACCOUNT, "S")].peers
    await requests.frontend.move(ACCOUNT, "S", None, away=gone)
    del requests.members[gone]
    with pytest.raises(ApiError, match="peer remap failed"):
        await requests.frontend.cancel_move(ACCOUNT, "S")


async def test_creations_side_by_side_see_each_other() -> None:
    requests = Requests(peers=THREE)
    together = SlowGroup(requests.group)
    requests.meta_group.replace(cast("MetaGroup", together))
    async with trio.open_nursery() as nursery:
        for name in "ABC":
            nursery.start_soon(requests.create, StreamConfig(name=name))
    assert {row.peers for row in requests.machine.table.streams.values()} == {(N1,), (N2,), (N3,)}


class SlowGroup:
    """Applies only when everybody has proposed."""

    def __init__(self, group: InstantGroup) -> None:
        self.members_may_change = True
        self._group = group

    async def propose_and_wait(self, proposal: Proposal) -> object:
        await trio.testing.wait_all_tasks_blocked()
        return await self._group.propose_and_wait(proposal)
