import random
import time

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.consumers.pending import NEVER_NS, PendingTable, WaitPolicy
from jetraft.store.model.config import AckPolicy, ConsumerConfig
from jetraft.store.stream._runs import Runs
from jetraft.store.stream._unacked import UnackedTable
from jetraft.store.stream.consumer_state import ConsumerState

STEPS_MAX = 8  # usual steps, of which 2 are measured
MANY = 200_000
WAIT = WaitPolicy(ack_wait_ns=100, backoff_ns=(), max_deliver=-1)


def table_of(*seqs: int, policy: WaitPolicy = WAIT) -> PendingTable:
    table = PendingTable(policy)
    for place, seq in enumerate(seqs, 1):
        table.add(Runs((seq,)), place, 0)
    return table


def redeliver_all(table: PendingTable, now_ns: int) -> list[int]:
    again = []
    while (seq := table.next_redelivery()) is not None:
        table.redelivered(seq, now_ns)
        again.append(seq)
    return again


def test_what_is_not_acknowledged_is_delivered_again_and_again() -> None:
    table = table_of(1, 2)
    assert table.expire(99) == Runs()
    assert redeliver_all(table, 99) == []
    table.expire(100)
    assert redeliver_all(table, 100) == [1, 2]
    table.remove(Runs([1]))
    table.expire(200)
    assert redeliver_all(table, 200) == [2]
    assert table.num_redelivered == 1


def test_a_nak_brings_it_back_when_it_says() -> None:
    table = table_of(1, 2)
    table.redeliver_at(2, 30)
    table.expire(29)
    assert redeliver_all(table, 29) == []
    table.expire(30)
    assert redeliver_all(table, 30) == [2]


def test_a_sign_of_progress_starts_the_wait_again() -> None:
    table = table_of(1)
    assert table.restart_wait(1, 60)
    assert not table.restart_wait(9, 60)
    table.expire(159)
    assert redeliver_all(table, 159) == []
    table.expire(160)
    assert redeliver_all(table, 160) == [1]


def test_a_changed_wait_holds_for_what_is_awaited_already() -> None:
    table = table_of(1, 2)
    table.redeliver_at(2, 130)  # a nak with a delay
    table.follow(WaitPolicy(ack_wait_ns=60, backoff_ns=(), max_deliver=-1))
    table.expire(59)
    assert redeliver_all(table, 59) == []
    table.expire(60)
    assert redeliver_all(table, 60) == [1]
    table.expire(90)
    assert redeliver_all(table, 90) == [2]
    table.follow(WaitPolicy(ack_wait_ns=NEVER_NS, backoff_ns=(), max_deliver=-1))
    table.expire(10**15)
    assert redeliver_all(table, 10**15) == []


def test_an_ack_in_the_redelivery_queue_takes_it_out() -> None:
    table = table_of(1, 2)
    table.expire(100)
    table.remove(Runs([1]))
    assert table.next_redelivery() == 2


def test_backoff_sets_each_wait_and_its_last_one_stays() -> None:
    policy = WaitPolicy(ack_wait_ns=100, backoff_ns=(10, 20), max_deliver=-1)
    assert [policy.wait_ns(count) for count in (1, 2, 3, 4)] == [10, 20, 20, 20]


def test_what_was_delivered_as_often_as_allowed_is_given_up() -> None:
    table = table_of(1, policy=WaitPolicy(ack_wait_ns=100, backoff_ns=(), max_deliver=2))
    assert table.expire(100) == Runs()
    assert redeliver_all(table, 100) == [1]
    assert table.expire(200) == Runs([1])
    assert len(table) == 0
    assert table.num_redelivered == 0


def test_a_new_leader_goes_on_with_the_waits() -> None:
    state = ConsumerState(name="c", config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT), created_ns=0, start_seq=1)
    state.pending.put(1, 1, 1_000, 1)  # waited 70 of 100
    state.pending.put(2, 2, 900, 3)  # overdue
    state.pending.put(3, 3, 9_000, 1)  # a clock that was ahead: a full wait at most
    table = PendingTable.of_state(state, WAIT, now_ns=5, now_unix_ns=1_070)
    assert table.num_redelivered == 1
    due = []
    for now_ns in (5, 34, 35, 104, 105):
        table.expire(now_ns)
        due.append(redeliver_all(table, now_ns))
    assert due == [[2], [], [1], [], [2, 3]]


def test_acknowledged_messages_leave_nothing_behind() -> None:
    table = PendingTable(WAIT)
    for seq in range(1, 50_000):
        table.add(Runs([seq]), seq, 0)
        table.remove(Runs([seq]))
    table.add(Runs([50_000, 50_001]), 50_000, 7)
    assert len(table._heap) <= 2_000
    table.expire(107)
    assert redeliver_all(table, 107) == [50_000, 50_001]


def test_a_wait_longer_than_time_itself_is_no_wait() -> None:
    table = table_of(1, policy=WaitPolicy(ack_wait_ns=NEVER_NS, backoff_ns=(), max_deliver=-1))
    table.redeliver_at(1, 2 * NEVER_NS)
    assert table.wake_ns <= NEVER_NS
    assert table.expire(NEVER_NS - 1) == Runs()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.just(0)),
        st.tuples(st.just("ack"), st.integers(1, 12)),
        st.tuples(st.just("nak"), st.integers(1, 12)),
        st.tuples(st.just("progress"), st.integers(1, 12)),
        st.tuples(st.just("sleep"), st.integers(1, 120)),
    ),
    max_size=40,
)


@given(steps)
def test_every_unacked_message_comes_again_and_no_acked_one(history: list[tuple[str, int]]) -> None:
    """Against a dict of deadlines."""
    table, deadlines, now_ns, last_seq = PendingTable(WAIT), dict[int, int](), 0, 0
    for kind, value in history:
        match kind:
            case "add":
                last_seq += 1
                table.add(Runs([last_seq]), last_seq, now_ns)
                deadlines[last_seq] = now_ns + 100
            case "ack":
                assert table.remove(Runs([value])) == Runs([value] if value in deadlines else [])
                deadlines.pop(value, None)
            case "nak":
                table.redeliver_at(value, now_ns)
                if value in deadlines:
                    deadlines[value] = now_ns
            case "progress":
                table.restart_wait(value, now_ns)
                if value in deadlines:
                    deadlines[value] = now_ns + 100
            case _:
                now_ns += value
        table.expire(now_ns)
        due = {seq for seq, deadline in deadlines.items() if deadline <= now_ns}
        assert set(redeliver_all(table, now_ns)) == due
        deadlines.update(dict.fromkeys(due, now_ns + 100))
        assert len(table) == len(deadlines)
        assert table.wake_ns <= min(deadlines.values(), default=NEVER_NS)


def test_what_is_due_at_once_is_queued_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetraft.cluster.consumers.pending.EXPIRED_MAX", 4)
    table = PendingTable(WAIT)
    table.add(Runs(range(1, 11)), 1, 0)
    for seq in (3, 20):
        table.redeliver_at(seq, 90)
    again = []
    while table.wake_ns <= 100:
        table.expire(100)
        found = redeliver_all(table, 100)
        assert len(found) <= 4
        again += found
    assert again == [3, 1, 2, 4, 5, 6, 7, 8, 9, 10]


def test_the_order_of_what_waits_is_made_again_a_part_at_a_time_and_forgets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jetraft.cluster.consumers.pending.STALE_MAX", 10)
    monkeypatch.setattr("jetraft.cluster.consumers.pending.ROWS_PER_PART", 4)
    monkeypatch.setattr("jetraft.cluster.consumers.pending.PUSHES_PER_PART", 2)
    looked: list[int] = []
    waits_after = UnackedTable.waits_after

    class Noting(UnackedTable):
        def waits_after(self, seq: int, count_max: int = 1 << 62) -> tuple[list[tuple[int, int, int]], int | None]:
            looked.append(count_max)
            return waits_after(self, seq, count_max)

    monkeypatch.setattr("jetraft.cluster.consumers.pending.UnackedTable", Noting)
    count = 40
    table = PendingTable(WAIT)
    table.add(Runs(range(1, count + 1)), 1, 0)
    chance = random.Random(7)
    due = dict.fromkeys(range(1, count + 1), 100)
    for step in range(2_000):
        seq = chance.randint(1, count)
        due[seq] = 101 + chance.randint(0, 500)
        table.redeliver_at(seq, due[seq])
        if step % 9 == 0 and len(table) > count // 2:
            gone = chance.randint(1, count)
            table.remove(Runs([gone]))
    assert set(looked) == {4}
    assert len(looked) > 100
    now_ns, again = 100, dict[int, int]()
    while len(again) < len(table):
        table.expire(now_ns)
        again |= dict.fromkeys(redeliver_all(table, now_ns + 10_000), now_ns)
        now_ns += 1
    assert again == {seq: at_ns for seq, at_ns in due.items() if seq in table}


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(1, 30)),
        st.tuples(st.just("nak"), st.integers(1, 30)),
        st.tuples(st.just("follow"), st.integers(1, 150)),
        st.tuples(st.just("step"), st.just(0)),
        st.tuples(st.just("sleep"), st.integers(1, 120)),
    ),
    max_size=40,
)


@given(changes)
def test_a_changed_wait_holds_for_all_though_a_few_are_looked_at_in_a_step(history: list[tuple[str, int]]) -> None:
    """Against a dictionary of deadlines, which are moved at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jetraft.cluster.consumers.pending.EXPIRED_MAX", 2)
        table, deadlines, now_ns, wait_ns = PendingTable(WAIT), dict[int, int](), 1_000, 100
        last_seq = 0
        for kind, value in history:
            match kind:
                case "add":
                    for _ in range(value):
                        last_seq += 1
                        table.add(Runs([last_seq]), last_seq, now_ns)
                        deadlines[last_seq] = now_ns + wait_ns
                case "ack":
                    table.remove(Runs([value]))
                    deadlines.pop(value, None)
                case "nak":
                    table.redeliver_at(value, now_ns + 40)
                    if value in deadlines:
                        deadlines[value] = now_ns + 40
                case "follow":
                    table.follow(WaitPolicy(ack_wait_ns=value, backoff_ns=(), max_deliver=-1))
                    deadlines = {seq: at - wait_ns + value for seq, at in deadlines.items()}
                    wait_ns = value
                case "step":
                    table.expire(0)
                case _:
                    now_ns += value
                    while table.wake_ns <= now_ns:
                        table.expire(now_ns)
                    due = sorted(seq for seq, at in deadlines.items() if at <= now_ns)
                    assert sorted(redeliver_all(table, now_ns)) == due
                    deadlines |= dict.fromkeys(due, now_ns + wait_ns)
        assert len(table) == len(deadlines)


@pytest.mark.parametrize("backoff_ns", [(), (50, 70, 90)])
@pytest.mark.parametrize("takes_over", [True, False])
def test_no_step_costs_more_because_more_waits(takes_over: bool, backoff_ns: tuple[int, ...]) -> None:  # noqa: FBT001
    """A new leader, and another ack_wait: 300,000 pending messages were looked at together, 80 ms."""
    state = ConsumerState(name="c", config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT), created_ns=1, start_seq=1)
    for seq in range(1, MANY):
        state.pending.put(seq, seq, 10_000 + seq % 7, 1 + seq % 4)
    policy = WaitPolicy(ack_wait_ns=100, backoff_ns=backoff_ns, max_deliver=-1)
    table = PendingTable.of_state(state, policy, now_ns=5, now_unix_ns=9_000)
    while table.wake_ns <= 5:
        table.expire(5)
    began_ns = time.thread_time_ns()
    if takes_over:
        table = PendingTable.of_state(state, policy, now_ns=5, now_unix_ns=9_000)
    else:
        table.follow(attrs.evolve(policy, ack_wait_ns=200, backoff_ns=tuple(2 * one for one in backoff_ns)))
    steps = [time.thread_time_ns() - began_ns]
    while table.wake_ns <= 5:
        began_ns = time.thread_time_ns()
        table.expire(5)
        steps.append(time.thread_time_ns() - began_ns)
    assert len(steps) > MANY // 6_000
    by_length = sorted(steps)
    usual_ns, third_longest_ns = by_length[len(steps) // 2], by_length[-3]
    assert third_longest_ns < STEPS_MAX * usual_ns, "the two longest may have met a collection of garbage"
    assert len(table) == MANY - 1
