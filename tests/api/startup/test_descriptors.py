"""The limit of open files: raised at the start, and warned of when it is too low for the streams."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.startup.descriptors import PER_STREAM, SPARE, DescriptorWatch
from tests.harness import server as server_module
from tests.harness.raw import RawClient
from tests.harness.server import Server

RAISING = """
import resource
from jetraft.api.startup.descriptors import raise_limit
print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    command = ["prlimit", "--nofile=300:700", sys.executable, "-c", RAISING]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "src"})
    assert done.stdout.split() == ["700"] * 3


def test_a_limit_that_is_too_low_is_told_once() -> None:
    watch = DescriptorWatch(SPARE + 10 * PER_STREAM)
    assert watch.note(10) is None
    told = watch.note(11)
    assert told is not None
    assert "11 streams" in told
    assert watch.note(12) is None
    assert watch.note(10) is None
    assert watch.note(12) is not None


@contextmanager
def limited(directory: Path, soft: int, hard: int) -> Iterator[Server]:
    """A server that starts under these limits."""
    command = server_module.command("jetraft")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = Server("jetraft", directory=directory)
    with pytest.MonkeyPatch.context() as patch:
        limits = ["prlimit", f"--nofile={soft}:{hard}"]
        patch.setattr(server_module, "command", lambda _kind: [*limits, *command])
        server.start()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    try:
        yield server
    finally:
        server.close()


def stream(number: int) -> dict[str, Any]:
    return {"name": f"S{number}", "subjects": [f"s{number}"]}


def create(client: RawClient, number: int) -> dict[str, Any]:
    return client.api(f"STREAM.CREATE.S{number}", stream(number))


def test_more_streams_than_the_soft_limit_has_files(tmp_path: Path) -> None:
    """With a limit of 1,024 files the thousandth stream could not be created."""
    with limited(tmp_path, 64, 4096) as server, RawClient(server.address) as client:
        for number in range(80):
            assert "error" not in create(client, number)
        assert server.healthy()


def test_a_stream_that_found_no_descriptor_works_once_others_are_gone(tmp_path: Path) -> None:
    with limited(tmp_path, 64, 64) as server, RawClient(server.address) as client:
        number = 0
        while "Too many open files" not in str(server.get("/healthz")):
            create(client, number)
            client.publish(f"s{number}", b"x", reply="nobody")  # a stream without a message has no file
            client.settle()
            number += 1
            assert number < 200
        stored = client.acknowledged("s0", b"x")["seq"]
        assert any("open files, the limit is 64" in line for line in server.running.lines)

        # The newest found no descriptor. /healthz is worked out ten times a second, so more may have been created since
        # the first of them than fit now: fewer are left than ever fitted.
        first_left = max(1, number - 15)
        for gone in range(1, first_left):
            assert client.api(f"STREAM.DELETE.S{gone}")["success"]

        server.wait_healthy()
        for left in range(first_left, number):
            assert client.acknowledged(f"s{left}", b"x")["seq"] >= 1
        assert client.acknowledged("s0", b"x")["seq"] == stored + 1
