"""What committed commands do to the table, on every node alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.meta.commands import Command, NameNode, ReconfigureStream, RemoveStream, SettleStream
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.state.assignment import StreamKey
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
    assert machine.table.overlapping(ACCOUNT, [b"b"]) is None


def test_a_creation_on_taken_subjects_changes_nothing() -> None:
    machine, errors = applied(assign("S", "a.>"), assign("T", "b", "a.x"))
    assert errors == [None, 10065]
    assert machine.table.get(key("T")) is None
    assert machine.table.overlapping(ACCOUNT, [b"b"]) is None


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
    assert machine.table.overlapping(ACCOUNT, [b"a"]) is None


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


def test_peers_chosen_for_another_row_and_news_of_another_row_change_nothing() -> None:
    machine, codes = applied(assign("A", peers=(N1, N2)), move(N1, based_on=1), move(N2, based_on=1), settle(1))
    assert codes == [None, None, 10202, None]
    assert machine.table.streams[key("A")].holders == (N1, N2)


def test_an_entry_that_does_not_decode_is_an_answer_not_an_exception() -> None:
    machine, errors = applied(b"\xc1", assign("S"))
    assert errors == [10008, None]
    assert machine.bad_commands == 1


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
        others = machine.table.overlapping(ACCOUNT, row.config.subject_filters, ignore=row.config.name)
        assert others is None
