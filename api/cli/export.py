"""`jetraft export`: write a stream of running servers to a Parquet file.

It is a client: the command is that of the package pyspark-jetstream (pyspark_jetstream/export.py), which needs neither
Spark nor this server.
"""

from collections.abc import Sequence
from functools import partial

from jetraft.api.cli.progress_line import progress_line
from pyspark_jetstream.export import main as export


def main(_command: str, words: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    return export(words, program="jetraft export", progress=partial(progress_line, "exporting, sequences"))
