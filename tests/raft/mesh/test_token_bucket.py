from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.mesh.token_bucket import TokenBucket
from jetraft.store.model.clock import NS_PER_S

MIB = 1 << 20


def test_a_burst_goes_at_once_and_then_the_rate_holds() -> None:
    pace = TokenBucket(MIB, now_ns=0, burst_bytes=2 * MIB)
    assert pace.wait_ns(0) == 0
    pace.spend(4 * MIB)
    wait_ns = pace.wait_ns(0)
    assert 2 * NS_PER_S < wait_ns < 2.001 * NS_PER_S
    assert pace.wait_ns(wait_ns) == 0


def test_what_was_not_used_long_ago_is_not_made_up_for() -> None:
    pace = TokenBucket(MIB, now_ns=0, burst_bytes=MIB)
    assert pace.wait_ns(3600 * NS_PER_S) == 0
    pace.spend(3 * MIB)
    assert pace.wait_ns(3600 * NS_PER_S) > 1.9 * NS_PER_S


@given(
    st.integers(1, 1 << 32),
    st.integers(1, 1 << 24),
    st.lists(st.tuples(st.integers(0, NS_PER_S), st.integers(1, 1 << 20)), max_size=50),
)
def test_never_more_than_rate_times_time_plus_a_burst_and_a_piece(
    rate: int, burst: int, pieces: list[tuple[int, int]]
) -> None:
    pace = TokenBucket(rate, now_ns=0, burst_bytes=burst)
    now_ns = sent = largest = 0
    for later_ns, size in pieces:
        now_ns += later_ns
        now_ns += pace.wait_ns(now_ns)
        assert pace.wait_ns(now_ns) == 0, "the wait that was asked for is enough"
        pace.spend(size)
        sent += size
        largest = max(largest, size)
        assert sent <= rate * now_ns // NS_PER_S + burst + largest


@given(st.integers(1, 1 << 31), st.integers(1, 1000))
def test_asking_often_does_not_slow_it_down(rate: int, questions: int) -> None:
    pace = TokenBucket(rate, now_ns=0, burst_bytes=1)
    pace.spend(rate + 1)  # a second's worth
    for number in range(questions):
        pace.wait_ns(number * NS_PER_S // questions)
    assert pace.wait_ns(NS_PER_S + NS_PER_S // rate + 1) == 0
