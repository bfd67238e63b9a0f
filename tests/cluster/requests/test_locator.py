"""Who is asked first, who is asked next, and what is let through here."""

from typing import TYPE_CHECKING, cast

import attrs
import pytest

from jetraft.cluster.calls.forward import Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.meta.meta_group import MetaGroup, MetaGroupRef
from jetraft.cluster.requests.locator import Owners
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model.errors import ApiError
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, assignment, entry
from tests.cluster.wire import Wire, WireMesh

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

KEY = StreamKey(ACCOUNT, "S")


@attrs.define
class Replica:
    leader: NodeId | None = None
    is_leader: bool = False


class Stage:
    """Node N1 with its links, its table and perhaps a replica of the stream S."""

    def __init__(self, *linked: NodeId) -> None:
        self.wire = wire = Wire()
        for node in linked:
            wire.link(N1, node)
        self.machine = MetaMachine()
        self.replicas: dict[StreamKey, Replica] = {}
        self.meta_group = MetaGroupRef()
        self.owners = Owners(
            node_id=N1,
            mesh=WireMesh(wire, N1),
            machine=self.machine,
            meta_group=self.meta_group,
            replica_of=lambda key: cast("StreamReplica | None", self.replicas.get(key)),
        )

    def assign(self, *peers: NodeId) -> None:
        self.machine.apply([entry(1, assign("S", peers=peers))])

    def asked_in_turn(self, owner: Owner) -> list[NodeId]:
        """Whom a request about S is sent to while everybody says that it is not theirs."""
        request = ForwardedRequest(
            account=ACCOUNT, owner=owner, stream="S", repeatable=True, subject=b"s", hdr=b"", payload=b""
        )
        asked: list[NodeId] = []
        while (place := self.owners.locate(request, set(asked))) is not None and place not in asked:
            asked.append(place)
        return asked


def test_what_anybody_may_do_is_done_where_it_was_asked() -> None:
    assert Stage(N2).asked_in_turn(Owner.ANY) == [N1]


@pytest.mark.parametrize(("leader", "asked"), [(N3, [N3, N2]), (None, [N2, N3])])
def test_the_meta_leader_is_asked_first_and_then_those_who_may_know_it(
    leader: NodeId | None, asked: list[NodeId]
) -> None:
    stage = Stage(N2, N3)
    stage.machine.became_follower(1, leader)
    assert stage.asked_in_turn(Owner.META) == asked


def test_the_meta_leader_asks_itself_first() -> None:
    stage = Stage(N2)
    stage.machine.became_leader(1)
    assert stage.asked_in_turn(Owner.META) == [N1, N2]


def test_nodes_that_are_away_are_not_asked() -> None:
    stage = Stage(N2)
    stage.machine.became_follower(1, N3)
    assert stage.asked_in_turn(Owner.META) == [N2]


@pytest.mark.parametrize(
    ("replica", "asked"),
    [(Replica(leader=N2), [N2]), (Replica(leader=None), [N1, N2]), (Replica(leader=N1, is_leader=True), [N1])],
)
def test_a_replica_knows_the_leader_of_its_stream(replica: Replica, asked: list[NodeId]) -> None:
    stage = Stage(N2, N3)
    stage.assign(N1, N2)
    stage.replicas[KEY] = replica
    assert stage.asked_in_turn(Owner.STREAM) == asked


def test_a_leader_without_a_link_is_asked_where_another_node_is_linked_with_both() -> None:
    stage = Stage(N3)
    stage.assign(N1, N2, N3)
    stage.replicas[KEY] = Replica(leader=N2)
    assert stage.asked_in_turn(Owner.STREAM) == []
    stage.wire.link(N2, N3)
    assert stage.asked_in_turn(Owner.STREAM) == [N2]


def test_without_a_replica_its_holders_are_asked_and_without_a_row_the_meta_leader() -> None:
    stage = Stage(N2, N3)
    stage.machine.became_follower(1, N3)
    assert stage.asked_in_turn(Owner.STREAM) == [N3, N2]
    stage.assign(N2, N3)
    assert stage.asked_in_turn(Owner.STREAM) == [N2, N3]


def test_a_stream_that_is_led_here_is_let_through() -> None:
    stage = Stage()
    stage.replicas[KEY] = replica = Replica(leader=N1, is_leader=True)
    assert cast("Replica", stage.owners.leading(*KEY)) is replica


def test_a_follower_passes_on_whom_it_follows() -> None:
    stage = Stage()
    stage.replicas[KEY] = Replica(leader=N2)
    with pytest.raises(Moved) as moved:
        stage.owners.leading(*KEY)
    assert moved.value.hint == N2


def test_only_the_meta_leader_knows_that_there_is_no_such_stream() -> None:
    stage = Stage()
    with pytest.raises(Moved):
        stage.owners.leading(*KEY)
    stage.machine.became_leader(1)
    with pytest.raises(ApiError, match="stream not found"):
        stage.owners.leading(*KEY)
    stage.assign(N2)
    with pytest.raises(Moved):
        stage.owners.leading(*KEY)


def test_the_meta_group_is_given_to_who_leads_it() -> None:
    stage = Stage()
    group = cast("MetaGroup", object())
    stage.meta_group.replace(group)
    stage.machine.became_follower(1, N2)
    for refused in (stage.owners.require_meta, stage.owners.leading_meta):
        with pytest.raises(Moved) as moved:
            refused()
        assert moved.value.hint == N2
    stage.machine.became_leader(2)
    assert stage.owners.leading_meta() is group
    assert stage.owners.meta_leader == N1


def test_a_stream_without_a_replica_here_is_led_where_it_began() -> None:
    stage = Stage()
    row = assignment("S", peers=(N2, N3))
    assert stage.owners.leader_of(row) == N2
    stage.replicas[KEY] = Replica(leader=N3)
    assert stage.owners.leader_of(row) == N3
