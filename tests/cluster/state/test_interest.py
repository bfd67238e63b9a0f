"""Interest against its definition, consumer by consumer, through every change; and what applying costs."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_deletion import APPLIED_AT_ONCE_MAX, deletion_of_consumer
from jetraft.cluster.state.snapshot import encode_config
from jetraft.store.model.config import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy
from jetraft.store.model.subject import matches_any
from tests.cluster.state.test_machine import Bench, ack, deliver

SUBJECTS = (b"s.a", b"s.b", b"s.a.x", b"s.b.y")
FILTERS = st.sampled_from(((), ("s.a",), ("s.*",), ("s.>",), ("s.b", "s.a.*"), ("s.*.y",)))
NAMES = st.sampled_from("abcd")
MANY = 3_000


def config_of(filters: tuple[str, ...], **fields: Any) -> bytes:
    fields = {"ack_policy": AckPolicy.EXPLICIT, "num_replicas": 1, **fields}
    return encode_config(ConsumerConfig(filter_subjects=filters, **fields))


def create(name: str, filters: tuple[str, ...], start: int = 0) -> commands.CreateConsumer:
    placed = {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": start} if start else {}
    return commands.CreateConsumer(name, config_of(filters, **placed), 1)


steps = st.one_of(
    st.builds(lambda subjects: ("publish", subjects), st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=3)),
    st.builds(create, NAMES, FILTERS, st.integers(0, 12)),
    st.builds(lambda name, filters: commands.UpdateConsumer(name, config_of(filters)), NAMES, FILTERS),
    st.builds(commands.ResetConsumer, NAMES, st.integers(1, 12)),
    st.builds(commands.DeleteConsumer, NAMES),
    st.builds(lambda name: ("deliver", name), NAMES),
    st.builds(lambda name, place: ("ack", name, place), NAMES, st.integers(0, 3)),
)


def wanting(bench: Bench, seq: int, subject: bytes) -> set[str]:
    """The definition: who is waiting for the message and admits its subject."""
    return {
        name
        for name, consumer in bench.machine.consumers.items()
        if consumer.is_waiting_for(seq) and matches_any(consumer.config.filters, subject)
    }


def check_against_the_definition(bench: Bench) -> None:
    store = bench.machine.store
    for seq in range(1, store.last_seq + 1):
        subject = store.subject_of(seq)
        if subject is None:
            continue
        wanted_by = wanting(bench, seq, subject)
        assert bench.machine.interest.is_wanted(seq, subject) == bool(wanted_by)
        for name in "abcd":
            assert bench.machine.interest.is_wanted(seq, subject, but=name) == bool(wanted_by - {name})
    for subject in SUBJECTS:
        assert bench.machine.is_unwanted(subject) == (not wanting(bench, store.next_seq, subject))


@given(st.lists(steps, max_size=14))
def test_interest_is_what_the_consumers_say_one_by_one_after_every_entry(entries: list[Any]) -> None:
    bench = Bench(retention=RetentionPolicy.INTEREST)
    for step in entries:
        if not isinstance(step, tuple):
            bench.consumer_op(step)
        elif step[0] == "publish":
            bench.messages(*step[1])
        elif (consumer := bench.machine.consumers.get(step[1])) is not None:
            waited = [seq for seq in bench.live() if consumer.is_waiting_for(seq)]
            if step[0] == "deliver" and (new := [seq for seq in waited if seq > consumer.delivered_stream]):
                deliver(bench, step[1], new[0])
            elif step[0] == "ack" and (pending := [seq for seq in waited if seq in consumer.pending]):
                ack(bench, step[1], pending[step[2] % len(pending)])
        check_against_the_definition(bench)


def publish_cost_s(consumers: int, *, filters_each: int, start: int = 0) -> float:
    """The least processor time of an entry with a hundred messages that nobody wants."""
    bench = Bench(retention=RetentionPolicy.INTEREST)
    for number in range(consumers):
        filters = tuple(f"s.{number}.{place}" for place in range(filters_each)) if not start else ("s.b",)
        bench.consumer_op(create(f"c{number}", filters, start))
    bench.messages(b"s.b")
    times = []
    for _ in range(5):
        begun = time.process_time()
        bench.messages(*[b"s.b"] * 100)
        times.append(time.process_time() - begun)
    assert not bench.live()
    return min(times)


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ({"consumers": 1, "filters_each": 3}, {"consumers": 1, "filters_each": MANY}),
        ({"consumers": 3, "filters_each": 1}, {"consumers": MANY, "filters_each": 1}),
        ({"consumers": 3, "filters_each": 1, "start": 10**9}, {"consumers": MANY, "filters_each": 1, "start": 10**9}),
    ],
)
def test_what_a_message_costs_does_not_grow_with_consumers_and_filters(few: Any, many: Any) -> None:
    assert publish_cost_s(**many) < 10 * publish_cost_s(**few)  # one by one it is a thousand times as much


def test_an_ack_does_not_ask_all_who_are_done() -> None:
    """Consumers with one filter acknowledge in order: each asks who waits still, and that is the next one."""

    def acks_cost_s(count: int) -> float:
        bench = Bench(retention=RetentionPolicy.INTEREST)
        for number in range(count):
            bench.consumer_op(create(f"c{number}", ("s.*",)))
        bench.messages(b"s.a")
        for number in range(count):
            deliver(bench, f"c{number}", 1)
        begun = time.process_time()
        for number in range(count):
            ack(bench, f"c{number}", 1)
        used_s = time.process_time() - begun
        assert not bench.live()
        return used_s / count

    assert min(acks_cost_s(2_000) for _ in range(3)) < 5 * min(acks_cost_s(200) for _ in range(3))


def test_a_consumer_of_a_large_interest_stream_is_moved_past_everything_before_it_goes() -> None:
    bench = Bench(retention=RetentionPolicy.INTEREST)
    bench.consumer_op(create("a", ("s.a",)), create("b", ("s.>",)))
    assert deletion_of_consumer(bench.machine, "a") == [commands.DeleteConsumer("a")]
    for _ in range(11):
        bench.messages(*[b"s.a"] * (APPLIED_AT_ONCE_MAX // 10))

    deletion = deletion_of_consumer(bench.machine, "a")
    assert len(deletion) == 2
    assert bench.consumer_op(*deletion) == [True, True]
    assert list(bench.machine.consumers) == ["b"]
    bench.consumer_op(*deletion_of_consumer(bench.machine, "b"))
    assert bench.machine.messages > APPLIED_AT_ONCE_MAX  # what is left over is for the leader to remove
