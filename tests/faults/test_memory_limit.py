"""A server below a memory limit refuses messages before the kernel ends it, and goes on when there is memory again."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.memory_group import command_within, memory_group, was_killed
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

MIB = 1 << 20
LIMIT_BYTES = 256 * MIB
MESSAGE_BYTES = 256 * 1024
REFUSED = 10023
MESSAGES_MAX = 2 * LIMIT_BYTES // MESSAGE_BYTES
SLOW_READERS = 80
SLOW_MESSAGES = 60  # 15 MiB for each reader: less than one of them may have waiting


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A control group in which servers are started."""
    with memory_group("memory-limit", LIMIT_BYTES) as place:
        monkeypatch.setenv("JETRAFT_SERVER_CMD", command_within(place))
        yield place


def publish(client: RawClient, subject: str) -> dict[str, object]:
    """One message and its answer."""
    return client.acknowledged(subject, b"x" * MESSAGE_BYTES)


def fill(client: RawClient) -> int:
    """Publish into the stream in memory until it is refused; returns how many messages were taken."""
    for count in range(MESSAGES_MAX):
        answer = publish(client, "memory.a")
        if "error" in answer:
            assert answer["error"] == {"code": 503, "err_code": REFUSED, "description": "insufficient resources"}
            return count
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(("flags", "line"), [((), ""), (("--max_mem_store=10GB",), "memory is nearly exhausted")])
def test_streams_in_memory_are_refused_more_and_the_server_lives(
    tmp_path: Path, group: Path, flags: tuple[str, ...], line: str
) -> None:
    with Server("jetraft", directory=tmp_path, flags=flags) as server, RawClient(server.address) as client:
        for name, storage in (("memory", "memory"), ("file", "file")):
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": storage})
        taken = fill(client)
        assert 32 * MIB < taken * MESSAGE_BYTES < LIMIT_BYTES
        if line:
            server.running.wait_for_line(line)
        server.running.wait_until(lambda: publish(client, "file.a")["seq"] == 1, what="streams in files take messages")
        client.api("STREAM.PURGE.memory", {})
        server.running.wait_until(lambda: "error" not in publish(client, "memory.a"), what="a message was taken again")
        assert server.running.running
    assert not was_killed(group)


def test_readers_that_do_not_read_lose_their_connections_before_the_server_its_memory(
    tmp_path: Path, group: Path
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Server("jetraft", directory=tmp_path))
        for _ in range(SLOW_READERS):
            reader = stack.enter_context(socket.create_connection(server.address))
            reader.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
            while not reader.recv(4096).endswith(b"PONG\r\n"):
                pass
        quick, publisher = (stack.enter_context(RawClient(server.address)) for _ in range(2))
        quick.subscribe("a")
        for _ in range(SLOW_MESSAGES):
            publisher.publish("a", b"x" * MESSAGE_BYTES)
            event = quick.next_event()
            assert isinstance(event, Message)
            assert len(event.payload) == MESSAGE_BYTES
        assert server.running.running
    assert not was_killed(group)
