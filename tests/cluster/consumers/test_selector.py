"""Which messages come next, over a stream that is a set of sequences."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.consumers.selector import Selector
from jetraft.store.model.config import ConsumerConfig
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.consumer_state import ConsumerState


@attrs.define
class Stream:
    """Live sequences, all of which match."""

    live: AbstractSet[int]
    mutations: int = 0
    counted: int = 0

    def next_runs(self, filters: Sequence[bytes], from_seq: int, count: int) -> Runs:
        del filters
        return Runs(islice((seq for seq in sorted(self.live) if seq >= from_seq), count))

    def measure(
        self, seqs: Runs, room_bytes: int, *, consumer_seq: int, num_pending: int, prefix_bytes: int
    ) -> tuple[int, int, int]:
        raise NotImplementedError

    def num_pending(self, filters: Sequence[bytes], from_seq: int) -> int:
        del filters
        self.counted += 1
        return sum(seq >= from_seq for seq in self.live)

    def next_and_left(self, filters: Sequence[bytes], from_seq: int, count: int) -> tuple[int, Runs]:
        return self.num_pending(filters, from_seq), self.next_runs(filters, from_seq, count)

    def last_for(self, pattern: bytes) -> int:
        del pattern
        return max(self.live, default=0)

    def load(self, seq: int) -> None:
        del seq

    def is_live(self, seq: int) -> bool:
        return seq in self.live

    def count_live(self, seqs: Runs, above: int) -> int:
        self.counted += 1
        return len(self.live_of(seqs, above, len(seqs)))

    def live_of(self, seqs: Runs, above: int, count: int) -> Runs:
        return Runs([seq for seq in seqs.above(above) if seq in self.live][:count])

    @property
    def vanished(self) -> int:
        return -len(self.live)

    @property
    def last_seq(self) -> int:
        return max(self.live, default=0)

    @property
    def retains_by_acks(self) -> bool:
        return True


def selector(stream: Stream, filter_subject: str = "") -> Selector:
    config = ConsumerConfig(name="c", durable_name="c", filter_subject=filter_subject)
    return Selector(ConsumerState(name="c", config=config, created_ns=1, start_seq=1), stream)


@given(
    st.sets(st.integers(min_value=1, max_value=40)),
    st.sets(st.integers(min_value=1, max_value=40)),
    st.integers(min_value=0, max_value=40),
    st.integers(min_value=1, max_value=10),
)
def test_what_is_left_out_is_made_up_for_by_what_comes_after(
    live: set[int], left_out: set[int], after: int, count: int
) -> None:
    expected = [seq for seq in sorted(live - left_out) if seq > after][:count]
    assert list(selector(Stream(live)).next_without(left_out, after, count)) == expected


def test_a_count_is_remembered_while_the_stream_stands_still() -> None:
    stream = Stream({1, 2, 3, 5})
    one = selector(stream)
    assert [one.num_pending(1), one.num_pending(1)] == [3, 3]
    assert stream.counted == 1
    one.delivered(3, 1)
    assert one.num_pending(3) == 1
    assert stream.counted == 1
    stream.live, stream.mutations = {5, 6}, 1
    assert one.num_pending(3) == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_messages_come_in_stream_order_above_the_last(count: int) -> None:
    assert list(selector(Stream({1, 4, 6, 9})).next_after(3, count)) == [4, 6, 9][:count]


@given(
    st.sets(st.integers(min_value=1, max_value=40)),
    st.sets(st.integers(min_value=1, max_value=40), min_size=1),
    st.sets(st.integers(min_value=1, max_value=40)),
    st.integers(min_value=0, max_value=40),
)
def test_a_late_ack_is_one_that_nothing_waited_for_of_a_message_that_is_there(
    live: set[int], acked: set[int], waited_for: set[int], delivered: int
) -> None:
    expected = sorted(seq for seq in acked & live - waited_for if seq <= delivered)
    assert list(selector(Stream(live)).late(Runs(sorted(acked)), Runs(sorted(waited_for)), delivered)) == expected


@pytest.mark.parametrize(
    ("filter_subject", "told"), [("s.a", [True, False]), ("s.*", [True, True]), ("", [True, True])]
)
def test_that_there_is_nothing_new_is_told_of_one_subject_without_a_search(
    filter_subject: str, told: list[bool]
) -> None:
    one = selector(Stream({3, 7}), filter_subject)
    assert [one.may_have_after(6), one.may_have_after(7)] == told
