"""`pub`, `sub`, `req`, `reply`, `events` and `consumer next` with real servers and real processes."""

import json
import os
import subprocess
import sys

import pytest

from tests.api.cli.client.running import run
from tests.harness.patience import PATIENCE_S, until
from tests.harness.server import Server, environment


@pytest.fixture(autouse=True)
def _login(login: None) -> None:
    """Every test has the server."""


def process(server: Server, *words: str) -> subprocess.Popen[str]:
    """A command that goes on."""
    env = os.environ | environment("jetraft") | {"NATS_URL": server.url}
    command = [sys.executable, "-m", "jetraft", *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_sub_prints_what_is_published_and_ends_by_itself(server: Server) -> None:
    subscriber = process(server, "sub", "news.>", "--count", "2", "--json")
    until(lambda: subscriptions(server, "news.>"))
    assert run("pub", "news.a", "one", "-H", "X:1").status == 0
    assert run("pub", "news.b", "-", given="two").status == 0
    out, _ = subscriber.communicate(timeout=PATIENCE_S)
    assert subscriber.returncode == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"subject": "news.a", "headers": {"X": ["1"]}, "payload": "one"},
        {"subject": "news.b", "headers": {}, "payload": "two"},
    ]


def test_reply_answers_requests(server: Server) -> None:
    service = process(server, "reply", "help.me", "--echo", "--count", "2")
    until(lambda: subscriptions(server, "help.me"))
    assert json.loads(run("req", "help.me", "again", "--json").out)["payload"] == "again"
    assert json.loads(run("req", "help.me", "twice", "--json", "--replies", "0", "--timeout", "1s").out)
    service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0


def subscriptions(server: Server, subject: str) -> bool:
    """Whether a client has subscribed."""
    _, page = server.get("/subsz?subs=1")
    return any(each["subject"] == subject for each in page.get("subscriptions_list") or ())


def test_next_acknowledges_what_it_printed_and_nothing_else() -> None:
    assert run("stream", "add", "WORK", "--subjects", "work.>", "--retention", "work").status == 0
    assert run("consumer", "add", "WORK", "c", "--wait", "1h").status == 0
    for number in range(3):
        assert run("pub", f"work.{number}", "x", "--jetstream").status == 0
    assert run("consumer", "next", "WORK", "c", "--no-ack").status == 0
    done = run("consumer", "next", "WORK", "c", "--json")
    assert json.loads(done.out)["subject"] == "work.1"
    info = json.loads(run("consumer", "info", "WORK", "c", "--json").out)
    assert (info["num_ack_pending"], info["num_pending"]) == (1, 1)
    assert json.loads(run("stream", "info", "WORK", "--json").out)["state"]["messages"] == 2


def test_a_payload_of_any_bytes_is_stored_and_read_unchanged() -> None:
    assert run("stream", "add", "BYTES", "--subjects", "bytes").status == 0
    assert run("pub", "bytes", "-J", given="a\x00\x1b[2J\n").status == 0
    raw = run("stream", "get", "BYTES", "1", "--raw")
    assert raw.out == "a\x00\x1b[2J\n"
    assert "\x1b" not in run("stream", "get", "BYTES", "1").out
    assert json.loads(run("stream", "get", "BYTES", "1", "--json").out)["payload"] == "a\x00\x1b[2J\n"


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (1, ("pub", "not.stored", "x", "-J"), "no responder on not.stored"),
        (1, ("pub", "a b", "x"), "is no subject"),
        (2, ("pub", "a", "x", "-H", "none"), "write NAME:VALUE"),
        (1, ("req", "not.there", "x"), "start one with `jetraft reply`"),
        (1, ("req", "$SYS.REQ.SERVER.PING", "x", "--replies", "1"), "system account"),
        (1, ("consumer", "info", "NONE", "c"), "(10059)"),
        (1, ("consumer", "rm", "BYTES", "c", "--force"), "(10014): `jetraft consumer ls STREAM`"),
        (2, ("consumer", "add", "BYTES", "c", "--ack", "perhaps"), "one of explicit, all, none"),
        (2, ("consumer", "add", "BYTES", "c", "--deliver", "sometime"), "is no time"),
    ],
)
def test_a_failure_is_one_line(status: int, words: tuple[str, ...], said: str) -> None:
    run("stream", "add", "BYTES", "--subjects", "bytes")
    done = run(*words)
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1), done
    assert said in done.err


def test_events_prints_the_advisories_of_the_account(server: Server) -> None:
    watcher = process(server, "events", "--count", "1", "--json")
    until(lambda: subscriptions(server, "$JS.EVENT.METRIC.>"))
    assert run("stream", "add", "SEEN", "--subjects", "seen").status == 0
    out, _ = watcher.communicate(timeout=PATIENCE_S)
    event = json.loads(out)
    assert (watcher.returncode, event["stream"], event["action"]) == (0, "SEEN", "create")
