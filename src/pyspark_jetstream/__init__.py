"""A Spark data source for JetStream: `format("jetstream")` of `read`, `readStream`, `write` and `writeStream`.

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

__all__ = ["DefaultSource", "__version__", "register", "statistics"]
__version__ = "0.1.0"


def register(spark: "SparkSession") -> None:
    """Register the format `jetstream` in this session, where Spark's own lookup does not find this package.

    Raises ImportError where pyspark is too old for it.
    """
    try:
        from pyspark_jetstream.source import DefaultSource  # noqa: PLC0415  (nothing heavy at import: see above)
    except ImportError as error:
        raise ImportError(f"pyspark_jetstream needs pyspark 4.2 or later: {error}") from error

    spark.dataSource.register(DefaultSource)


def statistics(directory: str) -> "list[dict[str, Any]]":
    """Return rows, bytes and seconds by query, batch, stream and server, from the files below `statsDir`."""
    from pyspark_jetstream.stats import statistics as read  # noqa: PLC0415  (nothing heavy at import: see above)

    return read(directory)


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from pyspark_jetstream.source import DefaultSource  # noqa: PLC0415  (nothing heavy at import: see above)
        except ImportError as error:
            raise AttributeError(f"pyspark_jetstream needs pyspark 4.2 or later: {error}") from error
        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
