"""`server`, `doctor`, `account` and `events` on three servers, with one that ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.cli.client import doctor
from tests.api.cli.client.running import Done, run
from tests.harness.cluster import Cluster
from tests.harness.patience import until
from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG = """
accounts { SYS: { users: [{user: sys, password: s}] }, A: { jetstream: enabled, users: [{user: a, password: a}] } }
system_account: SYS
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("cluster"), config=CONFIG) as nodes:
        yield nodes


def as_user(cluster: Cluster, user: str, *words: str) -> Done:
    return run(*words, "--server", ",".join(cluster.urls), "--user", user, "--password", user[0])


@pytest.mark.usefixtures("no_login")
def test_monitors_say_the_same_without_a_user(cluster: Cluster) -> None:
    urls = ",".join(f"http://127.0.0.1:{each.http_port}" for each in cluster)
    names = [each["server"]["name"] for each in json.loads(run("server", "ls", "--monitor", urls, "--json").out)]
    assert names == ["n1", "n2", "n3"]
    assert run("server", "health", "--monitor", urls).status == 0
    assert run("server", "info", "n3", "--monitor", urls).out.startswith("Server n3\n")
    assert "metadata group: led by n" in run("server", "report", "--monitor", urls).out
    by_monitor = {each["check"] for each in json.loads(run("doctor", "--monitor", urls, "--json").out)}
    assert by_monitor == {each["check"] for each in json.loads(as_user(cluster, "sys", "doctor", "--json").out)}
    away = run("server", "health", "--monitor", f"{urls},http://127.0.0.1:1")
    assert (away.status, away.out) == (1, "")
    assert "http://127.0.0.1:1: Connection refused: start the server with -m" in away.err
    wrong = run("server", "ls", "--monitor", "ftp://u:hidden@x")
    assert (wrong.status, wrong.out, "hidden" in wrong.err) == (2, "", False)


@pytest.mark.usefixtures("no_login")
@pytest.mark.parametrize("accounts_at_once", [1, 2, 1024])
def test_the_streams_of_all_accounts_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accounts_at_once: int
) -> None:
    monkeypatch.setattr(doctor, "ACCOUNTS_AT_ONCE", accounts_at_once)
    names = "BCDE"
    password: dict[str, Any] = {"pass": "p"}
    users = " ".join(f"{name}: {{ jetstream: enabled, users: [{{user: {name}, password: p}}] }}" for name in names)
    config = CONFIG.replace("accounts {", f"accounts {{ {users} ")
    with Server("jetraft", directory=tmp_path, config=config) as server:
        for name in names:
            with RawClient(server.address, user=name, **password) as client:
                client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for way in (
            ("--server", server.url, "--user", "sys", "--password", "s"),
            ("--monitor", f"http://127.0.0.1:{server.http_port}"),
        ):
            done = run("doctor", *way, "--json")
            found = {each["check"]: each["text"] for each in json.loads(done.out)}
            assert found["streams"] == "4 with a leader and current replicas"


@pytest.mark.usefixtures("no_login")
def test_servers_are_shown_and_checked_and_a_lost_one_is_named(cluster: Cluster, tmp_path: Path) -> None:
    assert as_user(cluster, "a", "stream", "add", "S", "--subjects", "s", "--replicas", "3").status == 0
    listed = as_user(cluster, "sys", "server", "ls", "--json")
    assert [each["server"]["name"] for each in json.loads(listed.out)] == ["n1", "n2", "n3"]
    assert as_user(cluster, "sys", "server", "info", "n2").out.startswith("Server n2\n")
    assert as_user(cluster, "sys", "server", "health").status == 0
    assert "metadata group: led by n" in as_user(cluster, "sys", "server", "report").out
    pid = str(cluster[0].running.pid)
    words = ("doctor", "--store-dir", str(cluster[0].store_dir), "--pid", pid, "--json")
    checks = {}

    def all_well() -> bool:
        done = as_user(cluster, "sys", *words)
        checks.update({each["check"]: each["ok"] for each in json.loads(done.out)})
        machine = ("disk", "fsync", "open files")  # which a busy machine under test may fail
        return all(ok for check, ok in checks.items() if check not in machine)

    until(all_well)
    assert {"clock of n3", "versions", "health of n1", "metadata group", "streams", "disk", "fsync"} <= checks.keys()
    assert not list(cluster[0].store_dir.glob(".doctor*"))
    assert as_user(cluster, "sys", "server", "step-down", "--force").status == 0
    cluster[2].kill()

    def n3_is_named() -> bool:
        done = as_user(cluster, "sys", "doctor")
        lines = [line for line in done.out.splitlines() if line.startswith("FAIL")]
        return done.status == 1 and any("stream S of A" in line and "n3 (offline" in line for line in lines)

    until(n3_is_named)


@pytest.mark.usefixtures("no_login")
@pytest.mark.parametrize("line", ["server ls", "server health", "doctor", "server step-down --force"])
def test_a_user_of_another_account_may_not(cluster: Cluster, line: str) -> None:
    done = as_user(cluster, "a", *line.split(), "--timeout", "2s")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
