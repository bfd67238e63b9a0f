"""Audit events name who asked: through an import, over a leaf node, and when that one has left. Both servers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.leafs import joined
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
PASSWORD: Final[dict[str, Any]] = {"pass": "x"}
AUDITS: Final = "$JS.EVENT.ADVISORY.API"
CONFIG: Final = """
accounts {
  A { jetstream: enabled, users: [ {user: a, password: x} ], exports: [ {service: "$JS.API.>"} ] }
  B { users: [ {user: b, password: x} ], imports: [ {service: {account: A, subject: "$JS.API.>"}} ] }
  C { users: [ {user: c, password: x} ], imports: [ {service: {account: A, subject: "$JS.API.>"}, share: true} ] }
}
"""


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path, config=CONFIG) as found:
        yield found


@pytest.fixture
def audits(server: Server) -> Iterator[tuple[RawClient, str]]:
    with RawClient(server.address, user="a", **PASSWORD) as listener:
        sid = listener.subscribe(AUDITS)
        listener.settle()
        yield listener, sid


def asker(audits: tuple[RawClient, str]) -> dict[str, Any]:
    """Whom the next event names, without what is another each time."""
    listener, sid = audits
    [message] = listener.messages(sid, 1, PATIENCE_S)
    client: dict[str, Any] = json.loads(message.payload)["client"]
    return {key: value for key, value in client.items() if key in ("acc", "svc", "user", "name", "kind", "server")}


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ("a", {"acc": "A", "user": "a", "name": "app", "kind": "Client"}),
        ("b", {"acc": "B", "svc": "A"}),  # and not the account that was asked
        ("c", {"acc": "C", "svc": "A", "user": "c", "name": "app", "kind": "Client"}),
    ],
)
def test_an_event_names_the_account_that_asks_and_the_client_where_it_is_shared(
    server: Server, audits: tuple[RawClient, str], user: str, named: dict[str, Any]
) -> None:
    with RawClient(server.address, user=user, name="app", **PASSWORD) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert asker(audits) == {**named, "server": "n1"}


def test_who_leaves_without_waiting_for_the_answer_is_named(server: Server, audits: tuple[RawClient, str]) -> None:
    client = RawClient(server.address, user="a", name="app", **PASSWORD)
    client.settle()
    client.publish("$JS.API.STREAM.CREATE.S", json.dumps({"name": "S", "subjects": ["s"]}).encode())
    client.close()
    assert asker(audits) == {"acc": "A", "user": "a", "name": "app", "kind": "Client", "server": "n1"}


@pytest.mark.reference
@pytest.mark.parametrize("hub", ["jetraft", "reference"])
def test_a_leaf_node_is_named_by_its_server(hub: Kind, tmp_path: Path) -> None:
    with joined(hub, "jetraft", tmp_path) as pair, pair.clients() as (listener, client):
        sid = listener.subscribe(AUDITS)
        listener.settle()
        body = json.dumps({"name": "S", "subjects": ["s"]}).encode()
        client.publish("$JS.hub.API.STREAM.CREATE.S", body, reply=client.new_inbox())
        assert asker((listener, sid)) == {"acc": "$G", "name": "leaf", "kind": "Leafnode", "server": "leaf"}
