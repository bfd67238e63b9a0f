"""`kv` and `object`: what one client stores, another reads."""

import json
import os
from pathlib import Path

import pytest

from tests.api.cli.client.running import run
from tests.clients.nats_py import connection
from tests.harness.server import Server


@pytest.fixture(autouse=True)
def _login(login: None) -> None:
    """Every test has the server."""


def test_a_file_is_stored_and_read_unchanged_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    content = os.urandom(400_000)
    (tmp_path / "a.bin").write_bytes(content)
    assert run("object", "add", "FILES").status == 0
    stored = json.loads(run("object", "put", "FILES", "a.bin", "--name", "dir/../a", "--json").out)
    assert (stored["size"], stored["chunks"]) == (400_000, 4)
    got = run("object", "get", "FILES", "dir/../a")
    assert got.status == 0, got
    assert (tmp_path / "a").read_bytes() == content, "in the working directory, whatever the name says"
    again = run("object", "get", "FILES", "dir/../a")
    assert (again.status, again.out) == (1, "")
    assert "--force" in again.err
    assert run("object", "rm", "FILES", "dir/../a", "--force").status == 0
    missing = run("object", "get", "FILES", "dir/../a", "--force")
    assert (missing.status, missing.err.count("\n")) == (1, 1)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert (tmp_path / "a").read_bytes() == content, "a failure leaves the file that was there"


async def asked(url: str) -> tuple[list[str], bytes | None]:
    async with connection(url) as client:
        bucket = await client.jetstream().key_value("CFG")
        await bucket.put("b.c", b"from nats-py")
        return sorted(await bucket.keys()), (await bucket.get("a")).value


def test_keys_are_those_of_every_client(server: Server) -> None:
    import asyncio  # noqa: PLC0415  only here

    assert run("kv", "add", "CFG", "--history", "3").status == 0
    assert run("kv", "put", "CFG", "a", "-", given="from the command line").status == 0
    assert asyncio.run(asked(server.url)) == (["a", "b.c"], b"from the command line")
    assert run("kv", "get", "CFG", "b.c", "--raw").out == "from nats-py"
    assert json.loads(run("kv", "ls", "CFG", "--json").out) == ["a", "b.c"]


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (1, ("kv", "get", "NONE", "a"), "(10059)"),
        (2, ("kv", "put", "CFG2", "a*b", "x"), "is no key"),
        (1, ("kv", "put", "CFG2", "a", "x", "--revision", "9"), "wrong last sequence"),
        (2, ("kv", "add", "CFG3", "--history", "99"), "from 1 to 64"),
        (1, ("kv", "rm", "CFG2"), "--force"),
        (1, ("object", "put", "NONE", "x"), "(10059)"),
        (2, ("object", "get", "NONE", ".."), "--output FILE"),
        (2, ("object", "get", "NONE", "/"), "--output FILE"),
    ],
)
def test_a_failure_is_one_line(status: int, words: tuple[str, ...], said: str) -> None:
    run("kv", "add", "CFG2")
    done = run(*words)
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1), done
    assert said in done.err
