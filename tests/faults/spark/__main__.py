"""`python -m tests.faults.spark`: a Spark job writes exactly once into an R3 stream while something of it is killed.

    --only NAME     one scenario (repeatable)
    --runs R        runs of each scenario, each with a seed of its own
    --faults F      faults of a run, each in the middle of a micro-batch of its own
    --seed K        the first seed
    --short         one run with the zombie alone
    --json FILE     append one line per run

Three servers on loopback, a driver, and two executors in processes of their own. Each run copies rows from one stream
into a new one with a streaming query, and then every message of the new one is read. The table is that of
`tests.faults`: lost and twice are rows, misplaced are messages of an atomic batch that is not whole, the gap is the
longest time in which the stream did not grow. Exit status 0: every row is there once; 1: not; 2: there is no Java.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs

from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.faults.journal import Verdict
from tests.faults.report import table
from tests.faults.run import Measured, Result
from tests.faults.spark.job import EXECUTORS, STOP
from tests.faults.spark.judgement import judge, read
from tests.faults.spark.processes import Job
from tests.faults.spark.scenarios import PARTITIONS_MIN, SCENARIOS
from tests.faults.spark.stage import POLL_S, ROWS_PER_BATCH, Progress, Stage
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient
from tests.spark.streams import create


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tests.faults.spark", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(SCENARIOS))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--faults", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    """Run, print a line per run and a table at the end."""
    wish = options()
    try:
        ensure_java()
    except JavaMissingError as error:
        sys.stderr.write(f"FAULTS OF SPARK NOT RUN: {error}\n")
        return 2
    if wish.short:
        wish.only, wish.runs, wish.faults = ["spark-zombie"], 1, 1
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(prefix="jetraft-faults-spark-") as place,
        Cluster("jetraft", 3, directory=Path(place)) as cluster,
    ):
        for seed in range(wish.seed, wish.seed + wish.runs):
            for name in wish.only or SCENARIOS:
                result = run(cluster, name, seed, faults=wish.faults, directory=Path(place))
                results.append(result)
                if wish.json:
                    with wish.json.open("a", encoding="utf-8") as log:
                        log.write(json.dumps(attrs.asdict(result)) + "\n")
    sys.stdout.write("\n" + table(results) + "\n")
    return 0 if results and all(result.clean for result in results) else 1


def run(cluster: Cluster, name: str, seed: int, *, faults: int, directory: Path) -> Result:
    """One job with so many faults, and the verdict on what it has written."""
    stream = f"{name}-{seed}"
    place = directory / stream
    problem, verdict = None, None
    with Progress(cluster, stream) as progress:
        words = [",".join(cluster.urls), f"{stream}-from", stream, str(place), str(ROWS_PER_BATCH)]
        words.append(str(PARTITIONS_MIN.get(name, EXECUTORS)))
        stage = Stage(
            cluster=cluster,
            job=Job(words, place),
            directory=place,
            stream=stream,
            progress=progress,
            random=Random(f"{name} {seed}"),
        )
        try:
            write(stage, SCENARIOS[name], faults)
            verdict = judged(stage)
        except (ServerFailed, OSError, AssertionError) as error:
            problem = told(error)
        finally:
            stage.job.close()
            for node in cluster:
                if not node.running.running:
                    node.start()
    measured = tuple(
        Measured(gap_ns=progress.longest_gap_ns(began_ns, ended_ns), leader_ns=None)
        for began_ns, ended_ns in stage.episodes
    )
    result = Result(scenario=name, seed=seed, verdict=verdict, faults=measured, problem=problem)
    tell(result, stage)
    return result


def told(error: BaseException) -> str:
    """The error; an assertion without words is named by its line."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error) or f'{Path(line.filename).name}, line {line.lineno}: {line.line}'}"


def write(stage: Stage, act: Callable[[Stage], None], faults: int) -> None:
    """A micro-batch for each fault, which happens in the middle of it; returns when the job has ended."""
    with RawClient(stage.cluster[0].address) as client:
        create(client, stage.source, num_replicas=3)
        subjects = [f"{stage.stream}.>", f"fence.{stage.stream}.>"]
        create(client, stage.stream, num_replicas=3, subjects=subjects, allow_atomic=True)
    stage.job.start()
    for _ in range(faults):
        stage.into_a_batch()
        act(stage)
        stage.end()
        stage.cluster.wait_healthy()
    (stage.directory / STOP).touch()
    stage.job.finish()


def judged(stage: Stage) -> Verdict:
    """What is in the stream, of each row and each batch."""
    with RawClient(stage.cluster[0].address) as client:
        return judge(read(client, stage.stream), stage.rows, settled(stage.cluster, stage.stream))


def settled(cluster: Cluster, stream: str) -> dict[str, object]:
    """What each node holds of the stream: the same of each after a while, or what differs at the end of it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        held = {node.name: state(node.get("/jsz?streams=true")[1], stream) for node in cluster}
        if None not in held.values() and len({json.dumps(one) for one in held.values()}) == 1:
            return held
        if time.monotonic() > deadline:
            return held
        time.sleep(POLL_S)


def state(page: object, stream: str) -> object:
    """The figures of a stream in /jsz; None where it is not there."""
    accounts = page.get("account_details") or [] if isinstance(page, dict) else []
    details = [detail for account in accounts for detail in account.get("stream_detail") or []]
    found: dict[str, object] = next((detail["state"] for detail in details if detail["name"] == stream), {})
    return [found.get(name) for name in ("messages", "bytes", "first_seq", "last_seq")] if found else None


def tell(result: Result, stage: Stage) -> None:
    """Print how one run ended."""
    gaps = " ".join(f"{fault.gap_ns / 1e9:.2f}" for fault in result.faults)
    counts = f"{result.verdict.acked} rows" if result.verdict else "unfinished"
    text = f"{result.scenario} seed {result.seed}: {counts}, gaps {gaps} s"
    if stage.zombie_messages:
        text += f", {stage.zombie_messages} messages of zombies"
    what = result.problem or (result.verdict and "; ".join(result.verdict.examples)) or ""
    sys.stdout.write(f"{text}, {'clean' if result.clean else f'FAILED: {what}'}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
