from collections.abc import Sequence

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.config import AckPolicy, ConsumerConfig
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.consumer_state import ConsumerState


def state_of(policy: AckPolicy = AckPolicy.EXPLICIT, **fields: int) -> ConsumerState:
    return ConsumerState(
        name="c", config=ConsumerConfig(ack_policy=policy), created_ns=1, start_seq=fields.get("start_seq", 1)
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("ack"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("ack_up_to"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("redeliver"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("purge"), st.integers(0, 30), st.just(0)),
    ),
    max_size=25,
)


def apply(state: ConsumerState, step: tuple[str, int, int]) -> Runs:
    kind, number, gap = step
    match kind:
        case "deliver":
            first = state.delivered_stream + gap
            return state.deliver(Runs(range(first, first + number)), state.delivered_consumer + 1, 5)
        case "ack":
            return state.ack(Runs([number]))
        case "ack_up_to":
            return state.ack_up_to(number)
        case "redeliver":
            state.redeliver([(number, 2)], state.delivered_consumer + 1, 6)
        case "drop":
            state.drop(Runs([number]))
        case "purge":
            state.purged_below(number)
    return Runs()


def test_a_consumer_that_was_reset_below_its_start_is_restored_as_it_is() -> None:
    """A replica that starts from a snapshot has the bytes of the others."""
    state = state_of(start_seq=100)
    state.reset(1)
    again = ConsumerState.from_tuple(state.config, state.to_tuple())
    assert (again.delivered_stream, again.to_tuple()) == (0, state.to_tuple())


@given(steps)
def test_floors_never_go_back_and_nothing_is_done_twice(history: list[tuple[str, int, int]]) -> None:
    state, done = state_of(), list[int]()
    for step in history:
        before, delivered = state.ack_floor, state.delivered_stream
        done += apply(state, step)
        assert state.ack_floor[1] >= before[1]
        assert state.delivered_stream >= delivered
        assert all(seq <= state.delivered_stream for seq in state.pending)
        assert list(state.pending) == sorted(state.pending)
        assert not any(state.is_waiting_for(seq) for seq in done)
    assert len(done) == len(set(done))


@given(steps)
def test_a_snapshot_is_the_state(history: list[tuple[str, int, int]]) -> None:
    state = state_of()
    for step in history:
        apply(state, step)
    assert ConsumerState.from_tuple(state.config, state.to_tuple()) == state


def test_the_floor_stands_below_the_oldest_unacked_message() -> None:
    state = state_of()
    state.deliver(Runs([2, 4, 6]), 1, 9)
    assert state.ack_floor == (0, 1)
    assert state.ack(Runs([4])) == Runs([4])
    assert state.ack_floor == (0, 1)
    assert state.ack(Runs([2])) == Runs([2])
    assert state.ack_floor == (2, 5)
    assert state.ack(Runs([6])) == Runs([6])
    assert state.ack_floor == (3, 6)


def test_without_acks_delivered_means_done() -> None:
    state = state_of(AckPolicy.NONE)
    assert state.deliver(Runs([1, 3]), 1, 9) == Runs([1, 3])
    assert state.ack_floor == (2, 3)
    assert not state.pending


def test_an_ack_from_before_the_delivery_is_kept_until_the_delivery_comes() -> None:
    state = state_of()
    assert state.ack(Runs([3])) == Runs([3])
    assert not state.is_waiting_for(3)
    assert state.ack(Runs([3])) == Runs([])
    state.deliver(Runs([1, 2, 3]), 1, 9)
    assert list(state.pending) == [1, 2]
    assert state.acked_ahead == set()


def watcher(initial: Runs, resume_seq: int) -> ConsumerState:
    return ConsumerState(
        name="c", config=ConsumerConfig(), created_ns=1, start_seq=3, initial=initial, resume_seq=resume_seq
    )


@pytest.mark.parametrize("initial", [(), (3, 7), range(1, 100_000), (1, 2**62)])
def test_a_state_is_packed_as_earlier_servers_pack_it(initial: Sequence[int]) -> None:
    state = watcher(Runs(initial), resume_seq=2**63)
    assert state.pack() == msgpack.packb(state.to_tuple())
    assert ConsumerState.from_tuple(state.config, msgpack.unpackb(state.pack())) == state


def test_a_consumer_of_last_messages_waits_only_for_those_and_for_new_ones() -> None:
    state = ConsumerState(
        name="c", config=ConsumerConfig(), created_ns=1, start_seq=3, initial=Runs((3, 7)), resume_seq=9
    )
    assert [seq for seq in range(1, 12) if state.is_waiting_for(seq)] == [3, 7, 9, 10, 11]


def test_a_reset_starts_again() -> None:
    state = state_of()
    state.deliver(Runs([1, 2, 3]), 1, 9)
    state.reset(2)
    assert (state.delivered_stream, state.delivered_consumer, list(state.pending)) == (1, 0, [])
