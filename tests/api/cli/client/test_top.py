"""`top`: what a frame shows of real servers, and how it is left."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.cli.client.top_frame import Frames, Sample
from tests.api.cli.client.running import on_terminal, run
from tests.api.cli.client.test_cluster import CONFIG, as_user
from tests.harness.cluster import Cluster

LEAVES_SCREEN = "\x1b[?1049l"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("cluster"), config=CONFIG) as nodes:
        yield nodes


@pytest.fixture
def lagging(cluster: Cluster, no_login: Path) -> str:
    """The monitors of servers with a stream and a consumer that has two messages to come."""
    for words in (
        ("stream", "add", "S", "--subjects", "s", "--replicas", "3"),
        ("consumer", "add", "S", "c"),
        ("pub", "s", "x", "-J"),
        ("pub", "s", "y", "-J"),
    ):
        assert as_user(cluster, "a", *words).status in (0, 1), "the second test finds them there"
    return ",".join(f"http://127.0.0.1:{each.http_port}" for each in cluster)


def test_a_frame_has_servers_streams_and_what_lags(cluster: Cluster, lagging: str) -> None:
    frames = []
    for done in (
        as_user(cluster, "sys", "top", "--once", "--json", "--interval", "100ms"),
        run("top", "--once", "--json", "--interval", "100ms", "--monitor", lagging),
    ):
        assert (done.status, done.err) == (0, "")
        frames.append(json.loads(done.out))
    for frame in frames:
        assert [each["server"] for each in frame["servers"]] == ["n1", "n2", "n3"]
        (stream,) = frame["streams"]
        assert (stream["account"], stream["stream"], stream["behind"]) == ("A", "S", [])
        assert stream["msgs_per_s"] == 0
        (consumer,) = frame["consumers"]
        assert (consumer["consumer"], consumer["num_pending"]) == ("c", stream["messages"])
        assert sum(each["streams_led"] for each in frame["servers"]) == 1
    assert [each["name"] for each in frames[0]["connections"]] == ["jetraft command line"]
    text = as_user(cluster, "sys", "top", "--once", "--interval", "100ms").out
    assert [
        line for line in text.splitlines() if line.startswith(("Servers", "Streams", "Consumers", "Connections"))
    ] == [
        "Servers",
        "Streams (1), the busiest first",
        "Consumers that lag (1)",
        "Connections, those with most to send first",
    ]


def test_on_a_terminal_it_goes_on_until_q(lagging: str) -> None:
    done = on_terminal("top", "--monitor", lagging, "--interval", "100ms", typed="xq", after="q quits", whole=True)
    assert done.status == 0
    assert "Consumers that lag (1)" in done.err
    assert LEAVES_SCREEN in done.err, "the terminal is as it was"


def test_without_a_terminal_or_a_login_one_line_says_what_to_do(cluster: Cluster, lagging: str) -> None:
    piped = run("top", "--monitor", lagging)
    assert (piped.status, piped.err) == (2, "jetraft top: there is no terminal to draw on: add --once or --json\n")
    other = as_user(cluster, "a", "top", "--once", "--timeout", "1s")
    assert (other.status, other.out, other.err.count("\n")) == (1, "", 1)
    assert "log in as a user of the system account" in other.err
    fast = run("top", "--once", "--interval", "1ms", "--monitor", lagging)
    assert (fast.status, fast.err) == (2, "jetraft top: --interval: 100ms or more\n")


def sample(at_s: float, **streams: Any) -> Sample:
    found: dict[tuple[str, ...], dict[str, Any]] = {("A", name): stream(last_seq) for name, last_seq in streams.items()}
    return Sample(at_s=at_s, servers={}, streams=found, consumers={}, connections={})


def stream(last_seq: int) -> dict[str, Any]:
    return {"state": {"messages": last_seq, "bytes": 0, "last_seq": last_seq, "consumer_count": 0}}


def test_the_busiest_come_first_and_what_is_new_has_no_rate() -> None:
    frames = Frames(
        before=sample(10.0, quiet=900, busy=5, again=50), now=sample(12.0, quiet=900, busy=25, again=1, new=7)
    )
    shown = [(each["stream"], each["msgs_per_s"]) for each in frames.streams(3).data]
    assert shown == [("busy", 10.0), ("quiet", 0.0), ("new", None)]
    assert len(frames.streams(10).data) == 4
