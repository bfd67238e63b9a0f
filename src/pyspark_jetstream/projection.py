"""Makes the columns of a query out of those of its messages: the chosen ones, tokens of subjects, decoded payloads."""

import logging
from collections.abc import Callable

import pyarrow as pa

from pyspark_jetstream.errors import UndecodableRowError
from pyspark_jetstream.options import Options
from pyspark_jetstream.rows import OF_ROWS, SCHEMA_OF_ROWS, STREAM
from pyspark_jetstream.typed.decoding import decoder_of
from pyspark_jetstream.values import VALUE

LOG = logging.getLogger("pyspark_jetstream")

NEEDS = {"time_ns": "time", "header_list": "headers", VALUE: "data"}  # what else is made of which column


def needed(options: Options) -> list[str]:
    """Return the columns of messages that the columns of a query are made of."""
    tokens = {name for name, _ in options.tokens}
    return list(dict.fromkeys("subject" if name in tokens else NEEDS.get(name, name) for name in options.columns))


def needs_rows(options: Options) -> bool:
    """Whether a column of the query is only in answers in rows."""
    return any(name in OF_ROWS for name in options.columns)


def schema_of_query(options: Options) -> pa.Schema:
    """Return the schema of what a Projection makes."""
    return pa.schema([(name, _type_of(name, options)) for name in options.columns])


def _type_of(name: str, options: Options) -> pa.DataType:
    if name == STREAM or name in dict(options.tokens):
        return pa.string()
    if name == VALUE:
        assert options.decoding is not None, "a planned query"
        return decoder_of(options.decoding.schema).type
    return SCHEMA_OF_ROWS.field(name).type


class Projection:
    """The columns of one range; batches come in order."""

    def __init__(self, options: Options) -> None:
        self.misfits = 0  # rows that are null for not fitting their schema
        self._options = options
        self._makers = [self._maker(name) for name in options.columns]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of all columns of messages as one of the columns of the query; copies none that it keeps.

        Raises UndecodableRowError.
        """
        if tuple(batch.schema.names) == self._options.columns:
            return batch
        return pa.RecordBatch.from_arrays([make(batch) for make in self._makers], names=list(self._options.columns))

    def _maker(self, name: str) -> Callable[[pa.RecordBatch], pa.Array]:
        tokens = dict(self._options.tokens)
        if name == STREAM:
            stream = pa.scalar(self._options.stream, pa.string())
            return lambda batch: pa.repeat(stream, batch.num_rows)
        if name == VALUE:
            return self._decoded
        if name in tokens:
            return lambda batch: token_column(batch.column("subject"), tokens[name])
        return lambda batch: batch.column(name)

    def _decoded(self, batch: pa.RecordBatch) -> pa.Array:
        decoding = self._options.decoding
        assert decoding is not None, "a planned query"
        found = decoder_of(decoding.schema).decode(batch.column("data"))
        if found.faults:
            place, why = found.faults[0]
            stream_seq = batch.column("stream_seq")[place]
            text = f"stream {self._options.stream!r}, sequence {stream_seq}: the payload does not fit the schema: {why}"
            if not decoding.is_permissive:
                raise UndecodableRowError(f"{text} (mode=PERMISSIVE makes the value of such rows null)")
            if not self.misfits:
                LOG.warning("%s; its value is null, and that of others that do not fit", text)
            self.misfits += len(found.faults)
        return found.column


def token_column(subjects: pa.Array, place: int) -> pa.Array:
    """Return one token of each subject, null where it has fewer."""
    coded = subjects.dictionary_encode()
    parts = (subject.split(".") for subject in coded.dictionary.to_pylist())
    tokens = [words[place] if place < len(words) else None for words in parts]
    return pa.array(tokens, pa.string()).take(coded.indices)
