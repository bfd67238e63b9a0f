"""The meta group's entries survive the trip through the log, and nothing else is taken for one."""

import msgpack
import pytest
from hypothesis import given
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
    decode,
    encode,
)
from jetraft.cluster.state.assignment import Former, StreamAssignment
from jetraft.store.model.config import Placement, StorageType, StreamConfig
from jetraft.store.model.feature_level import FIRST, LEVEL_MAX
from jetraft.store.model.ids import GroupId, NodeId

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
numbers = st.integers(0, 2**63 - 1)
node_ids = st.text("abcdefgh", min_size=8, max_size=8).map(NodeId)
configs = st.builds(
    StreamConfig,
    name=names,
    subjects=st.lists(names, max_size=3).map(tuple),
    max_msgs=st.integers(-1, 2**40),
    storage=st.sampled_from(StorageType),
    placement=st.one_of(st.none(), st.builds(Placement, cluster=names)),
    metadata=st.dictionaries(names, names, max_size=3),
)
peers = st.lists(node_ids, min_size=1, max_size=5, unique=True).map(tuple)
formers = st.one_of(
    st.none(),
    st.builds(
        Former,
        peers=peers,
        replicas=numbers,
        placement=st.one_of(st.none(), st.builds(Placement, cluster=names)),
    ),
)
commands = st.one_of(
    st.builds(
        AssignStream,
        account=names,
        config=configs,
        group_id=names.map(GroupId),
        peers=peers,
        preferred=node_ids,
        created_ns=numbers,
    ),
    st.builds(ReconfigureStream, account=names, incarnation=numbers, config=configs),
    st.builds(RemoveStream, account=names, name=names, incarnation=numbers),
    st.builds(
        AdoptStream,
        row=st.builds(
            StreamAssignment,
            account=names,
            config=configs,
            group_id=names.map(GroupId),
            incarnation=numbers,
            revision=numbers,
            peers=peers,
            preferred=node_ids,
            created_ns=numbers,
            founding=peers,
            leaving=peers,
            newcomers=peers,
            former=formers,
        ),
    ),
    st.builds(AddTemplate, account=names, name=names, config=configs, max_streams=numbers),
    st.builds(RemoveTemplate, account=names, name=names, incarnation=numbers),
    st.builds(NameNode, node_id=node_ids, name=names),
    st.builds(RaiseLevel, level=st.integers(FIRST, LEVEL_MAX)),
)


@given(commands)
def test_a_command_decodes_to_itself(command: Command) -> None:
    assert decode(encode(command)) == command


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_and_never_crash(body: bytes) -> None:
    try:
        decode(body)
    except BadCommandError:
        return
    raise AssertionError("a random body decoded")


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["unknown", 1],
        ["remove", "$G", "S"],
        ["remove", "$G", "S", 1, "one too many"],
        ["remove", "$G", "S", -1],
        ["remove", "$G", "S", "1"],
        ["remove", "$G", "S", True],
        ["remove", b"$G", "S", 1],
        ["assign", "$G", b'{"name":"S"}', "S-R1F-x", [], "n1", 1],
        ["assign", "$G", b'{"name":"S"}', "S-R1F-x", ["n1", "n1"], "n1", 1],
        ["assign", "$G", b'{"name":"S"}', "S-R1F-x", ["1", "2", "3", "4", "5", "6"], "n1", 1],
        ["assign", "$G", b'{"nome":"S"}', "S-R1F-x", ["n1"], "n1", 1],
        ["assign", "$G", b"not json", "S-R1F-x", ["n1"], "n1", 1],
        ["level", 0],
        ["level", LEVEL_MAX + 1],
        ["level", 2, 3],
        ["level"],
    ],
)
def test_a_body_of_the_wrong_shape_is_refused(fields: list[object]) -> None:
    with pytest.raises(BadCommandError):
        decode(msgpack.packb(fields))
