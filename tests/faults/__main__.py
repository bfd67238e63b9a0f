"""`python -m tests.faults`: real servers in network namespaces, faults under load, every replica judged.

    --kind jetraft|reference   which server (the reference is nats-server)
    --only NAME                one scenario (repeatable)
    --runs R                   runs of each scenario, each with a seed of its own, on one cluster
    --seconds N                start no run after so many seconds; scenarios take turns until then
    --seed K                   the first seed
    --hold S                   how long a fault lasts, about
    --rate M                   messages a second over all writers
    --engine core|pysyncobj    which Raft engine jetraft runs on (pysyncobj: no change of members)
    --sync-always              the reference with sync_interval: always
    --short                    three scenarios, one run each, under a minute
    --json FILE                append one line per run

Needs root and iproute2. Exit status 0: nothing was lost, doubled, misplaced or stuck; 1: something was; 2: it cannot
be run here.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.faults import netns
from tests.faults.netns import Network
from tests.faults.nodes import Nodes
from tests.faults.report import table
from tests.faults.run import Result, delete, run
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.harness.process import ServerFailed

SHORT = ("kill-leader", "minority-leader", "kill-all")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tests.faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kind", choices=["jetraft", "reference"], default="jetraft")
    parser.add_argument("--only", action="append", choices=[scenario.name for scenario in SCENARIOS])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hold", type=float, default=2.5)
    parser.add_argument("--rate", type=float, default=400.0)
    parser.add_argument("--engine", choices=["core", "pysyncobj"])
    parser.add_argument("--sync-always", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="where logs and stores of failed runs go")
    return parser.parse_args()


def chosen(wish: argparse.Namespace) -> list[Scenario]:
    """The scenarios of this call."""
    if wish.short:
        return [attrs.evolve(scenario, repeats=1) for scenario in SCENARIOS if scenario.name in SHORT]
    possible = [scenario for scenario in SCENARIOS if not (scenario.membership and wish.engine == "pysyncobj")]
    return [scenario for scenario in possible if not wish.only or scenario.name in wish.only]


def play(wish: argparse.Namespace, scenarios: list[Scenario], directory: Path) -> Iterator[Result]:
    """All runs: each scenario on a cluster of its own, in turns until the time is over."""
    deadline = time.monotonic() + (wish.seconds or float("inf"))
    seed = wish.seed
    while True:
        for scenario in scenarios:
            stores = Path(tempfile.mkdtemp(prefix=f"{scenario.name}-{seed}-", dir=directory))  # never one that was used
            with Network(scenario.size) as network:
                yield from on_one_cluster(wish, scenario, network, stores, seed, deadline)
            if time.monotonic() > deadline:
                return
        seed += wish.runs
        if wish.seconds is None:
            return


def on_one_cluster(  # noqa: PLR0913, PLR0917  (the coordinates of a run)
    wish: argparse.Namespace, scenario: Scenario, network: Network, directory: Path, seed: int, deadline: float
) -> Iterator[Result]:
    """The runs of a scenario, one after the other; the first that fails ends it and leaves its logs."""
    config = "jetstream { sync_interval: always }\n" if wish.sync_always else ""
    if wish.engine is not None:
        config = f"jetstream {{ raft_engine: {wish.engine} }}\n"
    nodes = Nodes(wish.kind, network, scenario.size, directory=directory, config=config)
    try:
        with nodes:
            for number in range(seed, seed + wish.runs):
                result = run(nodes, scenario, number, rate=wish.rate, hold_s=wish.hold)
                yield result
                nodes.keep = not result.clean
                if nodes.keep or time.monotonic() > deadline:
                    return
                delete(nodes, f"{scenario.name}-{number}")
    except (ServerFailed, OSError) as error:
        yield Result(scenario=scenario.name, seed=seed, verdict=None, problem=f"no cluster: {error}")


def main() -> int:
    """Run, print a line per run and a table at the end."""
    wish = options()
    if (reason := netns.missing()) is not None:
        sys.stderr.write(f"FAULTS NOT RUN: {reason}\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = wish.keep or Path(tempfile.mkdtemp(prefix="jetraft-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    try:
        for result in play(wish, chosen(wish), directory):
            results.append(result)
            sys.stdout.write(f"{line(result)}\n")
            sys.stdout.flush()
            if wish.json:
                with wish.json.open("a", encoding="utf-8") as log:
                    log.write(
                        json.dumps(attrs.asdict(result) | {"kind": wish.kind, "sync_always": wish.sync_always}) + "\n"
                    )
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
    failed = [result for result in results if not result.clean]
    sys.stdout.write("\n" + table(results) + "\n")
    if failed:
        sys.stdout.write(f"{len(failed)} of {len(results)} runs FAILED; logs and stores in {directory}\n")
    elif not wish.keep:
        directory.rmdir()
    return 1 if failed or not results else 0


def line(result: Result) -> str:
    """How one run ended."""
    verdict = result.verdict
    gaps = " ".join(f"{fault.gap_ns / 1e9:.2f}" for fault in result.faults)
    leaders = " ".join("-" if fault.leader_ns is None else f"{fault.leader_ns / 1e9:.2f}" for fault in result.faults)
    counts = f"{verdict.acked} acked" if verdict else "unfinished"
    text = f"{result.scenario} seed {result.seed}: {counts}, gaps {gaps} s, leaders {leaders} s"
    if result.clean:
        return f"{text}, clean"
    what = result.problem or (verdict and "; ".join(verdict.examples)) or ""
    return f"{text}, FAILED: {what}"


if __name__ == "__main__":
    sys.exit(main())
