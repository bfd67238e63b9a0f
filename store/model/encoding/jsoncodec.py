"""Decodes request bodies to wire objects, and encodes wire objects as JSON.

`decode_request` is total: any bytes yield an object or an `ApiError` (10025) with nats-server's text.
"""

import base64
import binascii
from typing import Final, Self, TypeVar

import orjson

from jetraft.store.model import errors
from jetraft.store.model.encoding.fields import DecodeError, decode_object, encode_object, known_fields, mismatch
from jetraft.store.model.encoding.gojson import JsonSyntaxError, Object, one_value, parse_values, values_of

T = TypeVar("T")


def _check_asked(value: Object) -> None:
    from jetraft.store.model.encoding.body_items import check_items  # noqa: PLC0415  (no start decodes what a client asks)

    check_items(value)


def _check_large(body: bytes) -> None:
    from jetraft.store.model.encoding.body_items import check_large  # noqa: PLC0415  (as above)

    check_large(body)


def decode_request(cls: type[T], body: bytes, *, is_strict: bool = True, is_asked: bool = False) -> T:
    """An object of a wire class from a request body; the zero object for an empty body.

    Raises ApiError INVALID_JSON for malformed JSON, unknown fields, wrong types and bodies above the size and depth
    limits (see gojson). Several values are applied in sequence, as by Go's decoder. What is not strict may have unknown
    fields, and is one value then. What a client asks has a bound on what it names (body_items.py).
    """
    go_name = cls.__name__
    result: T = cls()
    try:
        if is_asked:
            _check_large(body)
        for value in values_of(body):
            if value is None:
                continue
            if not isinstance(value, Object):
                raise mismatch(value, (go_name,), "")
            if is_asked:
                _check_asked(value)
            result = decode_object(cls, value, old=result, path=(go_name,))
    except (JsonSyntaxError, DecodeError) as fault:
        if not is_strict:
            return unmarshal(cls, body, is_asked=is_asked)
        raise errors.INVALID_JSON.with_values(err=fault) from None
    return result


def unmarshal(cls: type[T], body: bytes, *, is_asked: bool = False) -> T:
    """An object from a body that is one JSON value, without what `cls` does not know. Raises ApiError INVALID_JSON."""
    try:
        if is_asked:
            _check_large(body)
        value = one_value(body)
        if value is None:
            return cls()
        if not isinstance(value, Object):
            raise mismatch(value, (cls.__name__,), "")
        if is_asked:
            _check_asked(value)
        return decode_object(cls, known_fields(cls, value), path=(cls.__name__,))
    except (JsonSyntaxError, DecodeError) as fault:
        raise errors.INVALID_JSON.with_values(err=fault) from None


def is_empty_request(body: bytes) -> bool:
    """Whether a body is empty, or an object without fields. Others are error 10038 where no body is allowed."""
    try:
        values = parse_values(body)
    except JsonSyntaxError:
        return False
    return not body or (len(values) == 1 and isinstance(values[0], Object) and not values[0])


def is_object_or_array(body: bytes) -> bool:
    """Whether the body starts like an object or an array; list requests ignore other bodies."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


class WireObject:
    """The methods of all wire classes."""

    __slots__ = ()

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """The object of a JSON text. Raises ApiError INVALID_JSON with nats-server's text."""
        return decode_request(cls, body)

    def to_json_dict(self) -> dict[str, object]:
        """Plain values in nats-server's field order, empty fields omitted where it omits them."""
        return encode_object(self)


NUMBER_MIN: Final = -(1 << 63)
NUMBER_MAX: Final = (1 << 64) - 1


def encode(value: object, *, option: int = 0) -> bytes:
    """JSON of a wire object, or of a dictionary of plain values; compact, unless `option` (of orjson) says otherwise.

    Never fails, because an answer is often encoded after the operation that it reports. Numbers above 64 bits, which no
    client can read, are clamped to 64 bits; unpaired surrogates become U+FFFD.
    """
    plain = value if isinstance(value, (dict, list, str, int, float, bool, type(None))) else encode_object(value)
    try:
        return orjson.dumps(plain, option=option)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(plain), option=option)


def _encodable(value: object) -> object:
    """The value with everything replaced that orjson cannot encode."""
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(value, NUMBER_MIN), NUMBER_MAX)
    return value


def encode_base64(data: bytes) -> str:
    """Standard base64 with padding, as Go writes a []byte."""
    return base64.b64encode(data).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """The bytes of standard base64 with padding, or None when the text is not that."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
