"""`bench`: what it says to have done is what the server has."""

import json
from typing import Any

import pytest

from jetraft.api.cli.client.measuring import Measured, shares
from tests.api.cli.client.running import on_terminal, run
from tests.api.cli.client.test_messages import process, subscriptions
from tests.harness.patience import PATIENCE_S, until
from tests.harness.server import Server

MESSAGES = 1_003  # no multiple of clients and batches


@pytest.fixture(autouse=True)
def _login(login: None) -> None:
    """Every test has the server."""


def benched(*words: str) -> list[dict[str, Any]]:
    done = run("bench", *words, "--msgs", str(MESSAGES), "--json")
    assert (done.status, done.err) == (0, ""), done
    found: list[dict[str, Any]] = json.loads(done.out)
    for row in found:
        assert row["messages"] == MESSAGES
        assert row["messages_per_s"] > 0
        assert 0 < row["latency_p50_ns"] <= row["latency_p99_ns"] <= row["latency_max_ns"] <= row["elapsed_ns"]
    return found


def test_what_is_published_arrives_with_its_latency(server: Server) -> None:
    subscriber = process(server, "bench", "sub", "bench.core", "--msgs", str(MESSAGES), "--clients", "2", "--json")
    until(lambda: subscriptions(server, "bench.core"))
    (sent,) = benched("pub", "bench.core", "--clients", "3", "--batch", "50", "--size", "1K")
    assert (sent["name"], sent["clients"], sent["size"]) == ("publish", 3, 1024)
    out, _ = subscriber.communicate(timeout=PATIENCE_S)
    (received,) = json.loads(out)
    assert (received["name"], received["messages"], received["size"]) == ("receive", 2 * MESSAGES, 1024)
    assert 0 < received["latency_p50_ns"] <= received["latency_p99_ns"]


@pytest.mark.parametrize("ack", ["--ack", "--no-ack"])
def test_a_stream_takes_and_gives_all_and_is_gone_unless_it_is_kept(ack: str) -> None:
    words = ("js", "bench.js", "--stream", "B1", "--batch", "64", "--clients", "2", ack)
    assert [row["name"] for row in benched(*words)] == ["publish", "fetch"]
    assert run("stream", "info", "B1").status == 1
    assert [row["name"] for row in benched(*words, "--keep", "--no-fetch")] == ["publish"]
    assert [row["name"] for row in benched(*words)] == ["publish", "fetch"], "of a stream that was there already"
    info = json.loads(run("stream", "info", "B1", "--json").out)
    assert (info["state"]["messages"], info["state"]["consumer_count"]) == (2 * MESSAGES, 0)
    assert run("stream", "rm", "B1", "--force").status == 0


def test_values_are_put_and_got() -> None:
    assert [row["name"] for row in benched("kv", "B2", "--keys", "10", "--keep", "--clients", "2")] == ["put", "get"]
    assert len(json.loads(run("kv", "ls", "B2", "--json").out)) == 10
    assert run("kv", "rm", "B2", "--force").status == 0


def test_requests_are_answered_here_or_elsewhere(server: Server) -> None:
    assert benched("req", "bench.here", "--serve", "--clients", "2", "--batch", "16")[0]["clients"] == 2
    service = process(server, "reply", "bench.there", "--echo", "--count", "100")
    until(lambda: subscriptions(server, "bench.there"))
    assert run("bench", "req", "bench.there", "--msgs", "100").status == 0
    service.communicate(timeout=PATIENCE_S)


def test_on_a_terminal_there_is_a_bar_and_a_table(server: Server) -> None:
    done = on_terminal("bench", "js", "bench.t", "--stream", "B3", "--msgs", "3000", "--server", server.url)
    assert done.status == 0
    assert "━" in done.err
    assert [line.split()[0] for line in done.out.splitlines()[2:]] == ["publish", "fetch"]


@pytest.mark.parametrize(
    ("status", "line", "said"),
    [
        (1, "req bench.none --msgs 5", "no responder on bench.none: start one with `jetraft reply bench.none --echo`"),
        (1, "pub a..b", "is no subject"),
        (2, "pub a --size lots", "'lots' is no size"),
        (2, "js a --clients 0", "Invalid value"),
        (1, "js a --stream a.b", "is no name of a stream"),
        (1, "js bench.x --stream ELSEWHERE --msgs 5", "no stream takes this subject"),
    ],
)
def test_a_failure_is_one_line(status: int, line: str, said: str) -> None:
    assert run("stream", "add", "ELSEWHERE", "--subjects", "elsewhere").status == 0
    done = run("bench", *line.split())
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1), done
    assert done.err.startswith("jetraft bench ")
    assert said in done.err


def test_a_subscriber_that_gets_no_more_says_how_many_came(server: Server) -> None:
    subscriber = process(server, "bench", "sub", "bench.few", "--msgs", "5", "--timeout", "300ms")
    until(lambda: subscriptions(server, "bench.few"))
    assert run("pub", "bench.few", "x").status == 0
    subscriber.communicate(timeout=PATIENCE_S)
    assert subscriber.returncode == 1


def test_quantiles_and_shares() -> None:
    of = Measured(name="x", clients=1, messages=4, size=1, elapsed_ns=2_000_000_000, latencies_ns=[1, 2, 3, 4])
    assert (of.quantile_ns(0.5), of.quantile_ns(0.99), of.quantile_ns(1.0), of.per_s) == (3, 4, 4, 2.0)
    assert shares(10, 3) == [4, 3, 3]
