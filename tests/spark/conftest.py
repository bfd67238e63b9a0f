"""Fixtures for the Spark source: servers of both kinds, their streams, and one Spark session for the whole run.

JETRAFT_SERVERS chooses the kinds ("jetraft" by default, as in tests/conftest.py).
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_jetstream.client import CONNECTIONS
from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Kind, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = [kind for kind in os.environ.get("JETRAFT_SERVERS", "jetraft").split(",") if kind]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of server that this run of a module uses."""
    return request.param  # type: ignore[no-any-return]  # a pytest parameter is untyped


@pytest.fixture(scope="module")
def server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module; its tests use stream names of their own."""
    with Server(kind, directory=tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for a module; tests that stop a node start it again."""
    with Cluster(kind, 3, directory=tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    """A client of the one server."""
    with RawClient(server.address) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _closed_connections() -> Iterator[None]:
    """Connections that reads in this process left open are closed with their test."""
    yield
    CONNECTIONS.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local Spark; its Python workers find this checkout."""
    try:
        ensure_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    from pyspark.sql import SparkSession  # noqa: PLC0415  (only tests that need a JVM)

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    session = local_session(SparkSession.builder, tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


# Most of a short run is the JVM compiling itself; the simple compiler and collector halve that.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def local_session(
    builder: "SparkSession.Builder", directory: Path, *, java: str = QUICK_START, master: str = "local[2]"
) -> "SparkSession":
    """A session on two cores that listens on loopback only and writes below `directory`."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.log.level": "ERROR",
        "spark.executor.memory": "512m",  # of a local cluster; a local master has no executors of its own
        "spark.driver.extraJavaOptions": java,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.master(master).getOrCreate()
