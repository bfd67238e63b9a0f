"""What a fault of writing acts on: three servers, a Spark job that writes, and how far it is."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import attrs

from tests.faults.spark.processes import Executor, Job
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import publish

POLL_S = 0.01
ROWS_PER_BATCH = 20_000
ROW_BYTES = 100
STARTS_MAX = 12


class Progress:
    """Polls the stream's last sequence from a thread, and notes when it grew."""

    def __init__(self, cluster: Cluster, stream: str) -> None:
        self.last_seq = 0
        self.grown_ns: list[int] = []
        self._cluster, self._stream = cluster, stream
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.is_set():
            for node in self._cluster:
                try:
                    with RawClient(node.address) as client:
                        while not self._over.wait(POLL_S):
                            self._note(client.api(f"STREAM.INFO.{self._stream}"))
                except (OSError, AssertionError, KeyError):  # this node is gone, or nobody leads now
                    continue

    def _note(self, info: dict[str, dict[str, int]]) -> None:
        if info["state"]["last_seq"] > self.last_seq:
            self.grown_ns.append(time.monotonic_ns())
            self.last_seq = info["state"]["last_seq"]

    def longest_gap_ns(self, from_ns: int, to_ns: int) -> int:
        """The longest time without growth in an interval."""
        moments = [from_ns, *(moment for moment in self.grown_ns if from_ns < moment < to_ns), to_ns]
        return max(after - before for before, after in pairwise(moments))


@attrs.define(kw_only=True)
class Stage:
    """A run. `zombie_messages` is what executors sent after they were given up."""

    cluster: Cluster
    job: Job
    directory: Path
    stream: str
    progress: Progress
    random: Random
    batches: int = 0  # that were published for the job
    row_bytes: int = ROW_BYTES  # of those that are published from now on
    episodes: list[tuple[int, int]] = attrs.field(factory=list)  # monotonic ns, from the fault to the batch's commit
    zombie_messages: int = 0
    _began_ns: int = 0

    def into_a_batch(self) -> None:
        """Publish the rows of a micro-batch; returns when the job is in the middle of writing them."""
        done = self.progress.last_seq
        self.publish_batch()
        wanted = done + int(ROWS_PER_BATCH * self.random.uniform(0.15, 0.6))
        self.until(lambda: self.progress.last_seq >= wanted, what=f"{self.stream} had {wanted} messages")

    def publish_batch(self) -> None:
        """Publish the rows of a micro-batch: each is its number, with leading zeros."""
        first, size = self.batches * ROWS_PER_BATCH, self.row_bytes
        with RawClient(self.cluster[0].address) as client:
            publish(client, self.source, ROWS_PER_BATCH, payload=lambda number: b"%0*d" % (size, first + number))
        self.batches += 1

    @property
    def source(self) -> str:
        """The stream that the job reads."""
        return f"{self.stream}-from"

    @property
    def rows(self) -> int:
        """How many rows the job was given."""
        return self.batches * ROWS_PER_BATCH

    def begin(self) -> None:
        """The fault happens now."""
        self._began_ns = self._began_ns or time.monotonic_ns()

    def end(self) -> None:
        """Return when the micro-batches so far are committed."""
        self.until(lambda: self.committed() >= self.batches, what=f"{self.batches} micro-batches were committed")
        self.episodes.append((self._began_ns, time.monotonic_ns()))
        self._began_ns = 0

    def until(self, reached: Callable[[], bool], *, what: str) -> None:
        """Wait for something while the job runs. Raises ServerFailed."""
        deadline = time.monotonic() + 5 * PATIENCE_S  # Javas start meanwhile
        while not reached():
            if self.job.ended:  # a driver that has given up is started again, as a supervisor would
                if self.job.starts > STARTS_MAX:
                    raise ServerFailed(f"the job ended before {what}: {self.job.tail()}")
                self.job.start()
            if time.monotonic() > deadline:
                raise ServerFailed(f"it took too long before {what}: {self.job.tail()}")
            time.sleep(POLL_S)

    def committed(self) -> int:
        """How many micro-batches Spark has committed."""
        return len([path for path in (self.directory / "checkpoint" / "commits").glob("*") if path.name.isdecimal()])

    def working_executor(self) -> Executor:
        """An executor that runs a task; waits for one."""
        found: list[Executor] = []

        def look() -> bool:
            found[:] = [one for one in self.job.executors() if one.workers]
            return bool(found)

        self.until(look, what="an executor had Python workers")
        return self.random.choice(found)

    def leader(self) -> Server:
        """The node that leads the stream."""
        with RawClient(self.cluster[0].address) as client:
            return self.cluster.named(client.api(f"STREAM.INFO.{self.stream}")["cluster"]["leader"])

    def messages_from(self, ports: set[int]) -> int:
        """How many messages the servers have received from connections with these ports, ended ones too."""
        total = 0
        for node in self.cluster:
            _, page = node.get("/connz?state=any&limit=4096")
            total += sum(row["in_msgs"] for row in (page or {}).get("connections", ()) if row["port"] in ports)
        return total
