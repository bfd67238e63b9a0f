"""`stream copy` within an account, and to other servers: jetraft's and nats-server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.cli.client.copies.copying import HeaderLines
from tests.api.cli.client.running import Done, run
from tests.api.cli.client.test_messages import process
from tests.clients.nats_py import connection
from tests.harness.patience import PATIENCE_S, until
from tests.harness.server import Server

MESSAGES = 600
MANY = 30_000
GAPS = (1, 2, 300, *range(310, 450))  # one is longer than what is read at a time
HEADERS = (
    {"X": "1"},
    {"Nats-Msg-Id": "same"},  # of several messages: the time in which they would be duplicates has passed
    {"Nats-Rollup": "sub"},
    {"Nats-Expected-Stream": "SRC"},
    HeaderLines((("A", "1"), ("A", "2"), ("B", ""))),
    None,
)


@pytest.fixture(autouse=True)
def _login(login: None) -> None:
    """Every test has the server."""


@pytest.fixture(scope="module")
def source(server: Server) -> str:
    """A stream with gaps, and messages of all kinds."""
    url = ("--server", server.url)
    words = ("--subjects", "src.>,more.*", "--dupe-window", "100ms", "--allow-rollup", "--description", "the original")
    done = run("stream", "add", "SRC", *words, "--json", *url)
    assert done.status == 0, done

    async def fill() -> None:
        async with connection(server.url) as client:
            stream = client.jetstream()
            for number in range(MESSAGES):
                headers = HEADERS[number % len(HEADERS)] if number < len(HEADERS) or number % 7 == 0 else None
                if headers is not None and "Nats-Msg-Id" in headers:
                    await asyncio.sleep(0.15)  # beyond the window for duplicates, which the server's clock measures
                await stream.publish(f"src.{number}", bytes([number % 128]) * (number % 50), headers=headers)
            for seq in GAPS:
                await stream.delete_msg("SRC", seq)

    asyncio.run(fill())
    return "SRC"


def messages(server: Server, stream: str) -> list[dict[str, Any]]:
    done = run("stream", "view", stream, "--count", str(MANY), "--json", "--server", server.url)
    assert done.status == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def copied(*words: str) -> dict[str, Any]:
    done = run("stream", "copy", *words, "--json")
    assert (done.status, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_within_an_account_sequences_and_times_stay(server: Server, source: str) -> None:
    found = copied(source, "DST")
    assert (found["same_sequences"], found["subjects"]) == (True, ["DST.src.>", "DST.more.*"])
    before, after = messages(server, source), messages(server, "DST")
    assert len(before) == found["compared"] == MESSAGES - len(GAPS)
    for each in before:
        each["headers"].pop("Nats-Expected-Stream", None)  # a mirror drops what a publisher asked for
    assert after == [each | {"subject": f"DST.{each['subject']}"} for each in before]
    config = json.loads(run("stream", "info", "DST", "--json").out)["config"]
    assert (config.get("mirror"), config["description"]) == (None, "the original")
    assert run("pub", "DST.src.new", "x", "-J").status == 0, "it is a stream like others"
    again = run("stream", "copy", source, "DST")
    assert (again.status, again.out, again.err.count("\n")) == (1, "", 1)
    assert "a copy of this stream already" in again.err


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_elsewhere_each_message_is_there_once_with_its_own_headers(
    server: Server, source: str, tmp_path: Path, kind: Any
) -> None:
    with Server(kind, directory=tmp_path) as other:
        found = copied(source, source, "--server2", other.url)
        assert (found["compared"], found["only_in_copy"], found["same_sequences"]) == (MESSAGES - len(GAPS), 0, False)
        assert copied(source, source, "--server2", other.url)["sha256"] == found["sha256"]
        after = messages(other, source)
    before = messages(server, source)
    assert [each["subject"] for each in after] == [each["subject"] for each in before]
    assert [each["payload"] for each in after] == [each["payload"] for each in before]
    lines = next(each for each in after if "A" in each["headers"])["headers"]
    assert (lines["A"], lines["B"]) == (["1", "2"], [""])
    ids = [each["headers"].get("Jetraft-Copied-Msg-Id") for each in after]
    assert ids == [each["headers"].get("Nats-Msg-Id") for each in before]
    assert ids.count(["same"]) > 1


@pytest.fixture
def many(server: Server) -> Iterator[str]:
    assert run("stream", "add", "MANY", "--subjects", "many").status == 0

    async def fill() -> None:
        async with connection(server.url) as client:
            for number in range(MANY):
                await client.publish("many", str(number).encode())
            await client.flush()

    asyncio.run(fill())
    until(lambda: held(server, "MANY") == MANY)
    yield "MANY"
    assert run("stream", "rm", "MANY", "--force").status == 0


def held(server: Server, stream: str) -> int:
    done = run("stream", "info", stream, "--json", "--server", server.url)
    return int(json.loads(done.out)["state"]["messages"]) if done.status == 0 else 0


def test_a_copy_that_was_killed_goes_on_where_it_was(server: Server, many: str, tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as other:
        first = process(server, "stream", "copy", many, many, "--server2", other.url)
        until(lambda: held(other, many) > 0)
        first.kill()
        first.communicate(timeout=PATIENCE_S)
        assert 0 < held(other, many) < MANY
        found = copied(many, many, "--server2", other.url)
        assert (found["compared"], found["state"]["messages"], found["state"]["last_seq"]) == (MANY, MANY, MANY)


def test_what_another_client_publishes_into_a_copy_is_found(server: Server, source: str, tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as other:
        assert copied(source, source, "--server2", other.url)
        assert run("pub", "src.foreign", "x", "-J", "--server", other.url).status == 0
        assert_refused(run("stream", "copy", source, source, "--server2", other.url), "is no copy")


def test_a_message_that_differs_is_named(server: Server, source: str, tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as other:
        assert copied(source, source, "--server2", other.url)
        assert run("stream", "rmm", source, "100", "--force", "--server", other.url).status == 0
        assert_refused(
            run("stream", "copy", source, source, "--server2", other.url), "message 100 of SRC is not in SRC"
        )


def assert_refused(done: Done, said: str) -> None:
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1), done
    assert said in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("NONE", "X"), "stream not found (10059)"),
        (("SRC", "a.b"), "is no name of a stream"),
        (("SRC", "SRC"), "is no copy of this stream: choose another name"),
        (("SRC", "X", "--prefix", "a b."), "is no subject"),
        (("SRC", "X", "--context2", "none"), "there is no context none"),
        (("SRC", "X", "--server2", "127.0.0.1:1"), "check that the server runs"),
    ],
)
def test_a_failure_is_one_line(source: str, words: tuple[str, ...], said: str) -> None:
    assert_refused(run("stream", "copy", *words), said)
