"""A range that was planned once is cut in the same way for ever: whoever plans it again, on whatever machine."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream import stream_planner
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.leader import StreamView
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.plan import Range
from pyspark_jetstream.planner import Planner
from tests.spark.test_planner import NEW, OLD, offset, planner, ranges, script, view

# Of a query that is started again: everything that a user may change, and what changes by itself.
COUNTS = st.integers(1, 400).map(str)
CHANGEABLE = st.fixed_dictionaries(
    {},
    optional={
        "minPartitions": COUNTS,
        "maxPartitionRows": COUNTS,
        "maxRecordsPerTrigger": COUNTS,
        "maxBytesPerTrigger": COUNTS,
        "subject": st.sampled_from(["a.>", "a.*,b", ">"]),
        "startingOffsets": st.sampled_from(["earliest", "latest", "7"]),
        "failOnDataLoss": st.just("false"),
        "columns": st.just("data"),
        "queryName": st.just("again"),
        "statsDir": st.just("/nowhere"),
    },
)
CORES = st.integers(1, 64)


@st.composite
def views(draw: st.DrawFn, last_seq: int) -> StreamView:
    """A stream that has at least these sequences, however large its messages are and whatever it has lost."""
    first_seq = draw(st.integers(1, last_seq + 1))
    messages = draw(st.integers(0, last_seq))
    return attrs.evolve(
        view(first_seq, last_seq + draw(st.integers(0, 10**6))),
        messages=messages,
        message_bytes=messages * draw(st.integers(0, 1 << 22)),
    )


def of_machine(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(stream_planner, "cores", lambda: cores)


def kept(wanted: Range, first_seq: int) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
    """The sequences of a partition that were lost neither then nor later, and the subjects that it reads."""
    start_seq = max(wanted.start_seq, first_seq)
    return (start_seq, wanted.end_seq) if start_seq < wanted.end_seq else None, wanted.options.subjects


@given(st.data())
def test_a_range_has_the_same_partitions_whenever_it_is_planned(data: st.DataObject) -> None:
    last_seq = data.draw(st.integers(1, 10**6), "last")
    began = data.draw(st.integers(1, last_seq), "start")
    first_view = data.draw(views(last_seq), "then")
    with pytest.MonkeyPatch.context() as patch:
        of_machine(patch, data.draw(CORES, "cores then"))
        one = planner(first_view, **(data.draw(CHANGEABLE, "options then") | {"failOnDataLoss": "false"}))
        end = json.loads(json.dumps(one.next_end(offset(began), None).to_json_dict()))
        before = one.partitions(offset(began), end)
        later = attrs.evolve(data.draw(views(first_view.last_seq), "later"), created=OLD)
        of_machine(patch, data.draw(CORES, "cores later"))
        two = planner(later, **(data.draw(CHANGEABLE, "options later") | {"failOnDataLoss": "false"}))
        after = two.partitions(offset(began), end)
    kept_from = max(first_view.first_seq, later.first_seq)
    assert [kept(one, kept_from) for one in after] == [kept(one, kept_from) for one in before]


def test_larger_messages_and_more_cores_leave_a_logged_range_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    of_machine(monkeypatch, 8)
    small = attrs.evolve(view(1, 400_000), message_bytes=400_000 * 10)
    end = planner(small).next_end(offset(1), None).to_json_dict()
    before = ranges(planner(small), offset(1), end)
    assert len(before) == 8
    of_machine(monkeypatch, 2)
    large = attrs.evolve(view(1, 900_000), message_bytes=900_000 * 100_000)
    assert ranges(planner(large, minPartitions="100"), offset(1), end) == before


def test_a_purge_moves_no_row_to_another_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    of_machine(monkeypatch, 4)
    end = planner(view(1, 400), minPartitions="4").next_end(offset(1), None).to_json_dict()
    purged = planner(view(150, 400), failOnDataLoss="false")
    assert ranges(purged, offset(1), end) == [(101, 101), (150, 201), (201, 301), (301, 401)]


def test_a_range_is_read_again_with_the_subjects_of_the_first_time() -> None:
    end = planner(view(1, 9), subject="a.>").next_end(offset(1), None).to_json_dict()
    assert end["cut"]["subjects"] == ["a.>"]
    other = planner(view(1, 20), subject="b.>")
    assert [one.options.subjects for one in other.partitions(offset(1), end)] == [("a.>",)]
    following = other.next_end(end, None).to_json_dict()
    assert [one.options.subjects for one in other.partitions(end, following)] == [("b.>",)]


def test_the_first_rows_of_a_stream_that_a_pattern_found_are_cut_as_they_were() -> None:
    made = Planner(parse_options({"servers": "a", "streams": "S,T"}), ConnectionCache())
    script(made, "S", view(1, 300))
    script(made, "T", view(5, 104))
    end = made.next_end(offset(301), None).to_json_dict()
    again = Planner(parse_options({"servers": "a", "streams": "S,T", "failOnDataLoss": "false"}), ConnectionCache())
    script(again, "S", view(1, 300))
    script(again, "T", view(50, 104))
    assert [(one.start_seq, one.end_seq) for one in again.partitions(offset(301), end)] == [(50, 105)]


def test_an_offset_of_an_accepted_incarnation_does_not_repeat_the_batch_before_it() -> None:
    made = planner(view(1, 200, NEW), acceptIncarnation=f"{NEW}@201")
    end = offset(201) | {"cut": {"from": 1, "parts": 2}}
    moved = made.next_end(end, None).to_json_dict()
    assert moved == offset(201, NEW)
    assert ranges(made, end, moved) == []


def test_nothing_new_gives_the_offset_of_the_checkpoint_letter_by_letter() -> None:
    end = planner(view(1, 9), subject="a.>").next_end(offset(1), None).to_json_dict()
    assert json.dumps(planner(view(1, 9)).next_end(end, None).to_json_dict()) == json.dumps(end)


def test_a_range_that_an_older_version_logged_has_partitions_that_follow_from_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for cores, size in ((1, 10), (64, 1 << 20)):
        of_machine(monkeypatch, cores)
        large = attrs.evolve(view(1, 300_000), message_bytes=300_000 * size)
        found.append(ranges(planner(large), offset(1), offset(120_001)))
    assert found[0] == found[1] == [(1, 40_001), (40_001, 80_001), (80_001, 120_001)]


@pytest.mark.parametrize("cut", [{}, {"from": 0, "parts": 1}, {"from": 1, "parts": 0}, {"from": "x", "parts": 1}, 5])
def test_an_offset_with_a_broken_cut_is_refused(cut: object) -> None:
    with pytest.raises(Exception, match="not one of this source"):
        planner(view(1, 9)).partitions(offset(1), offset(5) | {"cut": cut})
