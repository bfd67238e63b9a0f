"""`make demo`: publish the flights with acknowledgements, read them with Spark, kill the stream's leader half-way.

Spark writes its windows into another stream, which is read back without Spark. Exits with 0 only if both tables equal
that of pandas and every row is in the stream exactly once.
JETRAFT_DEMO_SERVER=reference runs the same demo against nats-server; RAFT=pysyncobj chooses jetraft's second engine.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from demo import flights, report, windows
from demo.publisher import WINDOW, Publisher, PublishFailedError
from demo.publisher import Progress as Acknowledged
from pyspark_jetstream import statistics
from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.harness.cluster import Cluster
from tests.harness.process import Process, ServerFailed
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Kind

SCRATCH = ROOT / ".demo"
STREAM = "FLIGHTS"
NODES = 3
SPARK_START_S = 120.0
SPARK_FINISH_S = 180.0
CATCH_UP_S = 60.0
POLL_S = 0.1
SETTLED_ROWS = 3 * WINDOW  # more than can have been in flight when the leader died


@attrs.define
class Run:
    """One run of the demo: its processes and measurements."""

    console: Console
    cluster: Cluster
    directory: Path
    spark: Process | None = None
    spark_stdin: int = -1
    killed: str = ""
    kill_at: int = 0
    leaderless_s: float = 0.0
    restart_s: float = 0.0
    rss_bytes_max: Counter[str] = attrs.field(factory=Counter)

    def say(self, text: str) -> None:
        """Print a line above the progress bars."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def spark_table(self) -> dict[flights.Group, flights.Delays]:
        """Spark's table after its latest micro-batch; empty before the first."""
        with contextlib.suppress(FileNotFoundError):
            rows = json.loads((self.directory / "spark" / "result.json").read_text(encoding="utf-8"))["rows"]
            return {
                (row["carrier"], row["origin"]): flights.Delays(
                    flights=row["flights"], with_delay=row["with_delay"], mean_delay_min=row["mean_delay_min"]
                )
                for row in rows
            }
        return {}


def main() -> int:
    """Run the demo and return the exit status."""
    console = Console()
    try:
        ensure_java()
    except JavaMissingError as error:
        console.print(f"jetraft demo: {error}", highlight=False, markup=False, soft_wrap=True)
        return 1
    started_s = time.monotonic()
    shutil.rmtree(SCRATCH / "run", ignore_errors=True)
    try:
        with running(console) as run:
            correct = asyncio.run(work(run))
    except (ServerFailed, PublishFailedError) as error:
        console.print(f"jetraft demo: {error}", highlight=False, markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    console.print(f"{time.monotonic() - started_s:.0f} s in all", highlight=False)
    return 0 if correct else 1


@contextlib.contextmanager
def running(console: Console) -> Iterator[Run]:
    """Start three nodes in .demo/; on leaving, stop them and everything else that was started."""
    kind: Kind = "reference" if os.environ.get("JETRAFT_DEMO_SERVER") == "reference" else "jetraft"
    engine = os.environ.get("RAFT")
    config = f"jetstream {{ raft_engine: {engine} }}\n" if engine else None
    directory = SCRATCH / "run"
    cluster = Cluster(kind, NODES, directory=directory, config=config)
    run = Run(console=console, cluster=cluster, directory=directory)
    try:
        with cluster:
            run.say(f"three nodes are up: {', '.join(cluster.urls)} (stores and logs below {directory})")
            yield run
    finally:
        if run.spark is not None and run.spark.running:
            run.spark.kill()
        if run.spark_stdin >= 0:
            os.close(run.spark_stdin)


async def work(run: Run) -> bool:
    """Run the demo; returns whether the result is correct."""
    create_streams(run)
    start_spark(run)
    frame = await asyncio.to_thread(flights.read)
    expected = flights.delays(frame)
    flights.check_source(expected)
    rows = await asyncio.to_thread(flights.messages, frame)
    await wait_for(run, run.directory / "spark" / "started.json", "Spark is reading", SPARK_START_S)
    run.say("Spark is reading; publishing starts")
    with bars(run.console) as progress:
        publisher = await publish(run, rows, progress)
        caught_up_s = await asyncio.to_thread(catch_up, run)
        await finish_spark(run, progress)
    outcome = report.Outcome(
        expected=expected,
        written=await asyncio.to_thread(windows.stored, ",".join(run.cluster.urls)),
        found=run.spark_table(),
        progress=publisher.progress,
        stored=api(run, f"STREAM.INFO.{STREAM}")["state"]["messages"],
        killed=run.killed,
        kill_at=run.kill_at,
        leaderless_s=run.leaderless_s,
        restart_s=run.restart_s,
        caught_up_s=caught_up_s,
        served=statistics(str(run.directory / "spark" / "stats")),
        speeds=json.loads((run.directory / "spark" / "speeds.json").read_text(encoding="utf-8")),
        rss_bytes=run.cluster.statistics(),
        rss_bytes_max=dict(run.rss_bytes_max),
    )
    return report.show(run.console, outcome)


# --- the streams ------------------------------------------------------------------------------------------------------
def api(run: Run, subject: str, body: object = None) -> dict[str, Any]:
    """Send an API request to any running node and return its answer."""
    node = next(node for node in run.cluster if node.running.running)
    with RawClient(node.address) as client:
        return client.api(subject, body)


def create_streams(run: Run) -> None:
    """Create FLIGHTS with three replicas that all answer direct gets, and DELAYS, which takes Spark's batches whole."""
    common = {"num_replicas": NODES, "allow_direct": True, "storage": "file"}
    for config in ({"name": STREAM, "subjects": ["flights.>"]}, windows.CONFIG):
        answer = api(run, f"STREAM.CREATE.{config['name']}", config | common)
        if "error" in answer:
            raise ServerFailed(f"stream {config['name']} could not be created: {answer['error']['description']}")


def leader(run: Run) -> str | None:
    """The name of the node that leads the stream, if there is one now."""
    try:
        info = api(run, f"STREAM.INFO.{STREAM}")
    except (OSError, AssertionError):
        return None
    name = info.get("cluster", {}).get("leader")
    return str(name) if name else None


def catch_up(run: Run) -> float:
    """Wait until every replica is current, the restarted one included; returns the seconds."""
    started_s = time.monotonic()

    def current() -> bool:
        try:
            replicas = api(run, f"STREAM.INFO.{STREAM}").get("cluster", {}).get("replicas", [])
        except (OSError, AssertionError):
            return False
        return len(replicas) == NODES - 1 and all(
            peer["current"] and not peer.get("offline") and not peer.get("lag") for peer in replicas
        )

    run.cluster[0].running.wait_until(current, what="every replica was current", timeout_s=CATCH_UP_S)
    return time.monotonic() - started_s


# --- publishing -------------------------------------------------------------------------------------------------------
def bars(console: Console) -> Progress:
    """Progress bars with name, count and elapsed time."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


async def publish(run: Run, rows: list[tuple[str, bytes]], progress: Progress) -> Publisher:
    """Publish everything; half-way kill the leader and start it again."""
    bar = progress.add_task("published and acknowledged", total=len(rows))
    spark_bar = progress.add_task("aggregated by Spark       ", total=len(rows))
    half_way, resumed = asyncio.Event(), asyncio.Event()

    def on_ack(now: Acknowledged, _number: int, _seq: int) -> None:
        if now.acked % 256 == 0 or now.acked == len(rows):
            progress.update(bar, completed=now.acked)
        if now.acked >= len(rows) // 2:
            half_way.set()
        if run.killed and now.acked >= run.kill_at + SETTLED_ROWS:
            resumed.set()

    publisher = Publisher(rows, on_ack=on_ack)
    watcher = asyncio.create_task(watch(run, progress, spark_bar))
    killer = asyncio.create_task(kill_and_restart(run, publisher, half_way, resumed))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(publisher.run(run.cluster.urls))
            group.create_task(join(killer))
    except* PublishFailedError as failed:
        raise PublishFailedError(str(failed.exceptions[0])) from None
    finally:
        watcher.cancel()
        killer.cancel()
    return publisher


async def join(task: "asyncio.Task[None]") -> None:
    """Wait for a task in a task group."""
    await task


async def kill_and_restart(run: Run, publisher: Publisher, half_way: asyncio.Event, resumed: asyncio.Event) -> None:
    """SIGKILL the leader when half of the rows are acknowledged; start it again when the next leader acknowledges."""
    await half_way.wait()
    name = await asyncio.to_thread(leader, run)
    if name is None:
        raise ServerFailed("the stream has no leader half-way")
    publisher.progress.longest_gap_s = 0.0  # from here on it measures the change of leaders
    run.kill_at = publisher.progress.acked
    run.killed = name
    await asyncio.to_thread(run.cluster.named(name).kill)
    run.say(f"killed {name}, the leader of {STREAM}, after {run.kill_at} acknowledgements")
    await resumed.wait()
    run.leaderless_s = publisher.progress.longest_gap_s
    started_s = time.monotonic()
    await asyncio.to_thread(run.cluster.named(name).start)
    run.restart_s = time.monotonic() - started_s
    run.say(f"{name} is back after {run.restart_s:.2f} s of starting")


async def watch(run: Run, progress: Progress, bar: TaskID) -> None:
    """Update Spark's bar and the largest resident size of each node, until cancelled."""
    while True:
        progress.update(bar, completed=flights.total(run.spark_table()).flights)
        for name, size in run.cluster.statistics().items():
            run.rss_bytes_max[name] = max(run.rss_bytes_max[name], size)
        await asyncio.sleep(POLL_S * 5)


# --- Spark ------------------------------------------------------------------------------------------------------------
def start_spark(run: Run) -> None:
    """Start the query as a process; a line on its standard input tells it to finish."""
    directory = run.directory / "spark"
    directory.mkdir(parents=True, exist_ok=True)
    read_end, run.spark_stdin = os.pipe()
    path = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = ["--servers", ",".join(run.cluster.urls), "--directory", str(directory)]
    run.spark = Process(
        [sys.executable, "-m", "demo.query", *words],
        log_path=directory / "spark.log",
        env={"PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable},
        stdin=read_end,
    )
    os.close(read_end)


async def wait_for(run: Run, path: Path, what: str, timeout_s: float) -> None:
    """Wait for a file that Spark's process writes; raises ServerFailed with its log when it ends instead."""
    assert run.spark is not None
    await asyncio.to_thread(run.spark.wait_until, path.exists, what=what, timeout_s=timeout_s)


async def finish_spark(run: Run, progress: Progress) -> None:
    """Tell the query that everything is published, and wait for its end."""
    assert run.spark is not None
    watcher = asyncio.create_task(watch(run, progress, progress.task_ids[-1]))
    os.write(run.spark_stdin, b"finish\n")
    try:
        status = await asyncio.to_thread(run.spark.wait, SPARK_FINISH_S)
    finally:
        watcher.cancel()
    progress.update(progress.task_ids[-1], completed=flights.total(run.spark_table()).flights)
    if status != 0:
        raise ServerFailed(f"Spark's process ended with {status}\n{run.spark.tail()}")


if __name__ == "__main__":
    raise SystemExit(main())
