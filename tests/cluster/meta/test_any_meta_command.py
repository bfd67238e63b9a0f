"""No command that decodes stops the meta group, and a table that is restored is the one that was packed.

One that does not decode is not proposed (frontend.py).
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.meta.commands import (
    AddTemplate,
    AdoptStream,
    AssignStream,
    BadCommandError,
    Command,
    NameNode,
    RaiseLevel,
    ReconfigureStream,
    RemoveStream,
    RemoveTemplate,
    SettleStream,
    decode,
    encode,
)
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.state.assignment import Former, StreamAssignment
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.feature_level import FIRST, LEVEL
from jetraft.store.model.ids import GroupId, NodeId
from tests.cluster.meta.makers import N1, N2, N3, entry

accounts = st.sampled_from(["A", "B"])
streams = st.sampled_from(["S", "T", ""])
subjects = st.sampled_from(["a.>", "a.*", "b", ">", "", "a..b"])
numbers = st.one_of(st.integers(0, 9), st.integers(0, 9), st.just(2**63 - 1))
groups = st.sampled_from(["g", "h"]).map(GroupId)
nodes = st.sampled_from([N1, N2, N3, NodeId("")])
peers = st.lists(nodes, min_size=1, max_size=4, unique=True).map(tuple)
configs = st.builds(
    StreamConfig,
    name=streams,
    subjects=st.lists(subjects, max_size=2).map(tuple),
    num_replicas=st.sampled_from([0, 1, 3, 99]),
    metadata=st.sampled_from([{}, {"jetraft.template": "T"}, {"jetraft.template": ""}]),
)
formers = st.one_of(st.none(), st.builds(Former, peers=peers, replicas=numbers, placement=st.none()))
COMMANDS = st.one_of(
    st.builds(
        AssignStream,
        account=accounts,
        config=configs,
        group_id=groups,
        peers=peers,
        preferred=nodes,
        created_ns=numbers,
    ),
    st.builds(ReconfigureStream, account=accounts, incarnation=numbers, config=configs, peers=peers, based_on=numbers),
    st.builds(SettleStream, account=accounts, name=streams, incarnation=numbers, revision=numbers),
    st.builds(RemoveStream, account=accounts, name=streams, incarnation=numbers),
    st.builds(
        AdoptStream,
        row=st.builds(
            StreamAssignment,
            account=accounts,
            config=configs,
            group_id=groups,
            incarnation=numbers,
            revision=numbers,
            peers=peers,
            preferred=nodes,
            created_ns=numbers,
            founding=peers,
            leaving=peers,
            newcomers=peers,
            former=formers,
        ),
    ),
    st.builds(AddTemplate, account=accounts, name=streams, config=configs, max_streams=numbers),
    st.builds(RemoveTemplate, account=accounts, name=streams, incarnation=numbers),
    st.builds(NameNode, node_id=nodes, name=streams),
    st.builds(RaiseLevel, level=st.integers(FIRST, LEVEL)),
)


def decodes(command: Command) -> bool:
    """Whether it could be proposed."""
    try:
        return decode(encode(command)) == command
    except BadCommandError:
        return False


@settings(max_examples=400, deadline=None)
@given(history=st.lists(COMMANDS.filter(decodes), max_size=8))
def test_a_committed_command_is_applied_whatever_it_says(history: list[Command]) -> None:
    machine, restored = MetaMachine(), MetaMachine()
    machine.apply([entry(index, command) for index, command in enumerate(history, start=1)])
    restored.restore(machine.snapshot())
    assert restored.snapshot() == machine.snapshot()
