"""Who founds the meta group: decisions, the record on disk, and that no two groups come of one cluster."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.members.founding import (
    BadRecordError,
    Founders,
    FoundingStep,
    Record,
    View,
    decide,
    founders_of,
    may_vouch,
    pack_record,
    unpack_record,
)
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import N1, N2, N3

ALL = founders_of("C", [N1, N2, N3])
PAIR = founders_of("C", [N1, N2])


def test_founders_do_not_depend_on_the_order_in_which_nodes_are_seen() -> None:
    assert founders_of("C", [N3, N1, N2]) == ALL
    assert founders_of("D", [N1, N2, N3]).incarnation != ALL.incarnation
    assert PAIR.incarnation != ALL.incarnation != 0


def step(
    *,
    views: dict[NodeId, View],
    sees: Founders = ALL,
    vouched: tuple[Founders, ...] = (ALL,),
    settled: bool = True,
    expected: int = 3,
) -> FoundingStep:
    record = Record(node_id=N1, cluster="C", vouched=vouched)
    return decide(record=record, sees=sees, expected=expected, settled=settled, views=views).step


def view(sees: Founders = ALL, founders: Founders | None = None) -> View:
    return View(founders=founders, vouches=sees.members)


def test_founds_when_everybody_sees_the_same_nodes() -> None:
    assert step(views={N2: view(), N3: view()}) is FoundingStep.FOUND


@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        ("one did not answer", {"views": {N2: view()}}),
        ("one sees less", {"views": {N2: view(), N3: view(PAIR)}}),
        ("too few are there", {"views": {N2: view(PAIR)}, "sees": PAIR}),
        ("nodes are still coming", {"views": {N2: view(), N3: view()}, "settled": False}),
        ("it does not vouch itself", {"views": {N2: view(), N3: view()}, "vouched": (PAIR,)}),
    ],
)
def test_waits_while(case: str, arguments: dict[str, Any]) -> None:
    assert step(**arguments) is FoundingStep.WAIT, case


def test_joins_a_founded_group_that_it_vouched_for_even_when_it_sees_more_nodes_now() -> None:
    more = founders_of("C", [N1, N2, N3, NodeId("late")])
    views = {N2: view(founders=ALL), N3: view()}
    assert step(views=views, sees=more, vouched=(PAIR, ALL, more)) is FoundingStep.FOUND


def test_a_node_whose_disk_was_lost_does_not_come_back_with_its_old_vote() -> None:
    assert step(views={N2: view(founders=ALL), N3: view(founders=ALL)}, vouched=()) is FoundingStep.STAY_OUTSIDE


def test_a_node_that_came_late_stays_outside() -> None:
    others = founders_of("C", [N2, N3])
    assert step(views={N2: view(founders=others), N3: view(founders=others)}) is FoundingStep.STAY_OUTSIDE


node_ids = st.text("abcdefgh", min_size=8, max_size=8).map(NodeId)
founder_sets = st.lists(node_ids, min_size=1, max_size=5, unique=True).map(lambda ids: founders_of("C", ids))
records = st.builds(
    Record,
    node_id=node_ids,
    cluster=st.just("C"),
    vouched=st.lists(founder_sets, max_size=3).map(tuple),
    founded=st.one_of(st.none(), founder_sets),
)


@given(records)
def test_the_record_survives_the_disk(record: Record) -> None:
    assert unpack_record(pack_record(record), node_id=record.node_id, cluster="C") == record


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pack_record(Record(node_id=N2, cluster="C")), "belongs to node"),
        (pack_record(Record(node_id=N1, cluster="D")), "belongs to cluster"),
        (pack_record(Record(node_id=N1, cluster="C")).replace(b'"version": 1', b'"version": 2'), "format version 2"),
        (b"{}", "damaged"),
        (b"\x00" * 100, "damaged"),
    ],
)
def test_a_record_of_another_owner_or_format_is_refused_in_one_line(content: bytes, words: str) -> None:
    with pytest.raises(BadRecordError, match=words) as caught:
        unpack_record(content, node_id=N1, cluster="C")
    assert "\n" not in str(caught.value)


def test_only_so_many_vouches_are_kept() -> None:
    record = Record(node_id=N1, cluster="C")
    for number in range(100):
        record = record.vouching_for(founders_of("C", [NodeId(str(number))]))
    assert len(record.vouched) == 64
    assert record.vouching_for(record.vouched[0]) is record


@pytest.mark.parametrize(
    ("case", "views", "expected", "allowed"),
    [
        ("all answered", {N2: view(PAIR), N3: view(PAIR)}, 3, True),
        ("one did not answer", {N2: view()}, 3, False),
        ("one belongs to a group", {N2: view(), N3: view(founders=PAIR)}, 3, False),
        ("too few", {N2: view(), N3: view()}, 4, False),
    ],
)
def test_vouches_only_for_nodes_that_all_say_they_are_free(
    case: str, views: dict[NodeId, View], expected: int, *, allowed: bool
) -> None:
    record = Record(node_id=N1, cluster="C")
    assert may_vouch(record=record, sees=ALL, expected=expected, views=views) is allowed, case


class Node:
    """One node of the model: what it sees is what the test says, what it wrote survives unless its disk is lost."""

    def __init__(self, node_id: NodeId) -> None:
        self.record = Record(node_id=node_id, cluster="C")
        self.sees: set[NodeId] = {node_id}
        self.vouches: tuple[NodeId, ...] = ()

    def view(self) -> View:
        return View(founders=self.record.founded, vouches=self.vouches)


@given(st.data())
def test_whatever_the_nodes_see_and_when_they_found_at_most_one_group(data: st.DataObject) -> None:
    """Nodes see each other in any order, ask in any order, restart, and lose their disks. Expected are all four.

    Nobody who lost its disk after a founding that counts on it is a member again.
    """
    ids = [NodeId(f"n{number}") for number in range(4)]
    nodes = {node_id: Node(node_id) for node_id in ids}
    lost: set[NodeId] = set()
    founded: set[Founders] = set()
    for _ in range(data.draw(st.integers(1, 60))):
        node_id = data.draw(st.sampled_from(ids))
        me = nodes[node_id]
        match data.draw(st.sampled_from(["ask", "ask", "ask", "see all", "restart", "lose disk"])):
            case "see all":
                me.sees |= set(ids)
            case "restart":
                me.sees, me.vouches = set(ids), ()
            case "lose disk":
                nodes[node_id] = Node(node_id)
                lost |= {node_id} if any(node_id in founders.members for founders in founded) else set()
            case _:
                ask(me, nodes)
                founded |= {me.record.founded} if me.record.founded else set()
    assert len(founded) <= 1
    assert all(nodes[node_id].record.founded is None for node_id in lost)


def ask(me: Node, nodes: dict[NodeId, Node]) -> None:
    """One round of a node, as Bootstrap does it."""
    if me.record.founded is not None:
        return
    sees = founders_of("C", me.sees)
    views = {peer: nodes[peer].view() for peer in sees.members if peer != me.record.node_id}
    decision = decide(record=me.record, sees=sees, expected=4, settled=True, views=views)
    if decision.step is FoundingStep.FOUND:
        me.record = attrs.evolve(me.record, founded=decision.founders)
    elif may_vouch(record=me.record, sees=sees, expected=4, views=views):
        me.record = me.record.vouching_for(sees)
        me.vouches = sees.members
