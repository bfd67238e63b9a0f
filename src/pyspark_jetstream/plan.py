"""Divides a range of sequences into partitions, each with the replicas to read from.

A partition of any size costs about 70 ms of Spark's time, and a task that fails repeats its whole range. So a range of
up to 50,000 messages or 32 MB is not divided, and a larger one is divided among the cores that the planner sees. Spark
does not say to a Python source how many executors there are; so no partition is larger than `maxPartitionRows`, however
few cores the driver has, and the number of partitions grows with the range.
"""

import math
import os
from collections.abc import Sequence

import attrs

from pyspark_jetstream.leader import StreamView
from pyspark_jetstream.options import Options
from pyspark_jetstream.replicas import Server

UNDIVIDED_ROWS_MAX = 50_000
UNDIVIDED_BYTES_MAX = 32 << 20
# A few seconds of a task; a hundred of them read 25 M rows.
PARTITION_ROWS_MAX = 250_000
PARTITION_BYTES_MAX = 256 << 20


@attrs.frozen(kw_only=True, slots=True)
class Range:
    """The sequences start_seq <= seq < end_seq of one incarnation of a stream, and the servers that may serve them.

    It has no sequences where all that the partition had are lost: the partitions behind it keep their numbers.
    """

    start_seq: int
    end_seq: int
    created: str
    planned_time_ns: int  # of the stream's last message at planning; later rows may be another stream's
    allow_direct: bool
    servers: tuple[Server, ...]  # in the order in which the task tries them
    options: Options


def split(template: Range, count: int, *, turn: int) -> list[Range]:
    """Divide a range into this many partitions. Each starts at another replica; `turn` chooses that of the first."""
    assert template.servers
    rows = template.end_seq - template.start_seq
    if rows <= 0:
        return []
    edges = [template.start_seq + rows * position // count for position in range(count + 1)]
    return [
        attrs.evolve(
            template,
            start_seq=edges[position],
            end_seq=edges[position + 1],
            servers=rotated(template.servers, turn + position),
        )
        for position in range(count)
    ]


def within(wanted: Range, first_seq: int, end_seq: int) -> Range:
    """Return the part of a partition that the stream has: first_seq <= seq < end_seq."""
    start_seq = min(max(wanted.start_seq, first_seq), wanted.end_seq)
    return attrs.evolve(wanted, start_seq=start_seq, end_seq=max(start_seq, min(wanted.end_seq, end_seq)))


def partition_count(rows: int, view: StreamView, options: Options, *, cores: int) -> int:
    """Return in how many partitions this many sequences of the stream are best read now; one at least."""
    message_bytes = max(1, view.message_bytes // max(1, view.messages))
    undivided = max(1, min(UNDIVIDED_ROWS_MAX, UNDIVIDED_BYTES_MAX // message_bytes))
    largest = options.partition_rows_max or max(1, min(PARTITION_ROWS_MAX, PARTITION_BYTES_MAX // message_bytes))
    bounded = math.ceil(rows / largest)
    return max(1, min(rows, max(options.partitions_min, bounded, min(cores, math.ceil(rows / undivided)))))


def partition_count_of_old_offsets(rows: int) -> int:
    """Return in how many partitions a range is read whose end was logged without a cut, by versions before 0.2."""
    return max(1, math.ceil(rows / UNDIVIDED_ROWS_MAX))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rotated(servers: Sequence[Server], turn: int) -> tuple[Server, ...]:
    """Return the servers in a task's order: those with a replica, starting with number `turn`, then the others."""
    holders = [server for server in servers if server.has_replica] or list(servers)
    others = [server for server in servers if server not in holders]
    first = turn % len(holders)
    return (*holders[first:], *holders[:first], *others)
