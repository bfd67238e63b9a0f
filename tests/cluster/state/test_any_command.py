"""No command that decodes stops a replica: an entry that could not be applied would stop all of them, for good."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.commands import ConsumerCommand, StreamCommand, to_runs
from jetraft.cluster.state.snapshot import encode_config
from jetraft.store.model.config import AckPolicy, ConsumerConfig, DeliverPolicy
from tests.cluster.lab import stream_config
from tests.cluster.state.test_machine import Bench, view

LAST_SEQ = 6  # before the commands
CONSUMERS = [
    ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, metadata={"jetraft.dead_letter": "dead"}),
    ConsumerConfig(durable_name="d", ack_policy=AckPolicy.NONE),
    ConsumerConfig(durable_name="e", ack_policy=AckPolicy.ALL, deliver_policy=DeliverPolicy.LAST_PER_SUBJECT),
]
names = st.sampled_from(["c", "c", "d", "e", "absent"])
seqs = st.integers(0, LAST_SEQ + 4)
numbers = st.one_of(seqs, seqs, st.just(2**63 - 1))
runs = st.sets(st.integers(1, LAST_SEQ + 4), max_size=5).map(sorted).map(to_runs)
pairs = st.lists(st.tuples(seqs, st.integers(0, 3)), max_size=5).map(tuple)
configs = st.sampled_from(CONSUMERS)
COMMANDS = st.one_of(
    st.builds(lambda config: commands.CreateConsumer(config.durable_name, encode_config(config), 1), configs),
    st.builds(lambda name, config: commands.UpdateConsumer(name, encode_config(config)), names, configs),
    st.builds(commands.DeleteConsumer, names),
    st.builds(commands.Delivered, names, numbers, numbers, runs),
    st.builds(commands.Redelivered, names, numbers, numbers, pairs),
    st.builds(commands.Acked, names, runs),
    st.builds(commands.AckedLate, names, runs),
    st.builds(commands.AckedUpTo, names, numbers),
    st.builds(commands.ConsumerProgress, names, numbers, runs),
    st.builds(commands.Dropped, names, runs),
    st.builds(commands.GaveUp, names, st.integers(0, 3), st.just("term"), st.just(""), runs),
    st.builds(commands.HandedOn, names, pairs),
    st.builds(commands.ResetConsumer, names, numbers),
    st.builds(commands.UpdateConfig, st.just(encode_config(stream_config(max_msgs=4)))),
    st.builds(commands.SetConfig, st.just(encode_config(stream_config(max_msgs_per_subject=1))), numbers),
    st.builds(commands.UpdateConfig, st.just(encode_config(stream_config(metadata={"jetraft.chain": "sha256"})))),
    st.builds(commands.SkipTo, numbers.filter(lambda seq: seq < 2**62), numbers),
    st.builds(commands.Remove, runs, st.booleans()),
    st.builds(commands.RemoveBelow, numbers),
    st.builds(commands.Purge, st.sampled_from([None, b"s.a", b"x.*"]), st.none() | numbers, st.none() | numbers),
    st.builds(commands.NoteSource, st.binary(max_size=3), numbers, st.binary(max_size=3)),
)


LINES = st.sampled_from(
    [
        *[b"Nats-Msg-Id: a", b"Nats-Msg-Id:", b"nats-msg-id: b", b"Nats-TTL: 5s", b"Nats-TTL: x", b"Nats-TTL: -1"],
        *[b"Nats-Rollup: all", b"Nats-Rollup: SUB", b"Nats-Rollup:", b"Nats-Schedule: @every 5s", b"Nats-Schedule: ?"],
        *[
            b"Nats-Schedule-Target: s.b",
            b"Nats-Schedule-Next: purge",
            b"Nats-Schedule-Next: \xff",
            b"Nats-Scheduler: s.a",
        ],
        *[
            b"Nats-Scheduler: $JETRAFT.DELAYED.1.s.a",
            b"Nats-Stream-Source: O 3 > > s.a",
            b"Nats-Stream-Source: O 99999999999999999999",
            b"Nats-Stream-Source:",
            *[b"Jetraft-Acked: c 1 1", b"Jetraft-Acked: absent 2 1", b"Jetraft-Acked: c", b"Jetraft-Acked: \xff 9 1"],
            *[b"Jetraft-Acked: c -1 1", b"Jetraft-Acked: c 9999999999999999999 1", b"Jetraft-Acked:"],
        ],
    ]
)
BLOCKS = st.lists(LINES, max_size=4).map(
    lambda lines: b"NATS/1.0\r\n" + b"".join(b"%s\r\n" % one for one in lines) + b"\r\n"
)


@settings(max_examples=400, deadline=None)
@given(
    messages=st.lists(
        st.tuples(st.sampled_from([b"s.a", b"s.b"]), BLOCKS | st.binary(max_size=9), st.integers(0, 63)), max_size=6
    )
)
def test_committed_messages_are_applied_whatever_their_headers_say(messages: list[tuple[bytes, bytes, int]]) -> None:
    """What marks a record was decided by a leader, perhaps of another version, or stands in a backup."""
    bench = Bench(duplicate_window=10**12)
    bench.consumer("c")
    for subject, hdr, flags in messages:
        bench.messages(subject, hdr=hdr, flags=flags)
    restored = Bench(bench.log)
    restored.machine.restore(bench.machine.snapshot())
    assert restored.machine.snapshot() == bench.machine.snapshot()


@settings(max_examples=400, deadline=None)
@given(history=st.lists(COMMANDS, max_size=8))
def test_a_committed_command_is_applied_whatever_it_says(history: list[ConsumerCommand | StreamCommand]) -> None:
    bench = Bench()
    bench.messages(*[b"s.a", b"s.b"] * (LAST_SEQ // 2))
    for config in CONSUMERS:
        bench.consumer_op(commands.CreateConsumer(config.durable_name, encode_config(config), 1))
    for command in history:
        if isinstance(command, StreamCommand):
            bench.stream_op(command)
        else:
            bench.consumer_op(command)
        bench.messages(b"s.a")
    restored = Bench(bench.log)
    restored.machine.restore(bench.machine.snapshot())
    assert restored.machine.snapshot() == bench.machine.snapshot()
    assert view(restored.machine)[2:4] == view(bench.machine)[2:4]
