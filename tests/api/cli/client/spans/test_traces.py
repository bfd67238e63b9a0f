"""`jetraft traces`: messages of a real cluster arrive at a collector as spans of OTLP."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.api.cli.client.running import run
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S, until
from tests.harness.raw import RawClient
from tests.harness.server import Server, environment

CONFIG = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}], msg_trace: { dest: "traces", sampling: 100% } }
  SYS { users: [{user: sys, password: sys}] }
}
system_account: SYS
"""
TRACE, SENDER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LOGIN: dict[str, Any] = {"user": "a", "pass": "a"}
PARENT = ("traceparent", f"00-{TRACE}-{SENDER}-01")


@contextmanager
def collector() -> Iterator[tuple[str, list[Span]]]:
    """What takes OTLP over HTTP, and the spans that it was given."""
    found: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            found.extend(span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", found
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("traced"), config=CONFIG) as running:
        yield running


@contextmanager
def sending(node: Server, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it listens."""
    login = ("--server", node.url, "--user", "a", "--password", "a")
    command = [sys.executable, "-m", "jetraft", "traces", "traces", *login, *words]
    env = os.environ | environment("jetraft")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: _listens(node))
            yield process
        finally:
            process.kill()


def _listens(node: Server) -> bool:
    _, page = node.get("/subsz?subs=1&acc=A")
    return any(one["subject"] == "traces" for one in (page or {}).get("subscriptions_list") or [])


def test_a_message_that_another_node_stores_is_one_tree_of_spans(cluster: Cluster) -> None:
    with RawClient(cluster[0].address, **LOGIN) as client:
        config = {"name": "S", "subjects": ["s"], "num_replicas": 3}
        leader = client.api("STREAM.CREATE.S", config)["cluster"]["leader"]
    other = next(node for node in cluster if node.name != leader)
    with collector() as (endpoint, spans), sending(other, "--endpoint", endpoint, "--count", "2") as process:
        with RawClient(other.address, **LOGIN) as client:
            assert client.acknowledged("s", b"x", headers=[PARENT])["seq"] == 1
        assert process.wait(PATIENCE_S) == 0, process.stderr
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (entered,) = (span for span in spans if span.parent_span_id.hex() == SENDER)
    (stored,) = (span for span in spans if span.name == "store S")
    (there,) = (span for span in spans if span.span_id == stored.parent_span_id)
    (sent,) = (span for span in spans if span.span_id == there.parent_span_id)
    assert (entered.name, sent.name, there.name) == ("publish s", f"deliver {leader}", "publish s")
    assert sent.parent_span_id == entered.span_id
    assert stored.end_time_unix_nano > stored.start_time_unix_nano


def test_with_json_spans_are_lines_and_what_is_no_trace_is_left_out(cluster: Cluster) -> None:
    with sending(cluster[0], "--json", "--count", "2", "--queue", "another") as process:
        with RawClient(cluster[0].address, **LOGIN) as client:
            client.publish("traces", b"garbage")
            client.publish("nothing", b"x", headers=[PARENT])
            client.settle()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["publish nothing"]
    assert "a message on traces was left out" in err


def test_a_wrong_endpoint_is_refused(cluster: Cluster, no_login: Path) -> None:
    del no_login
    done = run(
        "traces", "traces", "--server", cluster[0].url, "--user", "a", "--password", "a", "--endpoint", "collector"
    )
    assert (done.status, done.err) == (
        1,
        "jetraft traces: --endpoint: 'collector' is no URL with http:// or https://\n",
    )
