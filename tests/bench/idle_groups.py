"""What idle streams cost: resident memory and processor time of each of three nodes with many replicated streams.

PYTHONPATH=src:. python -m tests.bench.idle_groups [--streams 1000] [--seconds 20]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

MB = 1_000_000
MEMORY_MB_MAX = 20.0  # for a thousand streams
CORE_PERCENT_MAX = 5.0
REST_S = 10.0  # before the measurement: elections are over, the links quiet


def cpu_s(node: Server) -> float:
    """Processor time of the node's process so far."""
    fields = Path(f"/proc/{node.running.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def create(node: Server, streams: int) -> float:
    """Create that many, one after the other; returns the seconds it took."""
    began = time.monotonic()
    with RawClient(node.address) as client:
        for number in range(streams):
            config = {"name": f"S{number}", "subjects": [f"idle.{number}.>"], "num_replicas": 3}
            answer = client.api(f"STREAM.CREATE.S{number}", config)
            assert "error" not in answer, answer
    return time.monotonic() - began


def main() -> int:
    """Measure, print, and say by the exit status whether both limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster("jetraft", 3, directory=Path(directory)) as cluster:
        create(cluster[0], 1)  # what the first one loads is not what a stream costs
        before = {node.name: node.rss_bytes() for node in cluster}
        with RawClient(cluster[0].address) as client:
            client.api("STREAM.DELETE.S0")
        took_s = create(cluster[0], asked.streams)
        time.sleep(REST_S)
        cpu_before = {node.name: cpu_s(node) for node in cluster}
        time.sleep(asked.seconds)
        print(f"{asked.streams} streams, three replicas each, created in {took_s:.1f} s")
        kept = True
        for node in cluster:
            memory_mb = (node.rss_bytes() - before[node.name]) / MB
            core_percent = 100 * (cpu_s(node) - cpu_before[node.name]) / asked.seconds
            kept &= memory_mb * 1000 <= MEMORY_MB_MAX * asked.streams and core_percent <= CORE_PERCENT_MAX
            print(f"{node.name}: {memory_mb:.1f} MB more, idle {core_percent:.1f} % of a core")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
