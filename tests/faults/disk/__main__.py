"""`python -m tests.faults.disk`: real servers on disks that fail, under load, every replica judged (root).

    --kind jetraft|reference   which server (the reference is nats-server)
    --only NAME                one scenario (repeatable); --skip NAME leaves one out
    --runs R                   runs of each scenario, each with a seed and a cluster of its own
    --faults F                 faults of a run, instead of the scenario's number
    --seconds N                start no run after so many seconds
    --seed K                   the first seed
    --sync-always              the reference with sync_interval: always
    --short                    four scenarios with one or two faults each
    --json FILE                append one line per run

Exit status 0: nothing was lost without a word, doubled, misplaced or stuck; 1: something was; 2: it cannot be run here.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.faults.disk.mounts import keep_mounts_apart, missing
from tests.faults.disk.report import table
from tests.faults.disk.run import DiskResult, run
from tests.faults.disk.scenarios import SCENARIOS, DiskScenario

SHORT = {"power-cut-one-replica": 2, "torn-power-cut-all-three": 1, "fsync-error-leader": 1, "slow-fsync-leader": 1}
NAMES = [scenario.name for scenario in SCENARIOS]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tests.faults.disk", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kind", choices=["jetraft", "reference"], default="jetraft")
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("--skip", action="append", choices=NAMES, default=[])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sync-always", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="where logs of failed runs go")
    return parser.parse_args()


def play(wish: argparse.Namespace, directory: Path) -> Iterator[DiskResult]:
    """All runs; those that went well leave nothing."""
    config = "jetstream { sync_interval: always }\n" if wish.sync_always else None
    deadline = time.monotonic() + wish.seconds
    names = list(SHORT) if wish.short else wish.only or NAMES
    chosen: list[DiskScenario] = [item for item in SCENARIOS if item.name in names and item.name not in wish.skip]
    for seed in range(wish.seed, wish.seed + wish.runs):
        for scenario in chosen:
            if time.monotonic() > deadline:
                return
            place = directory / f"{scenario.name}-{seed}"
            repeats = SHORT[scenario.name] if wish.short else wish.faults
            result = run(wish.kind, scenario, seed, directory=place, config=config, repeats=repeats)
            if result.clean:
                shutil.rmtree(place, ignore_errors=True)
            yield result


def main() -> int:
    """Run, print a line per run and a table at the end."""
    wish = options()
    if (reason := missing()) is not None:
        sys.stderr.write(f"DISK FAULTS NOT RUN: {reason}\n")
        return 2
    keep_mounts_apart()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = wish.keep or Path(tempfile.mkdtemp(prefix="jetraft-disk-"))
    results: list[DiskResult] = []
    try:
        for result in play(wish, directory):
            results.append(result)
            sys.stdout.write(f"{line(result)}\n")
            sys.stdout.flush()
            if wish.json:
                with wish.json.open("a", encoding="utf-8") as log:
                    settings = {"kind": wish.kind, "sync_always": wish.sync_always}
                    log.write(json.dumps(attrs.asdict(result) | settings) + "\n")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
    sys.stdout.write("\n" + table(results) + "\n")
    failed = [result for result in results if not result.clean]
    if failed:
        sys.stdout.write(f"{len(failed)} of {len(results)} runs FAILED; logs in {directory}\n")
    elif not wish.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed or not results else 0


def line(result: DiskResult) -> str:
    """How one run ended."""
    verdict = result.verdict
    counts = f"{verdict.acked} acked" if verdict else "unfinished"
    times = " ".join(f"{seconds:.1f}" for seconds in result.healed_s)
    moves = " ".join(f"{seconds:.2f}" for seconds in result.moved_s)
    text = (
        f"{result.scenario} seed {result.seed}: {result.faults} faults, {counts}, well after {times} s, moved {moves} s"
    )
    if result.notes:
        text += f" ({'; '.join(result.notes)})"
    if result.clean:
        return f"{text}, clean"
    what = result.problem or (verdict and "; ".join(verdict.examples)) or ""
    return f"{text}, FAILED: {result.unreported} gone without a word; {what[:2000]}"


if __name__ == "__main__":
    sys.exit(main())
