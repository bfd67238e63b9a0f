import pickle

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream.leader import StreamView
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.plan import (
    PARTITION_ROWS_MAX,
    UNDIVIDED_ROWS_MAX,
    Range,
    partition_count,
    rotated,
    split,
    within,
)
from pyspark_jetstream.replicas import Server
from pyspark_jetstream.source import RangePartition

VIEW = StreamView(
    created="2026-01-01T00:00:00Z",
    first_seq=1,
    last_seq=10**9,
    last_time_ns=1,
    messages=1000,
    message_bytes=100_000,
    allow_direct=True,
    replicas=frozenset({"a", "b"}),
)
A = Server(url="nats://a:1", name="a", has_replica=True)
B = Server(url="nats://b:1", name="b", has_replica=True)
C = Server(url="nats://c:1", name="c")


def whole(start_seq: int, end_seq: int, **options: str) -> Range:
    return Range(
        start_seq=start_seq,
        end_seq=end_seq,
        created=VIEW.created,
        planned_time_ns=1,
        allow_direct=True,
        servers=(A, B, C),
        options=parse_options({"servers": "a", "stream": "S", **options}),
    )


@given(st.integers(1, 10**9), st.integers(0, 10**6), st.integers(1, 50))
def test_partitions_cover_the_range_without_gap_or_overlap(start_seq: int, rows: int, partitions_min: int) -> None:
    template = whole(start_seq, start_seq + rows, minPartitions=str(partitions_min))
    count = partition_count(rows, VIEW, template.options, cores=2)
    ranges = split(template, count, turn=0)
    assert [entry.start_seq for entry in ranges] == [start_seq, *(entry.end_seq for entry in ranges[:-1])][
        : len(ranges)
    ]
    assert (ranges[-1].end_seq if ranges else start_seq) == start_seq + rows
    assert all(entry.start_seq < entry.end_seq for entry in ranges)
    assert len(ranges) >= min(rows, partitions_min)


@pytest.mark.parametrize(
    ("rows", "message_bytes", "partitions_min", "rows_max", "cores", "count"),
    [
        (1000, 100, 1, None, 8, 1),
        (UNDIVIDED_ROWS_MAX + 1, 100, 1, None, 8, 2),
        (10 * UNDIVIDED_ROWS_MAX, 100, 1, None, 4, 4),
        (10 * PARTITION_ROWS_MAX, 100, 1, None, 4, 10),
        (1000, 1 << 20, 1, None, 64, 32),
        (1000, 1 << 20, 1, None, 1, 4),
        (1000, 100, 5, None, 1, 5),
        (3, 100, 5, None, 8, 3),
        (1000, 100, 1, 300, 1, 4),
        (1000, 100, 1, 5000, 1, 1),
    ],
)
def test_small_ranges_stay_whole_large_ones_use_the_cores_and_none_is_larger_than_the_limit(  # noqa: PLR0913, PLR0917
    rows: int, message_bytes: int, partitions_min: int, rows_max: int | None, cores: int, count: int
) -> None:
    view = attrs.evolve(VIEW, messages=10, message_bytes=10 * message_bytes)
    options = attrs.evolve(
        parse_options({"servers": "a", "stream": "S"}), partitions_min=partitions_min, partition_rows_max=rows_max
    )
    assert partition_count(rows, view, options, cores=cores) == count


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 8), st.integers(1, 250), st.integers(0, 250))
def test_what_a_stream_has_lost_moves_no_row_to_another_partition(
    start_seq: int, rows: int, count: int, first_seq: int, present: int
) -> None:
    end_seq = first_seq + present
    planned = split(whole(start_seq, start_seq + rows), count, turn=0)
    existing = [within(one, first_seq, end_seq) for one in planned]
    for before, after in zip(planned, existing, strict=True):
        wanted = set(range(before.start_seq, before.end_seq)) & set(range(first_seq, end_seq))
        assert set(range(after.start_seq, after.end_seq)) == wanted


def test_partitions_begin_at_different_replicas_and_strangers_come_last() -> None:
    assert rotated((A, C, B), 0) == (A, B, C)
    assert rotated((A, C, B), 1) == (B, A, C)
    assert rotated((C,), 5) == (C,)


def test_a_partition_can_be_pickled() -> None:
    partition = RangePartition(whole(1, 5, user="me", password="p"))
    assert pickle.loads(pickle.dumps(partition)).value == partition.value
