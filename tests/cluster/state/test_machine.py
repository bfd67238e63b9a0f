"""One log applied on two machines, from the start and from a snapshot: equal state at every index."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.state.snapshot import encode_config
from jetraft.raft.machine import NO_LIVE_MESSAGES
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames._holes import salvage
from jetraft.store.frames.format import (
    FRAME_HEADER_BYTES,
    RECORD_HAS_MSG_ID,
    RECORD_HAS_ROLLUP,
    RECORD_HAS_SCHEDULE,
    RECORD_HAS_TTL,
    Kind,
)
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import AckPolicy, ConsumerConfig, RetentionPolicy
from jetraft.store.model.feature_level import BASE
from jetraft.store.model.feature_level import FIRST as FIRST_LEVEL
from jetraft.store.port import Entry
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.cluster.lab import stream_config


class Deaf:
    """Takes every event and does nothing."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_kwargs: None


class Bench:
    """A log and a machine that applies it as it grows."""

    def __init__(self, log: MemLog | None = None, **fields: Any) -> None:
        self.log = log or MemLog()
        self.machine = StreamMachine(StreamStore(self.log, StoreLimits()), Deaf())
        if log is None:
            self.stream_op(commands.SetConfig(encode_config(stream_config(**fields)), 1))

    def add(self, kind: int, body: bytes, *, count: int = 0, first_seq: int = 0) -> Any:
        index = self.log.last_index + 1
        frame = seal(kind, index=index, term=1, incarnation=1, body=body, count=count, first_seq=first_seq)
        entry = Entry(index=index, term=1, kind=kind, frame=frame)
        self.log.append([entry])
        return self.machine.apply([entry])[0]

    def stream_op(self, command: commands.StreamCommand) -> Any:
        return self.add(Kind.STREAM_OP, commands.encode_stream_command(command))

    def consumer_op(self, *batch: commands.ConsumerCommand) -> Any:
        return self.add(Kind.CONSUMER_OP, commands.encode_consumer_commands(batch))

    def messages(self, *subjects: bytes, hdr: bytes = b"", flags: int = 0) -> Any:
        first_seq = self.machine.last_seq + 1
        body = b"".join(make_record(subject, hdr, b"data", ts_ns=first_seq * 1000, flags=flags) for subject in subjects)
        return self.add(Kind.MESSAGES, body, count=len(subjects), first_seq=first_seq)

    def consumer(self, name: str, **fields: Any) -> None:
        config = ConsumerConfig(durable_name=name, **{"ack_policy": AckPolicy.EXPLICIT, **fields})
        self.consumer_op(commands.CreateConsumer(name, encode_config(config), 5))

    def live(self) -> list[int]:
        return self.machine.store.next_matches((), 1, 1000)


def view(machine: StreamMachine) -> tuple[object, ...]:
    """Everything that must be equal on replicas."""
    store = machine.store
    live = store.next_matches((), 1, 1000)
    messages = [(message.seq, message.subject, message.payload) for message in store.load_many(live)]
    dedup = [machine.dedup.check(b"id-%d" % number) for number in range(4)]
    ttl = bytes(machine.ttl.copy().pack(store.liveness()))
    tables = dedup, ttl, machine.schedules.to_list(machine.is_live)
    return store.state, messages, machine.config, machine.consumers, machine.last_msg_id, tables


def deliver(bench: Bench, name: str, *seqs: int) -> None:
    state = bench.machine.consumers[name]
    bench.consumer_op(commands.Delivered(name, 7, state.delivered_consumer + 1, commands.to_runs(seqs)))


def ack(bench: Bench, name: str, *seqs: int) -> None:
    bench.consumer_op(commands.Acked(name, commands.to_runs(seqs)))


def test_a_log_with_a_revision_takes_what_its_writers_know_while_the_table_is_below() -> None:
    """A member that is away keeps the table low: dead letters and late acks are noted all the same."""
    of_before = Bench(MemLog())
    of_before.stream_op(commands.UpdateConfig(encode_config(stream_config())))
    assert of_before.machine.level(FIRST_LEVEL) == FIRST_LEVEL
    known = Bench()
    assert known.machine.level(FIRST_LEVEL) == BASE
    assert known.machine.level(BASE + 1) == BASE + 1


subjects = st.lists(st.sampled_from([b"s.a", b"s.b", b"s.c"]), min_size=1, max_size=4)
FIRST = commands.to_runs((1,))
OTHERS: dict[str, tuple[commands.ConsumerCommand, ...]] = {
    "again": (commands.Redelivered("c", 9, 5, ((1, 2),)), commands.Redelivered("d", 9, 5, ((1, 3),))),
    "progress": (commands.ConsumerProgress("c", 11, FIRST), commands.ConsumerProgress("d", 12, FIRST)),
    "drop": (commands.Dropped("c", FIRST), commands.Dropped("d", FIRST)),
    "late": (commands.AckedLate("c", FIRST), commands.AckedLate("d", commands.to_runs((1, 2, 5)))),
    "up to": (commands.AckedUpTo("c", 2), commands.AckedUpTo("d", 3)),
    "reset": (commands.ResetConsumer("c", 1),),
    "update": (
        commands.UpdateConsumer("d", encode_config(ConsumerConfig(durable_name="d", ack_wait=3, description="new"))),
    ),
}
history = st.lists(
    st.one_of(
        st.tuples(st.just("messages"), subjects),
        st.tuples(st.just("id"), st.integers(0, 3)),
        st.tuples(st.just("ttl"), st.sampled_from([b"5", b"never"])),
        st.tuples(st.just("rollup"), st.sampled_from([b"sub", b"all"])),
        st.tuples(st.just("schedule"), st.sampled_from([b"s.a", b"s.b"])),
        st.tuples(st.just("produced"), st.sampled_from([b"2030-01-01T00:00:00Z", b"2031-01-01T00:00:00Z", b"purge"])),
        st.tuples(st.just("remove"), st.integers(1, 20)),
        st.tuples(st.just("below"), st.integers(1, 20)),
        st.tuples(st.just("purge"), st.sampled_from([b"s.a", b"s.>"])),
        st.tuples(st.just("limit"), st.integers(1, 6)),
        st.tuples(st.just("consumer"), st.sampled_from(["c", "d"])),
        st.tuples(st.just("delete"), st.sampled_from(["c", "d"])),
        st.tuples(st.just("deliver"), st.sampled_from(["c", "d"])),
        st.tuples(st.just("ack"), st.integers(1, 20)),
        st.tuples(st.just("other"), st.sampled_from(sorted(OTHERS))),
    ),
    max_size=20,
)


def schedule(bench: Bench, subject: bytes) -> None:
    hdr = b"NATS/1.0\r\nNats-Schedule: @every 5s\r\nNats-Schedule-Target: s.c\r\nNats-Rollup: sub\r\n\r\n"
    bench.messages(subject, hdr=hdr, flags=RECORD_HAS_SCHEDULE | RECORD_HAS_ROLLUP)


def produced(bench: Bench, scheduler: bytes, following: bytes) -> None:
    hdr = b"NATS/1.0\r\nNats-Scheduler: %s\r\nNats-Schedule-Next: %s\r\n\r\n" % (scheduler, following)
    bench.messages(b"s.c", hdr=hdr, flags=RECORD_HAS_SCHEDULE)


def play(bench: Bench, steps: list[tuple[str, Any]], retention: RetentionPolicy) -> None:  # noqa: C901, PLR0912  (a table)
    for kind, value in steps:
        match kind:
            case "messages":
                bench.messages(*value)
            case "id":
                bench.messages(b"s.a", hdr=b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % value, flags=RECORD_HAS_MSG_ID)
            case "ttl":
                bench.messages(b"s.b", hdr=b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % value, flags=RECORD_HAS_TTL)
            case "rollup":
                bench.messages(b"s.b", hdr=b"NATS/1.0\r\nNats-Rollup: %s\r\n\r\n" % value, flags=RECORD_HAS_ROLLUP)
            case "schedule":
                schedule(bench, value)
            case "produced":
                produced(bench, b"s.a", value)
            case "remove":
                bench.stream_op(commands.Remove(commands.to_runs((value, value + 1)), erase=False))
            case "below":
                bench.stream_op(commands.RemoveBelow(min(value, bench.machine.last_seq + 1)))
            case "purge":
                bench.stream_op(commands.Purge(value, None, 1))
            case "limit":
                config = stream_config(max_msgs=value, retention=retention)
                bench.stream_op(commands.SetConfig(encode_config(config), value))
            case "consumer":
                bench.consumer(value, filter_subject="s.a" if value == "c" else "")
            case "delete":
                bench.consumer_op(commands.DeleteConsumer(value))
            case "deliver" if value in bench.machine.consumers:
                state = bench.machine.consumers[value]
                found = bench.machine.store.next_matches(state.config.filters, state.delivered_stream + 1, 2)
                if found:
                    deliver(bench, value, *found)
            case "ack":
                ack(bench, "c", value)
                ack(bench, "d", value)
            case "other":
                bench.consumer_op(*OTHERS[value])


@settings(max_examples=60, deadline=None)
@given(history, st.sampled_from(RetentionPolicy), st.integers(0, 19))
def test_replicas_agree_at_every_way_to_apply_the_log(
    steps: list[tuple[str, Any]], retention: RetentionPolicy, cut: int
) -> None:
    bench = Bench(retention=retention, duplicate_window=10**12)
    play(bench, steps[:cut], retention)
    snapshot, index = bench.machine.snapshot(), bench.log.last_index
    play(bench, steps[cut:], retention)
    entries = bench.log.entries(1, bench.log.last_index, 1 << 30)

    at_once = Bench(bench.log)
    at_once.machine.apply(entries)
    assert view(at_once.machine) == view(bench.machine)
    assert at_once.machine.snapshot() == bench.machine.snapshot(), "what an earlier snapshot has left is up to date"

    restored = Bench(bench.log)
    restored.machine.restore(snapshot)
    restored.machine.apply(entries[index:])
    assert view(restored.machine) == view(bench.machine)


@pytest.mark.parametrize("change", [*sorted(OTHERS.keys() - {"late"}), "deliver", "ack", "purge"])
def test_a_snapshot_after_a_snapshot_has_what_changed_between_them(change: str) -> None:
    bench = Bench()
    bench.messages(*[b"s.a"] * 9)
    for name in ("c", "d"):
        bench.consumer(name)
        deliver(bench, name, 1, 2, 3)
    before = bench.machine.snapshot()
    steps = {"deliver": ("deliver", "c"), "ack": ("ack", 2), "purge": ("below", 3)}
    play(bench, [steps.get(change, ("other", change))], RetentionPolicy.LIMITS)
    fresh = Bench(bench.log)
    fresh.machine.apply(bench.log.entries(1, bench.log.last_index, 1 << 30))
    assert bench.machine.snapshot() == fresh.machine.snapshot() != before


def test_a_work_queue_message_goes_with_its_ack() -> None:
    bench = Bench(retention=RetentionPolicy.WORK_QUEUE)
    bench.consumer("c")
    bench.messages(b"s.a", b"s.a", b"s.a")
    deliver(bench, "c", 1, 2)
    ack(bench, "c", 2)
    assert bench.live() == [1, 3]


def test_an_interest_message_goes_when_everyone_who_wants_it_is_done() -> None:
    bench = Bench(retention=RetentionPolicy.INTEREST)
    bench.consumer("c", filter_subject="s.a")
    bench.consumer("d")
    bench.messages(b"s.a", b"s.b")
    deliver(bench, "c", 1)
    ack(bench, "c", 1)
    assert bench.live() == [1, 2]
    deliver(bench, "d", 1, 2)
    ack(bench, "d", 1, 2)
    assert bench.live() == []


def test_an_interest_message_that_nobody_wants_is_not_kept() -> None:
    bench = Bench(retention=RetentionPolicy.INTEREST)
    bench.messages(b"s.a")
    bench.consumer("c", filter_subject="s.a")
    bench.messages(b"s.b", b"s.a")
    assert bench.live() == [3]
    assert bench.machine.last_seq == 3


def test_a_lost_message_stays_listed_though_no_consumer_can_be_said_to_want_it() -> None:
    """Of a hole in a damaged batch nobody knows the subject."""
    bench = Bench(retention=RetentionPolicy.INTEREST)
    bench.consumer("c", filter_subject="s.a")
    records = [make_record(subject, b"", b"data", ts_ns=7) for subject in (b"s.a", b"s.b", b"s.a", b"s.a")]
    index = bench.log.last_index + 1
    frame = bytearray(
        seal(Kind.MESSAGES, index=index, term=1, incarnation=1, body=records, count=4, first_seq=1, summed=True)
    )
    frame[FRAME_HEADER_BYTES + 2 * len(records[0]) + 22] ^= 1
    holed = salvage(frame, offset=0, end=len(frame), incarnation=1, index=index)
    assert holed is not None
    entry = Entry(index=index, term=1, kind=Kind.MESSAGES, frame=holed)
    bench.log.append([entry])
    assert bench.machine.apply([entry]) == [4]
    assert bench.live() == [1, 4]
    assert bench.machine.store.lost() == [(3, 3)]


def test_deleting_a_consumer_releases_what_only_it_wanted() -> None:
    bench = Bench(retention=RetentionPolicy.INTEREST)
    bench.consumer("c", filter_subject="s.a")
    bench.consumer("d", filter_subject="s.b")
    bench.messages(b"s.a", b"s.b")
    bench.consumer_op(commands.DeleteConsumer("c"))
    assert bench.live() == [2]


def test_acks_do_not_remove_from_a_stream_that_keeps_by_limits() -> None:
    bench = Bench()
    bench.consumer("c")
    bench.messages(b"s.a")
    deliver(bench, "c", 1)
    ack(bench, "c", 1)
    assert bench.live() == [1]


def test_a_purge_lets_consumers_forget() -> None:
    bench = Bench()
    bench.consumer("c")
    bench.messages(b"s.a", b"s.a")
    deliver(bench, "c", 1)
    bench.stream_op(commands.RemoveBelow(3))
    state = bench.machine.consumers["c"]
    assert (list(state.pending), state.ack_floor[1]) == ([], 2)
    assert bench.machine.first_live_seq == NO_LIVE_MESSAGES


def test_a_second_creation_of_a_name_changes_nothing() -> None:
    bench = Bench()
    bench.consumer("c")
    before = bench.machine.consumers["c"]
    config = encode_config(ConsumerConfig(durable_name="c", max_deliver=3))
    assert bench.consumer_op(commands.CreateConsumer("c", config, 99)) == [False]
    assert bench.machine.consumers["c"] is before


def test_a_command_for_a_consumer_that_is_gone_changes_nothing() -> None:
    assert Bench().consumer_op(commands.Acked("gone", commands.to_runs((1,))), commands.DeleteConsumer("gone")) == [
        False,
        False,
    ]


@pytest.mark.parametrize("seq", [(1 << 62) + 1, 1 << 63, (1 << 64) - 2])
def test_a_command_about_a_sequence_that_cannot_be_is_applied_without_effect(seq: int) -> None:
    """What a client may ask for must not stop a replica: the number that was proposed is the number that is read."""
    bench = Bench()
    bench.messages(b"a.1")
    assert bench.stream_op(commands.Remove(commands.to_runs([seq]), erase=True)) == 0
    bench.consumer("c")
    bench.consumer_op(commands.ResetConsumer("c", seq))
    bench.consumer_op(commands.Acked("c", commands.to_runs([seq])), commands.AckedUpTo("c", seq))
    assert bench.machine.store.messages == 1


def test_the_configuration_of_an_older_row_changes_nothing() -> None:
    bench = Bench()
    bench.messages(b"s.a", b"s.b", b"s.c")
    newer, older = stream_config(max_msgs=100), stream_config(max_msgs=1)
    bench.stream_op(commands.SetConfig(encode_config(newer), 9))
    assert bench.stream_op(commands.SetConfig(encode_config(older), 8)) == 0
    assert (bench.machine.config, bench.machine.config_revision) == (newer, 9)
    assert bench.machine.store.state.messages == 3, "what the older limits remove cannot be brought back"


def test_the_revision_of_the_configuration_is_part_of_a_snapshot() -> None:
    bench = Bench()
    bench.stream_op(commands.SetConfig(encode_config(stream_config(max_msgs=100)), 9))
    other = Bench(bench.log)
    other.machine.restore(bench.machine.snapshot())
    assert other.machine.config_revision == 9


def test_a_snapshot_and_a_log_of_before_revisions_are_read() -> None:
    bench = Bench()
    bench.stream_op(commands.UpdateConfig(encode_config(stream_config(max_msgs=100))))
    version, *head, _revision, consumers = msgpack.unpackb(bench.machine.snapshot(), strict_map_key=False)
    assert version == 2
    other = Bench(bench.log)
    other.machine.restore(msgpack.packb([1, *head, consumers]))
    assert (other.machine.config, other.machine.config_revision) == (stream_config(max_msgs=100), 0)


def rows(bench: Bench) -> dict[bytes, tuple[int, int]]:
    """The live schedules, with their sequence and when the message that they produced last says they are due."""
    return {row[0]: (row[1], row[5]) for row in bench.machine.schedules.to_list(bench.machine.is_live)}  # type: ignore[misc]


def test_a_schedule_moves_on_with_what_it_produces_and_ends_with_the_last_one() -> None:
    bench = Bench()
    schedule(bench, b"s.a")
    assert rows(bench) == {b"s.a": (1, 0)}
    produced(bench, b"s.a", b"1970-01-01T00:00:05Z")
    assert rows(bench) == {b"s.a": (1, 5_000_000_000)}
    produced(bench, b"s.a", b"purge")
    assert rows(bench) == {}
    assert bench.live() == [2, 3]


def test_a_message_in_its_place_ends_a_schedule() -> None:
    bench = Bench()
    schedule(bench, b"s.a")
    bench.messages(b"s.b", b"s.a")
    assert rows(bench) == {}


def test_another_schedule_in_its_place_begins_from_the_start() -> None:
    bench = Bench()
    schedule(bench, b"s.a")
    produced(bench, b"s.a", b"1970-01-01T00:00:05Z")
    schedule(bench, b"s.a")
    assert rows(bench) == {b"s.a": (3, 0)}


def test_a_removed_schedule_is_none() -> None:
    bench = Bench()
    schedule(bench, b"s.a")
    bench.stream_op(commands.Remove(commands.to_runs((1,)), erase=False))
    assert rows(bench) == {}


def test_the_digest_of_a_slice_covers_its_schedules() -> None:
    digests = []
    for following in (b"1970-01-01T00:00:05Z", b"1970-01-01T00:00:06Z"):
        bench = Bench()
        schedule(bench, b"s.a")
        produced(bench, b"s.a", following)
        index = bench.stream_op(commands.Digest(1, 1, "", 10))
        digests.append(bench.machine.digests[index].messages)
    assert digests[0] != digests[1]


def test_a_snapshot_without_schedules_is_one_that_earlier_servers_read() -> None:
    bench = Bench()
    bench.messages(b"s.a")
    assert msgpack.unpackb(bench.machine.snapshot(), strict_map_key=False)[0] == 2
    schedule(bench, b"s.a")
    assert msgpack.unpackb(bench.machine.snapshot(), strict_map_key=False)[0] == 3


def test_a_snapshot_has_the_schedules() -> None:
    bench = Bench()
    schedule(bench, b"s.a")
    produced(bench, b"s.a", b"1970-01-01T00:00:05Z")
    schedule(bench, b"s.b")
    bench.stream_op(commands.Purge(b"s.b", None, None))
    restored = Bench(bench.log)
    restored.machine.restore(bench.machine.snapshot())
    assert rows(restored) == {b"s.a": (1, 5_000_000_000)}
    assert restored.machine.snapshot() == bench.machine.snapshot()
