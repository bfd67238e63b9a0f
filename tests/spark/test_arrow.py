"""Reads without Spark: the rows, positions and errors are those of the source, in bounded memory."""

import os
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import pyspark_jetstream
from pyspark_jetstream import offsets_of, read_arrow, read_pandas, scan_arrow
from pyspark_jetstream.errors import (
    BadOptionError,
    DataLossError,
    LoginRefusedError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create, delete, delete_messages, publish


def options(server: Server, stream: str, **others: Any) -> dict[str, Any]:
    return {"servers": server.url, "stream": stream, "retryTimeout": "3s", **others}


def seqs(table: pa.Table) -> list[int]:
    found: list[int] = table.column("stream_seq").to_pylist()
    return found


def test_a_table_has_the_rows_and_where_they_start_and_end(server: Server, client: RawClient) -> None:
    created = create(client, "TABLE")
    publish(client, "TABLE", 500, headers=lambda number: [("Plane", str(number))] if number % 2 else [])
    delete_messages(client, "TABLE", 1, 250, 500)
    table = read_arrow(**options(server, "TABLE", minPartitions=3))
    assert seqs(table) == [seq for seq in range(2, 500) if seq != 250]
    assert table.schema.names == ["stream_seq", "time", "subject", "headers", "data"]
    row = table.slice(0, 1).to_pylist()[0]
    assert (row["subject"], row["headers"], row["data"]) == ("TABLE.s1", [("Plane", ["1"])], b"payload 1")
    assert offsets_of(table) == {
        "start": {"stream": "TABLE", "created": created, "seq": 2},
        "end": {"stream": "TABLE", "created": created, "seq": 501},
    }


def test_options_are_those_of_the_source_with_values_of_python(server: Server, client: RawClient) -> None:
    create(client, "CHOSEN")
    publish(client, "CHOSEN", 300, subject=lambda number: f"{number % 3}.x")
    table = read_arrow(
        **options(
            server,
            "CHOSEN",
            subject=["CHOSEN.0.>", "CHOSEN.1.x"],
            columns=("data", "subject", "stream"),
            startingOffsets=11,
            endingOffsets={"seq": 21},
        )
    )
    assert table.schema.names == ["data", "subject", "stream"]
    assert table.to_pylist() == [
        {"data": b"payload %d" % number, "subject": f"CHOSEN.{number % 3}.x", "stream": "CHOSEN"}
        for number in range(10, 20)
        if number % 3 < 2
    ]
    future = datetime.now(UTC) + timedelta(hours=1)
    assert len(read_arrow(**options(server, "CHOSEN", startingOffsetsByTimestamp=future))) == 0


def test_a_read_goes_on_after_another_and_misses_and_repeats_nothing(server: Server, client: RawClient) -> None:
    create(client, "ONWARD")
    publish(client, "ONWARD", 100)
    first = read_arrow(**options(server, "ONWARD"))
    publish(client, "ONWARD", 100)
    second = read_arrow(after=offsets_of(first)["end"], **options(server, "ONWARD", maxRecordsPerTrigger=30))
    third = read_arrow(after=offsets_of(second)["end"], **options(server, "ONWARD"))
    fourth = read_arrow(after=offsets_of(third)["end"], **options(server, "ONWARD"))
    assert [seqs(first), seqs(second), seqs(third), seqs(fourth)] == [
        list(range(1, 101)),
        list(range(101, 131)),
        list(range(131, 201)),
        [],
    ]
    assert offsets_of(fourth)["start"] == offsets_of(fourth)["end"] == offsets_of(third)["end"]


def test_a_read_does_not_go_on_in_another_stream_or_over_a_loss(server: Server, client: RawClient) -> None:
    create(client, "AGAIN")
    publish(client, "AGAIN", 20)
    end = offsets_of(read_arrow(**options(server, "AGAIN", endingOffsets=11)))["end"]
    client.api("STREAM.PURGE.AGAIN", {"seq": 16})
    with pytest.raises(DataLossError, match="11 to 15 are no longer in stream"):
        read_arrow(after=end, **options(server, "AGAIN"))
    lenient = read_arrow(after=end, **options(server, "AGAIN", failOnDataLoss=False))
    assert seqs(lenient) == [16, 17, 18, 19, 20]
    delete(client, "AGAIN")
    created = create(client, "AGAIN")
    publish(client, "AGAIN", 20)
    with pytest.raises(StreamRecreatedError, match="acceptIncarnation"):
        read_arrow(after=end, **options(server, "AGAIN"))
    accepted = read_arrow(after=end, **options(server, "AGAIN", acceptIncarnation=f"{created}@19"))
    assert seqs(accepted) == [19, 20]
    assert offsets_of(accepted)["end"]["seq"] == 21


def test_several_streams_have_positions_by_name(server: Server, client: RawClient) -> None:
    for name, count in (("MANY_A", 3), ("MANY_B", 2)):
        create(client, name)
        publish(client, name, count)
    with scan_arrow(servers=server.url, streams="MANY_*", columns="stream,stream_seq") as scan:
        assert {name: place["seq"] for name, place in scan.end["streams"].items()} == {"MANY_A": 4, "MANY_B": 3}
        rows = scan.reader().read_all().to_pylist()
    assert [(row["stream"], row["stream_seq"]) for row in rows] == [
        *(("MANY_A", seq) for seq in (1, 2, 3)),
        *(("MANY_B", seq) for seq in (1, 2)),
    ]


@pytest.mark.parametrize("how", ["direct", "consumer"])
def test_a_scan_holds_a_part_of_a_large_range(server: Server, client: RawClient, how: str) -> None:
    name = f"LARGE_{how}"
    create(client, name, allow_direct=how == "direct")
    publish(client, name, 600, payload=lambda _: bytes(100_000))
    tracemalloc.start()
    try:
        arrow_bytes, rows = pa.total_allocated_bytes(), 0
        with scan_arrow(**options(server, name)) as scan:
            for batch in scan:
                rows += len(batch)
                arrow_bytes = max(arrow_bytes, pa.total_allocated_bytes())
        _, python_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 600
    assert python_bytes + arrow_bytes < 48 << 20  # of 60 MB; in rows an answer of 4 MB is held several times


def test_frames_of_pandas_have_the_positions(server: Server, client: RawClient) -> None:
    create(client, "FRAME")
    publish(client, "FRAME", 5)
    frame = read_pandas(**options(server, "FRAME"))
    assert list(frame["stream_seq"]) == [1, 2, 3, 4, 5]
    assert frame.attrs["jetstream"]["end"]["seq"] == 6


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"durable": "d"}, "'durable' is for queries of Spark"),
        ({"pushdown": True}, "'pushdown' is for queries of Spark"),
        ({"maxRecordsPerTrigger": 5}, "is for reads that continue 'after'"),
        ({"after": {"stream": "S"}, "startingOffsets": 5}, "'startingOffsets' and 'after' exclude each other"),
        ({"startingOffset": 5}, "did you mean 'startingOffsets'"),
    ],
)
def test_options_that_make_no_sense_here_are_refused_by_name(given: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOptionError, match=text):
        scan_arrow(servers="nats://127.0.0.1:1", stream="S", **given)


def test_a_table_of_another_origin_has_no_positions() -> None:
    with pytest.raises(BadOptionError, match="has no positions of a stream"):
        offsets_of(pa.table({"a": [1]}))


def test_missing_streams_and_wrong_logins_are_errors_at_once(server: Server, tmp_path_factory: Any) -> None:
    with pytest.raises(StreamNotFoundError, match="'NOWHERE' does not exist"):
        read_arrow(**options(server, "NOWHERE"))
    config = "authorization { user: me, password: right }\n"
    with (
        Server(server.kind, directory=tmp_path_factory.mktemp("login"), config=config) as guarded,
        pytest.raises(LoginRefusedError),
    ):
        read_arrow(**options(guarded, "S", user="me", password="wrong"))


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
import pyspark_jetstream
print({code})
"""


def without(names: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run an expression where these modules cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(names=names, code=code)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_spark_and_pandas_are_not_needed(server: Server, client: RawClient) -> None:
    create(client, "ALONE")
    publish(client, "ALONE", 7)
    code = f"len(pyspark_jetstream.read_arrow(servers={server.url!r}, stream='ALONE'))"
    done = without(["pyspark", "pandas"], code)
    assert (done.stdout, done.stderr) == ("7\n", "")


@pytest.mark.parametrize(
    ("missing", "name", "text"),
    [
        ("pyarrow", "read_arrow", "pyspark_jetstream.read_arrow needs pyarrow: pip install pyarrow"),
        ("pyarrow", "to_parquet", "pyspark_jetstream.to_parquet needs pyarrow: pip install pyarrow"),
        ("pandas", "read_pandas", "pyspark_jetstream.read_pandas needs pandas: pip install pandas"),
    ],
)
def test_a_missing_package_is_named(missing: str, name: str, text: str) -> None:
    done = without([missing], f"pyspark_jetstream.{name}(servers='nats://127.0.0.1:1', stream='S')")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {text}"


def test_every_name_of_the_package_is_there() -> None:
    assert [name for name in pyspark_jetstream.__all__ if not hasattr(pyspark_jetstream, name)] == []
