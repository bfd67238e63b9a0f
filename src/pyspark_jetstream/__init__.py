"""A Spark data source for JetStream: `spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

Spark finds it by its name: at the first use of any data source it imports every top-level module called `pyspark_*` and
asks for `DefaultSource`. One such module that raises at import switches the lookup off for all of them, so this file
imports nothing: `DefaultSource` is loaded when it is asked for, and where pyspark is missing or too old it is simply
absent (`python -m pyspark_jetstream doctor` says why).

It speaks the NATS protocol over sockets of its own and works against any JetStream server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_jetstream.source import DefaultSource

__all__ = ["DefaultSource", "register"]


def register(spark: "SparkSession") -> None:
    """Register the format `jetstream` in this session, for when Spark's own lookup does not see this package."""
    from pyspark_jetstream.source import DefaultSource  # noqa: PLC0415  (nothing heavy at import: see above)

    spark.dataSource.register(DefaultSource)


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from pyspark_jetstream.source import DefaultSource  # noqa: PLC0415  (nothing heavy at import: see above)
        except ImportError as error:
            raise AttributeError(f"pyspark_jetstream needs pyspark 4.2 or later: {error}") from error
        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
