"""The rules of offsets, against a leader whose answers the test writes."""

from typing import Any

import attrs
import pytest

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import DataLossError, JetStreamSourceError, StreamRecreatedError
from pyspark_jetstream.leader import StreamView
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.replicas import Server

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"


@attrs.define
class ScriptedLeader:
    """Answers with the views of the test, the last one for ever."""

    views: list[StreamView]
    stream: str = "S"

    def view(self) -> StreamView:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


class OneServer:
    def candidates(self, _: frozenset[str]) -> tuple[Server, ...]:
        return (Server(url="nats://a:1", name="a", has_replica=True),)


def view(first_seq: int, last_seq: int, created: str = OLD) -> StreamView:
    return StreamView(
        created=created,
        first_seq=first_seq,
        last_seq=last_seq,
        last_time_ns=0,
        messages=last_seq - first_seq + 1,
        message_bytes=0,
        allow_direct=True,
        replicas=frozenset({"a"}),
    )


def planner(*views: StreamView, **options: str) -> Planner:
    made = Planner(parse_options({"servers": "a", "stream": "S", "retryTimeout": "1ms", **options}), ConnectionCache())
    script(made, "S", *views)
    return made


def script(made: Planner, stream: str, *views: StreamView) -> None:
    """Let the planner of a stream see these views instead of servers."""
    one = made.of(stream)
    one.leader = ScriptedLeader(list(views))  # type: ignore[assignment]  # instead of the servers
    one.directory = OneServer()  # type: ignore[assignment]  # the same


def offset(seq: int, created: str = OLD, stream: str = "S") -> dict[str, Any]:
    return {"stream": stream, "created": created, "seq": seq}


def cut(start_seq: int, parts: int = 1) -> dict[str, Any]:
    return {"cut": {"from": start_seq, "parts": parts}}


def ranges(made: Planner, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    return [(partition.start_seq, partition.end_seq) for partition in made.partitions(start, end)]


@pytest.mark.parametrize(
    ("starting", "strict", "seq"),
    [("earliest", "true", 11), ("latest", "true", 21), ("15", "true", 15), ("5", "false", 11), ("30", "true", 30)],
)
def test_a_new_query_starts_where_the_option_says(starting: str, strict: str, seq: int) -> None:
    made = planner(view(11, 20), startingOffsets=starting, failOnDataLoss=strict)
    assert made.initial().to_json_dict() == offset(seq) | ({"ahead": True} if seq > 21 else {})


def test_a_start_that_is_already_gone_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="startingOffsets 5 is below the first sequence 11"):
        planner(view(11, 20), startingOffsets="5").initial()


def test_the_start_of_a_new_query_does_not_move_between_questions() -> None:
    made = planner(view(1, 10), view(1, 20), startingOffsets="latest")
    assert made.initial() == made.initial()


@pytest.mark.parametrize(
    ("start_seq", "last_seq", "rows_max", "end_seq"),
    [(1, 10, None, 11), (1, 10, 4, 5), (11, 10, None, 11), (9, 10, 4, 11)],
)
def test_the_end_keeps_the_limit_and_never_goes_back(
    start_seq: int, last_seq: int, rows_max: int | None, end_seq: int
) -> None:
    assert planner(view(1, last_seq)).next_end(offset(start_seq), rows_max).seq == end_seq


def test_a_stream_that_ends_below_the_offset_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="ends at 10, the query has read to 4999"):
        planner(view(1, 10)).next_end(offset(5000), None)
    with pytest.raises(DataLossError, match="ends at 10, the query has read to 11"):
        planner(view(1, 10)).next_end(offset(12), 4)


def test_without_fail_on_data_loss_the_query_goes_on_at_the_end_of_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    made = planner(view(1, 10), view(1, 10), view(1, 14), failOnDataLoss="false")
    assert made.next_end(offset(5000), None) == made.latest_seen()
    assert "ends at 10, the query has read to 4999; continuing without" in caplog.text
    assert ranges(made, offset(5000), offset(11)) == []
    assert made.next_end(offset(11), None).seq == 15
    assert ranges(made, offset(11), offset(15)) == [(11, 15)]


def test_a_new_leader_gets_a_moment_to_reach_the_offset() -> None:
    assert planner(view(1, 10), view(1, 20), retryTimeout="5s").next_end(offset(20), None).seq == 21


@pytest.mark.parametrize("rows_max", [None, 4])
def test_a_start_that_was_chosen_ahead_of_the_stream_is_waited_for(rows_max: int | None) -> None:
    made = planner(view(1, 10), view(1, 10), view(1, 60), startingOffsets="50")
    start = made.initial().to_json_dict()
    assert start == offset(50) | {"ahead": True}
    assert made.next_end(start, rows_max).to_json_dict() == start
    assert made.next_end(start, rows_max).seq == (61 if rows_max is None else 54)


def test_a_checkpoint_beyond_the_streams_end_is_no_choice_even_if_an_option_names_the_same_sequence() -> None:
    with pytest.raises(DataLossError, match=r"offset 50 is beyond the end .* ends at 10, the query has read to 49"):
        planner(view(1, 10), startingOffsets="50").next_end(offset(50), None)


def test_available_now_ends_where_the_stream_ended_at_the_start() -> None:
    made = planner(view(1, 10), view(1, 30))
    made.stop_at_present_end()
    assert made.next_end(offset(1), 8).seq == 9
    assert made.next_end(offset(9), 8).seq == 11
    assert made.next_end(offset(11), 8).seq == 11


def test_a_logged_range_is_planned_as_it_was() -> None:
    assert ranges(planner(view(1, 900)), offset(200), offset(300)) == [(200, 300)]
    assert ranges(planner(view(1, 900)), offset(200), offset(200)) == []


def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(JetStreamSourceError, match="runs backwards, from 300 to 200"):
        planner(view(1, 900)).partitions(offset(300), offset(200))


def test_a_new_leader_gets_a_moment_to_reach_the_planned_end() -> None:
    made = planner(view(1, 250), view(1, 300), retryTimeout="5s")
    assert ranges(made, offset(200), offset(301)) == [(200, 301)]


def test_a_stream_that_ends_before_the_planned_range_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="ends at 250, the planned range at 300"):
        planner(view(1, 250)).partitions(offset(200), offset(301))
    assert ranges(planner(view(1, 250), failOnDataLoss="false"), offset(200), offset(301)) == [(200, 251)]


def test_a_stream_that_starts_after_the_planned_range_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="200 to 249 are no longer"):
        planner(view(250, 900)).partitions(offset(200), offset(301))
    assert ranges(planner(view(250, 900), failOnDataLoss="false"), offset(200), offset(301)) == [(250, 301)]
    assert ranges(planner(view(800, 900), failOnDataLoss="false"), offset(200), offset(301)) == [(301, 301)]


def test_a_stream_made_again_is_noticed_when_the_end_is_asked_for() -> None:
    with pytest.raises(StreamRecreatedError):
        planner(view(1, 5, NEW)).next_end(offset(200), None)
    lenient = planner(view(1, 5, NEW), failOnDataLoss="false")
    assert lenient.next_end(offset(200), 3).to_json_dict() == offset(4, NEW) | cut(1)
    assert ranges(lenient, offset(200), offset(4, NEW)) == [(1, 4)]


def test_a_stream_made_again_is_noticed_when_a_logged_range_is_planned() -> None:
    with pytest.raises(StreamRecreatedError):
        planner(view(1, 900, NEW)).partitions(offset(200), offset(300))
    assert ranges(planner(view(1, 900, NEW), failOnDataLoss="false"), offset(200), offset(300)) == []


def test_the_checkpoint_of_another_stream_is_refused() -> None:
    with pytest.raises(JetStreamSourceError, match="belongs to stream 'OTHER'"):
        planner(view(1, 9)).next_end(offset(1, stream="OTHER"), None)
    with pytest.raises(JetStreamSourceError, match="not one of this source"):
        planner(view(1, 9)).next_end({"topic": {"0": 5}}, None)


def test_an_accepted_incarnation_is_continued_at_the_sequence_of_the_checkpoint() -> None:
    made = planner(view(1, 300, NEW), acceptIncarnation=NEW)
    assert made.next_end(offset(200), None).to_json_dict() == offset(301, NEW) | cut(200)
    assert ranges(made, offset(100), offset(200)) == [(100, 200)]  # a batch that was interrupted is repeated
    assert ranges(made, offset(200), offset(301, NEW)) == [(200, 301)]
    assert ranges(made, offset(301, NEW), offset(301, NEW)) == []


def test_an_accepted_incarnation_is_continued_at_the_sequence_that_the_option_names() -> None:
    made = planner(view(1, 300, NEW), acceptIncarnation=f"{NEW}@50")
    assert ranges(made, offset(100), offset(200)) == []
    assert made.next_end(offset(200), 10).to_json_dict() == offset(60, NEW) | cut(50)
    assert ranges(made, offset(200), offset(60, NEW)) == [(50, 60)]


def test_only_the_incarnation_that_is_named_is_accepted() -> None:
    with pytest.raises(StreamRecreatedError, match=rf"acceptIncarnation={NEW}@200 continues in it at 200"):
        planner(view(1, 300, NEW), acceptIncarnation="2026-01-09T00:00:00Z").next_end(offset(200), None)


def test_bytes_limit_a_batch_by_the_mean_of_the_stream() -> None:
    large = attrs.evolve(view(1, 1000), message_bytes=1000 * 512)
    assert planner(large, maxBytesPerTrigger="64k").next_end(offset(1), None).seq == 129
    assert planner(large, maxBytesPerTrigger="64k").next_end(offset(1), 5).seq == 6
    assert planner(large, maxBytesPerTrigger="1").next_end(offset(1), None).seq == 2


def test_a_small_batch_waits_for_more_rows_except_at_the_end_of_available_now() -> None:
    made = planner(view(1, 10), view(1, 90), minRowsPerTrigger="50")
    assert made.next_end(offset(1), None).to_json_dict() == offset(1)
    assert made.next_end(offset(1), None).seq == 91
    made = planner(view(1, 10), minRowsPerTrigger="50")
    made.stop_at_present_end()
    assert made.next_end(offset(1), None).seq == 11


def test_several_streams_have_an_offset_each_and_share_the_limit() -> None:
    made = Planner(parse_options({"servers": "a", "streams": "A,B"}), ConnectionCache())
    script(made, "A", view(1, 300))
    script(made, "B", view(101, 200, NEW))
    start = made.initial().to_json_dict()
    assert start == {"streams": {"A": {"created": OLD, "seq": 1}, "B": {"created": NEW, "seq": 101}}}
    end = made.next_end(start, 100).to_json_dict()
    assert end == {
        "streams": {"A": {"created": OLD, "seq": 76, **cut(1)}, "B": {"created": NEW, "seq": 126, **cut(101)}}
    }
    planned = made.partitions(start, end)
    assert [(one.options.stream, one.start_seq, one.end_seq) for one in planned] == [("A", 1, 76), ("B", 101, 126)]
    latest = made.latest_seen()
    assert latest is not None
    assert latest.by_stream["B"].seq == 201


def test_the_checkpoint_of_one_stream_is_read_by_a_query_of_several_and_the_new_one_starts_at_its_first() -> None:
    made = Planner(parse_options({"servers": "a", "streams": "S,T"}), ConnectionCache())
    script(made, "S", view(1, 300))
    script(made, "T", view(5, 9))
    end = made.next_end(offset(200), None).to_json_dict()
    assert {name: one["seq"] for name, one in end["streams"].items()} == {"S": 301, "T": 10}
    planned = made.partitions(offset(200), end)
    assert [(one.options.stream, one.start_seq, one.end_seq) for one in planned] == [("S", 200, 301), ("T", 5, 10)]


def test_a_query_of_one_stream_reads_the_checkpoint_of_several_if_that_has_no_other() -> None:
    only = {"streams": {"S": {"created": OLD, "seq": 200}}}
    assert planner(view(1, 300)).next_end(only, None).to_json_dict() == offset(301) | cut(200)
    with pytest.raises(JetStreamSourceError, match="belongs to stream 'S', 'T'"):
        planner(view(1, 300)).next_end({"streams": {"S": only["streams"]["S"], "T": only["streams"]["S"]}}, None)


def test_progress_shows_the_end_of_the_stream() -> None:
    made = planner(view(1, 10))
    assert made.latest_seen() is None
    made.next_end(offset(1), 2)
    latest = made.latest_seen()
    assert latest is not None
    assert latest.seq == 11
