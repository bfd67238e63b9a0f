"""What committed commands do to the table, on every node alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.commands import (
    AddTemplate,
    AssignStream,
    BadCommandError,
    Command,
    NameNode,
    RaiseLevel,
    ReconfigureStream,
    RemoveStream,
    RemoveTemplate,
    SettleStream,
    row_fields,
)
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.state.assignment import Former, StreamKey
from jetraft.store.model.feature_level import FIRST, LEVEL, MOVES, TEMPLATES, NewerLevelError
from jetraft.store.model.ids import GroupId
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assign, config, entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.store.model.ids import NodeId


def key(name: str) -> StreamKey:
    return StreamKey(ACCOUNT, name)


def applied(*commands: Command | bytes) -> tuple[MetaMachine, list[int | None]]:
    """A machine after these commands at indexes 1, 2, ..., and the err_code of each verdict."""
    machine = MetaMachine()
    verdicts = machine.apply([entry(index, command) for index, command in enumerate(commands, start=1)])
    return machine, [verdict.error.err_code if verdict.error else None for verdict in verdicts]


def test_a_created_stream_takes_the_log_index_as_its_incarnation() -> None:
    machine, errors = applied(NameNode(node_id=N1, name="one"), assign("S"))
    row = machine.table.get(key("S"))
    assert errors == [None, None]
    assert row is not None
    assert (row.incarnation, row.revision) == (2, 2)
    assert machine.table.node_names == {N1: "one"}


def test_a_creation_under_a_taken_name_changes_nothing() -> None:
    machine, errors = applied(assign("S", "a", group="first"), assign("S", "b", group="second"))
    assert errors == [None, 10058]
    row = machine.table.get(key("S"))
    assert row is not None
    assert row.group_id == "first"
    assert not machine.table.are_taken(ACCOUNT, [b"b"])


def test_a_creation_on_taken_subjects_changes_nothing() -> None:
    machine, errors = applied(assign("S", "a.>"), assign("T", "b", "a.x"))
    assert errors == [None, 10065]
    assert machine.table.get(key("T")) is None
    assert not machine.table.are_taken(ACCOUNT, [b"b"])


def test_removal_needs_the_incarnation_it_was_meant_for() -> None:
    """A removal that was proposed for the first S must not delete the second one (nats-server #8123)."""
    remove = RemoveStream(account=ACCOUNT, name="S", incarnation=1)
    machine, errors = applied(assign("S", group="g1"), remove, assign("S", group="g3"), remove)
    assert errors == [None, None, None, 10059]
    row = machine.table.get(key("S"))
    assert row is not None
    assert (row.group_id, row.incarnation) == ("g3", 3)


def test_reconfiguring_keeps_identity_and_moves_the_revision() -> None:
    change = ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S", "b", max_msgs=5))
    machine, errors = applied(assign("S", "a"), change)
    row = machine.table.get(key("S"))
    assert errors == [None, None]
    assert row is not None
    assert (row.incarnation, row.revision, row.config.max_msgs) == (1, 2, 5)
    assert not machine.table.are_taken(ACCOUNT, [b"a"])


def test_reconfiguring_may_not_take_the_subjects_of_another_stream() -> None:
    change = ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S", "a", "b"))
    machine, errors = applied(assign("S", "a"), assign("T", "b"), change)
    assert errors == [None, None, 10065]
    row = machine.table.get(key("S"))
    assert row is not None
    assert row.config.subjects == ("a",)


def move(*peers: NodeId, based_on: int) -> ReconfigureStream:
    return ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("A"), peers=peers, based_on=based_on)


def settle(revision: int) -> SettleStream:
    return SettleStream(account=ACCOUNT, name="A", incarnation=1, revision=revision)


def test_a_node_that_is_to_leave_holds_its_replica_until_it_is_out() -> None:
    machine, _ = applied(assign("A", peers=(N1, N2)), move(N1, N3, based_on=1))
    row = machine.table.streams[key("A")]
    assert (row.peers, row.leaving, row.newcomers, row.founding) == ((N1, N3), (N2,), (N3,), (N1, N2))
    assert row.holders == (N1, N3, N2)
    assert not machine.table.is_removed(row.group_id, N2)

    machine, _ = applied(assign("A", peers=(N1, N2)), move(N1, N3, based_on=1), settle(2))
    assert machine.table.streams[key("A")].holders == (N1, N3)
    assert machine.table.is_removed(row.group_id, N2)
    assert not machine.table.is_removed(row.group_id, N1)


def test_a_node_that_comes_back_is_a_newcomer_and_keeps_its_data() -> None:
    machine, _ = applied(assign("A", peers=(N1, N2)), move(N1, based_on=1), settle(2), move(N1, N2, based_on=2))
    row = machine.table.streams[key("A")]
    assert (row.peers, row.leaving, row.newcomers) == ((N1, N2), (), (N2,))
    assert not machine.table.is_removed(row.group_id, N2)


def test_a_row_remembers_what_a_change_of_its_peers_began_with_until_that_is_complete() -> None:
    changes = [attrs.evolve(move(*peers, based_on=at), incarnation=2) for at, peers in ((2, (N1, N3)), (3, (N3,)))]
    commands: list[Command] = [RaiseLevel(level=MOVES), assign("A", peers=(N1, N2)), *changes]
    machine, _ = applied(*commands)
    row = machine.table.streams[key("A")]
    assert row.former == Former(peers=(N1, N2), replicas=1, placement=None)
    assert row.is_changing
    assert set(row.former.peers) <= set(row.holders)
    machine, _ = applied(*commands, attrs.evolve(settle(4), incarnation=2))
    settled = machine.table.streams[key("A")]
    assert (settled.former, settled.is_changing) == (None, False)


def test_a_change_that_keeps_the_peers_is_no_move() -> None:
    change = attrs.evolve(move(N2, N1, based_on=2), incarnation=2)
    machine, _ = applied(RaiseLevel(level=MOVES), assign("A", peers=(N1, N2)), change)
    row = machine.table.streams[key("A")]
    assert (row.peers, row.former, row.is_changing) == ((N2, N1), None, False)


def test_below_the_level_of_moves_a_row_remembers_nothing_and_older_servers_read_it() -> None:
    machine, _ = applied(assign("A", peers=(N1, N2)), move(N1, N3, based_on=1))
    row = machine.table.streams[key("A")]
    assert (row.former, row.is_changing, len(row_fields(row))) == (None, True, 11)


def test_a_node_that_was_out_when_its_return_was_asked_for_comes_as_a_newcomer() -> None:
    machine, codes = applied(assign("A", peers=(N1, N2)), move(N1, N3, based_on=1), settle(2), move(N1, N2, based_on=2))
    row = machine.table.streams[key("A")]
    assert codes == [None] * 4
    assert (row.peers, row.leaving, set(row.newcomers)) == ((N1, N2), (N3,), {N2, N3})


def test_a_settled_row_is_packed_as_it_was_before_rows_remembered_that() -> None:
    machine, _ = applied(assign("A", peers=(N1, N2)), move(N1, N3, based_on=1), settle(2))
    assert len(row_fields(machine.table.streams[key("A")])) == 11


def test_peers_chosen_for_another_row_and_news_of_another_row_change_nothing() -> None:
    machine, codes = applied(assign("A", peers=(N1, N2)), move(N1, based_on=1), move(N2, based_on=1), settle(1))
    assert codes == [None, None, 10202, None]
    assert machine.table.streams[key("A")].holders == (N1, N2)


@pytest.mark.parametrize("body", [b"\xc1", msgpack.packb(["of a newer version", 1])])
def test_an_entry_that_does_not_decode_stops_the_group(body: bytes) -> None:
    """Passed over, it would leave this member with another table than those that know it."""
    with pytest.raises(BadCommandError):
        applied(assign("S"), body)


def test_a_level_that_the_server_knows_is_in_use_from_its_entry_on_and_never_lower() -> None:
    machine, _ = applied(RaiseLevel(level=LEVEL), RaiseLevel(level=FIRST))
    assert machine.table.feature_level == machine.table.statistics().feature_level == LEVEL
    restored = MetaMachine()
    restored.restore(machine.snapshot())
    assert restored.table.feature_level == LEVEL


def test_a_server_that_does_not_know_the_level_takes_no_part() -> None:
    machine, _ = applied(RaiseLevel(level=LEVEL))
    older = MetaMachine(known_level=LEVEL - 1)
    with pytest.raises(NewerLevelError, match=f"level {LEVEL} and this server knows {LEVEL - 1}"):
        older.apply([entry(1, RaiseLevel(level=LEVEL))])
    with pytest.raises(NewerLevelError):
        MetaMachine(known_level=LEVEL - 1).restore(machine.snapshot())


def test_a_table_of_the_first_level_is_written_as_before_there_were_levels() -> None:
    machine, _ = applied(assign("S"))
    assert msgpack.unpackb(machine.snapshot())[0] == 2


TEMPLATE = AddTemplate(account=ACCOUNT, name="T", config=config("", "c.*"), max_streams=1)


def made(name: str, subject: str) -> AssignStream:
    of_template = attrs.evolve(config(name, subject), metadata={"jetraft.template": "T"})
    return attrs.evolve(assign(name, subject), config=of_template)


def test_two_creations_that_crossed_make_no_more_streams_than_a_template_may() -> None:
    machine, codes = applied(TEMPLATE, made("c_1", "c.1"), made("c_2", "c.2"))
    assert codes == [None, None, 10027]
    assert [stream.name for stream in machine.table.streams] == ["c_1"]


def test_no_stream_is_made_by_a_template_that_went_before_it() -> None:
    removal = RemoveTemplate(account=ACCOUNT, name="T", incarnation=1)
    machine, codes = applied(TEMPLATE, made("c_1", "c.1"), removal, made("c_2", "c.2"), removal)
    assert codes == [None, None, None, 10068, 10068]
    assert not machine.table.streams
    assert machine.table.is_removed(GroupId("S-R1F-c_1"), N1)


def test_the_subjects_of_a_template_and_of_streams_are_never_shared() -> None:
    _, codes = applied(TEMPLATE, assign("S", "c.1"), assign("S", "d"), attrs.evolve(TEMPLATE, name="U"))
    assert codes == [None, 10065, None, 10065]
    _, codes = applied(assign("S", "c.1"), TEMPLATE)
    assert codes == [None, 10065]


def test_a_checkpoint_has_the_templates() -> None:
    machine, _ = applied(RaiseLevel(level=TEMPLATES), TEMPLATE)
    restored = MetaMachine()
    restored.restore(machine.snapshot())
    assert list(restored.table.templates.rows.values()) == list(machine.table.templates.rows.values())


def test_listeners_hear_of_changed_streams_only() -> None:
    machine = MetaMachine()
    heard: list[Sequence[StreamKey]] = []
    machine.on_change.connect(heard.append)
    machine.apply([entry(1, assign("S")), entry(2, assign("S")), entry(3, NameNode(node_id=N1, name="x"))])
    machine.apply([entry(4, assign("S"))])
    assert heard == [[key("S")]]


def test_after_a_snapshot_old_and_new_streams_count_as_changed() -> None:
    donor, _ = applied(assign("B"))
    machine, _ = applied(assign("A"))
    heard: list[Sequence[StreamKey]] = []
    machine.on_change.connect(heard.append)
    machine.restore(donor.snapshot())
    assert heard == [[key("A"), key("B")]]
    assert list(machine.table.streams) == [key("B")]


def test_leadership_is_noted_and_told() -> None:
    machine = MetaMachine()
    told: list[tuple[int | None, str | None]] = []
    machine.on_leader.connect(lambda: told.append((machine.leading_term, machine.leader)))
    machine.became_leader(3)
    machine.became_follower(4, N2)
    assert told == [(3, None), (None, N2)]


names = st.sampled_from("ABC")
subjects = st.sampled_from(["x", "y", "x.>", "*"])
some_commands = st.one_of(
    st.builds(lambda name, subject, group: assign(name, subject, group=f"g{group}"), names, subjects, st.integers()),
    st.builds(lambda name, at: RemoveStream(account=ACCOUNT, name=name, incarnation=at), names, st.integers(1, 12)),
    st.builds(
        lambda name, at, subject: ReconfigureStream(account=ACCOUNT, incarnation=at, config=config(name, subject)),
        names,
        st.integers(1, 12),
        subjects,
    ),
)


@given(st.lists(some_commands, max_size=12), st.integers(0, 12))
def test_a_replica_that_restarts_from_a_snapshot_ends_where_the_others_end(commands: list[Command], cut: int) -> None:
    entries = [entry(index, command) for index, command in enumerate(commands, start=1)]
    straight, first = MetaMachine(), MetaMachine()
    verdicts = straight.apply(entries)
    first.apply(entries[:cut])
    second = MetaMachine()
    second.restore(first.snapshot())
    assert second.apply(entries[cut:]) == verdicts[cut:]
    assert second.snapshot() == straight.snapshot()


@given(st.lists(some_commands, min_size=1, max_size=12), st.integers(0, 12), st.integers(1, 4))
def test_a_log_that_is_applied_again_never_shows_a_table_of_the_past(
    commands: list[Command], cut: int, batch: int
) -> None:
    entries = [entry(index, command) for index, command in enumerate(commands, start=1)]
    first, machine = MetaMachine(), MetaMachine()
    first.apply(entries[:cut])
    machine.apply(entries)
    shown = machine.table.pack()

    machine.rewind()
    if cut:
        machine.restore(first.snapshot())
    for start in range(min(cut, len(entries)), len(entries), batch):
        machine.apply(entries[start : start + batch])
        assert machine.table.pack() == shown
    assert machine.snapshot() == shown


@given(st.lists(some_commands, max_size=12))
def test_no_two_streams_ever_share_a_subject(commands: list[Command]) -> None:
    machine = MetaMachine()
    machine.apply([entry(index, command) for index, command in enumerate(commands, start=1)])
    for row in machine.table.streams.values():
        assert not machine.table.are_taken(ACCOUNT, row.config.subject_filters, ignore=row.config.name)
