"""What publishers notice while damaged replicas are mended: `python -m tests.bench.repair [--messages N] [--rounds R]`.

Three nodes hold a large stream; writers publish to it at a steady pace, each message waiting for its acknowledgement.
Blocks of a follower, then of the leader, are damaged on disk (a byte in every page); a read meets the damage, and the
replica is mended from the others. Scrubbing is off, so nothing else reads. Prints, for calm times and for the times
from the read until the node has recovered, the latencies of acknowledgements, how many messages had to be sent again
(what a leader has taken and not answered when it stops, writers repeat after RESEND_S; `once p99` is without them), and
the longest silence.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.bench.measure import build_generator, generate
from tests.faults.journal import Journal
from tests.faults.writers import Load
from tests.harness.cluster import Cluster
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient
from tests.harness.server import Server

STREAM: Final = "BENCH"  # what the load generator fills
CONFIG: Final = "jetstream { scrub { period: off, compare: off } }\n"
CALM_S: Final = 4.0
REST_S: Final = 2.0  # what is sent again in the meantime belongs to no time that is measured
MENDED_S: Final = 60.0
LOOK_S: Final = 0.01
PAGE_BYTES: Final = 4096


@attrs.frozen(kw_only=True)
class Span:
    """What happened between two moments, monotonic nanoseconds."""

    name: str
    began_ns: int
    ended_ns: int


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=2, help="how many blocks of a replica are damaged at a time")
    parser.add_argument("--rate", type=float, default=1000.0)
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as scratch:
        directory = Path(scratch)
        with (
            Cluster("jetraft", 3, directory=directory, config=CONFIG) as cluster,
            (directory / "journal").open("w", encoding="utf-8") as log,
        ):
            fill = ("window=4000", f"msgs={wish.messages}", "size=128", "replicas=3")
            generate(build_generator(directory), "fill", cluster.nodes[0], fill)
            take_subjects(cluster.nodes[0])
            journal = Journal(log)
            with Load(journal, stream=STREAM, addresses=[n.address for n in cluster.nodes], rate=wish.rate) as load:
                time.sleep(CALM_S / 2)
                spans = play(cluster.nodes, rounds=wish.rounds, blocks=wish.blocks)
                unknown = load.finish(MENDED_S)
    print(table(journal, spans))
    return 1 if unknown else 0


def play(nodes: Sequence[Server], *, rounds: int, blocks: int) -> list[Span]:
    """Calm, a follower is mended, calm, the leader is mended; again and again."""
    spans = []
    for _ in range(rounds):
        for name, is_leader in (("a follower is mended", False), ("the leader is mended", True)):
            leader = leader_of(nodes)
            chosen = next(node for node in nodes if (node.name == leader) == is_leader)
            spans.append(during("calm", lambda: time.sleep(CALM_S)))
            hurt(chosen, blocks)
            spans.append(during(name, lambda node=chosen: mend(node)))  # type: ignore[misc]  # a default of its own
            time.sleep(REST_S)
    return spans


def during(name: str, act: Callable[[], object]) -> Span:
    """The time that something takes."""
    began_ns = time.monotonic_ns()
    act()
    return Span(name=name, began_ns=began_ns, ended_ns=time.monotonic_ns())


def take_subjects(node: Server) -> None:
    """Let the filled stream take the writers' messages too."""
    with RawClient(node.address) as client:
        config = client.api(f"STREAM.INFO.{STREAM}")["config"]
        answer = client.api(f"STREAM.UPDATE.{STREAM}", config | {"subjects": ["bench.js.>", f"{STREAM}.>"]})
    if "error" in answer:
        raise ServerFailed(f"update: {answer}")


def leader_of(nodes: Sequence[Server]) -> str:
    """The name of the stream's leader."""
    with RawClient(nodes[0].address) as client:
        return str(client.api(f"STREAM.INFO.{STREAM}")["cluster"]["leader"])


def hurt(node: Server, blocks: int) -> None:
    """Change a byte in every page of the first blocks, on the device, and let the disk come to rest."""
    group = next((node.store_dir / "jetstream" / "groups").glob("S-R3*"))
    for path in sorted(group.rglob("*.blk"))[:blocks]:
        with path.open("r+b") as file:
            for offset in range(2 * PAGE_BYTES, path.stat().st_size, PAGE_BYTES):
                file.seek(offset)
                byte = file.read(1)
                file.seek(offset)
                file.write(bytes([byte[0] ^ 1]))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    time.sleep(REST_S)


def mend(node: Server) -> None:
    """Read from the damaged part and wait until the node has noticed and recovered."""
    with RawClient(node.address) as client:
        body = json.dumps({"seq": 1000, "batch": 20_000}).encode()
        client.request(f"$JS.API.DIRECT.GET.{STREAM}", body, replies=20_001, until_status=True)
    until(lambda: not node.healthy(), "the node was not well")
    until(node.healthy, "it has recovered")


def until(ready: Callable[[], bool], what: str) -> None:
    """Ask again and again. Raises ServerFailed."""
    deadline_s = time.monotonic() + MENDED_S
    while not ready():
        if time.monotonic() > deadline_s:
            raise ServerFailed(f"took more than {MENDED_S:.0f} s before {what}")
        time.sleep(LOOK_S)


def table(journal: Journal, spans: Sequence[Span]) -> str:
    """One line for each kind of time."""
    latencies = f"{'p50 ms':>9}{'p99 ms':>9}{'once p99':>9}{'max ms':>9}"
    lines = [f"{'':<24}{'times':>6}{'seconds':>9}{'messages':>10}{latencies}{'again':>7}{'gap s':>8}"]
    for name in dict.fromkeys(span.name for span in spans):
        chosen = [span for span in spans if span.name == name]
        inside = [
            sent
            for sent in journal.messages.values()
            if any(span.began_ns <= sent.first_sent_ns < span.ended_ns for span in chosen)
        ]
        took_ms = sorted((sent.acked_ns - sent.first_sent_ns) / 1e6 for sent in inside)
        once_ms = sorted((sent.acked_ns - sent.first_sent_ns) / 1e6 for sent in inside if sent.attempts == 1)
        again = len(inside) - len(once_ms)
        gap_s = max(journal.longest_gap_ns(span.began_ns, span.ended_ns) for span in chosen) / 1e9
        seconds = sum(span.ended_ns - span.began_ns for span in chosen) / 1e9
        middle, high, once = share(took_ms, 50), share(took_ms, 99), share(once_ms, 99)
        latencies = f"{middle:>9.2f}{high:>9.2f}{once:>9.2f}{took_ms[-1]:>9.1f}"
        lines.append(f"{name:<24}{len(chosen):>6}{seconds:>9.1f}{len(took_ms):>10}{latencies}{again:>7}{gap_s:>8.2f}")
    return "\n".join(lines)


def share(ascending: Sequence[float], percent: int) -> float:
    """The value below which so many of them lie."""
    return ascending[len(ascending) * percent // 100]


if __name__ == "__main__":
    sys.exit(main())
