import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.commands import AboveLevelError, MalformedCommandError, to_runs
from jetraft.store.model.feature_level import BASE, FIRST, LEVEL

seqs = st.sets(st.integers(1, 500), max_size=60).map(sorted)
runs = seqs.map(to_runs)
pairs = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 9)), max_size=9).map(tuple)
numbers = st.integers(0, 2**63 - 1)
names = st.text(min_size=1, max_size=8)
consumer_commands = st.one_of(
    st.builds(commands.CreateConsumer, names, st.binary(max_size=20), numbers),
    st.builds(commands.UpdateConsumer, names, st.binary(max_size=20)),
    st.builds(commands.DeleteConsumer, names),
    st.builds(commands.Delivered, names, numbers, numbers, runs),
    st.builds(commands.Redelivered, names, numbers, numbers, pairs),
    st.builds(commands.Acked, names, runs),
    st.builds(commands.AckedLate, names, runs),
    st.builds(commands.AckedUpTo, names, numbers),
    st.builds(commands.ConsumerProgress, names, numbers, runs),
    st.builds(commands.Dropped, names, runs),
    st.builds(commands.GaveUp, names, numbers, names, names, runs),
    st.builds(commands.HandedOn, names, pairs),
    st.builds(commands.ResetConsumer, names, numbers),
)
stream_commands = st.one_of(
    st.builds(commands.UpdateConfig, st.binary(max_size=20)),
    st.builds(commands.SetConfig, st.binary(max_size=20), numbers),
    st.builds(commands.Remove, runs, st.booleans()),
    st.builds(commands.RemoveBelow, numbers),
    st.builds(commands.Purge, st.none() | st.binary(max_size=9), st.none() | numbers, st.none() | numbers),
)


@given(st.lists(consumer_commands, max_size=5))
def test_consumer_commands_come_back_as_they_were(batch: list[commands.ConsumerCommand]) -> None:
    assert commands.decode_consumer_commands(commands.encode_consumer_commands(batch)) == batch


@given(stream_commands)
def test_a_stream_command_comes_back_as_it_was(command: commands.StreamCommand) -> None:
    assert commands.decode_stream_command(commands.encode_stream_command(command)) == command


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb(3),
        msgpack.packb([]),
        msgpack.packb([99, 1]),
        msgpack.packb([3]),
        msgpack.packb([3, "a"]),
        msgpack.packb([3, -1]),
        msgpack.packb([3, 1, 2]),
        msgpack.packb([2, [[1, 2]], True]),
        msgpack.packb([2, b"\x01", True]),
        msgpack.packb([2, b"\x01\x00", True]),
        msgpack.packb([2, b"\x01\x01\x00\x01", True]),
        msgpack.packb([2, b"\x01\x02", 1]),
    ],
)
def test_what_is_not_a_command_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedCommandError):
        commands.decode_stream_command(body)


@pytest.mark.parametrize(
    "item",
    [
        (4, b"c", 1, 1, b"\x01\x01"),
        (4, "c", -1, 1, b"\x01\x01"),
        (4, "c", 1, True, b"\x01\x01"),
        (4, "c", 1, 1.0, b"\x01\x01"),
        (4, "c", 1, 1, "\x01\x01"),
        (4, "c", 1, 1, None),
        (4, "c", 1, 1, b"\x01\x00"),
        (4, "c", 1, 1),
        (6, 1, b"\x01\x01"),
        (6, "c", 1),
        (6, "c"),
        (7, None, 1),
        (7, "c", -1),
        (7, "c", "1"),
        ({}, "c"),
        (True, "c"),
    ],
)
def test_what_is_not_a_consumer_command_is_refused(item: tuple[object, ...]) -> None:
    with pytest.raises(MalformedCommandError):
        commands.decode_consumer_commands(msgpack.packb([item]))


@given(st.binary(max_size=40))
def test_no_bytes_make_decoding_fail_otherwise(body: bytes) -> None:
    with contextlib.suppress(MalformedCommandError):
        commands.decode_consumer_commands(body)


def test_a_command_is_not_encoded_below_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AboveLevelError, match="SetConfig needs feature level 2, 1 is in use"):
        commands.encode_stream_command(commands.SetConfig(b"{}", 1), FIRST)
    for newest in (commands.RemoveBelow, commands.DeleteConsumer):
        monkeypatch.setitem(commands._LEVELS, newest, LEVEL)
    monkeypatch.setattr(commands, "_CONSUMER_LEVEL", LEVEL)
    with pytest.raises(AboveLevelError):
        commands.encode_stream_command(commands.RemoveBelow(3))
    with pytest.raises(AboveLevelError):
        commands.encode_consumer_commands([commands.DeleteConsumer("c")])
    assert BASE < LEVEL
    assert commands.encode_stream_command(commands.RemoveBelow(3), LEVEL)
    assert commands.encode_consumer_commands([commands.DeleteConsumer("c")], LEVEL)


def test_below_their_level_commands_are_what_older_servers_write() -> None:
    config, seqs = commands.SetConfig(b"{}", 1), to_runs([3])
    assert commands.at_level(config, FIRST) == commands.UpdateConfig(b"{}")
    assert commands.at_level(config, BASE) is config
    assert commands.at_level(commands.NoteForgotten(1, by_all=True), FIRST) is None
    batch: list[commands.ConsumerCommand] = [
        commands.GaveUp("c", 1, "why", "", seqs),
        commands.AckedLate("c", seqs),
        commands.HandedOn("c", ((3, 1),)),
    ]
    body = commands.encode_consumer_commands([*batch, commands.Acked("c", seqs)], FIRST)
    expected = [commands.Dropped("c", seqs), commands.Acked("c", seqs)]
    assert commands.decode_consumer_commands(body) == expected
