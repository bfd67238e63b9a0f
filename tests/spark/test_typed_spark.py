"""Typed rows in Spark: the schema of a frame, its values in a batch and in a query, and the error of a row."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import create, publish
from tests.spark.test_source import QUERY_TIMEOUT_S, failure, load, start
from tests.spark.test_typed_rows import metadata, update
from tests.spark.typed.test_binary_values import AVRO, ORDER, SET, order_class, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": "number"},
        "big": {"type": "integer", "maximum": 2**64},
        "lines": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}},
        "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
    }
}


def test_values_of_each_kind_of_schema_are_struct_columns(
    spark: "SparkSession", server: Server, client: RawClient
) -> None:
    create(client, "SJSON", metadata=metadata(SCHEMA))
    text = b'{"id":%d,"total":1.5,"big":18446744073709551616,"lines":[{"sku":"a"}],"tags":{"t":true}}' % (2**53 + 1)
    publish(client, "SJSON", 100, payload=lambda _: text, subject=lambda number: f"eu.c{number}")
    frame = load(spark, server, "SJSON", decode="true", subject="SJSON.*.*", subjectTokens="region,customer")
    assert frame.select("value").schema.simpleString() == (
        "struct<value:struct<id:bigint,total:double,big:decimal(38,0),lines:array<struct<sku:string>>,"
        "tags:map<string,boolean>>>"
    )
    row = frame.where("customer = 'c7'").selectExpr("region", "value.*").first()
    assert row is not None
    assert (row.region, row.id, row.total, int(row.big), row.lines[0].sku, row.tags) == (
        "eu",
        2**53 + 1,
        1.5,
        2**64,
        "a",
        {"t": True},
    )
    create(client, "SAVRO", metadata=metadata(AVRO, "avro"))
    publish(client, "SAVRO", 2, payload=lambda number: written(AVRO, {**ORDER, "id": number}))
    assert sorted(row.id for row in load(spark, server, "SAVRO", decode="true").select("value.id").collect()) == [0, 1]
    create(client, "SPROTO", metadata=metadata(SET, "protobuf", message="shop.Order"))
    publish(client, "SPROTO", 2, payload=lambda number: order_class()(id=number).SerializeToString())
    rows = load(spark, server, "SPROTO", decode="true", columns="time_ns,header_list,value").collect()
    assert sorted(int(row.value.id) for row in rows) == [0, 1]
    assert all(row.time_ns > 0 and row.header_list is None for row in rows)


def test_a_query_has_typed_rows_and_stops_at_one_that_does_not_fit(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "SQ", metadata=metadata(SCHEMA))
    publish(client, "SQ", 10, payload=lambda number: b'{"id":%d}' % number)
    update(client, "SQ", metadata={})
    publish(client, "SQ", 1, payload=lambda _: b'{"id":"ten"}')
    update(client, "SQ", metadata=metadata(SCHEMA))
    seen: list[Any] = []

    def keep(frame: "DataFrame", _: int) -> None:
        seen.extend(row.id for row in frame.select("value.id").collect())

    stopped = start(spark, server, "SQ", tmp_path / "stops", keep, decode="true")
    text = failure(lambda: stopped.awaitTermination(QUERY_TIMEOUT_S))
    assert "stream 'SQ', sequence 11: the payload does not fit the schema: /id: expected number" in text
    seen.clear()
    query = start(spark, server, "SQ", tmp_path / "goes on", keep, decode="true", mode="PERMISSIVE")
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert sorted(seen, key=lambda one: -1 if one is None else one) == [None, *range(10)]
    reader = spark.read.format("jetstream").options(servers=server.url, stream="SQ", decode="true")
    wrong = reader.schema("value STRUCT<id: STRING>").load()
    assert "the source has no column value struct<id:string>" in failure(wrong.collect)
