"""Which tests share a worker: those of a file, and all that share Spark's session, as starting a JVM takes long."""

from typing import Final

from xdist.scheduler import LoadFileScheduling

SESSION: Final = (
    "tests/spark/test_source.py",
    "tests/spark/test_docs.py",
    "tests/spark/test_recovery.py",
    "tests/spark/test_spark_options.py",
    "tests/spark/write/test_sinks.py",
)


class FilesAndSessions(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed for others
    """As `--dist loadfile`, with one unit of work for the files of SESSION."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SESSION[0] if file in SESSION else file
