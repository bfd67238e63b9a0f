"""Reads one range as record batches: a task of Spark, or a part of a read without Spark."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.fetch import RangeReader
from pyspark_jetstream.plan import Range
from pyspark_jetstream.projection import Projection, needs_rows
from pyspark_jetstream.rows import to_batches
from pyspark_jetstream.stats import write_stats

LOG = logging.getLogger("pyspark_jetstream")


def read_range(wanted: Range, connections: ConnectionCache) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a range; then log, and write to `statsDir` if set, the rows of each server."""
    options = wanted.options
    reader = RangeReader(wanted, connections)
    projection, more = Projection(options), needs_rows(options)
    for rows in reader:
        for batch in to_batches(rows, more=more):
            yield projection.of(batch)
    for name, served in reader.served.items():
        LOG.info("%s rows of %s from %s in %.3f s", served.rows, options.stream, name, served.seconds)
    if reader.missing and not options.fail_on_data_loss and not options.subjects:
        LOG.warning(
            "stream %s [%d, %d): %d sequences have no message (deleted, or lost to retention); read without them",
            options.stream,
            wanted.start_seq,
            wanted.end_seq,
            reader.missing,
        )
    if projection.misfits:
        LOG.warning(
            "stream %s [%d, %d): %d rows do not fit the schema and have no value",
            options.stream,
            wanted.start_seq,
            wanted.end_seq,
            projection.misfits,
        )
    if options.stats_dir is not None:
        write_stats(Path(options.stats_dir), wanted, reader)
