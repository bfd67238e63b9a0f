"""The system account deletes the streams of another account; both servers, one node."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG: Final = """
accounts { A { jetstream: enabled, users [{user: a, password: x}] }
           B { jetstream: enabled, users [{user: b, password: x}] }
           SYS { users [{user: s, password: x}] } }
system_account: SYS
"""
KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path, config=CONFIG) as started:
        yield started


def connected(server: Server, user: str) -> RawClient:
    login: dict[str, Any] = {"user": user, "pass": "x"}
    return RawClient(server.address, **login)


def test_an_account_that_is_purged_has_no_streams_and_others_keep_theirs(server: Server) -> None:
    with connected(server, "a") as mine, connected(server, "b") as other, connected(server, "s") as system:
        for client in (mine, other):
            for name in ("X", "Y"):
                client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        assert mine.request("$JS.API.ACCOUNT.PURGE.B", b"") == []
        sid = mine.subscribe("$JS.EVENT.ADVISORY.STREAM.DELETED.>")
        mine.settle()
        said = system.api("ACCOUNT.PURGE.A")
        assert said == {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
        assert {event.subject.rpartition(".")[2] for event in mine.messages(sid, 2)} == {"X", "Y"}
        assert not mine.api("STREAM.NAMES")["streams"]
        assert sorted(other.api("STREAM.NAMES")["streams"]) == ["X", "Y"]
        for name in ("A", "NOBODY"):
            assert system.api(f"ACCOUNT.PURGE.{name}")["initiated"]
