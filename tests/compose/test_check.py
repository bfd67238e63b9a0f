"""The parts of `make compose-check` that need no engine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compose.__main__ import LACKING, Row, chosen, perform
from tests.compose.engine import NODES, CheckFailedError, ComposeCluster
from tests.compose.load import Load
from tests.compose.steps import AFTERWARDS, GAPS_MAX_S, LOADED, NOT_RUN, Check, documented
from tests.harness.patience import PATIENCE_S
from tests.harness.server import ROOT


def test_where_no_engine_is_it_says_what_is_missing_with_a_status_of_its_own(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": "src"}
    words = [sys.executable, "-m", "tests.compose", "--without-spark"]
    done = subprocess.run(
        words, env=environment, cwd=ROOT, check=False, timeout=PATIENCE_S, capture_output=True, text=True
    )
    assert done.returncode == LACKING, done.stderr
    assert "docker: no client of a container engine" in done.stderr
    assert "compose: neither" in done.stderr
    assert done.stdout == "", "nothing was begun"


def test_a_cluster_of_the_check_shares_nothing_with_others(tmp_path: Path) -> None:
    cluster = ComposeCluster("image", "spark-image", directory=tmp_path)
    cluster.write_secrets("a b", "c")
    told = cluster.environment
    assert Path(told["CLUSTER_SECRET_FILE"]).read_text() == "a b\nc\n"
    assert told["COMPOSE_PROJECT_NAME"] != "jetraft"
    ports = [told[f"{node.upper()}_PORT"] for node in NODES]
    assert len(set(ports)) == len(NODES)
    assert [told[f"{node.upper()}_CLIENT_ADVERTISE"] for node in NODES] == [f"127.0.0.1:{port}" for port in ports]
    assert not any("a b" in value for value in told.values())


def test_a_gap_is_the_longest_time_without_an_acknowledgement_the_present_one_included(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    publisher = Load("nats://unused")
    for now_s, expected in ((1.0, 1.0), (1.5, 1.0), (4.5, 3.0)):
        publisher._note(f"{now_s}", 1, is_duplicate=False)
        assert publisher.end_step() == expected
    publisher.begin_step()
    now_s = 9.0
    assert publisher.end_step() == 4.5


def test_steps_are_chosen_by_name_and_what_was_published_is_always_read_back() -> None:
    assert [name for name, _ in chosen([*LOADED, *AFTERWARDS], "kill")] == ["publish", "kill a node", "read back"]
    assert len(chosen(LOADED, "")) == len(LOADED) == len(chosen(LOADED, "", with_spark=False)) + 1


def test_a_line_of_the_table() -> None:
    assert str(Row("kill a node", 12.34, 1.2345, "n1")) == "| kill a node | 12.3 | 1,234 ms | n1 |"
    assert str(Row("read back", 2.0, None, "all")) == "| read back | 2.0 |  | all |"


def test_each_command_of_the_page_is_run_or_has_a_reason_why_not() -> None:
    commands = documented()
    assert {"make up", "make upgrade", "make up-spark", "make down", "make secret", "make image-spark"} <= set(commands)
    assert "debootstrap --variant=minbase --include=ca-certificates,python3 bookworm base" in commands
    assert any("exec -T n1" in command for command in commands)
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in commands), f"no command of the page begins with {start}"


def test_a_step_with_a_bound_fails_when_its_gap_is_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load("nats://unused")
    monkeypatch.setattr(Load, "end_step", lambda _load: 3.5)
    monkeypatch.setattr(Load, "wait_for_more", lambda _load, _count: None)
    check = Check(ComposeCluster("image", "spark-image", directory=tmp_path), load)
    assert perform(check, "a step", lambda _check: "", is_loaded=True).gap_s == 3.5
    monkeypatch.setitem(GAPS_MAX_S, "a step", 3.0)
    with pytest.raises(CheckFailedError, match=r"a step: 3\.5 s without an acknowledgement, 3\.0 s are allowed"):
        perform(check, "a step", lambda _check: "", is_loaded=True)
