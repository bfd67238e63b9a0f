"""A Spark data source for JetStream: `spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

Spark finds it by its name: at the first use of any data source it imports every top-level module called `pyspark_*` and
reads its attribute `DefaultSource`. If one of these modules raises at import, Spark finds none of them. So this file
imports nothing: `DefaultSource` is loaded at its first use, and missing where pyspark is missing or too old
(`python -m pyspark_jetstream doctor` reports why).

The package has its own NATS client and works with any JetStream server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_jetstream.source import DefaultSource

__all__ = ["DefaultSource", "register"]


def register(spark: "SparkSession") -> None:
    """Register the format `jetstream` in this session, if Spark's own lookup does not find this package."""
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
