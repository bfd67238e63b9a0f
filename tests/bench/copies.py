"""How fast a stream is copied that is there already: by a mirror, and by a stream that has it as its source.

    python -m tests.bench.copies [--messages 1000000] [--replicas 1|3] [--kind jetraft --kind reference] [--runs 2]

Fresh servers; an origin of 128 B messages is filled, then the copy is created: the time until it has all of them, and
the processor time of all servers a message, which includes what the origin's server does. Both servers in turn.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.measure import build_generator, cpu_s, generate, servers
from tests.harness.raw import RawClient
from tests.harness.server import Kind

WAIT_S = 600
LOOK_S = 0.05
ORIGIN = "BENCH"
WISHES: dict[str, dict[str, Any]] = {
    "mirror": {"mirror": {"name": ORIGIN}},
    "source": {"sources": [{"name": ORIGIN}]},
    "source, a filter": {"sources": [{"name": ORIGIN, "filter_subject": "bench.>"}]},
    "source, a transform": {"sources": [{"name": ORIGIN, "subject_transforms": [{"src": "bench.>", "dest": "got.>"}]}]},
}
FLOOR_RATE = 500_000  # messages/s of a mirror on one node


def copy(generator: Path, kind: Kind, wish: dict[str, Any], *, messages: int, replicas: int) -> tuple[float, float]:
    """(messages/s, us of processor time a message)."""
    with servers(kind, nodes=replicas) as nodes, RawClient(nodes[0].address) as client:
        created = client.api(
            f"STREAM.CREATE.{ORIGIN}", {"name": ORIGIN, "subjects": ["bench.>"], "num_replicas": replicas}
        )
        assert "error" not in created, created
        generate(generator, "jspub", nodes[0], ("keep=1", "window=4000", f"msgs={messages}"))
        before, began = sum(cpu_s(node.running.pid) for node in nodes), time.monotonic()
        created = client.api("STREAM.CREATE.COPY", {"name": "COPY", "num_replicas": replicas, **wish})
        assert "error" not in created, created
        while (have := client.api("STREAM.INFO.COPY").get("state", {}).get("messages", 0)) < messages:
            assert time.monotonic() - began < WAIT_S, f"{have} of {messages} messages after {WAIT_S} s"
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        spent = sum(cpu_s(node.running.pid) for node in nodes) - before
        return messages / seconds, spent * 1e6 / messages


def main() -> int:
    """Print a row a case; exit status 1 when the mirror of one node is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--replicas", type=int, default=1, choices=[1, 3])
    parser.add_argument("--kind", action="append", choices=["jetraft", "reference"])
    parser.add_argument("--runs", type=int, default=2)
    given = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as place:
        generator = build_generator(Path(place))
        for name, wish in WISHES.items():
            found: dict[Kind, list[tuple[float, float]]] = {kind: [] for kind in given.kind or ["jetraft", "reference"]}
            for _ in range(given.runs):
                for kind, figures in found.items():
                    figures.append(copy(generator, kind, wish, messages=given.messages, replicas=given.replicas))
            for kind, figures in found.items():
                rate = statistics.median(rate for rate, _ in figures)
                cpu_us = statistics.median(cpu_us for _, cpu_us in figures)
                sys.stdout.write(f"{name:22}{kind:12}{rate:12,.0f} messages/s{cpu_us:8.2f} us CPU a message\n")
                sys.stdout.flush()
                missed |= kind == "jetraft" and name == "mirror" and given.replicas == 1 and rate < FLOOR_RATE
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
