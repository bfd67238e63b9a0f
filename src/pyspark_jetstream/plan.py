"""Divides a range of sequences into partitions, each with the replicas to read from.

A partition of any size costs about 70 ms of Spark's time, and a task that fails repeats its whole range. So a partition
has about 50,000 messages or 32 MB at most, a small range is not divided, and there are no more partitions than cores of
the planner's machine unless `minPartitions` requires them.
"""

import math
import os
from collections.abc import Sequence

import attrs
from pyspark.sql.datasource import InputPartition

from pyspark_jetstream.leader import StreamView
from pyspark_jetstream.options import Options
from pyspark_jetstream.replicas import Server

PARTITION_ROWS_MAX = 50_000
PARTITION_BYTES_MAX = 32 << 20


@attrs.frozen(kw_only=True, slots=True)
class Range:
    """The sequences start_seq <= seq < end_seq of one incarnation of a stream, and the servers that may serve them."""

    start_seq: int
    end_seq: int
    created: str
    planned_time_ns: int  # of the stream's last message at planning; later rows may be another stream's
    allow_direct: bool
    servers: tuple[Server, ...]  # in the order in which the task tries them
    options: Options


class RangePartition(InputPartition):
    """The partition that Spark passes to the task."""

    def __init__(self, value: Range) -> None:
        super().__init__(value)
        self.value: Range = value


def split(view: StreamView, template: Range, *, turn: int) -> list[InputPartition]:
    """Return the partitions of a range. Each starts at another replica; `turn` chooses that of the first."""
    assert template.servers
    rows = template.end_seq - template.start_seq
    if rows <= 0:
        return []
    count = partition_count(rows, view, template.options.partitions_min, cores=os.cpu_count() or 1)
    edges = [template.start_seq + rows * position // count for position in range(count + 1)]
    return [
        RangePartition(
            attrs.evolve(
                template,
                start_seq=edges[position],
                end_seq=edges[position + 1],
                servers=rotated(template.servers, turn + position),
            )
        )
        for position in range(count)
    ]


def partition_count(rows: int, view: StreamView, partitions_min: int, *, cores: int) -> int:
    """Return the number of partitions for this many sequences."""
    message_bytes = max(1, view.message_bytes // max(1, view.messages))
    rows_max = max(1, min(PARTITION_ROWS_MAX, PARTITION_BYTES_MAX // message_bytes))
    return min(rows, max(partitions_min, min(cores, math.ceil(rows / rows_max))))


def rotated(servers: Sequence[Server], turn: int) -> tuple[Server, ...]:
    """Return the servers in a task's order: those with a replica, starting with number `turn`, then the others."""
    holders = [server for server in servers if server.has_replica] or list(servers)
    others = [server for server in servers if server not in holders]
    first = turn % len(holders)
    return (*holders[first:], *holders[:first], *others)
