"""A store that an earlier version wrote is opened, shows what it showed then, and goes on."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.nats_py import connection, run
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server, environment
from tests.older_stores.make import FOLDER, KEYS, NODE, observed

pytestmark = pytest.mark.campaign

STORES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Server, dict[str, Any]]:
    """A server over the unpacked store, which is not started yet, and what it has to show."""
    name: str = request.param
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    server = Server("jetraft", directory=tmp_path, name=NODE, config=KEYS[name.rpartition("-")[2]] or None)
    return server, json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def contains(found: Any, expected: Any) -> bool:
    """Whether all that is expected is there; a later version may show more fields."""
    if isinstance(expected, Mapping):
        return all(key in found and contains(found[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(contains, found, expected))
    return bool(found == expected)


def test_there_are_stores_of_earlier_versions() -> None:
    assert STORES


def test_it_shows_what_it_showed_when_it_was_written(store: tuple[Server, dict[str, Any]]) -> None:
    server, expected = store
    with server:
        found = observed(server)
    assert set(found) == set(expected)
    for stream, shows in expected.items():
        for part, value in shows.items():
            assert contains(found[stream][part], value), (stream, part, found[stream][part])


def test_it_goes_on_and_is_sound_afterwards(store: tuple[Server, dict[str, Any]]) -> None:
    server, expected = store
    last = expected["PLAIN"]["state"]["last_seq"]

    async def publish() -> None:
        async with connection(server.url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            answers = [await context.publish("plain.new", b"new", headers={"Nats-Msg-Id": "new"}) for _ in range(2)]
            assert [(answer.seq, bool(answer.duplicate)) for answer in answers] == [(last + 1, False), (last + 1, True)]
            (message,) = await (await context.pull_subscribe_bind("half", "PLAIN")).fetch(1, timeout=PATIENCE_S)
            await message.ack_sync(timeout=PATIENCE_S)

    for turn in range(2):
        with server:
            if turn == 0:
                run(publish)
            state = observed(server)["PLAIN"]["state"]
            assert state["last_seq"] == last + 1
    if server.config is None:
        words = [sys.executable, "-m", "jetraft", "verify", str(server.store_dir)]
        verified = subprocess.run(words, env=environment("jetraft"), capture_output=True, text=True, check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize(("config", "is_in_ledger"), [(None, True), ("jetstream { feature_level: 1 }", False)])
def test_a_server_that_is_kept_at_the_first_level_writes_what_older_ones_open(
    tmp_path: Path, config: str | None, *, is_in_ledger: bool
) -> None:
    """They refuse a ledger that has the beginning of a log (decision 116)."""
    server = Server("jetraft", directory=tmp_path, config=config)

    async def create() -> None:
        async with connection(server.url) as client:
            await client.jetstream(timeout=PATIENCE_S).add_stream(name="S")

    with server:
        run(create)
    words = [sys.executable, "-m", "jetraft", "inspect", str(server.store_dir)]
    shown = subprocess.run(words, env=environment("jetraft"), capture_output=True, text=True, check=True).stdout
    assert ("in the ledger" in shown) is is_in_ledger, shown
