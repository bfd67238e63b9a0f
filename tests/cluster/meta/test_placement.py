"""Where the replicas of a new stream go."""

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.placement import NodeLoad, Wanted, choose_transfer_target, fits, place
from jetraft.store.model.config import Placement
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


def node(name: str, *, online: bool = True, tags: str = "", **figures: Any) -> NodeLoad:
    return NodeLoad(node_id=NodeId(name), online=online, tags=frozenset(tags.split()), **figures)


@given(wishes, loads)
def test_chosen_nodes_are_online_carry_the_tags_and_are_as_many_as_asked(wanted: Wanted, nodes: list[NodeLoad]) -> None:
    by_id = {load.node_id: load for load in nodes}
    suitable = [load for load in nodes if load.online and carries(wanted, load)]
    if len(suitable) < wanted.replicas:
        with pytest.raises(ApiError, match="no suitable peers"):
            place(wanted, nodes, cluster="C")
        return
    placed = place(wanted, nodes, cluster="C")
    assert len(set(placed.peers)) == wanted.replicas
    assert placed.preferred in placed.peers
    assert all(by_id[peer].online and carries(wanted, by_id[peer]) for peer in placed.peers)


@given(wishes, loads, st.randoms())
def test_the_order_of_the_nodes_does_not_matter(wanted: Wanted, nodes: list[NodeLoad], rng: object) -> None:
    shuffled = list(nodes)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # st.randoms gives a Random
    assert outcome(wanted, nodes) == outcome(wanted, shuffled)


def carries(wanted: Wanted, load: NodeLoad) -> bool:
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
        (Wanted(replicas=3), "no suitable peers for placement, peer offline"),
        (Wanted(replicas=1, cluster="other"), "no suitable peers for placement"),
        (Wanted(replicas=2, tags=("x",)), "no suitable peers for placement, peer offline, tags not matched ['x']"),
        (Wanted(replicas=2, max_bytes=9), "no suitable peers for placement, peer offline, insufficient storage"),
    ],
)
def test_refusals_are_in_the_words_of_the_reference(wanted: Wanted, text: str) -> None:
    with pytest.raises(ApiError, match=r"no suitable peers") as caught:
        place(wanted, [node("a", room_bytes=9), node("b", room_bytes=8), node("c", online=False)], cluster="C")
    assert caught.value.description == text


def test_a_node_has_at_most_as_many_replicas_of_streams_with_several_as_the_limit_says() -> None:
    nodes = [node("a", replicated=2), node("b", replicated=1), node("c"), node("d")]
    assert place(Wanted(replicas=3, replicated_max=2), nodes, cluster="C").peers == ("b", "c", "d")
    assert place(Wanted(replicas=1), nodes[:1], cluster="C").peers == ("a",)
    with pytest.raises(ApiError, match="no suitable peers for placement, miscellaneous issue"):
        place(Wanted(replicas=3, replicated_max=1), nodes, cluster="C")
    assert fits(nodes[0], Wanted(replicas=3, replicated_max=2), cluster="C")


def test_a_node_whose_disk_is_full_gets_nothing_new_and_keeps_what_it_has() -> None:
    full = node("a", is_short=True)
    assert place(Wanted(replicas=1), [full, node("b", replicas=9)], cluster="C").peers == ("b",)
    assert fits(full, Wanted(replicas=1), cluster="C")


def test_a_new_replicated_stream_may_count_on_a_minority_that_is_away() -> None:
    nodes = [node("a", replicas=5), node("b", replicas=5), node("c", online=False), node("d", online=False)]
    placed = place(Wanted(replicas=3, away_max=1), nodes, cluster="C")
    assert placed.peers == ("a", "b", "c")
    assert placed.preferred == "a", "who is away does not lead"
    with pytest.raises(ApiError, match="peer offline"):
        place(Wanted(replicas=4, away_max=1), nodes, cluster="C")
    enough = [*nodes, node("e", replicas=9)]
    assert place(Wanted(replicas=3, away_max=1), enough, cluster="C").peers == ("a", "b", "e")


ZONES = [node("a", tags="az:a ssd"), node("b", tags="az:a hdd"), node("c", tags="az:b ssd")]


@pytest.mark.parametrize(
    ("wanted", "peers"),
    [
        (Wanted(replicas=1, tags=("hdd",)), ("b",)),
        (Wanted(replicas=2, tags=("SSD",)), ("a", "c")),
        (Wanted(replicas=1, tags=("!ssd",)), ("b",)),
        (Wanted(replicas=2, unique_tag="AZ:"), ("a", "c")),
        (Wanted(replicas=1, unique_tag="az:", taken=frozenset({"az:a"})), ("c",)),
    ],
)
def test_tags_choose_the_nodes(wanted: Wanted, peers: tuple[str, ...]) -> None:
    assert place(wanted, ZONES, cluster="C").peers == peers


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Wanted(replicas=2, tags=("nope", "hdd")), "tags not matched ['nope']"),
        (Wanted(replicas=3, tags=("hdd", "ssd")), "tags not matched ['hdd', 'ssd']"),
        (Wanted(replicas=2, tags=("!ssd",)), "tags excluded ['ssd']"),
        (Wanted(replicas=3, unique_tag="az:"), "server tag not unique"),
        (Wanted(replicas=1, unique_tag="rack:"), "server tag not unique"),
    ],
)
def test_a_refusal_says_which_tags_stand_in_the_way(wanted: Wanted, reason: str) -> None:
    with pytest.raises(ApiError) as caught:
        place(wanted, ZONES, cluster="C")
    assert caught.value.description == f"no suitable peers for placement, {reason}"


def test_a_replica_stays_on_a_node_that_carries_the_tags_though_it_is_away_and_full() -> None:
    away = node("a", online=False, room_bytes=0, tags="ssd")
    assert fits(away, Wanted(replicas=1, tags=("ssd",), max_bytes=5), cluster="C")
    assert not fits(away, Wanted(replicas=1, tags=("hdd",)), cluster="C")
    assert not fits(away, Wanted(replicas=1, cluster="X"), cluster="C")


MEMBERS = [
    attrs.evolve(load, name=f"n{number}", leaders=leaders)
    for number, (load, leaders) in enumerate(zip(ZONES, (0, 7, 5), strict=True), 1)
]


@pytest.mark.parametrize(
    ("placement", "heir"),
    [
        (None, None),
        (Placement(), "c"),
        (Placement(preferred="n2"), "b"),
        (Placement(preferred="n2", tags=("nope",)), "b"),
        (Placement(cluster="C", tags=("HDD",)), "b"),
        (Placement(tags=("az:b", "ssd")), "c"),
    ],
)
def test_leadership_goes_to_the_one_asked_for_or_to_who_leads_least(placement: Placement, heir: str) -> None:
    assert choose_transfer_target(placement, MEMBERS, own=NodeId("a"), cluster="C") == heir


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (Placement(preferred="n1"), 'preferred server "n1" is already leader'),
        (Placement(preferred="n9"), 'preferred server "n9" not known'),
        (Placement(cluster="X"), "no replacement peer connected"),
        (Placement(tags=("ssd", "hdd")), "no replacement peer connected"),
    ],
)
def test_a_step_down_that_nobody_fits_is_refused(placement: Placement, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        choose_transfer_target(placement, MEMBERS, own=NodeId("a"), cluster="C")
    assert (caught.value.err_code, caught.value.description) == (10005, text)
