"""What tasks have read: a file for each server of a task in `statsDir`, and their sums.

Spark 4.3 takes no metrics from Python sources (`ReportsSourceMetrics` and metrics of tasks are for sources in the JVM).
So they are written to a directory that driver and executors share, and to the log.
"""

import json
import os
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_jetstream.fetch import RangeReader
    from pyspark_jetstream.plan import Range


def write_stats(directory: Path, wanted: "Range", reader: "RangeReader") -> None:
    """Write one small JSON file for each server that served the task, under a name that no other task uses."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, served in reader.served.items():
        value = {
            "server": name,
            "url": served.url,
            "rows": served.rows,
            "bytes": served.data_bytes,
            "seconds": round(served.seconds, 6),
            "stream": wanted.options.stream,
            "start_seq": wanted.start_seq,
            "end_seq": wanted.end_seq,
            **task_place(),
        }
        unfinished = directory / f".{uuid.uuid4().hex}"
        unfinished.write_text(json.dumps(value) + os.linesep, encoding="utf-8")
        unfinished.rename(directory / f"{wanted.start_seq}-{unfinished.name[1:9]}.json")


def task_place() -> dict[str, str | None]:
    """Return the query and the batch of the task that runs in this process; None outside of a streaming query."""
    pyspark = sys.modules.get("pyspark")  # a task has imported it; a read without Spark needs none
    context = pyspark.TaskContext.get() if pyspark is not None else None
    if context is None:
        return {"query": None, "batch": None}
    return {
        "query": context.getLocalProperty("sql.streaming.queryId"),
        "batch": context.getLocalProperty("streaming.sql.batchId"),
    }


def statistics(directory: str | Path) -> list[dict[str, Any]]:
    """Return rows, bytes of payload and seconds by query, batch, stream and server, from the files of `statsDir`.

    The seconds are those of reading, added over tasks. Tasks that Spark repeated are counted again.
    """
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for note in _notes(Path(directory).glob("*.json")):
        key = tuple(note.get(name) for name in ("query", "batch", "stream", "server"))
        total = sums.setdefault(
            key,
            {"query": key[0], "batch": key[1], "stream": key[2], "server": key[3], "tasks": 0}
            | {"rows": 0, "bytes": 0, "seconds": 0.0},
        )
        total["tasks"] += 1
        for name in ("rows", "bytes", "seconds"):
            total[name] += note.get(name, 0)
    return sorted(
        sums.values(),
        key=lambda one: (str(one["query"]), int(one["batch"] or 0), str(one["stream"]), str(one["server"])),
    )


def _notes(paths: Iterable[Path]) -> Iterable[dict[str, Any]]:
    for path in paths:
        note: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        yield note
