"""A server that commands use, and a user without configuration."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetraft.api.cli.client.login import ENVIRONMENT
from tests.harness.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server alone."""
    with Server("jetraft", directory=tmp_path_factory.mktemp("server")) as one:
        one.wait_healthy()
        yield one


@pytest.fixture
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither environment nor contexts; returns the directory of configurations."""
    for name in ENVIRONMENT.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config"


@pytest.fixture
def login(server: Server, no_login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the server."""
    monkeypatch.setenv("NATS_URL", server.url)
