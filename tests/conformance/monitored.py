"""Both servers with the same accounts, clients and streams, and the comparison of what they tell about them."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

KINDS: tuple[Kind, ...] = ("reference", "jetraft")
CONFIG = """
server_tags: ["az:1", "disk:fast"]
max_closed_clients: 3
accounts {
  SYS { users: [{user: sys, password: x}] }
  A { users: [{user: a, password: x}, {user: a2, password: x}], jetstream: enabled }
  B { users: [{user: b, password: x}] }
}
system_account: SYS
"""
NUMBERS = (int, float)


@attrs.define(eq=False)
class Stage:
    """One server and its clients, by name; `closed` are the ids of those that have left, in that order."""

    server: Server
    clients: dict[str, RawClient] = attrs.field(factory=dict)
    closed: list[int] = attrs.field(factory=list)

    def client(self, user: str, name: str, **more: Any) -> RawClient:
        """Another client, whose CONNECT is judged when this returns."""
        login: dict[str, Any] = {"user": user, "pass": "x", **more}
        client = self.clients[name] = RawClient(self.server.address, name=name, **login)
        client.settle()
        return client

    def leave(self, name: str) -> None:
        """Close a client and wait until the server says so."""
        client = self.clients.pop(name)
        cid = client.info["client_id"]
        client.close()
        self.closed.append(cid)
        self.wait_closed(cid)

    def wait_closed(self, cid: int) -> None:
        """Wait until a connection is among those that have ended."""
        self.server.running.wait_until(
            lambda: any(row["cid"] == cid for row in self.server.get("/connz?state=closed")[1]["connections"]),
            what=f"{cid} is closed",
        )


@contextmanager
def staged(kind: Kind, directory: Path, *, more: str = "") -> Iterator[Stage]:
    """A server with three clients of two accounts, four that have left, a stream and a consumer."""
    with Server(kind, directory=directory, config=CONFIG + more) as server:
        stage = Stage(server)
        populate(stage)
        try:
            yield stage
        finally:
            for client in stage.clients.values():
                client.close()


def populate(stage: Stage) -> None:
    """See staged."""
    for name in ("left0", "left1", "left2"):
        stage.client("a", name)
        stage.leave(name)
    stranger: dict[str, Any] = {"user": "nobody", "pass": "y"}
    refused = RawClient(stage.server.address, **stranger)
    refused.rest(PATIENCE_S)
    refused.close()
    stage.wait_closed(refused.info["client_id"])
    one = stage.client("a", "one")
    one.subscribe("foo.bar", "workers")
    one.subscribe("foo.*")
    one.subscribe("_INBOX.x.>")
    one.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_bytes": 1 << 20})
    one.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}})
    one.request("s.a", b"x")
    two = stage.client("b", "two")
    two.subscribe("b")
    two.settle()
    two.publish("b", b"0123456789" * 1000)
    two.settle()
    stage.client("a2", "three").settle()
    stage.client("sys", "four").settle()


def page(server: Server, target: str) -> tuple[int, str | None, Any]:
    """Status, type and body of a page."""
    connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        body, kind = response.read().decode(), response.getheader("content-type")
        return response.status, kind, json.loads(body) if kind == "application/json" else body.strip()
    finally:
        connection.close()


def fields(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its path; the elements of a list share one."""
    if isinstance(document, list):
        for element in document:
            yield from fields(element, path)
    elif isinstance(document, dict):
        for name, value in document.items():
            yield f"{path}{name}", value
            yield from fields(value, f"{path}{name}.")


def shape(document: Any) -> dict[str, str]:
    """The type of every field."""
    return {
        path: "number" if isinstance(value, NUMBERS) and not isinstance(value, bool) else type(value).__name__
        for path, value in fields(document)
    }


def differences(reference: Any, ours: Any) -> set[str]:
    """The fields of the reference that are missing here or have another type."""
    wanted, found = shape(reference), shape(ours)
    return {path for path, kind in wanted.items() if found.get(path) != kind}
