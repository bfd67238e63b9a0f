"""One connection, against real servers: logging in, pauses, and the errors that servers say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_jetstream.client import Connection, ConnectionCache
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.options import Access
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Kind, Server

INFO = "$JS.API.INFO"


@pytest.fixture
def guarded(kind: Kind, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(kind, directory=tmp_path, flags=tuple(request.param)) as started:
        yield started


@pytest.mark.parametrize("guarded", [("--user", "me", "--pass", "secret")], indirect=True)
def test_user_and_password_log_in(guarded: Server) -> None:
    access = Access(servers=(guarded.url,), user="me", password="secret")
    connection = Connection(guarded.url, access)
    assert b"account_info" in connection.request(INFO, b"", timeout_s=PATIENCE_S).payload
    connection.close()
    with pytest.raises(ServerError, match="Authorization Violation"):
        Connection(guarded.url, Access(servers=(guarded.url,), user="me", password="wrong"))


@pytest.mark.parametrize("guarded", [("--auth", "open-sesame")], indirect=True)
def test_a_token_logs_in(guarded: Server) -> None:
    connection = Connection(guarded.url, Access(servers=(guarded.url,), token="open-sesame"))
    assert b"account_info" in connection.request(INFO, b"", timeout_s=PATIENCE_S).payload
    connection.close()
    with pytest.raises(ServerError, match="Authorization Violation"):
        Connection(guarded.url, Access(servers=(guarded.url,)))


def test_answers_come_in_the_order_of_the_questions(server: Server) -> None:
    connection = Connection(server.url, Access(servers=(server.url,)))
    questions = [(f"$JS.API.STREAM.INFO.none{number}", b"") for number in range(20)] + [(INFO, b"")]
    frames = connection.request_many(questions, timeout_s=PATIENCE_S)
    connection.close()
    assert [b"account_info" in frame.payload for frame in frames] == [False] * 20 + [True]


def test_a_kept_connection_is_used_again_and_a_dead_one_replaced(kind: Kind, tmp_path: Path) -> None:
    started = Server(kind, directory=tmp_path)
    started.start()
    access = Access(servers=(started.url,))
    cache = ConnectionCache()
    first = cache.get(started.url, access)
    assert cache.get(started.url, access) is first
    started.kill()
    started.start()
    second = cache.get(started.url, access)
    assert second is not first
    assert second.request(INFO, b"", timeout_s=PATIENCE_S).payload
    cache.close()
    started.close()


def test_a_server_that_wants_no_tls_is_not_trusted_with_it(server: Server) -> None:
    with pytest.raises(ServerError, match="does not offer TLS"):
        Connection(server.url.replace("nats://", "tls://"), Access(servers=(server.url,)))


def test_a_closed_connection_says_so(server: Server) -> None:
    connection = Connection(server.url, Access(servers=(server.url,)))
    connection.close()
    with pytest.raises(ServerError, match="closed"):
        connection.request(INFO, b"", timeout_s=1)
