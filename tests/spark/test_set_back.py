"""A store that was set back to an older copy: the stream has its name and creation time, and ends below the offset."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_jetstream.errors import DataLossError
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.source import StreamReader
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server
from tests.spark.streams import create, publish

NAME = "SETBACK"


@pytest.fixture
def offset_and_server(kind: Kind, tmp_path: Path) -> Iterator[tuple[dict[str, Any], Server]]:
    """The offset behind 20 messages, and the server with the copy of its store that has 10 of them."""
    with Server(kind, directory=tmp_path) as server:
        copy = tmp_path / "copy"
        with RawClient(server.address) as client:
            create(client, NAME)
            publish(client, NAME, 10)
        server.stop()
        shutil.copytree(server.store_dir, copy)
        server.start()
        with RawClient(server.address) as client:
            publish(client, NAME, 10)
        read = reader(server)
        offset = read.latestOffset(read.initialOffset(), ReadAllAvailable())
        read.stop()
        server.stop()
        shutil.rmtree(server.store_dir)
        copy.rename(server.store_dir)
        server.start()
        yield offset, server


def reader(server: Server, **options: str) -> StreamReader:
    """What Spark makes of the options."""
    return StreamReader(parse_options({"servers": server.url, "stream": NAME, "retryTimeout": "2s", **options}))


def test_a_stream_that_was_set_back_stops_the_query(offset_and_server: tuple[dict[str, Any], Server]) -> None:
    offset, server = offset_and_server
    read = reader(server)
    with pytest.raises(DataLossError, match="ends at 10, the query has read to 20"):
        read.latestOffset(offset, ReadAllAvailable())
    read.stop()


def test_a_stream_that_was_set_back_is_read_on_from_its_end_when_losses_are_accepted(
    offset_and_server: tuple[dict[str, Any], Server], caplog: pytest.LogCaptureFixture
) -> None:
    offset, server = offset_and_server
    read = reader(server, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = read.latestOffset(offset, ReadAllAvailable())
    assert "ends at 10, the query has read to 20; continuing without" in caplog.text
    assert read.partitions(offset, end) == []
    with RawClient(server.address) as client:
        publish(client, NAME, 5, payload=lambda number: b"new %d" % number)
    later = read.latestOffset(end, ReadAllAvailable())
    batches = [batch for partition in read.partitions(end, later) for batch in read.read(partition)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["stream_seq"], row["data"]) for row in rows] == [(11 + n, b"new %d" % n) for n in range(5)]
    read.stop()
