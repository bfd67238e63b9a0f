"""Columns of JSON documents become columns of their fields.

A column is read at once, by Arrow's reader of JSON, which takes documents one behind the other. Payloads come from
strangers, and the reader is made for files: it ends the process at a `null` between documents, does not say which
document a row came from, and takes NaN. So it only gets payloads that begin with an object and have nothing behind the
end of one (`SUSPECT`), and its answer counts if it has as many rows as there are payloads: an object that is not closed
could only be completed by the next payload, which makes the rows fewer, and only what is suspect makes them more.

Where it refuses a column, halves of it are read, and at last each document by itself, exactly: numbers as their text,
integers of any size, `1.0` as an integer where the schema asks for one. The same documents fit on both ways.
"""

import json
import struct
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pyspark_jetstream.typed.shapes import BIG, Decoded, MisfitError, Shape, by_rows

SUSPECT = r"\}\s*[^\s,\]}]"  # a second document; found within text too, which is then read in parts
NO_NUMBERS = ("NaN", "Inf")  # the words that Arrow's reader takes for numbers
NO_NUMBER = r"[:,\[]\s*-?[NI]"
OBJECT = r"^[ \t\r\n]*\{"
ROWS_MIN = 32  # of a part that is read at once
NUMBERS = {pa.int64(): ("integer", 1 << 63), BIG: ("integer", 10**38)}


@attrs.frozen(slots=True)
class JsonDecoder:
    """One schema."""

    shape: Shape

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return self.shape.type

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the values of payloads; empty ones, and the document `null`, are null."""
        if is_plain(self.shape):
            return self._whole_or_halves(payloads)
        return self._by_rows(payloads)

    def _whole_or_halves(self, payloads: pa.Array) -> Decoded:
        count = len(payloads)
        if count < ROWS_MIN:
            return self._by_rows(payloads)
        column = self._whole(payloads)
        if column is not None:
            return Decoded(column, [])
        parts = [
            self._whole_or_halves(payloads.slice(0, count // 2)),
            self._whole_or_halves(payloads.slice(count // 2)),
        ]
        faults = parts[0].faults + [(place + count // 2, why) for place, why in parts[1].faults]
        return Decoded(pa.concat_arrays([part.column for part in parts]), faults)

    def _whole(self, payloads: pa.Array) -> pa.Array | None:
        """The values, if Arrow's reader takes all of the payloads."""
        is_empty = pc.equal(pc.binary_length(payloads), 0)
        has_empty = pc.any(is_empty).as_py()
        if has_empty:
            payloads = pc.if_else(is_empty, pa.scalar(b"{}", pa.binary()), payloads)
        try:
            texts = payloads.cast(pa.string())  # checks that it is UTF-8
            starts = pc.starts_with(texts, "{")
            if not pc.all(starts).as_py() and not pc.all(pc.match_substring_regex(texts, OBJECT)).as_py():
                return None
            if pc.any(pc.match_substring_regex(texts, SUSPECT)).as_py():
                return None
            joined = joined_lines(texts)
            if has_words(joined) and pc.any(pc.match_substring_regex(texts, NO_NUMBER)).as_py():
                return None
            table = read_documents(joined, self.type)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(payloads):
            return None
        fields = list(self.type)
        arrays = [table.column(field.name).combine_chunks() for field in fields]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=is_empty if has_empty else None)

    def _by_rows(self, payloads: pa.Array) -> Decoded:
        return by_rows(payloads, self.type, lambda payload: fitted(document(payload), self.shape, ""))


def joined_lines(texts: pa.Array) -> pa.Buffer:
    """Return texts one behind the other, each with the end of a line."""
    joined = pc.binary_join_element_wise(texts, "", "\n")
    _, ends, data = joined.buffers()
    offsets = memoryview(ends).cast("i")
    start, end = offsets[joined.offset], offsets[joined.offset + len(joined)]
    return data.slice(start, end - start)


def has_words(joined: pa.Buffer) -> bool:
    """Whether one of NO_NUMBERS is there. Each is looked for by itself in one text: that is a search for two bytes."""
    ends = pa.py_buffer(struct.pack("2i", 0, joined.size))
    whole = pa.Array.from_buffers(pa.string(), 1, [None, ends, joined], null_count=0)
    return any(pc.match_substring_regex(whole, word)[0].as_py() for word in NO_NUMBERS)


def read_documents(joined: pa.Buffer, kind: pa.StructType) -> pa.Table:
    """Read documents one behind the other, in one block. Raises pa.ArrowInvalid."""
    return pj.read_json(
        pa.BufferReader(joined),
        read_options=pj.ReadOptions(use_threads=False, block_size=joined.size + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
    )


def is_plain(shape: Shape) -> bool:
    """Whether Arrow's reader has this shape: no maps, no JSON as text, no decimals, which it takes from strings."""
    if shape.is_map or shape.is_text or shape.kind == BIG:
        return False
    inner = [one for _, one in shape.fields] + ([shape.item] if shape.item is not None else [])
    return all(map(is_plain, inner))


def document(payload: bytes) -> Any:
    """Return a document, None for no payload, numbers with a fraction or an exponent as Decimal. Raises MisfitError."""
    if not payload:
        return None
    try:
        return json.loads(payload.decode(), parse_float=Decimal, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise MisfitError("not UTF-8") from error
    except (ValueError, RecursionError, InvalidOperation) as error:
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise MisfitError(f"not JSON{place}") from error


def _no_number(_: str) -> Any:
    raise ValueError("not a number of JSON")


def fitted(value: Any, shape: Shape, path: str) -> Any:  # noqa: PLR0911  (a line for each shape)
    """Return a value as Arrow takes it for a shape. Raises MisfitError."""
    if value is None:
        return None
    if shape.is_text:
        return _checked(json_text(value), path)
    if shape.fields:
        _expect(isinstance(value, dict), path, "an object")
        return {name: fitted(value.get(name), inner, f"{path}/{name}") for name, inner in shape.fields}
    if shape.item is not None and shape.is_map:
        _expect(isinstance(value, dict), path, "an object")
        return [(_checked(name, path), fitted(one, shape.item, f"{path}/{name}")) for name, one in value.items()]
    if shape.item is not None:
        _expect(isinstance(value, list), path, "an array")
        return [fitted(one, shape.item, f"{path}/{place}") for place, one in enumerate(value)]
    if shape.kind == pa.string():
        _expect(isinstance(value, str), path, "string")
        return _checked(value, path)
    if shape.kind == pa.bool_():
        _expect(isinstance(value, bool), path, "boolean")
        return value
    _expect(isinstance(value, int | Decimal) and not isinstance(value, bool), path, "number")
    return _number(value, shape, path)


def _number(value: int | Decimal, shape: Shape, path: str) -> Any:
    if shape.kind == pa.float64():
        found = float(value) if isinstance(value, Decimal) or abs(value) < 10**400 else float("inf")
        _expect(isfinite(found), path, "a number that a double can hold")
        return found
    limit = (1 << 63) if shape.kind == pa.int64() else 10**38
    is_within = -limit <= value < limit and value != -(10**38)
    _expect(is_within, path, f"an integer within {shape.kind}")
    _expect(value == int(value), path, "integer")
    return Decimal(int(value)) if shape.kind == BIG else int(value)


def _expect(holds: object, path: str, what: str) -> None:
    if not holds:
        raise MisfitError(f"{path or '/'}: expected {what}")


def _checked(text: str, path: str) -> str:
    """The text, if it is Unicode: JSON may escape half of a pair. Raises MisfitError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MisfitError(f"{path or '/'}: half of a surrogate pair") from error
    return text


def json_text(value: Any) -> str:
    """Return the JSON of a value without blanks, with numbers as they were written."""
    match value:
        case dict():
            return "{" + ",".join(f"{json_text(name)}:{json_text(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)
