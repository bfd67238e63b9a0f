"""Requests whose subject becomes another one on the way: by which of both a user's permissions judge. Both are asked.

What a mapping or the domain makes of a subject is judged, and not what was published, as nats-server does; an export is
the exporter's word. A subject of the API of 2020 is judged as it is and as what it becomes.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
DENY = '{ publish: { deny: "$JS.API.STREAM.DELETE.>" } }'
CONFIG = f"""
jetstream {{ domain: hub %s }}
accounts {{
  A {{
    jetstream: enabled
    users: [
      {{ user: admin, password: x }}
      {{ user: bound, password: x, permissions: {DENY} }}
      {{ user: far, password: x, permissions: {{ publish: "$JS.hub.API.>" }} }}
      {{ user: near, password: x, permissions: {{ publish: "$JS.API.>" }} }}
    ]
    mappings: {{ "delete.*": "$JS.API.STREAM.DELETE.$1" }}
    exports: [ {{ service: "$JS.API.STREAM.DELETE.*" }}, {{ service: "$JS.STREAM.*.DELETE" }} ]
  }}
  B {{
    users: [ {{ user: importer, password: x }} ]
    imports: [
      {{ service: {{ account: A, subject: "$JS.API.STREAM.DELETE.S" }}, to: "wipe" }}
      {{ service: {{ account: A, subject: "$JS.STREAM.S.DELETE" }}, to: "wipe.old" }}
    ]
  }}
}}
"""


def user(server: Server, name: str) -> RawClient:
    login: dict[str, Any] = {"user": name, "pass": "x"}
    return RawClient(server.address, **login)


def told(client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.request(subject, json.dumps(body).encode() if body else b"")[0].payload)
    return found


def has_stream(server: Server) -> bool:
    with user(server, "admin") as admin:
        return "error" not in told(admin, "$JS.API.STREAM.INFO.S")


@contextmanager
def with_stream(kind: Kind, directory: Path, more: str = "", blocks: str = "") -> Iterator[Server]:
    with Server(kind, directory=directory, config=CONFIG % more + blocks) as server:
        with user(server, "admin") as admin:
            made = told(admin, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert "error" not in made
        yield server


def ask(server: Server, name: str, subject: str, *, is_done: bool) -> None:
    """Send a request; what is done is answered."""
    with user(server, name) as client:
        if is_done:
            client.request(subject)
        else:
            client.publish(subject, reply="_INBOX.answer")
            client.settle()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "subject", "is_done"),
    [
        ("bound", "$JS.API.STREAM.DELETE.S", False),
        ("bound", "$JS.hub.API.STREAM.DELETE.S", False),  # the same by another name
        ("bound", "delete.S", False),  # a mapping
        ("admin", "$JS.hub.API.STREAM.DELETE.S", True),
        ("admin", "delete.S", True),
        ("far", "$JS.hub.API.STREAM.DELETE.S", False),  # it may use the other name alone, and that is none
        ("near", "$JS.hub.API.STREAM.DELETE.S", True),
        ("importer", "wipe", True),  # the account's own export
    ],
)
def test_a_permission_is_about_what_a_subject_becomes(
    kind: Kind, name: str, subject: str, is_done: Any, tmp_path: Path
) -> None:
    with with_stream(kind, tmp_path) as server:
        ask(server, name, subject, is_done=is_done)
        assert has_stream(server) is not is_done


@pytest.mark.parametrize(("name", "subject", "is_done"), [
    ("bound", "$JS.STREAM.S.DELETE", False),
    ("admin", "$JS.STREAM.S.DELETE", True),
    ("importer", "wipe.old", True),  # the exporter has given that very subject
])  # fmt: skip
def test_a_subject_of_2020_is_judged_by_that_of_today_too(
    name: str, subject: str, is_done: Any, tmp_path: Path
) -> None:
    with with_stream("jetraft", tmp_path, "legacy_api: true") as server:
        ask(server, name, subject, is_done=is_done)
        assert has_stream(server) is not is_done


def test_the_http_gateway_judges_what_a_request_becomes(tmp_path: Path) -> None:
    port = free_port()
    with with_stream("jetraft", tmp_path, blocks=f'http_gateway {{ listen: "{HOST}:{port}" }}\n') as server:
        assert posted(port, "$JS.API.STREAM.DELETE.S")[0] == 403
        assert has_stream(server)


def posted(port: int, subject: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=15)
    connection.request("POST", f"/pub/{subject}", b"", {"Authorization": "Basic Ym91bmQ6eA=="})
    try:
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    finally:
        connection.close()
