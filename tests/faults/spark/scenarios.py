"""The faults of writing: something is killed or stopped while a micro-batch is being written, and the job goes on."""

import signal
import time
from collections.abc import Callable

from tests.faults.spark.job import GIVEN_UP_S
from tests.faults.spark.processes import alive, ports, send
from tests.faults.spark.stage import POLL_S, ROW_BYTES, Stage

FILL_S = 0.5  # in which the rows of a stopped worker come to lie in its socket
ZOMBIE_S = 2.0  # how long a continued worker may take; its Java is killed ten seconds after it was given up
BACK_S = 2.0
# With as many of 100 bytes, the mean makes 16,400 rows the largest part that is not divided: fewer than a micro-batch.
LARGE_ROW_BYTES = 4_000


def spark_task(stage: Stage) -> None:
    """SIGKILL of a Python worker: the task fails, and Spark runs it again."""
    executor = stage.working_executor()
    stage.begin()
    send(signal.SIGKILL, [stage.random.choice(executor.workers)])


def spark_executor(stage: Stage) -> None:
    """SIGKILL of an executor with all of its processes: its task runs on the other one, and a new one is started."""
    executor = stage.working_executor()
    stage.begin()
    send(signal.SIGKILL, [executor.pid, *executor.daemons, *executor.workers])


def spark_driver(stage: Stage) -> None:
    """SIGKILL of the driver; its executors are left to themselves. It is started again with its checkpoint."""
    stage.begin()
    stage.job.kill_driver()
    stage.job.start()


def spark_leader(stage: Stage) -> None:
    """SIGKILL of the stream's leader, started again after a while."""
    leader = stage.leader()
    stage.begin()
    leader.kill()
    time.sleep(stage.random.uniform(0.7, 1.3) * BACK_S)
    leader.start()


def spark_zombie(stage: Stage) -> None:
    """SIGSTOP of an executor in the middle of its task; when the next micro-batch is being written, it goes on.

    First its Python workers are stopped alone, until rows that they have not read wait in their sockets. So they have
    pieces to publish when they go on, before their Java.
    """
    executor = stage.working_executor()
    committed = stage.committed()
    stage.begin()
    send(signal.SIGSTOP, executor.workers)
    time.sleep(FILL_S)
    send(signal.SIGSTOP, [executor.pid, *executor.daemons])
    theirs = ports(executor.workers)
    stage.until(lambda: stage.committed() > committed, what=f"the batch was committed, {GIVEN_UP_S} s and more later")
    stage.into_a_batch()
    before = stage.messages_from(theirs)
    send(signal.SIGCONT, executor.workers)
    deadline = time.monotonic() + ZOMBIE_S
    while alive(executor.workers) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    stage.zombie_messages += stage.messages_from(theirs) - before
    send(signal.SIGCONT, [executor.pid, *executor.daemons])


def spark_replanned(stage: Stage) -> None:
    """SIGKILL of the driver, which is started again where the unfinished micro-batch would be cut otherwise today.

    By turns, rows of 4,000 and of 100 bytes follow it, and the next driver has all cores, one, and all again. A new
    plan would have two partitions instead of one, one instead of two, and so on.
    """
    stage.begin()
    stage.job.kill_driver()
    stage.row_bytes = LARGE_ROW_BYTES if stage.row_bytes == ROW_BYTES else ROW_BYTES
    stage.publish_batch()
    stage.job.cores = 1 if stage.row_bytes == ROW_BYTES else 0
    stage.job.start()


def spark_all(stage: Stage) -> None:
    """One of the others, or two at once."""
    for act in stage.random.sample(ALL, stage.random.choice((1, 2))):
        act(stage)


ALL: list[Callable[[Stage], None]] = [spark_task, spark_executor, spark_driver, spark_leader]
SCENARIOS: dict[str, Callable[[Stage], None]] = {
    act.__name__.replace("_", "-"): act for act in (*ALL, spark_zombie, spark_replanned, spark_all)
}
PARTITIONS_MIN = {"spark-replanned": 1}  # of a micro-batch; elsewhere each executor has one
