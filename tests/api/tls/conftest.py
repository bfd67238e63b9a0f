"""An authority, and servers with a `tls` block of a test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.certificates import Authority
from tests.harness.server import Kind, Server

Start = Callable[..., Server]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs what servers and clients of a session show."""
    authority = Authority.make(tmp_path_factory.mktemp("certificates"))
    authority.server()
    authority.sign("client")
    return authority


@pytest.fixture
def start_tls(kind: Kind, authority: Authority, tmp_path: Path) -> Iterator[Start]:
    """Starts a server with the server's certificate, more lines of its `tls` block, and more blocks."""
    with ExitStack() as stack:

        def start(block: str = "", rest: str = "", *, debug: bool = True) -> Server:
            files = f'cert_file: "{authority.directory}/server.pem"\nkey_file: "{authority.directory}/server-key.pem"'
            config = f"tls {{\n{files}\n{block}\n}}\n{rest}\n"
            flags = ("-D",) if debug else ()
            return stack.enter_context(Server(kind, directory=tmp_path, config=config, flags=flags))

        yield start


def trusting(authority: Authority, *, verify: bool = True) -> str:
    """The lines of a `tls` block that ask clients for certificates of this authority."""
    return f'ca_file: "{authority.ca_file}"\nverify: {str(verify).lower()}'
