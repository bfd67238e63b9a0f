"""Decodes payload by payload with a library that is made for one value at a time; Arrow makes the column."""

from collections.abc import Callable
from typing import Any

import attrs
import pyarrow as pa

from pyspark_jetstream.typed.shapes import Decoded, MisfitError, by_rows


@attrs.frozen(kw_only=True, slots=True)
class RowDecoder:
    """One schema. `read` gives the value of a payload, and raises MisfitError or whatever its library raises."""

    type: pa.DataType
    what: str  # a payload has to be
    read: Callable[[bytes], Any]

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the values of payloads; those that do not fit are null, and named."""
        return by_rows(payloads, self.type, self._value)

    def _value(self, payload: bytes) -> Any:
        try:
            return self.read(payload)
        except MisfitError:
            raise
        except Exception as error:  # a library's, about the bytes of a stranger
            raise MisfitError(f"not {self.what} ({type(error).__name__})") from error
