"""What decodes by a schema of a stream: for each kind its own module, with libraries that may be missing."""

from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.typed.shapes import Decoded, UnsupportedSchemaError
from pyspark_jetstream.typed.stream_schemas import AVRO, JSON, PROTOBUF, StreamSchema

EXTRA = "pip install 'pyspark-jetstream[decode]'"


class Decoder(Protocol):
    """A schema that can be used."""

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return a column of values; what does not fit is null, and named."""


@lru_cache(maxsize=64)
def decoder_of(schema: StreamSchema) -> Decoder:
    """Return what decodes by a schema. Raises BadOptionError where it has no columns, or a library is missing."""
    try:
        return _decoder(schema)
    except UnsupportedSchemaError as error:
        raise BadOptionError(f"option 'decode': the {schema.kind} schema gives no columns: {error}") from error
    except ImportError as error:
        raise BadOptionError(f"option 'decode': a schema of {schema.kind} needs {error.name}: {EXTRA}") from error


def _decoder(schema: StreamSchema) -> Decoder:
    """The imports are here: each kind needs its own library, JSON none."""
    if schema.kind == JSON:
        from pyspark_jetstream.typed.json_shapes import json_shape  # noqa: PLC0415
        from pyspark_jetstream.typed.json_values import JsonDecoder  # noqa: PLC0415

        return JsonDecoder(json_shape(schema.text))
    if schema.kind == AVRO:
        from pyspark_jetstream.typed.avro_values import avro_decoder  # noqa: PLC0415

        return avro_decoder(schema.text)
    if schema.kind == PROTOBUF:
        from pyspark_jetstream.typed.protobuf_values import protobuf_decoder  # noqa: PLC0415

        return protobuf_decoder(schema.text, schema.message)
    raise UnsupportedSchemaError(f"its language is {schema.kind!r}, not json, avro or protobuf")
