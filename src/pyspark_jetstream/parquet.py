"""Writes what is read from streams to a Parquet file, while it is read.

The file appears under its name when it is complete and on disk; until then, and after any failure, there is none, or
the one before. A row group is held in memory, of a size that readers of Parquet like.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_jetstream.arrow import Scan
from pyspark_jetstream.errors import BadOptionError

# Of a row group, whichever comes first: what DuckDB and Spark read at a time.
GROUP_ROWS = 131_072
GROUP_BYTES = 64 << 20
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@attrs.frozen(kw_only=True, slots=True)
class Export:
    """What was written."""

    path: str
    rows: int
    row_groups: int
    file_bytes: int
    start: dict[str, Any]
    end: dict[str, Any]  # for `after`


@contextmanager
def _untold(_sequences: int) -> Iterator[Callable[[int], None]]:
    """Say nothing of how far it is."""
    yield lambda _count: None


def to_parquet(  # noqa: PLR0913  (options by name)
    path: str | Path,
    *,
    after: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    compression: str = "zstd",
    row_group_rows: int = GROUP_ROWS,
    progress: Progress = _untold,
    **options: Any,
) -> Export:
    """Write the rows of streams to one Parquet file; it is on disk when this returns.

    `progress` is called with the number of sequences of the range; what its context gives, with those left behind.
    Raises BadOptionError (also where the file exists), OSError, and what Scan raises.
    """
    target = Path(path)
    if compression not in COMPRESSIONS:
        raise BadOptionError(f"compression {compression!r} is none of {', '.join(COMPRESSIONS)}")
    if row_group_rows < 1:
        raise BadOptionError(f"row_group_rows is at least 1, got {row_group_rows}")
    _check_free(target, overwrite=overwrite)
    with Scan(after=after, **options) as scan:
        with _unfinished(target) as unfinished:
            with progress(scan.sequences) as scan.passed:
                sizes = _write(unfinished, scan, compression, row_group_rows)
            _check_free(target, overwrite=overwrite)
        written = {"rows": sum(sizes), "row_groups": len(sizes), "file_bytes": target.stat().st_size}
        return Export(path=str(path), **written, start=scan.start, end=scan.end)


def _write(path: Path, scan: Scan, compression: str, row_group_rows: int) -> list[int]:
    """Write everything; returns the rows of each row group."""
    sizes = []
    with pq.ParquetWriter(path, scan.schema, compression=compression) as writer:
        for group in groups(iter(scan), scan.schema, row_group_rows, GROUP_BYTES):
            writer.write_table(group, row_group_size=len(group))
            sizes.append(len(group))
    return sizes


def groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema, rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of `rows_max` rows, smaller where they have more than about `bytes_max`."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        begin = 0
        while begin < len(batch):
            part = batch.slice(begin, rows_max - rows)
            begin += len(part)
            held.append(part)
            rows += len(part)
            size += part.nbytes
            if rows == rows_max or size >= bytes_max:
                yield pa.Table.from_batches(held, schema=schema)
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema=schema)


def _check_free(target: Path, *, overwrite: bool) -> None:
    if not target.parent.is_dir():
        raise BadOptionError(f"the directory {target.parent} does not exist")
    if target.is_dir():
        raise BadOptionError(f"{target} is a directory")
    if target.exists() and not overwrite:
        raise BadOptionError(f"{target} exists; overwrite replaces it")


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """A name beside the target, which becomes the target at the end if nothing is raised, and is removed otherwise."""
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(6)}.unfinished")
    try:
        yield unfinished
        _sync(unfinished)  # before the name: after a power cut the name has the whole file
        unfinished.replace(target)
        _sync(target.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
