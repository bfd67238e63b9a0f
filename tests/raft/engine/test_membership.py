import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.membership import (
    BadConfigurationError,
    Configuration,
    ConfigurationHistory,
    SettledUpTo,
    settled_of,
)
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
    history.append(7, 1, Configuration(voters=nodes("ABCD")))
    assert history.cut_from(6)
    assert history.current == Configuration(voters=nodes("ABC"))
    assert history.current_index == 4


def test_configuration_at_an_index_is_the_last_one_at_or_before_it() -> None:
    history = ConfigurationHistory(Configuration(voters=nodes("ABC")))
    history.append(5, 1, Configuration(voters=nodes("ABCD")))
    history.append(9, 1, Configuration(voters=nodes("ABCDE")))
    assert [len(history.at(index).voters) for index in (0, 4, 5, 8, 9, 20)] == [3, 3, 4, 4, 5, 5]


def test_rebase_keeps_what_is_in_force() -> None:
    history = ConfigurationHistory(Configuration(voters=nodes("ABC")))
    history.append(5, 1, Configuration(voters=nodes("ABCD")))
    history.append(9, 1, Configuration(voters=nodes("ABCDE")))
    history.rebase(6)
    assert len(history.at(6).voters) == 4
    assert len(history.current.voters) == 5
    history.cut_from(9)
    assert len(history.current.voters) == 4


ADMISSION = SettledUpTo(index=9, term=3)


def admitted() -> ConfigurationHistory:
    """That of a member that C has admitted as a learner, by entry 9 in term 3."""
    return ConfigurationHistory(Configuration(voters=nodes("C"), learners=nodes("A")), settled=ADMISSION)


def test_what_is_older_than_an_admission_changes_nothing_while_the_log_is_filled() -> None:
    """Rule 30: with the configurations of before it, those that were admitted could elect a leader of their own."""
    history = admitted()
    history.append(2, 1, Configuration(voters=nodes("A")))
    history.append(5, 2, Configuration(voters=nodes("AC")))
    assert history.current == history.at(5) == Configuration(voters=nodes("C"), learners=nodes("A"))
    history.append(9, 3, Configuration(voters=nodes("C"), learners=nodes("A")))
    history.append(12, 3, Configuration(voters=nodes("AC")))
    assert history.current == Configuration(voters=nodes("AC"))
    history.cut_from(12)
    assert history.current == Configuration(voters=nodes("C"), learners=nodes("A"))


def test_an_admission_outlives_checkpoints_and_restarts_until_the_log_has_come_to_it() -> None:
    history = admitted()
    packed = history.encode_at(4)
    history.rebase(4)
    assert (Configuration.decode(packed), settled_of(packed)) == (history.current, ADMISSION)
    again = ConfigurationHistory(Configuration.decode(packed), 4, settled=settled_of(packed))
    again.append(5, 3, Configuration(voters=nodes("A")))
    assert again.current == history.current
    assert settled_of(again.encode_at(9)) is None
    again.rebase(9)
    assert again.settled is None


def test_a_later_term_below_an_admission_is_in_a_log_without_it() -> None:
    """Those that had it are gone: who outlives them, and all who are filled by that one, go by what it has written."""
    history = admitted()
    history.append(2, 3, Configuration(voters=nodes("A")))
    assert not history.is_filled(5, 3)
    history.append(6, 4, Configuration(voters=nodes("B"), learners=nodes("A")))
    assert history.current == Configuration(voters=nodes("B"), learners=nodes("A"))
    assert history.is_filled(6, 4)
    again = ConfigurationHistory(history.at(4), 4, settled=settled_of(history.encode_at(4)))
    again.append(6, 4, history.current)
    again.append(7, 4, Configuration(voters=nodes("AB")))
    assert again.current == Configuration(voters=nodes("AB"))


@pytest.mark.parametrize(
    "settled", [9, "9", None, 1.5, [], [9], [9, 3, 1], [-1, 3], [9, -1], [1 << 63, 3], [9, 1 << 63], [True, 3], "93"]
)
def test_an_admission_that_cannot_be_is_refused(settled: object) -> None:
    with pytest.raises(BadConfigurationError):
        settled_of(msgpack.packb({"voters": ["A"], "learners": [], "settled": settled}))


@pytest.mark.parametrize("data", [b"", b"\xc1", msgpack.packb([1]), msgpack.packb(7)])
def test_bytes_without_a_configuration_have_no_admission(data: bytes) -> None:
    with pytest.raises(BadConfigurationError):
        settled_of(data)
