"""A Spark data source for JetStream: `format("jetstream")` of `read`, `readStream`, `write` and `writeStream`.

`read_arrow`, `scan_arrow`, `read_pandas` and `to_parquet` read streams without Spark; they need pyarrow.

Spark finds it by its name: at the first use of any data source it imports every top-level module called `pyspark_*` and
reads its attribute `DefaultSource`. If one of these modules raises at import, Spark finds none of them. So this file
imports nothing: `DefaultSource` is loaded at its first use, and missing where pyspark is missing or too old
(`python -m pyspark_jetstream doctor` reports why).

The package has its own NATS client and works with any JetStream server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_jetstream.arrow import Scan, offsets_of, read_arrow, read_pandas, scan_arrow
    from pyspark_jetstream.parquet import Export, to_parquet
    from pyspark_jetstream.source import DefaultSource

__all__ = [
    "DefaultSource",
    "Export",
    "Scan",
    "__version__",
    "create_views",
    "offsets_of",
    "read_arrow",
    "read_pandas",
    "register",
    "scan_arrow",
    "statistics",
    "to_parquet",
]
__version__ = "0.2.0"


WITHOUT_SPARK = {
    "Export": "parquet",
    "Scan": "arrow",
    "offsets_of": "arrow",
    "read_arrow": "arrow",
    "read_pandas": "arrow",
    "scan_arrow": "arrow",
    "to_parquet": "parquet",
}


def register(spark: "SparkSession") -> None:
    """Register the format `jetstream` in this session, where Spark's own lookup does not find this package.

    Spark looks for the format of `writeStream` in the active session of the thread that starts the query. So this one
    becomes the active one of a thread that has none, and where another one is, that has the format too.
    A package from `--py-files` is made known to the processes that plan queries: Spark gives it to tasks only.
    Raises ImportError where pyspark is too old for it.
    """
    try:
        from pyspark_jetstream.source import DefaultSource  # noqa: PLC0415  (nothing heavy at import: see above)
    except ImportError as error:
        raise ImportError(f"pyspark_jetstream needs pyspark 4.2 or later: {error}") from error

    archive, _, _ = __file__.rpartition("/pyspark_jetstream/")
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is not None and archive.endswith((".zip", ".egg")):
        known = context.environment.get("PYTHONPATH", "")
        context.environment["PYTHONPATH"] = f"{archive}:{known}" if known else archive
    spark.dataSource.register(DefaultSource)
    if context is not None:
        _make_active(spark)


def _make_active(spark: "SparkSession") -> None:
    """See `register`. PySpark has no public function that sets the active session of a thread."""
    from pyspark_jetstream.source import DefaultSource  # noqa: PLC0415  (nothing heavy at import: see above)

    active = type(spark).getActiveSession()
    if active is None:
        jvm: Any = spark._jvm  # noqa: SLF001
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    elif active._jsparkSession != spark._jsparkSession:  # noqa: SLF001
        active.dataSource.register(DefaultSource)


def create_views(spark: "SparkSession", servers: str, streams: str = "*", **options: str) -> list[str]:
    """Make a temporary view of each stream that exists now and matches, for SQL; returns the names of the views.

    A view has the name of its stream, and reads to the stream's end at each query. `options` are those of a batch read.
    Raises what a read raises: BadOptionError, ServersUnavailableError.
    """
    from pyspark_jetstream.options import parse_options  # noqa: PLC0415  (nothing heavy at import: see above)
    from pyspark_jetstream.planner import names_now  # noqa: PLC0415

    names = names_now(parse_options({"servers": servers, "streams": streams, **options}))
    for name in names:
        frame = spark.read.format("jetstream").options(servers=servers, stream=name, **options).load()
        frame.createOrReplaceTempView(f"`{name}`")
    return names


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
    if name in WITHOUT_SPARK:
        from importlib import import_module  # noqa: PLC0415  (nothing at import: see above)

        try:
            return getattr(import_module(f"pyspark_jetstream.{WITHOUT_SPARK[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyarrow":
                raise
            raise ImportError(f"pyspark_jetstream.{name} needs pyarrow: pip install pyarrow") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
