"""What the exporter of a service is told of who asks, by both servers, whether or not the importer shares it."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.documents import kind_of
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
CONFIG: Final = """
accounts {
  A { users: [{user: a, password: x}], exports [ {service: "q"} ] }
  B { users: [{user: b, password: x}], imports [ {service: {account: A, subject: q}, share: true} ] }
  C { users: [{user: c, password: x}], imports [ {service: {account: A, subject: q}} ] }
}
"""


def connected(server: Server, user: str) -> RawClient:
    login: dict[str, Any] = {"user": user, "pass": "x", "name": user, "lang": "raw", "version": "1"}
    client = RawClient(server.address, **login)
    client.settle()  # and so its first round trip is measured
    client.settle()
    return client


def told(kind: Kind, directory: Path) -> list[dict[str, Any]]:
    """The headers of two requests of each importer."""
    found = []
    with Server(kind, directory=directory, config=CONFIG) as server, connected(server, "a") as exporter:
        sid = exporter.subscribe("q")
        exporter.settle()
        for user in "bc":
            with connected(server, user) as asking:
                for _ in range(2):
                    asking.publish("q", b"", reply="answer")
                    [request] = exporter.messages(sid, 1)
                    [value] = [text for name, text in request.headers if name == "Nats-Request-Info"]
                    found.append(json.loads(value))
    return found


def test_the_exporter_is_told_the_same_with_a_round_trip_time_that_was_measured(tmp_path: Path) -> None:
    both = []
    for kind in ("reference", "jetraft"):
        (tmp_path / kind).mkdir()
        both.append(told(kind, tmp_path / kind))
    theirs, ours = ([{name: kind_of(value) for name, value in one.items()} for one in of] for of in both)
    assert ours == theirs
    assert [one.get("rtt", 0) > 0 for one in both[1]] == [True] * 4
