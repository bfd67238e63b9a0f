"""The processes of a Spark job on this machine, found by its session: driver, executors, their Python workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import attrs
import pyspark

from tests.harness.patience import PATIENCE_S
from tests.harness.process import ServerFailed
from tests.harness.server import ROOT

EXECUTOR = b"CoarseGrainedExecutorBackend"
DAEMON = b"pyspark.daemon"
POLL_S = 0.01


@attrs.frozen(kw_only=True)
class Found:
    """One process."""

    pid: int
    parent: int
    session: int
    words: bytes  # of its command line


def processes() -> list[Found]:
    """All processes of the machine that have a command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            words = (path / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if words and fields[0] != "Z":
            found.append(Found(pid=int(path.name), parent=int(fields[1]), session=int(fields[3]), words=words))
    return found


@attrs.frozen(kw_only=True)
class Executor:
    """One executor: a Java, and the Python workers that run its tasks."""

    pid: int
    daemons: tuple[int, ...]
    workers: tuple[int, ...]


class Job:
    """The job in a session of its own. `start` after `kill_driver` goes on with the same checkpoint.

    `cores` is for drivers that are started from now on; 0: all.
    """

    def __init__(self, words: Iterable[str], directory: Path) -> None:
        self.cores = 0
        self._words = [sys.executable, "-m", "tests.faults.spark.job", *words]
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the driver; returns at once."""
        environment = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "job.log").open("ab") as log:
            started = subprocess.Popen(
                [*self._words, str(self.cores)],
                cwd=self._directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(started)

    def finish(self) -> None:
        """Wait until the job has ended well. Raises ServerFailed."""
        try:
            status = self._started[-1].wait(5 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"the job has not ended: {self.tail()}") from None
        if status:
            raise ServerFailed(f"the job ended with {status}: {self.tail()}")

    def tail(self) -> str:
        """The end of what the job has said."""
        return (self._directory / "job.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    @property
    def starts(self) -> int:
        """How many drivers were started."""
        return len(self._started)

    @property
    def ended(self) -> bool:
        """Whether the newest driver has ended."""
        return self._started[-1].poll() is not None

    def executors(self) -> list[Executor]:
        """Those of the newest driver."""
        session = self._started[-1].pid
        mine = [one for one in processes() if one.session == session]
        found = []
        for java in (one for one in mine if EXECUTOR in one.words):
            daemons = tuple(one.pid for one in mine if one.parent == java.pid and DAEMON in one.words)
            workers = tuple(one.pid for one in mine if one.parent in daemons)
            found.append(Executor(pid=java.pid, daemons=daemons, workers=workers))
        return found

    def kill_driver(self) -> None:
        """SIGKILL of the driver, Python and Java; its executors are left to themselves."""
        started = self._started[-1]
        mine = [one for one in processes() if one.session == started.pid]
        drivers = [one.pid for one in mine if one.parent == started.pid] + [started.pid]
        send(signal.SIGKILL, drivers)
        started.wait(PATIENCE_S)

    def close(self) -> None:
        """End everything that any driver has started."""
        for started in self._started:
            deadline = time.monotonic() + PATIENCE_S
            while left := [one.pid for one in processes() if one.session == started.pid]:
                send(signal.SIGKILL, left)
                started.poll()
                if time.monotonic() > deadline:
                    raise ServerFailed(f"processes of the job do not end: {left}")
                time.sleep(POLL_S)
            started.wait(PATIENCE_S)


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to each; one that has ended is passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def alive(pids: Iterable[int]) -> bool:
    """Whether one of them has not ended."""
    known = {one.pid for one in processes()}
    return not known.isdisjoint(pids)


def ports(pids: Iterable[int]) -> set[int]:
    """The local TCP ports of the sockets of some processes."""
    inodes = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(path.readlink().name.partition("[")[2].rstrip("]"))
            except OSError:
                continue
    lines = Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[9] in inodes}
