"""`jetraft export`: write a stream of running servers to a Parquet file.

It is a client: the command is that of the package pyspark-jetstream (pyspark_jetstream/export.py), which needs neither
Spark nor this server. The server does not depend on it, so it says what to install.
"""

import sys
from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    try:
        from pyspark_jetstream.export import main as export  # noqa: PLC0415  (a distribution of its own)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark_jetstream":
            raise
        sys.stderr.write("jetraft export: the package pyspark-jetstream is missing: pip install pyspark-jetstream\n")
        return 1
    return export(words, program="jetraft export")
