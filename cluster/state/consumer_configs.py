"""The configurations of consumers out of the log, read so that what is equal in many of them is one object.

A stream may have a hundred thousand consumers that differ in their names and subjects only. The rest of a configuration
is read once; the strings, numbers and tables in it belong to all that have the same rest. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import attrs
import orjson

from jetraft.store.model.config import ConsumerConfig

RESTS_MAX: Final = 256  # kept at a time; consumers that differ in more than their names are read one by one
OWN_FIELDS: Final = ("durable_name", "name", "filter_subject")


def read_config(body: bytes, name: str) -> ConsumerConfig:
    """ConsumerConfig.from_json for a consumer of this name; the object has this very string. Raises as that does."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ConsumerConfig.from_json(body)
    if not isinstance(fields, dict):
        return ConsumerConfig.from_json(body)
    own = {field: fields.pop(field) for field in OWN_FIELDS if type(fields.get(field)) is str}
    rest = _read_rest(orjson.dumps(fields))
    shared: dict[str, Any] = {field: name if value == name else value for field, value in own.items()}
    return attrs.evolve(rest, **shared)


@lru_cache(maxsize=RESTS_MAX)
def _read_rest(body: bytes) -> ConsumerConfig:
    return ConsumerConfig.from_json(body)
