"""Errors as answers of the API, with the fields that nats-server writes after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model.encoding.jsoncodec import encode
from jetraft.store.model.responses import ResponseType, error_answer

if TYPE_CHECKING:
    from jetraft.store.model import errors

# What nats-server writes after an error where it differs from `responses`: empty lists, zero values.
_LISTS: Final[dict[ResponseType, dict[str, object]]] = {
    ResponseType.STREAM_LIST: {"streams": []},
    ResponseType.CONSUMER_LIST: {"consumers": []},
    ResponseType.CONSUMER_NAMES: {"consumers": []},
}
_PAGE: Final = {"total": 0, "offset": 0, "limit": 0}
_TAILS: Final[dict[ResponseType, dict[str, object]]] = {
    **{kind: {**_PAGE, **empty} for kind, empty in _LISTS.items()},
    ResponseType.CONSUMER_PAUSE: {"paused": False, "pause_until": "0001-01-01T00:00:00Z"},
    ResponseType.STREAM_RESTORE: {"deliver_subject": ""},
}


def error_json(kind: ResponseType, error: errors.ApiError) -> bytes:
    """Return the JSON of an error, with the fields that nats-server writes after it."""
    tail = _TAILS.get(kind)
    if tail is None:
        return error_answer(kind, error)
    return encode({"type": kind.type_name, "error": error.to_json_dict(), **tail})
