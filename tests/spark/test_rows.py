import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_jetstream import rows as rows_module
from pyspark_jetstream.rows import ARROW_SCHEMA, to_batches
from pyspark_jetstream.schema import SCHEMA
from pyspark_jetstream.wire import Rows


def columns(*rows: tuple[int, bytes, bytes, bytes, bytes]) -> Rows:
    made = Rows()
    for row in rows:
        made.append(*row)
    return made


def test_the_arrow_schema_is_sparks_own_translation() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW_SCHEMA)


def test_a_row_keeps_every_value_and_cuts_its_time_to_microseconds() -> None:
    [batch] = to_batches(
        columns((5, b"2026-11-20T20:25:47.871074999Z", b"a.b", b"K: 1\r\nk: 2\r\nK:  3 \r\n", b"\x00\xff"))
    )
    assert batch.schema.equals(ARROW_SCHEMA)
    [row] = batch.to_pylist()
    assert row["stream_seq"] == 5
    assert row["time"].isoformat() == "2026-11-20T20:25:47.871074+00:00"
    assert row["subject"] == "a.b"
    assert row["headers"] == [("K", ["1", "3"]), ("k", ["2"])]
    assert row["data"] == b"\x00\xff"


@pytest.mark.parametrize(("fraction", "microsecond"), [(b"", 0), (b".5", 500_000), (b".123456789", 123_456)])
def test_times_of_every_length_are_read(fraction: bytes, microsecond: int) -> None:
    [batch] = to_batches(columns((1, b"2026-11-20T20:25:47" + fraction + b"Z", b"s", b"", b"")))
    assert batch.to_pylist()[0]["time"].microsecond == microsecond


def test_messages_without_headers_have_null() -> None:
    [batch] = to_batches(
        columns((1, b"2026-11-20T20:25:47Z", b"s", b"", b""), (2, b"2026-11-20T20:25:47Z", b"s", b"A: \r\n", b""))
    )
    assert batch.column("headers").to_pylist() == [None, [("A", [""])]]


def test_text_that_is_no_utf8_is_replaced_not_refused() -> None:
    [batch] = to_batches(columns((1, b"2026-11-20T20:25:47Z", b"a\xff", b"K\xfe: \xfd\r\n", b"")))
    assert batch.column("subject").to_pylist() == ["a\ufffd"]
    assert batch.column("headers").to_pylist() == [[("K\ufffd", ["\ufffd"])]]


def test_batches_are_about_a_megabyte_and_lose_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BATCH_BYTES", 10_000)
    made = columns(*((seq, b"2026-11-20T20:25:47Z", b"s", b"", b"x" * 1000) for seq in range(1, 101)))
    batches = to_batches(made)
    assert 10 <= len(batches) <= 15
    assert pa.Table.from_batches(batches).column("stream_seq").to_pylist() == list(range(1, 101))


def test_no_rows_make_no_batch() -> None:
    assert to_batches(Rows()) == []
