import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.membership import BadConfigurationError, Configuration, ConfigurationHistory
from jetraft.store.model.ids import NodeId


def nodes(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(name) for name in text)


@pytest.mark.parametrize(
    ("voters", "granted", "won"),
    [
        ("A", "", False),
        ("A", "A", True),
        ("AB", "A", False),
        ("AB", "AB", True),
        ("ABC", "AB", True),
        ("ABC", "AX", False),
        ("ABCDE", "ABXYZ", False),
        ("ABCDE", "ABE", True),
    ],
)
def test_quorum_counts_voters_only(voters: str, granted: str, won: bool) -> None:  # noqa: FBT001  (a column)
    assert Configuration(voters=nodes(voters)).has_quorum(nodes(granted)) is won


def test_learners_are_not_counted() -> None:
    assert not Configuration(voters=nodes("ABC"), learners=nodes("D")).has_quorum(nodes("AD"))


def test_configuration_survives_encoding() -> None:
    configuration = Configuration(voters=nodes("CAB"), learners=nodes("D"))
    assert Configuration.decode(configuration.encode()) == configuration


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb([]),
        msgpack.packb({"voters": ["A"]}),
        msgpack.packb({"voters": [], "learners": []}),
        msgpack.packb({"voters": "AB", "learners": []}),
        msgpack.packb({"voters": [1], "learners": []}),
        msgpack.packb({"voters": ["A"], "learners": ["A"]}),
        msgpack.packb({"voters": [str(n) for n in range(1000)], "learners": []}),
    ],
)
def test_bytes_that_are_no_configuration_are_refused(data: bytes) -> None:
    with pytest.raises(BadConfigurationError):
        Configuration.decode(data)


@given(st.binary(max_size=60))
def test_decoding_garbage_raises_one_exception_only(data: bytes) -> None:
    try:
        Configuration.decode(data)
    except BadConfigurationError:
        return


def test_rollback_returns_to_the_base_when_no_entry_is_left() -> None:
    """Rule 27; two disjoint quorums otherwise (prototype seeds member-chaos 1114, 1279)."""
    history = ConfigurationHistory(Configuration(voters=nodes("ABC")), base_index=4)
    history.append(7, Configuration(voters=nodes("ABCD")))
    assert history.cut_from(6)
    assert history.current == Configuration(voters=nodes("ABC"))
    assert history.current_index == 4


def test_configuration_at_an_index_is_the_last_one_at_or_before_it() -> None:
    history = ConfigurationHistory(Configuration(voters=nodes("ABC")))
    history.append(5, Configuration(voters=nodes("ABCD")))
    history.append(9, Configuration(voters=nodes("ABCDE")))
    assert [len(history.at(index).voters) for index in (0, 4, 5, 8, 9, 20)] == [3, 3, 4, 4, 5, 5]


def test_rebase_keeps_what_is_in_force() -> None:
    history = ConfigurationHistory(Configuration(voters=nodes("ABC")))
    history.append(5, Configuration(voters=nodes("ABCD")))
    history.append(9, Configuration(voters=nodes("ABCDE")))
    history.rebase(6)
    assert len(history.at(6).voters) == 4
    assert len(history.current.voters) == 5
    history.cut_from(9)
    assert len(history.current.voters) == 4
