"""Write deploy/grafana/board.json from the rows below: `python tools/gen_board.py`; `--check` compares."""

# ruff: noqa: INP001, E501  (a script, not part of a package; rows of a table)

import json
import sys
from pathlib import Path
from typing import Final

BOARD: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "board.json"
OF: Final = '{job="$job"}'
WIDTH, HEIGHT, PANELS_IN_A_ROW = 8, 8, 3


def rate(name: str, by: str = "instance") -> tuple[str, str]:
    """A counter, in a second."""
    return f"sum by ({by}) (rate({name}{OF}[$__rate_interval]))", f"{{{{{by}}}}}"


def p99(name: str) -> tuple[str, str]:
    """A histogram: what one in a hundred exceeds."""
    return (
        f"histogram_quantile(0.99, sum by (instance, le) (rate({name}_bucket{OF}[$__rate_interval])))",
        "{{instance}}",
    )


def gauge(name: str) -> tuple[str, str]:
    """A gauge of each server."""
    return f"{name}{OF}", "{{instance}}"


def of_streams(expression: str) -> tuple[str, str]:
    """The ten largest streams."""
    return f"topk(10, {expression})", "{{account}} > {{stream}}"


PANELS: Final[tuple[tuple[str, str, tuple[str, str]], ...]] = (  # title, unit, query and legend
    ("Servers that answer", "short", (f"sum(up{OF})", "servers")),
    ("Streams led", "short", gauge("jetraft_streams_led")),
    ("Groups that have failed", "short", gauge("jetraft_raft_groups_failed")),
    ("Messages from clients", "ops", rate("jetraft_received_messages_total")),
    ("Messages to clients", "ops", rate("jetraft_sent_messages_total")),
    ("Connections", "short", gauge("jetraft_connections")),
    ("Publish to acknowledgement, 99 %", "s", p99("jetraft_publish_ack_seconds")),
    ("Fsync, 99 %", "s", p99("jetraft_disk_batch_seconds")),
    ("Commit, 99 %", "s", p99("jetraft_raft_commit_seconds")),
    ("Apply, 99 %", "s", p99("jetraft_raft_apply_seconds")),
    ("Turn, 99 %", "s", p99("jetraft_turn_seconds")),
    ("Processor", "percentunit", rate("process_cpu_seconds_total")),
    ("Resident memory", "bytes", gauge("process_resident_memory_bytes")),
    ("Bytes of streams in files", "bytes", gauge("jetraft_jetstream_storage_bytes")),
    ("Bytes of streams in memory", "bytes", gauge("jetraft_jetstream_memory_bytes")),
    ("Largest streams", "bytes", of_streams(f"max by (account, stream) (jetraft_stream_bytes{OF})")),
    ("Replicas with lag, entries", "short", of_streams(f"max by (account, stream) (jetraft_stream_replica_lag{OF})")),
    ("Elections", "short", of_streams(f"sum by (account, stream) (increase(jetraft_raft_elections_won_total{OF}[1h]))")),
    ("Messages that wait for consumers", "short", of_streams(f"sum by (account, stream) (jetraft_consumer_num_pending{OF})")),
    ("Deliveries without ack", "short", of_streams(f"sum by (account, stream) (jetraft_consumer_num_ack_pending{OF})")),
    ("Requests to the API", "ops", rate("jetraft_api_requests_total")),
    ("Slow consumers", "ops", rate("jetraft_slow_consumers_total")),
    ("Events of the log", "ops", rate("jetraft_log_events_total", "event")),
    ("Bytes of Raft", "Bps", rate("jetraft_raft_sent_bytes_total")),
)  # fmt: skip


def page() -> str:
    """The text of the board."""
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {
                "h": HEIGHT,
                "w": WIDTH,
                "x": number % PANELS_IN_A_ROW * WIDTH,
                "y": number // PANELS_IN_A_ROW * HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": "A", "expr": query, "legendFormat": legend}],
        }
        for number, (title, unit, (query, legend)) in enumerate(PANELS)
    ]
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {"name": "job", "type": "textbox", "query": "jetraft", "current": {"text": "jetraft", "value": "jetraft"}},
    ]
    board = {
        "title": "jetraft",
        "uid": "jetraft",
        "schemaVersion": 39,
        "tags": ["jetraft"],
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


def main(arguments: list[str]) -> int:
    """Write the board, or say whether it differs."""
    if arguments == ["--check"]:
        return int(not BOARD.exists() or BOARD.read_text(encoding="utf-8") != page())
    BOARD.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
