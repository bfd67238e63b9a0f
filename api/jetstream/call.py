"""One request as a handler sees it, and the rules for its body.

nats-server treats bodies in three ways: some requests must have none, some decode a body only if it looks like JSON,
the others always decode it. Source: server/jetstream_api.go (isEmptyRequest, isJSONObjectOrArray).
"""

from __future__ import annotations

from typing import Final, TypeVar

import attrs
import orjson

from jetraft.store.model import errors, message
from jetraft.store.model.encoding.jsoncodec import WireObject, decode_request
from jetraft.store.model.versioning import is_level_served

T = TypeVar("T", bound=WireObject)

REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
_BLANKS: Final = b" \t\r\n"


@attrs.frozen(kw_only=True, slots=True)
class Call:
    """A request: the account, the subject's tokens at the wildcards of the pattern, the body and the headers."""

    account: str
    names: tuple[str, ...]
    body: bytes
    hdr: bytes = b""
    is_strict: bool = True  # fields that are not known are errors

    def decode(self, cls: type[T], *, is_bounded: bool = True) -> T:
        """Decode the body. Raises ApiError 10025 when it is malformed, or `is_bounded` and names too much."""
        return decode_request(cls, self.body, is_strict=self.is_strict, is_asked=is_bounded)

    @property
    def stream(self) -> str:
        """The name of the stream in the subject."""
        return self.names[0]

    @property
    def consumer(self) -> str:
        """The name of the consumer in the subject."""
        return self.names[1]

    @property
    def is_empty(self) -> bool:
        """Whether the body is missing or an object without fields."""
        return not self.body or _is_empty_object(self.body)

    def require_empty_body(self) -> None:
        """Raise ApiError 10038 unless the body is missing or an object without fields."""
        if not self.is_empty:
            raise errors.NOT_EMPTY_REQUEST.with_values()

    @staticmethod
    def check_level(hdr: bytes) -> None:
        """Raise ApiError 10185 when the client needs a newer API than this one."""
        if hdr and not is_level_served(message.get(hdr, REQUIRED_LEVEL)):
            raise errors.REQUIRED_API_LEVEL.with_values()

    def optional_body(self, cls: type[T]) -> T:
        """Decode a body that starts like JSON and ignore any other. Raises ApiError 10025 when it is malformed."""
        looks_like_json = self.body.lstrip(_BLANKS)[:1] in (b"{", b"[")
        return self.decode(cls) if looks_like_json else cls()

    def required_body(self, cls: type[T]) -> T:
        """Decode the body. Raises ApiError 10003 when it is missing, 10025 when it is malformed."""
        if not self.body:
            raise errors.BAD_REQUEST.with_values()
        return self.decode(cls)


def _is_empty_object(body: bytes) -> bool:
    try:
        return bool(orjson.loads(body) == {})
    except orjson.JSONDecodeError:
        return False


def page_of(total: int, offset: int, limit: int) -> tuple[int, int]:
    """Return the bounds [start, end) of a page; an offset outside of [0, total] becomes the nearest end."""
    start = min(max(offset, 0), total)
    return start, min(start + limit, total)
