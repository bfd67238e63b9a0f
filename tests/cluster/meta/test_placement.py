"""Where the replicas of a new stream go."""

from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.placement import NodeLoad, Wanted, place
from jetraft.store.model.errors import ApiError
from jetraft.store.model.ids import NodeId

loads = st.lists(
    st.builds(
        NodeLoad,
        node_id=st.text("abcdef", min_size=1, max_size=3).map(NodeId),
        online=st.booleans(),
        replicas=st.integers(0, 5),
        leaders=st.integers(0, 5),
        reserved_bytes=st.integers(0, 5),
        tags=st.frozensets(st.sampled_from(["ssd", "eu"])),
    ),
    max_size=7,
    unique_by=lambda load: load.node_id,
)
wishes = st.builds(
    Wanted,
    replicas=st.integers(1, 5),
    tags=st.lists(st.sampled_from(["ssd", "eu", "!ssd"]), max_size=2).map(tuple),
)


def node(name: str, *, online: bool = True, replicas: int = 0, leaders: int = 0, reserved_bytes: int = 0) -> NodeLoad:
    return NodeLoad(
        node_id=NodeId(name), online=online, replicas=replicas, leaders=leaders, reserved_bytes=reserved_bytes
    )


@given(wishes, loads)
def test_chosen_nodes_are_online_carry_the_tags_and_are_as_many_as_asked(wanted: Wanted, nodes: list[NodeLoad]) -> None:
    by_id = {load.node_id: load for load in nodes}
    suitable = [load for load in nodes if load.online and fits(wanted, load)]
    if len(suitable) < wanted.replicas:
        with pytest.raises(ApiError, match="no suitable peers"):
            place(wanted, nodes, cluster="C")
        return
    placed = place(wanted, nodes, cluster="C")
    assert len(set(placed.peers)) == wanted.replicas
    assert placed.preferred in placed.peers
    assert all(by_id[peer].online and fits(wanted, by_id[peer]) for peer in placed.peers)


@given(wishes, loads, st.randoms())
def test_the_order_of_the_nodes_does_not_matter(wanted: Wanted, nodes: list[NodeLoad], rng: object) -> None:
    shuffled = list(nodes)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # st.randoms gives a Random
    assert outcome(wanted, nodes) == outcome(wanted, shuffled)


def fits(wanted: Wanted, load: NodeLoad) -> bool:
    return all((tag[1:] not in load.tags) if tag.startswith("!") else tag in load.tags for tag in wanted.tags)


def outcome(wanted: Wanted, nodes: list[NodeLoad]) -> object:
    try:
        return place(wanted, nodes, cluster="C")
    except ApiError as error:
        return error.description


def test_fewest_replicas_come_first_then_least_reserved_bytes() -> None:
    nodes = [node("a", replicas=2), node("b", replicas=1, reserved_bytes=9), node("c", replicas=1, reserved_bytes=3)]
    assert place(Wanted(replicas=1), nodes, cluster="C").peers == ("c",)
    assert place(Wanted(replicas=2), nodes, cluster="C").peers == ("b", "c")


def test_streams_and_leaders_spread_over_the_nodes() -> None:
    nodes = [node(name) for name in "abcde"]
    led: Counter[NodeId] = Counter()
    for _ in range(50):
        placed = place(Wanted(replicas=3), nodes, cluster="C")
        led[placed.preferred] += 1
        nodes = [
            attrs.evolve(
                load,
                replicas=load.replicas + (load.node_id in placed.peers),
                leaders=load.leaders + (load.node_id == placed.preferred),
            )
            for load in nodes
        ]
    assert {load.replicas for load in nodes} == {30}
    assert max(led.values()) - min(led.values()) <= 2


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (Wanted(replicas=3), "no suitable peers for placement"),
        (Wanted(replicas=1, cluster="other"), "no suitable peers for placement"),
        (Wanted(replicas=1, tags=("x",)), "no suitable peers for placement, tags not matched ['x']"),
    ],
)
def test_refusals_are_in_the_words_of_the_reference(wanted: Wanted, text: str) -> None:
    with pytest.raises(ApiError, match=r"no suitable peers") as caught:
        place(wanted, [node("a"), node("b"), node("c", online=False)], cluster="C")
    assert caught.value.description == text
