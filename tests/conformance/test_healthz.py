"""`/healthz` of both servers: every parameter, status and body side by side."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
KINDS: tuple[Kind, ...] = ("reference", "jetraft")
QUESTIONS = (
    "", "stream=NONE", "stream=S", "account=NONE", "account=$G", "account=$G&stream=NONE", "account=$G&stream=S",
    "account=$G&stream=S&consumer=NONE", "account=$G&stream=S&consumer=d", "stream=S&consumer=d", "consumer=d",
    "account=$G&consumer=d", "js-meta-only=1", "js-meta-only=true", "js-meta-only=x", "details=true", "details=x",
    "details=1&account=$G&stream=NONE", "details=1&account=NONE", "details=1&account=$G&stream=S&consumer=NONE",
    "details=1&stream=S", "js-server-only=x", "js-enabled-only=2", "js-enabled-only=false", "js-enabled-only=T",
    "unknown=1", "account=", "stream=", "account=$SYS", "account=%24G&stream=S&consumer=",
    "js-enabled-only=1&stream=NONE", "js-server-only=1&account=NONE&stream=NONE",
    "js-enabled-only=1&account=NONE&stream=NONE", "account=%22&stream=a", "js-enabled-only=x&details=y",
)  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """One of each kind, with a stream and a consumer."""
    running = [Server(kind, directory=tmp_path_factory.mktemp(kind)) for kind in KINDS]
    try:
        for server in running:
            server.start()
            with RawClient(server.address) as client:
                client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
                config = {"durable_name": "d", "ack_policy": "explicit"}
                client.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": config})
        yield running
    finally:
        for server in running:
            server.close()


def answer(server: Server, target: str) -> tuple[int, str | None, Any]:
    """Status, type and body of a page."""
    connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        body, kind = response.read().decode(), response.getheader("content-type")
        return response.status, kind, json.loads(body) if kind == "application/json" else body.strip()
    finally:
        connection.close()


@pytest.mark.parametrize("question", QUESTIONS)
def test_healthz_answers_as_the_reference_does(servers: list[Server], question: str) -> None:
    reference, ours = servers
    assert answer(ours, f"/healthz?{question}") == answer(reference, f"/healthz?{question}")
