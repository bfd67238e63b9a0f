"""Servers with a `websocket` block of a test's own."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.harness.certificates import Authority
from tests.harness.ports import HOST
from tests.harness.server import Kind, Server


class Start(Protocol):
    """Starts a server with lines of its `websocket` block, and more blocks."""

    def __call__(self, block: str = "no_tls: true", rest: str = "", *, debug: bool = True) -> Server: ...


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs what servers and clients of a session show."""
    authority = Authority.make(tmp_path_factory.mktemp("certificates"))
    authority.server()
    authority.sign("client")
    return authority


@pytest.fixture
def start(kind: Kind, tmp_path: Path) -> Iterator[Start]:
    """A server for each call."""
    with ExitStack() as stack:

        def starts(block: str = "no_tls: true", rest: str = "", *, debug: bool = True) -> Server:
            config = f'websocket {{\nlisten: "{HOST}:-1"\n{block}\n}}\n{rest}\n'
            flags = ("-D",) if debug else ()
            return stack.enter_context(Server(kind, directory=tmp_path, config=config, flags=flags))

        yield starts


def web_address(server: Server) -> tuple[str, int]:
    """Where it listens for WebSocket, as its log says."""
    line = server.running.wait_for_line("Listening for websocket clients on")
    match = re.search(r"://(.*):(\d+)\s*$", line)
    assert match is not None, line
    return match.group(1), int(match.group(2))
