"""docs/spark.md: its examples run, and its tables have every option.

Examples and commands run against a real server, with a real Spark. One example needs TLS and a login of its own: a
recorder, which parses the options of each read and write, takes it instead of Spark, as it does the others.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_jetstream.options import KNOWN, Options, parse_options
from pyspark_jetstream.write.options import WriteOptions, parse_write_options
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create, delete
from tests.spark.test_credentials import SEEDS, creds, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
WITHOUT_SPARK = [code for code in BLOCKS if "import pyspark_jetstream as js" in code]
IN_SQL = [code for code in BLOCKS if "spark.sql(" in code]  # its options are in statements
[PROGRAM] = [code for code in BLOCKS if "SparkSession.builder" in code]
EXAMPLES = [code for code in BLOCKS if code not in WITHOUT_SPARK and code not in IN_SQL and code != PROGRAM]
COMMANDS = re.findall(r"^    (jetraft export .*)$", TEXT, re.MULTILINE)


class Recorder:
    """Instead of a Spark session: keeps the options of a read or write, and parses them where Spark would."""

    def __init__(self) -> None:
        self.found: list[Options | WriteOptions] = []
        self._given: dict[str, str] = {}

    def __getattr__(self, _: str) -> "Recorder":
        return self

    def __call__(self, *_: Any, **__: Any) -> "Recorder":
        return self

    def option(self, name: str, value: object) -> "Recorder":
        self._given[name] = str(value)
        return self

    def options(self, **given: object) -> "Recorder":
        self._given |= {name: str(value) for name, value in given.items()}
        return self

    def load(self) -> "Recorder":
        return self._take(parse_options)

    def start(self) -> "Recorder":
        return self._take(parse_write_options)

    save = start

    def _take(self, parse: Callable[[dict[str, str]], Options | WriteOptions]) -> "Recorder":
        self.found.append(parse(self._given))
        self._given = {}
        return self


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_options_of_each_example_with_spark_are_accepted(code: str, tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(creds(text_of(SEEDS[0])))
    spark = Recorder()
    exec(compile(code, "docs/spark.md", "exec"), {"spark": spark, "orders": spark, "creds": str(path)})
    assert spark.found


@pytest.fixture
def orders(client: RawClient) -> Iterator[None]:
    """The stream that the examples without Spark read."""
    schema = {"properties": {"id": {"type": "integer"}, "price": {"type": "number"}}}
    metadata = {"jetraft.schema": json.dumps(schema), "jetraft.schema_type": "json"}
    create(client, "ORDERS", subjects=["orders.>"], metadata=metadata)
    for number in range(10):
        client.acknowledged(f"orders.{('eu', 'us', 'as')[number % 3]}.new", b"{}")
    yield
    delete(client, "ORDERS")


@pytest.mark.spark
@pytest.mark.usefixtures("orders")
def test_the_examples_with_spark_run(spark: "SparkSession", server: Server, client: RawClient, tmp_path: Path) -> None:
    """All but the one that needs TLS and a login."""
    create(client, "JOBS", retention="workqueue")
    create(client, "SEEN", subjects=["seen.>", "fences.spark.>"], allow_atomic=True)
    create(client, "BILLS", subjects=["bills.>"])
    client.acknowledged("JOBS.x", b"{}")
    names: dict[str, Any] = {"spark": spark}
    for code in [*EXAMPLES, *IN_SQL]:
        if "tls://" not in code:
            here = re.sub(r"nats://n1:4222(,nats://n\d:4222)*", server.url, code).replace("/checkpoints", str(tmp_path))
            exec(compile(here, "docs/spark.md", "exec"), names)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert streamed(names["jobs"], tmp_path / "jobs") == 1
    assert streamed(names["orders"], tmp_path / "orders") == 7
    assert names["typed"].schema.simpleString() == "struct<region:string,state:string,id:bigint,price:double>"
    assert streamed(names["typed"], tmp_path / "typed") == 10
    names["query"].processAllAvailable()
    names["query"].stop()
    found = client.api("STREAM.INFO.SEEN", {"subjects_filter": "seen.>"})["state"]["subjects"]
    assert found == {"seen.orders.eu.new": 4, "seen.orders.us.new": 3}
    assert client.api("STREAM.INFO.BILLS")["state"]["messages"] == 2
    assert names["views"] == ["BILLS"]
    assert [(row.subject, row.messages) for row in names["totals"].collect()] == [("bills.new", 2)]
    for view in ("BILLS", "new_bills"):
        spark.catalog.dropTempView(view)
    for stream in ("JOBS", "SEEN", "BILLS"):
        delete(client, stream)


@pytest.mark.spark
def test_the_whole_program_runs(spark: "SparkSession", server: Server, tmp_path: Path) -> None:
    here = PROGRAM.replace("nats://127.0.0.1:4222", server.url).replace("/tmp/sums-checkpoint", str(tmp_path))
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    names: dict[str, Any] = {}
    try:
        exec(compile(here, "docs/spark.md", "exec"), names)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    found = [(row.subject, json.loads(row.data)) for row in names["result"].collect()]
    assert sum(one["orders"] for _, one in found) == 100
    assert sum(one["price"] for _, one in found) == 250.0
    assert {subject for subject, _ in found} == {"sums.eu", "sums.us"}


def streamed(frame: "DataFrame", directory: Path) -> int:
    """How many rows a streaming query has now."""
    counts: list[int] = []
    writer = frame.writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
    query = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
    assert query.awaitTermination(int(5 * PATIENCE_S))
    return sum(counts)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("code", WITHOUT_SPARK, ids=range(len(WITHOUT_SPARK)))
def test_the_examples_without_spark_run(code: str, server: Server, tmp_path: Path) -> None:
    names: dict[str, Any] = {"directory": str(tmp_path)}
    exec(compile(code.replace("nats://n1:4222", server.url), "docs/spark.md", "exec"), names)
    assert (len(names["table"]), len(names["frame"]), names["rows"], names["export"].rows) == (7, 10, 10, 10)
    assert len(names["later"]) == 0


@pytest.mark.usefixtures("orders")
def test_the_commands_run(server: Server, tmp_path: Path) -> None:
    assert len(COMMANDS) == 2
    rows = []
    for line in COMMANDS:
        words = [sys.executable, "-m", "jetraft", *shlex.split(line.replace("nats://n1:4222", server.url))[1:]]
        env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(words, env=env, capture_output=True, cwd=tmp_path, timeout=PATIENCE_S, check=True)
        rows.append(json.loads(done.stdout)["rows"])
    assert rows == [4, 0]


def test_every_option_has_its_row() -> None:
    rows = re.findall(r"^\| ([A-Za-z, ]+) \|", TEXT, re.MULTILINE)
    documented = {name.strip() for row in rows for name in row.split(",")}
    assert set(KNOWN.values()) - documented == set()
