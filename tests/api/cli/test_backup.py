"""`jetraft backup` and `jetraft restore`: against both servers, what is restored is what there was, to the byte."""

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.cli.backup_taking import locked
from jetraft.api.cli.main import main
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

STILL_THERE = "expected sequence does not match store"
STREAM = {"name": "S", "subjects": ["s.>"], "allow_direct": True}


@pytest.fixture(params=["jetraft", "reference"], scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]  # a pytest parameter is untyped


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    with RawClient(server.address) as connected:
        yield connected
        for name in connected.api("STREAM.NAMES").get("streams") or ():
            connected.api(f"STREAM.DELETE.{name}")


class Command:
    """The two commands, about one directory."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.directory = directory

    def run(self, name: str, *words: str) -> tuple[int, str, str]:
        """Exit status, and what is printed."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([name, str(self.directory), "--servers", self.server.url, *words])
        return status, out.getvalue(), err.getvalue()

    def done(self, name: str, *words: str) -> list[dict[str, Any]]:
        status, out, err = self.run(name, *words)
        while self.server.kind == "reference" and STILL_THERE in err:  # it has deleted the stream, but not all of it
            status, out, err = self.run(name, *words)
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def refused(self, name: str, *words: str, status: int = 1) -> str:
        found, out, err = self.run(name, *words)
        assert (found, out) == (status, ""), err
        return err.strip().removeprefix(f"jetraft {name}: ")


@pytest.fixture
def command(server: Server, tmp_path: Path) -> Command:
    return Command(server, tmp_path / "kept")


def fill(client: RawClient, numbers: Sequence[int]) -> None:
    for number in numbers:
        headers = [("Nats-Msg-Id", f"id-{number}"), ("Colour", "red")] if number % 3 == 0 else []
        client.publish(f"s.{number % 5}", b"payload %d " % number * (number % 40), headers=headers)
    client.settle()
    while client.api("STREAM.INFO.S")["state"]["last_seq"] < numbers[-1]:
        pass


def messages(client: RawClient, stream: str = "S") -> list[dict[str, Any]]:
    """All messages as they are stored: sequences, times, subjects, headers, bodies."""
    last_seq = client.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]
    answers = [client.api(f"STREAM.MSG.GET.{stream}", {"seq": seq}) for seq in range(1, last_seq + 1)]
    return [answer["message"] for answer in answers if "message" in answer]


def consumer(client: RawClient) -> dict[str, Any]:
    info = client.api("CONSUMER.INFO.S.d")
    found = {name: info[name] for name in ("num_ack_pending", "num_redelivered", "num_pending")}
    return {**found, "delivered": info["delivered"]["stream_seq"], "floor": info["ack_floor"]["stream_seq"]}


def work(client: RawClient, count: int) -> None:
    """Take so many messages, acknowledge all but the last."""
    body = json.dumps({"batch": count, "no_wait": True}).encode()
    taken = client.request("$JS.API.CONSUMER.MSG.NEXT.S.d", body, replies=count)
    for message in taken[:-1]:
        client.request(message.reply)


def begin(client: RawClient) -> None:
    assert "error" not in client.api("STREAM.CREATE.S", STREAM)
    config = {"durable_name": "d", "name": "d", "ack_policy": "explicit"}
    assert "error" not in client.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": config})
    fill(client, range(1, 71))
    fill(client, range(71, 101))  # later than those before: what comes together has one time
    work(client, 10)


def test_backups_add_what_came_since_and_a_restore_has_all_of_it(client: RawClient, command: Command) -> None:
    begin(client)
    (first,) = command.done("backup")
    assert (first["stream"], first["whole"], first["messages"], first["last_seq"]) == ("S", True, 100, 100)
    fill(client, range(101, 131))
    work(client, 20)
    for seq in (1, 50, 120):
        assert client.api("STREAM.MSG.DELETE.S", {"seq": seq})["success"]
    (second,) = command.done("backup")
    assert (second["whole"], second["messages"], second["from_seq"], second["last_seq"]) == (False, 29, 101, 130)
    (third,) = command.done("backup")
    assert (third["messages"], third["from_seq"], third["segments"]) == (0, 131, 3)
    before, consumer_before = messages(client), consumer(client)
    client.api("STREAM.DELETE.S")
    (restored,) = command.done("restore")
    assert restored == {"stream": "S", "messages": 127, "first_seq": 2, "last_seq": 130, "consumer_count": 1}
    assert messages(client) == before
    assert consumer(client) == consumer_before
    ack = json.loads(client.request("s.0", b"next")[0].payload)
    assert ack["seq"] == 131


def test_one_goes_back_to_a_sequence_or_a_time_and_has_what_was_removed_since(
    client: RawClient, command: Command
) -> None:
    begin(client)
    command.done("backup")
    before = messages(client)
    at_backup = consumer(client)
    fill(client, range(101, 121))
    command.done("backup", "--stream", "S")
    assert client.api("STREAM.PURGE.S")["success"]
    assert client.api("STREAM.DELETE.S")["success"]
    (restored,) = command.done("restore", "--stream", "S", "--to-sequence", "100")
    assert (restored["messages"], restored["last_seq"], restored["consumer_count"]) == (100, 100, 1)
    assert messages(client) == before
    assert consumer(client) == at_backup
    client.api("STREAM.DELETE.S")
    (restored,) = command.done("restore", "--stream", "S", "--to-time", before[69]["time"])
    assert (restored["messages"], restored["last_seq"], restored["consumer_count"]) == (70, 70, 0)
    assert messages(client) == before[:70]
    (copy,) = command.done("restore", "--stream", "S", "--to-sequence", "110", "--as", "COPY")
    assert copy == {"stream": "COPY", "messages": 110, "first_seq": 1, "last_seq": 110, "consumer_count": 0}
    assert messages(client, "COPY")[:100] == before


def test_an_account_is_backed_up_and_restored_in_one_command(client: RawClient, command: Command) -> None:
    begin(client)
    assert "error" not in client.api("STREAM.CREATE.EMPTY", {"name": "EMPTY", "subjects": ["empty"]})
    assert sorted(one["stream"] for one in command.done("backup")) == ["EMPTY", "S"]
    for name in ("S", "EMPTY"):
        client.api(f"STREAM.DELETE.{name}")
    assert [one["stream"] for one in command.done("restore")] == ["EMPTY", "S"]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 100
    assert "already in use" in command.refused("restore", "--stream", "S")


def test_what_was_removed_before_it_was_backed_up_is_not_in_the_backup(client: RawClient, command: Command) -> None:
    begin(client)
    command.done("backup")
    fill(client, range(101, 111))
    assert client.api("STREAM.PURGE.S", {"seq": 106})["success"]
    (second,) = command.done("backup")
    assert (second["whole"], second["messages"], second["live"], second["last_seq"]) == (False, 5, 5, 110)
    client.api("STREAM.DELETE.S")
    (restored,) = command.done("restore")
    assert (restored["messages"], restored["first_seq"], restored["last_seq"]) == (5, 106, 110)


def test_another_stream_of_the_name_is_refused(client: RawClient, command: Command) -> None:
    begin(client)
    command.done("backup")
    (whole,) = command.done("backup", "--whole")
    assert (whole["whole"], whole["messages"], whole["last_seq"]) == (True, 100, 100)
    client.api("STREAM.DELETE.S")
    command.done("restore")
    assert "use another directory" in command.refused("backup")


@pytest.mark.parametrize("damage", ["a byte", "cut off", "gone", "manifest"])
def test_what_is_damaged_is_refused_before_anything_is_sent(client: RawClient, command: Command, damage: str) -> None:
    begin(client)
    command.done("backup")
    client.api("STREAM.DELETE.S")
    path = command.directory / "S" / "000001.natsarc"
    data = path.read_bytes()
    if damage == "a byte":
        path.write_bytes(data[:500] + bytes([data[500] ^ 1]) + data[501:])
    elif damage == "cut off":
        path.write_bytes(data[:-1])
    elif damage == "gone":
        path.unlink()
    else:
        manifest = command.directory / "S" / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"whole": true', '"whole": false'))
    assert command.refused("restore")
    assert client.api("STREAM.NAMES")["total"] == 0


def test_two_backups_do_not_write_into_one_directory(client: RawClient, command: Command) -> None:
    begin(client)
    (command.directory / "S").mkdir(parents=True)
    with locked(command.directory / "S"):
        assert command.refused("backup").endswith("another backup is writing into it")
    assert command.done("backup")[0]["messages"] == 100


def test_a_stream_that_cannot_be_backed_up_keeps_no_other_from_it(client: RawClient, command: Command) -> None:
    begin(client)
    assert "error" not in client.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a"]})
    (command.directory / "A").mkdir(parents=True)
    (command.directory / "A" / "manifest.json").write_text("{}")
    status, out, err = command.run("backup")
    assert (status, [json.loads(line)["stream"] for line in out.splitlines()]) == (1, ["S"])
    assert "not a manifest" in err


def test_the_name_of_a_stream_is_no_path_and_no_second_request(client: RawClient, command: Command) -> None:
    """Names of all streams come from the server, and that of a restored one from the manifest."""
    assert "is no name of a stream" in command.refused("backup", "--stream", "../elsewhere")
    assert not (command.directory.parent / "elsewhere").exists()
    client.api("STREAM.CREATE.S", STREAM)
    command.done("backup")
    manifest = command.directory / "S" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"stream": "S"', '"stream": "S 0\\r\\n\\r\\nPUB s.a"'))
    assert "is no name of a stream" in command.refused("restore")


def test_a_command_line_that_is_wrong_says_why(command: Command) -> None:
    assert "are for one --stream" in command.refused("restore", "--to-sequence", "1", status=2)
    assert "expected a time" in command.refused("restore", "--to-time", "noon", status=2)
    assert "there is no backup" in command.refused("restore")
