"""Fixtures for tests that start real server processes.

JETRAFT_SERVERS chooses which kinds the shared client and cluster tests run against ("jetraft" by default,
"reference" or "jetraft,reference" to check the tests themselves against nats-server).

Hypothesis draws the same examples in every run, so that a change is what makes a test fail, and no example has a
deadline. `--hypothesis-profile=explore` draws others each time.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.harness.cluster import Cluster
from tests.harness.durations import Durations
from tests.harness.scheduling import FilesAndSessions, place, turned
from tests.harness.server import ROOT, Kind, Server

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Say at the end where the time went. A worker that collects everything begins where no other does."""
    config.pluginmanager.register(Durations())
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args == ["tests"]:
        folders = sorted(
            str(path.relative_to(ROOT))
            for path in (ROOT / "tests").iterdir()
            if path.is_dir() and not path.name.startswith("_")
        )
        number = int(worker["workerid"].removeprefix("gw"))
        config.args = turned(folders, number, worker["workercount"])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what is collected from garbage collection: it stays, and looking at all of it takes 0.3 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of a worker in the order that all workers have (before fixtures of a module group them)."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesAndSessions | None:
    """With `--dist loadfile`: ours; else what was asked for."""
    return FilesAndSessions(config, log) if config.getoption("dist") == "loadfile" else None


KINDS: list[str] = [kind for kind in os.environ.get("JETRAFT_SERVERS", "jetraft").split(",") if kind]


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of server that this run of a module uses."""
    return request.param  # type: ignore[no-any-return]  # a pytest parameter is untyped


@pytest.fixture(scope="module")
def server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module; its tests use stream names of their own."""
    with Server(kind, directory=tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for a module; tests that stop a node start it again."""
    with Cluster(kind, 3, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def start_server(kind: Kind, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A function that starts servers of this test alone."""
    started: list[Server] = []

    def start(**options: object) -> Server:
        directory = tmp_path / f"s{len(started)}"
        server = Server(kind, directory=directory, **options)  # type: ignore[arg-type]  # options of Server, by name
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.close()
