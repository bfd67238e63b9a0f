"""Rows with the fields of the stream's schema, tokens of the subject, nanoseconds and headers in their order.

Here without Spark and from both kinds of servers; test_typed_spark.py has what Spark makes of them.
"""

import json
from typing import Any

import pyarrow as pa
import pytest

from pyspark_jetstream import read_arrow, scan_arrow
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.errors import BadOptionError, SchemaChangedError, UndecodableRowError
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner, with_decoding
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server
from tests.spark.streams import create, delete_messages, publish
from tests.spark.typed.test_binary_values import AVRO, ORDER, SET, order_class, written

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}


def metadata(schema: Any = SCHEMA, kind: str = "json", **more: str) -> dict[str, str]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"jetraft.schema": text, "jetraft.schema_type": kind, **{f"jetraft.schema_{key}": more[key] for key in more}}


def update(client: RawClient, name: str, **config: Any) -> None:
    wish = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True, **config}
    answer = client.api(f"STREAM.UPDATE.{name}", wish)
    assert "error" not in answer, answer


def read(server: Server, stream: str, **options: Any) -> pa.Table:
    return read_arrow(servers=server.url, stream=stream, retryTimeout="3s", **options)


def test_a_json_schema_gives_its_fields(server: Server, client: RawClient) -> None:
    create(client, "JSON", metadata=metadata())
    publish(client, "JSON", 20_000, payload=lambda number: b'{"id":%d,"more":[%d]}' % (2**60 + number, number))
    table = read(server, "JSON", decode=True, minPartitions=3)
    assert table.schema.names == ["stream_seq", "time", "subject", "headers", "value"]
    assert table.schema.field("value").type == pa.struct([("id", pa.int64()), ("note", pa.string())])
    assert table.column("value").to_pylist() == [{"id": 2**60 + number, "note": None} for number in range(20_000)]
    both = read(server, "JSON", decode=True, columns="data,value", endingOffsets=2)
    assert both.to_pylist() == [{"data": b'{"id":%d,"more":[0]}' % 2**60, "value": {"id": 2**60, "note": None}}]


def test_avro_and_protobuf_give_theirs(server: Server, client: RawClient) -> None:
    plain = json.loads(json.dumps(AVRO).replace(', "logicalType": "timestamp-micros"', ""))
    create(client, "AVRO", metadata=metadata(AVRO, "avro"))
    publish(client, "AVRO", 3, payload=lambda number: written(plain, {**ORDER, "id": number}))
    values = read(server, "AVRO", decode=True).column("value").to_pylist()
    assert values == [{**ORDER, "id": number, "tags": [("a", 0.1)]} for number in range(3)]
    create(client, "PROTO", metadata=metadata(SET, "protobuf", message="shop.Order"))
    publish(client, "PROTO", 3, payload=lambda number: order_class()(id=number, note="x").SerializeToString())
    values = read(server, "PROTO", decode=True, columns="value").column("value").to_pylist()
    assert [(int(value["id"]), value["note"]) for value in values] == [(0, "x"), (1, "x"), (2, "x")]


def test_a_row_that_does_not_fit_is_named_or_null(server: Server, client: RawClient) -> None:
    create(client, "OLD")
    publish(client, "OLD", 500, payload=lambda number: b"old" if number == 300 else b'{"id":%d}' % number)
    delete_messages(client, "OLD", 7)
    update(client, "OLD", metadata=metadata())
    with pytest.raises(
        UndecodableRowError, match=r"stream 'OLD', sequence 301: .* not JSON at character 0 \(mode=PERM"
    ):
        read(server, "OLD", decode=True)
    table = read(server, "OLD", decode=True, mode="permissive", columns="stream_seq,value,data")
    rows = {row["stream_seq"]: row for row in table.to_pylist()}
    assert rows.pop(301) == {"stream_seq": 301, "value": None, "data": b"old"}
    assert {seq: row["value"]["id"] for seq, row in rows.items()} == {
        seq: seq - 1 for seq in range(1, 501) if seq not in {7, 301}
    }


def test_a_schema_that_changes_within_a_range(server: Server, client: RawClient) -> None:
    create(client, "CHANGE", metadata=metadata({"properties": {"id": {"type": "integer"}}}))
    publish(client, "CHANGE", 50, payload=lambda _: b'{"id":1,"note":5}')
    update(client, "CHANGE", metadata=metadata())
    publish(client, "CHANGE", 50, payload=lambda _: b'{"note":"a"}')
    with pytest.raises(
        UndecodableRowError, match="sequence 1: the payload does not fit the schema: /note: expected string"
    ):
        read(server, "CHANGE", decode=True)
    values = read(server, "CHANGE", decode=True, mode="PERMISSIVE").column("value").to_pylist()
    assert values == [None] * 50 + [{"id": None, "note": "a"}] * 50


def test_a_query_notices_that_its_stream_got_another_schema(
    server: Server, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    one = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    other = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}]}
    create(client, "AVROS", metadata=metadata(one, "avro"))
    create(client, "JSONS", metadata=metadata())
    planners = []
    connections = ConnectionCache()
    for stream in ("AVROS", "JSONS"):
        options = with_decoding(parse_options({"servers": server.url, "stream": stream, "decode": "true"}))
        planners.append(Planner(options, connections))
        planners[-1].initial()
    update(client, "AVROS", metadata=metadata(other, "avro"))
    update(client, "JSONS", metadata=metadata({"properties": {"id": {"type": "string"}}}))
    with pytest.raises(SchemaChangedError, match="stream 'AVROS' has another Avro schema"):
        planners[0].view()
    for _ in range(3):
        planners[1].view()
    assert caplog.text.count("stream JSONS has another schema") == 1
    connections.close()


def test_tokens_of_subjects_are_columns(server: Server, client: RawClient) -> None:
    create(client, "TOK")
    publish(client, "TOK", 6, subject=lambda number: ("eu.ann.new", "us.bob", "eu")[number % 3])

    def tokens(names: str, **options: Any) -> list[tuple[Any, ...]]:
        table = read(server, "TOK", subjectTokens=names, endingOffsets=4, **options)
        return [tuple(row[name] for name in names.split(",") if name != "_") for row in table.to_pylist()]

    assert tokens("region,customer", subject="TOK.>") == [("eu", "ann"), ("us", "bob"), ("eu", None)]
    assert tokens("stream_name,_,customer") == [("TOK", "ann"), ("TOK", "bob"), ("TOK", None)]
    assert tokens("region,customer", subject="TOK.eu.>,TOK.us.>") == [("eu", "ann"), ("us", "bob")]
    assert tokens("customer,state", subject="TOK.eu.>") == [("ann", "new")]
    only = read(server, "TOK", subject="TOK.*.*", subjectTokens="region,customer", columns="customer")
    assert only.to_pydict() == {"customer": ["bob", "bob"]}


def test_nanoseconds_and_headers_in_their_order(server: Server, client: RawClient, kind: Kind) -> None:
    create(client, "EXACT")
    lines = [("b", "1"), ("a", "2"), ("b", "3")]
    publish(client, "EXACT", 3, headers=lambda number: lines if number != 1 else [])
    rows = read(server, "EXACT", columns="time_ns,time,header_list,headers").to_pylist()
    pairs = [{"name": name, "value": value} for name, value in lines]
    assert [row["header_list"] for row in rows] == [pairs, None, pairs]
    assert rows[0]["headers"] == [("b", ["1", "3"]), ("a", ["2"])]
    for seq, row in enumerate(rows, 1):
        text = client.api("STREAM.MSG.GET.EXACT", {"seq": seq})["message"]["time"]
        seconds, _, fraction = text.removesuffix("Z").partition(".")
        assert row["time_ns"] % 10**9 == int(fraction.ljust(9, "0"))
        assert row["time_ns"] // 1000 == int(row["time"].timestamp() * 10**6 + 0.5), (kind, seconds)


def test_what_has_no_schema_is_named_when_the_read_is_planned(server: Server, client: RawClient) -> None:
    create(client, "PLAIN")
    create(client, "TYPED", metadata=metadata())
    create(client, "TYPES", metadata=metadata({"properties": {"id": {"type": "string"}}}))
    with pytest.raises(BadOptionError, match="stream 'PLAIN' has no schema"):
        scan_arrow(servers=server.url, stream="PLAIN", decode=True)
    with pytest.raises(BadOptionError, match="streams 'TYPED' and 'TYPES' have different schemas"):
        scan_arrow(servers=server.url, streams="TYPE*", decode=True)
    with pytest.raises(BadOptionError, match="which schema of stream 'TYPED' is meant"):
        scan_arrow(servers=server.url, stream="TYPED", decode=2)
