"""Each kind of event that one server can be brought to is a line of its log, in each form."""

import json
import logging
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from jetraft.api.logs.logger import LogBridge, open_logger
from jetraft.api.options.options import Options
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.events import KINDS, PERMISSION_DENIED, Event, Field
from tests.harness.log_lines import FORMS, events, parsed, wait_for_event
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server

CONFIG = """
log_format: {form}
max_connections: 4
max_unauthenticated_per_address: 2
max_pending: 1MB
lame_duck_duration: "30s"
lame_duck_grace_period: "1s"
authorization {{ timeout: 30, users: [
  {{ user: alice, password: "hush-a" }}
  {{ user: bob, password: "hush-b", permissions: {{ publish: "allowed" }} }}
] }}
"""
ALICE: dict[str, Any] = {"user": "alice", "pass": "hush-a"}
BOB: dict[str, Any] = {"user": "bob", "pass": "hush-b"}
STREAM: dict[str, Any] = {"name": "ORDERS", "subjects": ["orders"]}
BY: dict[str, Any] = {"account": "$G", "stream": "ORDERS", "user": "alice", "host": HOST}
PAYLOAD = 512 << 10
FLOOD = 64
LINES_OF_THE_API = 20


def changes(client: RawClient) -> None:
    """Create, change and delete a stream and consumers of it."""

    def done(subject: str, body: object = None) -> None:
        assert "error" not in client.api(subject, body), subject

    done("STREAM.CREATE.ORDERS", STREAM)
    done("STREAM.UPDATE.ORDERS", STREAM | {"max_msgs": 10})
    durable = {"durable_name": "c", "ack_policy": "explicit"}
    for config in (durable, durable, durable | {"max_deliver": 3}):
        done("CONSUMER.CREATE.ORDERS.c", {"stream_name": "ORDERS", "config": config})
    short = {"name": "short", "ack_policy": "explicit", "inactive_threshold": 50_000_000}
    done("CONSUMER.CREATE.ORDERS.short", {"stream_name": "ORDERS", "config": short})


@attrs.frozen
class Told:
    """A server, and what its log has told."""

    server: Server
    form: str

    def __call__(self, name: str, **fields: object) -> dict[str, Any]:
        return wait_for_event(self.server.running, self.form, name, **fields)


@pytest.fixture(params=FORMS)
def told(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Told]:
    with Server("jetraft", directory=tmp_path, config=CONFIG.format(form=request.param)) as server:
        yield Told(server, request.param)
        text = "\n".join(server.running.lines)
        assert "hush" not in text
        assert "payload-1" not in text


def test_what_clients_do_is_a_line_each(told: Told) -> None:
    server = told.server
    wrong: dict[str, Any] = ALICE | {"pass": "hush-wrong"}
    with RawClient(server.address, **wrong) as client:
        client.rest()
    named = {} if told.form == "text" else {"user": "alice", "address": HOST}
    assert "cid:" in told("client_refused", reason="wrong secret", **named)["client"]

    with RawClient(server.address, **BOB) as client:
        client.publish("forbidden", b"payload-1")
        client.settle()
    told("permission_denied", violation='Publish Violation - Subject "forbidden"')

    with RawClient(server.address, **ALICE) as client:
        others = [socket.create_connection(server.address) for _ in range(3)]
        told("connections_wait", address=HOST, count=2)
        for other in others:
            other.close()
        client.settle()

    with RawClient(server.address, **ALICE) as slow, RawClient(server.address, **ALICE) as client:
        slow.subscribe("flood")
        slow.settle()
        for _ in range(FLOOD):
            client.send(b"PUB flood %d\r\n%s\r\n" % (PAYLOAD, bytes(PAYLOAD)))
        told("slow_consumer", count=1)

    clients = [RawClient(server.address, **ALICE) for _ in range(4)]
    with RawClient(server.address, connect=False) as client:
        client.rest()
    told("connection_refused", reason="maximum connections exceeded")
    for each in clients:
        each.close()


def test_what_becomes_of_streams_and_consumers_is_a_line_with_who_asked(told: Told) -> None:
    told("feature_level_raised")
    with RawClient(told.server.address, **ALICE) as client:
        changes(client)
        told("consumer_expired", account="$G", stream="ORDERS", consumer="short")
        client.api("CONSUMER.DELETE.ORDERS.c")
        client.api("STREAM.DELETE.ORDERS")
    for name in ("stream_created", "stream_changed", "stream_deleted"):
        told(name, **BY)
    for name in ("consumer_created", "consumer_changed", "consumer_deleted"):
        told(name, **BY, consumer="c")
    found = events(told.server.running, told.form, "consumer_created")
    assert len(found) == 2, "the same request again has changed nothing"


def test_what_an_operator_does_is_a_line_each(told: Told, tmp_path: Path) -> None:
    told("server_ready")
    path, log = tmp_path / "server.conf", told.server.running
    path.write_text(CONFIG.format(form=told.form) + "ping_max: 3\n", encoding="utf-8")
    log.signal(signal.SIGHUP)
    told("config_reloaded")
    path.write_text("ping_max: x\n", encoding="utf-8")
    log.signal(signal.SIGHUP)
    told("config_reload_failed")
    log.signal(signal.SIGUSR2)
    told("lame_duck")
    told.server.stop()
    told("server_stopping", signal="SIGTERM")
    told("server_stopped")


def test_requests_that_are_refused_because_too_many_wait_are_a_line(tmp_path: Path) -> None:
    with (
        Server("jetraft", directory=tmp_path, config="jetstream { request_queue_limit: 2 }\n") as server,
        RawClient(server.address) as client,
    ):
        for _ in range(3 * LINES_OF_THE_API):
            client.send(b"PUB $JS.API.STREAM.DELETE.S 0\r\n\r\n" * 10)
        found = wait_for_event(server.running, "text", "api_overloaded")
        assert int(found["refused"]) > 0


def test_a_disk_on_which_a_batch_takes_longer_than_a_second_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "slow_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, ROOT / "tests" / "faults" / "slow_disk.c"], check=True)
    slow = tmp_path / "slow"
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("SLOW_DISK_FILE", str(slow))
    with Server("jetraft", directory=tmp_path) as server, RawClient(server.address) as client:
        assert "error" not in client.api("STREAM.CREATE.ORDERS", STREAM)
        slow.touch()
        assert client.acknowledged("orders", b"payload-1")["seq"] == 1
        found = wait_for_event(server.running, "text", "disk_slow")
        slow.unlink()
    assert float(found["seconds"]) >= int(found["expected_s"]) == 1


def test_lines_beyond_the_limit_of_their_kind_are_counted_in_a_line(told: Told) -> None:
    with RawClient(told.server.address, **BOB) as client:
        for _ in range(2 * PERMISSION_DENIED.burst):
            client.publish("forbidden", b"payload-1")
        client.settle()
    found = told("lines_left_out", kind="permission_denied")
    assert 0 < int(found["count"]) <= PERMISSION_DENIED.burst


def test_a_reload_changes_the_form(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config="log_format: text\n") as server:
        (tmp_path / "server.conf").write_text("log_format: json\n", encoding="utf-8")
        server.running.signal(signal.SIGHUP)
        wait_for_event(server.running, "json", "config_reloaded")
        (tmp_path / "server.conf").write_text("log_format: xml\n", encoding="utf-8")
        server.running.signal(signal.SIGHUP)
        found = wait_for_event(server.running, "json", "config_reload_failed")
        assert "unknown log_format: 'xml'; there are text, logfmt, json" in found["error"]


def test_metrics_count_what_the_log_tells(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        with RawClient(server.address) as client:
            client.api("STREAM.CREATE.ORDERS", STREAM)
        with urllib.request.urlopen(f"http://{HOST}:{server.http_port}/metrics", timeout=PATIENCE_S) as answer:
            page = answer.read().decode()
        counts = {
            line.split('"')[1]: int(line.split()[-1])
            for line in page.splitlines()
            if line.startswith("jetraft_log_events_total{")
        }
        assert counts.keys() == {kind.name for kind in KINDS}
        assert (counts["stream_created"], counts["server_ready"], counts["disk_slow"]) == (1, 1, 0)


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_is_one_line_with_its_fields(tmp_path: Path, form: str) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path), log_format=form))) as logger:
        bridge = LogBridge(logger, ManualClock())
        for kind in KINDS:
            fields: dict[str, Field] = {name: f'"{name}"\n=' for name in kind.fields}
            bridge.emit(logging.LogRecord("x", kind.level, "f", 1, Event(kind, fields), None, None))
    lines = path.read_text().splitlines()
    assert len(lines) == len(KINDS)
    for kind, line in zip(KINDS, lines, strict=True):
        shown = [name for name in kind.fields if name not in kind.only_text]
        if form == "text":
            assert all(f'"{name}"\\n=' in line for name in kind.fields if name not in {*kind.more, "user"})
        else:
            row = json.loads(line) if form == "json" else parsed(line)
            assert row["event"] == kind.name
            assert {name: row[name] for name in shown} == {name: f'"{name}"\n=' for name in shown}
