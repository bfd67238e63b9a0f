"""Alert rules and board of deploy/grafana: each alert fires on what it is about, and every metric of them exists."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from jetraft.store.model.events import KINDS
from tests.api.monitor.test_metrics import get
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import ROOT

GRAFANA: Final = ROOT / "deploy" / "grafana"
RULES: Final = GRAFANA / "alerts.yml"
NAME: Final = re.compile(r"\b(?:jetraft|process)_[a-z_]+\b")
MINUTES: Final = 30  # of the series; asked about at their end
STAYS, RISES = "0x30", "0+1x30"  # a sample each minute
STREAM: Final = 'account="A",stream="S"'
SERVER: Final = 'job="jetraft",instance="n1"'


def event(kind: str) -> str:
    return f'jetraft_log_events_total{{{SERVER},event="{kind}"}}'


def slow(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """A histogram with a tenth of its observations above a millisecond, and one with all below."""
    first, *others = (f'{name}_bucket{{{SERVER},le="{bound}"}}' for bound in ("0.001", "5.0", "+Inf"))
    most = dict.fromkeys(others, "0+100x30")
    return {first: "0+90x30", **most}, {first: "0+100x30", **most}


def changes(series: str, fires: str = RISES, rests: str = STAYS) -> tuple[dict[str, str], dict[str, str]]:
    """One series, with which an alert fires and does not."""
    return {series: fires}, {series: rests}


def bytes_of(used: int) -> dict[str, str]:
    held, most = (f"jetraft_jetstream_{name}_bytes{{{SERVER}}}" for name in ("storage", "max_storage"))
    return {held: f"{used}x30", most: "100x30"}


CASES: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {  # series on which it fires, and on which not
    "JetraftServerDown": changes(f"up{{{SERVER}}}", "0x30", "1x30"),
    "JetraftNoMetaLeader": changes(f'jetraft_raft_has_leader{{{SERVER},group="meta"}}', "0x30", "1x30"),
    "JetraftStreamWithoutLeader": changes(f"jetraft_raft_has_leader{{{SERVER},{STREAM}}}", "0x30", "1x30"),
    "JetraftReplicaBehind": changes(
        f'jetraft_stream_replica_current{{{SERVER},{STREAM},replica="n2"}}', "0x30", "0x26 1x4"
    ),
    "JetraftReplicaFailed": changes(f"jetraft_raft_groups_failed{{{SERVER}}}", "1x30", "0x30"),
    "JetraftDamage": changes(event("entries_lost")),
    "JetraftScrubDamage": changes(f"jetraft_scrub_damaged_blocks_total{{{SERVER}}}"),
    "JetraftDiskFailed": changes(f"jetraft_disk_batches_failed_total{{{SERVER}}}"),
    "JetraftDiskSlow": slow("jetraft_disk_batch_seconds"),
    "JetraftDiskNearlyFull": changes(event("disk_nearly_full")),
    "JetraftStorageNearlyUsed": (bytes_of(95), bytes_of(85)),
    "JetraftMemoryNearlyFull": changes(event("memory_nearly_full")),
    "JetraftLeadersChange": changes(f"jetraft_raft_elections_won_total{{{SERVER},{STREAM}}}", RISES, "0+0.2x30"),
    "JetraftPublishesSlow": slow("jetraft_publish_ack_seconds"),
    "JetraftTurnsSlow": slow("jetraft_turn_seconds"),
    "JetraftSlowConsumers": changes(f"jetraft_slow_consumers_total{{{SERVER}}}", "0+2x30", "0+0.5x30"),
    "JetraftLoginsRefused": changes(event("client_refused"), "0+120x30", "0+30x30"),
    "JetraftClocksDiffer": changes(event("clocks_differ")),
}


def test_every_alert_has_a_case() -> None:
    assert re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")) == list(CASES)


def unit_test(alert: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    expected = [{"labels": "{}", "value": int(fires)}]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{MINUTES}m", "exp_samples": expected}],
    }


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Prometheus' own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("PROMTOOL IS NOT INSTALLED (Debian package prometheus): the alert rules were not checked")
    return subprocess.run([found, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_on_what_it_is_about_and_on_nothing_less(alert: str, tmp_path: Path) -> None:
    fires, rests = CASES[alert]
    tests = [unit_test(alert, fires, fires=True), unit_test(alert, rests, fires=False)]
    path = tmp_path / "tests.yml"  # JSON is YAML
    document = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}
    path.write_text(json.dumps(document), encoding="utf-8")
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The names of all samples that three servers have."""
    with Cluster("jetraft", directory=tmp_path_factory.mktemp("alerts")) as cluster:
        with RawClient(cluster[0].address) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
            config = {"durable_name": "c", "ack_policy": "explicit"}
            client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
            client.acknowledged("s", b"x")
        pages = [get(node, "/metrics")[1] for node in cluster]
        yield {re.split(r"[{ ]", line)[0] for page in pages for line in page.splitlines() if line[:1] != "#"}


@pytest.mark.parametrize("name", ["alerts.yml", "board.json"])
def test_every_metric_of_alerts_and_board_is_on_the_page(name: str, served: set[str]) -> None:
    text = (GRAFANA / name).read_text(encoding="utf-8")
    used = set(NAME.findall(text))
    assert len(used) > 10
    assert used - served == set()


def test_every_event_of_an_alert_is_one_of_the_catalogue() -> None:

    text = RULES.read_text(encoding="utf-8")
    named = {kind for found in re.findall(r'event=~?"([a-z_|]+)"', text) for kind in found.split("|")}
    assert named
    assert named - {kind.name for kind in KINDS} == set()


def test_the_board_is_made_from_its_rows() -> None:

    done = subprocess.run([sys.executable, "tools/gen_board.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run `make docs`"
