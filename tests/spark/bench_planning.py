"""How long a read is planned, and with how much memory, where streams, subjects or sequences are many; floors.

    python -m tests.spark.bench_planning [--streams 3000] [--subjects 1000000]

Streams and subjects are those of a real server. A stream of 10^9 sequences of which 1 % are live is the view that its
leader would give: no request depends on more than that. Exit status 1 when a plan takes more than a second or 64 MiB;
where all streams are read, each of them may take EACH_MAX_S more, in a plan that asks for its state twice.
"""

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.leader import StreamView, stream_names
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import create, publish

PLAN_MAX_S = 1.0
EACH_MAX_S = 0.001
MEMORY_MAX_BYTES = 64 << 20
MATCHING = 10  # of the streams
SEQUENCES, LIVE = 10**9, 10**7
NAMES = 100_000  # of a catalogue that the server does not have: what the planner does with its answers
PAGE = 1024
WINDOW = 200


def main() -> int:
    """Measure each state and print a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=3000)
    parser.add_argument("--subjects", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, Server("jetraft", directory=Path(place)) as server:
        with RawClient(server.address) as client:
            many_streams(client, given.streams)
            create(client, "SUBJECTS")
            publish(client, "SUBJECTS", given.subjects, subject=lambda number: f"{number % 1000}.{number}")
        held = [
            judged(f"{given.streams:,} streams, {MATCHING} by pattern", lambda: planned(server, streams="A*")),
            judged(
                f"{given.streams:,} streams, all by pattern",
                lambda: planned(server, streams="A*,B*"),
                longest_s=PLAN_MAX_S + EACH_MAX_S * given.streams,
            ),
            judged(f"{NAMES:,} names, {MATCHING} by pattern", lambda: chosen(server)),
            judged(
                f"{given.subjects:,} subjects, 1 in 1,000 by filter",
                lambda: planned(server, stream="SUBJECTS", subject="SUBJECTS.7.>"),
            ),
            judged(f"{SEQUENCES:,} sequences, 1 % live", lambda: sparse(server)),
        ]
    return int(not all(held))


def many_streams(client: RawClient, count: int) -> None:
    """Create streams, the first of which have a name of the pattern."""
    inbox = client.new_inbox()
    client.subscribe(inbox)
    for first in range(0, count, WINDOW):
        numbers = range(first, min(first + WINDOW, count))
        for number in numbers:
            name = f"{'A' if number < MATCHING else 'B'}{number}"
            wish = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_direct": True}
            client.publish(f"$JS.API.STREAM.CREATE.{name}", json.dumps(wish).encode(), reply=inbox)
        for _ in numbers:
            assert client.next_event(60) is not None


def planned(server: Server, **options: str) -> int:
    """The first micro-batch of a query with new connections."""
    planner = Planner(parse_options({"servers": server.url, **options}), ConnectionCache())
    try:
        start = planner.initial().to_json_dict()
        return len(planner.partitions(start, planner.next_end(start, None).to_json_dict()))
    finally:
        planner.close()


class Catalogue:
    """Answers STREAM.NAMES in pages, as a server with many streams does."""

    def __init__(self) -> None:
        self._names = [f"{'A' if number < MATCHING else 'B'}{number}" for number in range(NAMES)]

    def ask(self, _: str, question: dict[str, Any]) -> dict[str, Any]:
        """A page of names."""
        offset = question["offset"]
        return json.loads(json.dumps({"total": NAMES, "streams": self._names[offset : offset + PAGE]}))  # type: ignore[no-any-return]


def chosen(server: Server) -> int:
    """The names that a pattern chooses out of a large catalogue."""
    planner = Planner(parse_options({"servers": server.url, "streams": "A*,*Z,C*D"}), ConnectionCache())
    planner.use_names(stream_names(Catalogue()))  # type: ignore[arg-type]
    return len(planner.names())


def sparse(server: Server) -> int:
    """The partitions of a whole stream, most of whose messages are gone."""
    planner = Planner(parse_options({"servers": server.url, "stream": "SUBJECTS"}), ConnectionCache())
    view = StreamView(
        created="2026-01-01T00:00:00Z",
        first_seq=1,
        last_seq=SEQUENCES,
        last_time_ns=0,
        messages=LIVE,
        message_bytes=LIVE * 200,
        allow_direct=True,
        replicas=frozenset({server.name}),
    )
    try:
        return len(planner.split(view, 1, view.end_seq))
    finally:
        planner.close()


def judged(what: str, plan: Callable[[], int], longest_s: float = PLAN_MAX_S) -> bool:
    """Plan twice, for the time and for the memory; print a line and return whether the floors hold."""
    cpu_s, started_s = time.process_time(), time.perf_counter()
    count = plan()
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    tracemalloc.start()
    plan()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    holds = seconds <= longest_s and peak_bytes <= MEMORY_MAX_BYTES
    verdict = "holds" if holds else "MISSED"
    text = f"{seconds:6.3f} s ({cpu_s:.3f} s of processor time here), {peak_bytes / 1e6:6.1f} MB, gives {count:,}"
    sys.stdout.write(f"{what:42} {text}: {verdict}\n")
    sys.stdout.flush()
    return holds


if __name__ == "__main__":
    sys.exit(main())
