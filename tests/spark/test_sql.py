"""Streams in SQL: views, and what tables and INSERT say."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyspark_jetstream
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import create, publish
from tests.spark.test_source import QUERY_TIMEOUT_S, failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]


def test_each_stream_that_matches_is_a_view(spark: "SparkSession", server: Server, client: RawClient) -> None:
    for name in ("SQL_ONE", "SQL-TWO", "OTHER_SQL"):
        create(client, name)
        publish(client, name, 5)
    assert pyspark_jetstream.create_views(spark, server.url, "SQL*") == ["SQL-TWO", "SQL_ONE"]
    publish(client, "SQL_ONE", 2)
    question = "SELECT count(*) AS rows FROM SQL_ONE UNION ALL SELECT count(*) FROM `SQL-TWO`"
    assert [row.rows for row in spark.sql(question).collect()] == [7, 5]
    assert pyspark_jetstream.create_views(spark, server.url, "SQL_*", columns="subject") == ["SQL_ONE"]
    assert spark.table("SQL_ONE").columns == ["subject"]
    for name in ("SQL_ONE", "SQL-TWO"):
        spark.catalog.dropTempView(name)


def test_a_table_of_the_catalog_is_refused_with_what_to_use(spark: "SparkSession", server: Server) -> None:
    given = f"OPTIONS (servers '{server.url}', stream 'TABLED')"
    why = failure(lambda: spark.sql(f"CREATE TABLE tabled USING jetstream {given}"))
    assert "use CREATE TEMPORARY VIEW ... USING jetstream OPTIONS (...), or create_views" in why


def test_rows_are_inserted_into_a_view_with_the_columns_of_a_message(
    spark: "SparkSession", server: Server, client: RawClient
) -> None:
    create(client, "INSERTED")
    given = f"USING jetstream OPTIONS (servers '{server.url}', stream 'INSERTED')"
    spark.sql(f"CREATE TEMPORARY VIEW inserted (subject STRING, data BINARY) {given}")
    spark.sql("INSERT INTO inserted VALUES ('INSERTED.x', X'31')")
    assert [(row.subject, bytes(row.data)) for row in spark.table("inserted").collect()] == [("INSERTED.x", b"1")]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW inserted {given}")
    values = "(1, now(), 'INSERTED.x', NULL, X'31')"
    why = failure(lambda: spark.sql(f"INSERT INTO inserted VALUES {values}"))
    assert "columns 'stream_seq', 'time' are not part of a message" in why
    assert "CREATE TEMPORARY VIEW v (subject STRING, data BINARY) USING jetstream" in why
    spark.catalog.dropTempView("inserted")


def test_a_query_that_writes_starts_in_a_thread_that_has_registered(
    spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "TH_FROM")
    create(client, "TH_TO")
    publish(client, "TH_FROM", 3)
    rows = load_stream(spark, server, "TH_FROM").selectExpr("'TH_TO.x' AS subject", "data")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            pyspark_jetstream.register(spark)
            writer = rows.writeStream.format("jetstream").options(servers=server.url, stream="TH_TO")
            query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
            assert query.awaitTermination(QUERY_TIMEOUT_S)
        except BaseException as error:  # noqa: BLE001  (shown by the test)
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    assert client.api("STREAM.INFO.TH_TO")["state"]["messages"] == 3


def load_stream(spark: "SparkSession", server: Server, stream: str) -> "DataFrame":
    return spark.readStream.format("jetstream").options(servers=server.url, stream=stream).load()
