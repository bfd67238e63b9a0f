"""How much the body of a request names: what is decoded and compared in one turn is bounded before it begins. Pure.

The bound is this server's own: nats-server has none, and one request holds one of its threads, where here it would hold
all clients. Stored configurations and archives of other servers are not asked.
"""

from collections.abc import Mapping
from typing import Final

from jetraft.store.model.fields import DecodeError
from jetraft.store.model.gojson import Object

ITEMS_MAX: Final = 3_000  # a subject takes 5 us until the stream is there: 15 ms, below the 20 of `make bench-scaling`
ITEMS_OF: Final[Mapping[str, int]] = {  # what an entry of these lists counts for, by what it takes beside a subject
    "sources": 4,
    "subject_transforms": 16,
}


def check_items(body: Object) -> None:
    """Raise DecodeError when a body names more than ITEMS_MAX."""
    left = ITEMS_MAX
    waiting: list[tuple[str, object]] = list(body)
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, Object):
            left -= len(value)
            waiting.extend(value)
        elif isinstance(value, list):
            left -= len(value) * ITEMS_OF.get(key.lower(), 1)
            waiting.extend(("", one) for one in value if isinstance(one, list))
        if left < 0:
            raise DecodeError(
                f"more than {ITEMS_MAX} items in a request: a source counts {ITEMS_OF['sources']}, "
                f"a subject transform {ITEMS_OF['subject_transforms']}, any other entry or field 1"
            )
