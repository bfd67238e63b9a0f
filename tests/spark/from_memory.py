"""A source whose rows are in memory: what Spark itself costs, the ceiling of `make bench-spark` for each of its cases.

Its record batches have the columns of the connector and about the size that a jetraft replica answers with. Options:
`rows`, `payload` (bytes), `header` (1: each row has one), `batch` (rows of a micro-batch).
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

ANSWER_BYTES = 900_000  # of a message with columns (decision 89)
ROW_BYTES = 70  # beside the payload
TASKS = 2


class FromMemory(DataSource):
    """The same columns without any server."""

    @classmethod
    def name(cls) -> str:
        return "from_memory"

    def schema(self) -> str:
        from pyspark_jetstream.rows import SCHEMA_DDL  # noqa: PLC0415  (Spark pickles this class)

        return SCHEMA_DDL

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002  (Spark's)
        return MemoryReader(dict(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802  (Spark's)
        return MemoryStream(dict(self.options))


class MemoryReader(DataSourceReader):
    """Repeats one record batch."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(int(self._options["rows"]) // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return repeated(self._options, partition.value)


class MemoryStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The rows in micro-batches of one size; an offset is the number of rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  (Spark's)
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is known."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"row": min(start["row"] + int(self._options["batch"]), int(self._options["rows"]))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["row"] - start["row"]) // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return repeated(self._options, partition.value)


def repeated(options: dict[str, str], rows: int) -> "Iterator[pa.RecordBatch]":
    """So many rows."""
    from pyspark_jetstream.rows import to_batches  # noqa: PLC0415  (a task)
    from pyspark_jetstream.wire import Rows  # noqa: PLC0415

    payload = bytes(int(options.get("payload", "128")))
    header = b"NATS/1.0\r\nTrace: 123456\r\n\r\n" if options.get("header") == "1" else b""
    count = ANSWER_BYTES // (len(payload) + ROW_BYTES)
    made = Rows()
    for number in range(count):
        made.append(number, b"2026-01-01T00:00:00Z", b"SMALL.s1", header, payload)
    [batch] = to_batches(made)
    for left in range(rows, 0, -count):
        yield batch if left >= count else batch.slice(0, left)
