"""`server remove` and `server drain` on real clusters: with servers that run, and one that does not."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.cli.client.running import Done, on_terminal, run
from tests.api.cli.client.test_cluster import CONFIG, as_user
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S, until
from tests.harness.server import Server

STREAMS = 8


@pytest.fixture
def cluster(tmp_path: Path, no_login: Path) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as nodes:
        yield nodes


def add(cluster: Cluster, stream: str, *more: str) -> dict[str, Any]:
    done = as_user(cluster, "a", "stream", "add", stream, "--subjects", stream.lower(), "--json", *more)
    assert done.status == 0, done
    found: dict[str, Any] = json.loads(done.out)
    return found


def streams(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The part of each stream's info that names its replicas."""
    done = as_user(cluster, "a", "stream", "ls", "--json")
    return {each["config"]["name"]: each["cluster"] for each in json.loads(done.out)}


def on_the_terminal(cluster: Cluster, *words: str, typed: str) -> Done:
    urls = ",".join(node.url for node in cluster if node.running.running)
    return on_terminal(*words, "--server", urls, "--user", "sys", "--password", "s", typed=typed)


def test_a_dead_server_is_removed_once_it_is_confirmed(cluster: Cluster) -> None:
    add(cluster, "S", "--replicas", "3")
    cluster[2].kill()
    words = ("server", "remove", "n3")
    unasked = as_user(cluster, "sys", *words)
    assert (unasked.status, unasked.out, "add --force (or --yes)" in unasked.err) == (1, "", True)
    no = on_the_terminal(cluster, *words, typed="n\n")
    assert (no.status, no.out) == (1, "")
    assert "Remove server n3 from the cluster? It does not answer, and has replicas of 1 stream. [y/N]" in no.err
    assert "jetraft server remove: not confirmed, nothing was changed" in no.err
    yes = on_the_terminal(cluster, *words, typed="y\n")
    assert (yes.status, yes.out.splitlines()) == (
        0,
        [
            "removed server n3",
            "no other server can take a replica of A > S: add a server, or lower --replicas with `jetraft stream edit`",
        ],
    )
    report = as_user(cluster, "sys", "server", "report").out
    assert "n3" not in report.partition("metadata group")[2]
    again = as_user(cluster, "sys", *words, "--yes")
    assert (again.status, again.out, again.err.count("\n")) == (1, "", 1)
    assert "not a member of the cluster (10044): `jetraft server report` shows the members" in again.err


def test_a_living_server_is_removed_and_what_only_it_has_is_named(cluster: Cluster) -> None:
    only_replica = add(cluster, "ALONE")["cluster"]["leader"]
    add(cluster, "S", "--replicas", "2")
    other = as_user(cluster, "a", "server", "remove", only_replica, "--yes")
    assert (other.status, other.out, other.err.count("\n")) == (1, "", 1)
    assert "log in as a user of the system account" in other.err
    done = as_user(cluster, "sys", "server", "remove", only_replica, "--yes", "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["server"], found["removed"]) == (only_replica, True)
    health = as_user(cluster, "sys", "server", "health")
    assert health.status == 1
    assert "removed from the cluster" in health.out
    until(lambda: listed(cluster).out == "S\n")
    shown = listed(cluster)
    assert (shown.status, shown.err.count("\n")) == (0, 1)
    assert "no leader answers for ALONE: `jetraft server health` shows which servers are away" in shown.err
    until(lambda: only_replica not in str(streams(cluster)["S"]))


def listed(cluster: Cluster) -> Done:
    return as_user(cluster, "a", "stream", "ls", "--names", "--timeout", f"{PATIENCE_S}s")


def test_a_server_alone_cannot_be_removed(tmp_path: Path, no_login: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=CONFIG) as alone:
        done = run("server", "remove", "n1", "--yes", "--server", alone.url, "--user", "sys", "--password", "s")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "jetraft server remove: this server is in no cluster with JetStream: there is nothing to remove\n"
    )


def test_a_drained_server_leads_nothing_and_may_lead_again(cluster: Cluster) -> None:
    for number in range(STREAMS):
        add(cluster, f"S{number}", "--replicas", "3")
    alone = add(cluster, "ALONE")["cluster"]["leader"]
    done = as_user(cluster, "sys", "server", "drain", alone, "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["server"], found["led"], found["alone"], found["draining"]) == (alone, 0, 1, True)
    leaders = {name: cluster["leader"] for name, cluster in streams(cluster).items()}
    assert [name for name, leader in leaders.items() if leader == alone] == ["ALONE"]
    assert "metadata group: led by " + alone not in as_user(cluster, "sys", "server", "report").out
    again = as_user(cluster, "sys", "server", "drain", alone)
    assert (again.status, again.err) == (0, "")
    assert again.out == (
        f"server {alone} leads nothing that others can lead; groups that have no other member stay: 1\n"
    )
    ended = as_user(cluster, "sys", "server", "drain", alone, "--end")
    assert (ended.status, ended.out) == (0, f"server {alone} may lead again\n")
    other = next(node.name for node in cluster if node.name != alone)
    assert as_user(cluster, "sys", "server", "drain", other).status == 0
    leaders = {name: cluster["leader"] for name, cluster in streams(cluster).items()}
    assert other not in leaders.values()
    assert len([name for name, leader in leaders.items() if leader == alone]) > 1, "it takes its share again"


def test_what_no_other_server_can_lead_is_said_after_the_wait(cluster: Cluster) -> None:
    leader = add(cluster, "S", "--replicas", "3")["cluster"]["leader"]
    others = [node for node in cluster if node.name != leader]
    for node in others:
        node.freeze()
    try:
        at = cluster.named(leader)
        done = on_terminal(
            "server", "drain", leader, "--wait", "1s", "--server", at.url, "--user", "sys", "--password", "s"
        )
    finally:
        for node in others:
            node.thaw()
    assert (done.status, done.out) == (1, "")
    assert "draining " + leader in done.err, "a bar, on a terminal"
    assert re.search(rf"server {leader} leads \d groups that other servers have, and \d have no leader: ", done.err)
    assert "--wait waits longer" in done.err


def test_after_its_drain_a_server_in_lame_duck_mode_sends_its_clients_away(cluster: Cluster) -> None:
    unasked = as_user(cluster, "sys", "server", "drain", "n2", "--lame-duck")
    assert (unasked.status, unasked.out, "--yes" in unasked.err) == (1, "", True)
    wrong = as_user(cluster, "sys", "server", "drain", "n2", "--lame-duck", "--end")
    assert (wrong.status, wrong.out) == (2, "")
    away = as_user(cluster, "sys", "server", "drain", "n9")
    assert (away.status, away.err) == (
        1,
        "jetraft server drain: no server n9 answers: `jetraft server ls` lists those that do\n",
    )
    done = as_user(cluster, "sys", "server", "drain", "n2", "--lame-duck", "--yes")
    assert (done.status, done.err) == (0, "")
    assert "and ends when its clients have moved" in done.out
    cluster[1].running.wait_for_line("Entering lame duck mode")


def test_a_drained_server_is_given_nothing_by_the_next_one_that_is_drained_or_stopped(cluster: Cluster) -> None:
    for number in range(STREAMS):
        add(cluster, f"S{number}", "--replicas", "3")
    assert as_user(cluster, "sys", "server", "drain", "n1").status == 0
    assert as_user(cluster, "sys", "server", "drain", "n2").status == 0
    assert {each["leader"] for each in streams(cluster).values()} == {"n3"}
    for number in range(STREAMS):
        add(cluster, f"T{number}", "--replicas", "3")
        add(cluster, f"A{number}", "--replicas", "1")
    assert {name: each["leader"] for name, each in streams(cluster).items() if each["leader"] != "n3"} == {}, (
        "new ones too"
    )
    last = as_user(cluster, "sys", "server", "drain", "n3")
    assert (last.status, last.out) == (1, "")
    assert last.err == (
        f"jetraft server drain: server n3 still leads {2 * STREAMS + 1:,} groups: the other servers that have them are"
        " drained too (n1, n2): end that with `jetraft server drain NAME --end`, or restart them\n"
    )
    advice = as_user(cluster, "sys", "doctor")
    assert advice.status == 1
    assert "FAIL drain of n1: other servers lead what it could: when its maintenance is over:" in advice.out
    assert as_user(cluster, "sys", "server", "drain", "n2", "--end").status == 0
    until(lambda: {each["leader"] for name, each in streams(cluster).items() if name[0] != "A"} == {"n2"})
    cluster[1].stop()
    until(lambda: "n1" in {each.get("leader") for each in streams(cluster).values()})
    advice = as_user(cluster, "sys", "doctor")
    assert [f"drain of {node.name}" in advice.out for node in cluster] == [True, False, True]
