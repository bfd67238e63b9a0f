"""How much the body of a request names: what is decoded and compared in one turn is bounded before it begins. Pure.

The bound is this server's own: nats-server has none, and one request holds one of its threads, where here it would hold
all clients. Stored configurations and archives of other servers are not asked.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from jetraft.store.model.encoding.fields import DecodeError
from jetraft.store.model.encoding.gojson import Object

ITEMS_MAX: Final = 3_000  # a subject takes 5 us until the stream is there: 15 ms, below the 20 of `make bench-scaling`
LARGE_BYTES: Final = 16 * 1024  # what is parsed in a millisecond
ITEMS_OF: Final[Mapping[str, int]] = {  # what an entry of these lists counts for, by what it takes beside a subject
    "sources": 4,
    "subject_transforms": 16,
}


def check_large(body: bytes) -> None:
    """Raise DecodeError for a large body, if it is one object that names more than ITEMS_MAX.

    It costs a sixth of what the parser takes that knows all of Go's texts. What is no JSON is left to that one.
    """
    if len(body) > LARGE_BYTES:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        if isinstance(value, dict):
            check_items(value)


def check_items(body: Object | dict[str, object]) -> None:
    """Raise DecodeError when a body names more than ITEMS_MAX."""
    left = ITEMS_MAX
    waiting: list[tuple[str, object]] = list(body if isinstance(body, Object) else body.items())
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, Object | dict):
            left -= len(value)
            waiting.extend(value if isinstance(value, Object) else value.items())
        elif isinstance(value, list):
            left -= len(value) * ITEMS_OF.get(key.lower(), 1)
            if left >= 0:
                waiting.extend(("", one) for one in value if isinstance(one, list | dict))
        if left < 0:
            raise DecodeError(
                f"more than {ITEMS_MAX} items in a request: a source counts {ITEMS_OF['sources']}, "
                f"a subject transform {ITEMS_OF['subject_transforms']}, any other entry or field 1"
            )
