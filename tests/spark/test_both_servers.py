"""The same messages, read from jetraft in columns and from nats-server in rows, are the same rows."""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyspark_jetstream import fetch
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.columns import Columns
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.rows import to_batches
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server
from tests.spark.streams import create, delete_messages, publish
from tests.spark.test_fetch import planned

NAMES = ("A", "a", "Trace", "Nats-Subject", "ü")
VALUES = ("", "x", " padded ", "a:b", "é€")
COUNT = 400


def rows_of(server: Server) -> dict[str, list[dict[str, Any]]]:
    """The rows of a stream with direct gets and of one without, without their times."""
    rng = Random(7)
    wanted = [
        (
            rng.choice(("a", "b.c", "é", "long" * 20)),
            rng.randbytes(rng.choice((0, 1, 100, 3000))),
            [(rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.choice((0, 0, 1, 3)))],
        )
        for _ in range(COUNT)
    ]
    gone = sorted(rng.sample(range(1, COUNT + 1), 40))
    found: dict[str, list[dict[str, Any]]] = {}
    cache = ConnectionCache()
    with RawClient(server.address) as client:
        for name, direct in (("DIRECT", True), ("INDIRECT", False)):
            create(client, name, subjects=[f"{name}.>"], allow_direct=direct)
            publish(
                client,
                name,
                COUNT,
                subject=lambda number: wanted[number][0],
                payload=lambda number: wanted[number][1],
                headers=lambda number: wanted[number][2],
            )
            delete_messages(client, name, *gone)
            parts = list(RangeReader(planned(server, name, cache), cache))
            assert any(isinstance(part, Columns) for part in parts) == (direct and server.kind == "jetraft")
            rows = [row for part in parts for batch in to_batches(part) for row in batch.to_pylist()]
            found[name] = [{key: value for key, value in row.items() if key != "time"} for row in rows]
            for row in found[name]:
                row["subject"] = row["subject"].partition(".")[2]
    cache.close()
    return found


def test_columns_of_jetraft_are_the_rows_of_nats_server(tmp_path: Path) -> None:
    kinds = []
    for kind in ("jetraft", "reference"):
        with Server(kind, directory=tmp_path / kind) as server:
            kinds.append(rows_of(server))
    ours, theirs = kinds
    assert ours == theirs
    assert ours["DIRECT"] == ours["INDIRECT"]
    assert len(ours["DIRECT"]) == COUNT - 40


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_what_is_said_after_a_pull_is_not_taken_for_an_answer_to_the_next_request(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """nats-server sends a status after the last message of a pull that also had a limit of bytes."""
    monkeypatch.setattr(fetch, "BATCH_ROWS", 100)
    with Server(kind, directory=tmp_path) as server, RawClient(server.address) as client:
        create(client, "PULLED", allow_direct=False)
        publish(client, "PULLED", COUNT)
        cache = ConnectionCache()
        with closing(cache):
            parts = list(RangeReader(planned(server, "PULLED", cache), cache))
        assert [seq for part in parts for seq in part.stream_seqs] == list(range(1, COUNT + 1))
        assert client.api("CONSUMER.NAMES.PULLED")["consumers"] == []
    assert "continuing at" not in caplog.text
