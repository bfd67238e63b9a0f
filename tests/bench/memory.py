"""Resident memory: idle, and with a thousand idle connections."""

import subprocess
from pathlib import Path

from tests.bench.measure import BenchError, rss_bytes, servers
from tests.harness.server import Kind

CONNECTIONS = 1000
FLOORS_MB = {"rss_idle": 60.0, "rss_1000_connections": 80.0}


def measure(generator: Path, kind: Kind) -> dict[str, float]:
    """Both figures of one server, in MB."""
    with servers(kind, nodes=1) as (server,):
        idle = rss_bytes(server.running.pid) / 1e6
        words = [str(generator), "idle", f"port={server.client_port}", f"conns={CONNECTIONS}"]
        client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert client.stdin is not None
        assert client.stdout is not None
        if not client.stdout.readline():
            raise BenchError(f"idle connections: exit status {client.wait()}")
        busy = rss_bytes(server.running.pid) / 1e6
        client.stdin.write("\n")
        client.stdin.close()
        client.wait()
        return {"rss_idle": idle, "rss_1000_connections": busy}


def memory_rows(generator: Path) -> list[dict[str, object]]:
    """Rows for bench.json; also prints them."""
    ours, peer = measure(generator, "jetraft"), measure(generator, "reference")
    rows: list[dict[str, object]] = []
    for name, limit_mb in FLOORS_MB.items():
        print(f"{name:<24}{ours[name]:>9.1f} MB{peer[name]:>9.1f} MB   limit {limit_mb:g} MB")
        rows.append(
            {
                "name": name,
                "ours": round(ours[name], 1),
                "peer": round(peer[name], 1),
                "ratio": round(ours[name] / peer[name], 3),
                "unit": "MB",
                "floor": limit_mb,
                "cpu_ns_ours": None,
                "cpu_ns_peer": None,
            }
        )
    return rows
