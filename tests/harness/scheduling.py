"""Which tests share a worker, in which order files are run, and how workers share the work of collecting them.

A file is a unit of work, and all that share Spark's session are one, as starting a JVM takes long. Files of a few tests
of many seconds come first: what is left at the end of a run is small then, and no worker is alone with a long file.

Each worker imports all files. It begins with folders of its own, so that it finds the byte code of most others: that
pytest rewrites assertions is most of what an import costs.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

SESSION: Final = (
    "tests/spark/test_source.py",
    "tests/spark/test_docs.py",
    "tests/spark/test_recovery.py",
    "tests/spark/test_sql.py",
    "tests/spark/test_spark_options.py",
    "tests/spark/test_typed_spark.py",
    "tests/spark/write/test_sinks.py",
)
# Folders with long tests, the longest first; others have thousands that take milliseconds.
FIRST: Final = (
    "spark",
    "conformance",
    "simulator",
    "faults",
    "clients",
    "crash_states",
    "corruption",
    "cluster",
    "packaging",
)


def place(nodeid: str) -> tuple[int, str]:
    """Where a test's file is in the order of a run."""
    file = nodeid.partition("::")[0]
    folder = file.removeprefix("tests/").partition("/")[0]
    if file in SESSION:
        return -1, ""
    return FIRST.index(folder) if folder in FIRST else len(FIRST), file


def turned(folders: Sequence[str], worker: int, workers: int) -> list[str]:
    """The folders in the order in which a worker imports them."""
    begin = worker * len(folders) // workers
    return [*folders[begin:], *folders[:begin]]


class FilesAndSessions(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed for others
    """As `--dist loadfile`, with one unit of work for the files of SESSION, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False  # files of many tests first, which are not those that take long
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SESSION[0] if file in SESSION else file
