"""The JSON border: request bodies to wire objects, wire objects to bytes.

`decode_request` is total: any bytes give an object or an `ApiError` (10025) with the text nats-server gives.
"""

import base64
import binascii
from typing import Final, Self, TypeVar

import orjson

from jetraft.store.model import errors
from jetraft.store.model.fields import DecodeError, decode_object, encode_object, mismatch
from jetraft.store.model.gojson import JsonSyntaxError, Object, parse_values

T = TypeVar("T")


def decode_request(cls: type[T], body: bytes) -> T:
    """An object of a wire class from a request body; an empty body gives the zero object.

    Raises ApiError INVALID_JSON for malformed JSON, unknown fields, wrong types and bodies beyond the size and depth
    caps (see gojson). Several values in a row are applied in turn, as Go's decoder does.
    """
    go_name = cls.__name__
    result: T = cls()
    try:
        for value in parse_values(body):
            if value is None:
                continue
            if not isinstance(value, Object):
                raise mismatch(value, (go_name,), "")
            result = decode_object(cls, value, old=result, path=(go_name,))
    except (JsonSyntaxError, DecodeError) as fault:
        raise errors.INVALID_JSON.with_values(err=fault) from None
    return result


def is_empty_request(body: bytes) -> bool:
    """True for a body that says nothing: none at all, or an object without fields. Others are error 10038."""
    try:
        values = parse_values(body)
    except JsonSyntaxError:
        return False
    return not body or (len(values) == 1 and isinstance(values[0], Object) and not values[0])


def is_object_or_array(body: bytes) -> bool:
    """True when the body begins like one; list requests ignore any other body instead of refusing it."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


class WireObject:
    """What every object of the wire can do."""

    __slots__ = ()

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """The object of a JSON text; raises ApiError INVALID_JSON with nats-server's words."""
        return decode_request(cls, body)

    def to_json_dict(self) -> dict[str, object]:
        """Plain values in nats-server's field order, empty fields omitted where it omits them."""
        return encode_object(self)


NUMBER_MIN: Final = -(1 << 63)
NUMBER_MAX: Final = (1 << 64) - 1


def encode(value: object) -> bytes:
    """Compact JSON of a wire object, or of a dictionary of plain values.

    It never fails: an answer is often written when what it tells of is done, and must not take that back. Numbers
    beyond 64 bits, which no client can read, become the nearest that has them; halves of surrogate pairs become U+FFFD.
    """
    plain = value if isinstance(value, (dict, list, str, int, float, bool, type(None))) else encode_object(value)
    try:
        return orjson.dumps(plain)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(plain))


def _encodable(value: object) -> object:
    """The same value with everything changed that orjson refuses."""
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
