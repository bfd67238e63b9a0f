"""Bodies of API requests with one field missing, added, of a wrong type, huge or deep: for every operation with a body.

Each request is asked of servers that hold the same: a stream with messages, and a consumer.
"""

import json
from collections.abc import Iterator
from typing import Any

import attrs

from jetraft.store.model import requests
from jetraft.store.model.config import ConsumerConfig, StreamConfig
from jetraft.store.model.encoding.fields import WIRE

HUGE = str(1 << 70)
DEEP = "[" * 2000 + "]" * 2000
VALUES = (
    "null",
    "true",
    "-1",
    "1.5",
    '"x"',
    '""',
    "[]",
    "{}",
    HUGE,
    "-9223372036854775809",
    "9223372036854775807",
    "1e400",
    "[null]",
    '["x"]',
    "[{}]",
    '{"a":1}',
    '"\\ud800"',
    DEEP,
    '{"a":' * 500 + "1" + "}" * 500,
)
WHOLE = ("null", "true", "7", '"x"', "[]", "{", "{}x", '{"a"}', HUGE, DEEP, '{"a":1,"a":2}', "\x00")

STREAM = {"name": "HB", "subjects": ["hb.>"], "storage": "memory"}
CONSUMER = {"durable_name": "c", "ack_policy": "explicit"}


@attrs.frozen
class Operation:
    """A request: its subject, its body, and what its body may hold."""

    subject: str
    body: dict[str, Any]
    shape: type
    within: str = ""  # the field that holds a configuration


OPERATIONS = (
    Operation("STREAM.CREATE.HB", STREAM, StreamConfig),
    Operation("STREAM.UPDATE.HB", STREAM, StreamConfig),
    Operation("STREAM.NAMES", {}, requests.JSApiStreamNamesRequest),
    Operation("STREAM.LIST", {}, requests.JSApiStreamListRequest),
    Operation("STREAM.INFO.HB", {}, requests.JSApiStreamInfoRequest),
    Operation("STREAM.PURGE.HB", {"filter": "hb.none"}, requests.JSApiStreamPurgeRequest),
    Operation("STREAM.MSG.GET.HB", {"seq": 1}, requests.JSApiMsgGetRequest),
    Operation("STREAM.MSG.DELETE.HB", {"seq": 99}, requests.JSApiMsgDeleteRequest),
    Operation("STREAM.SNAPSHOT.HB", {"deliver_subject": "hb"}, requests.JSApiStreamSnapshotRequest),
    Operation("STREAM.LEADER.STEPDOWN.HB", {}, requests.JSApiLeaderStepdownRequest),
    Operation("CONSUMER.NAMES.HB", {}, requests.JSApiConsumersRequest),
    Operation("CONSUMER.LIST.HB", {}, requests.JSApiConsumersRequest),
    Operation("CONSUMER.PAUSE.HB.c", {}, requests.JSApiConsumerPauseRequest),
    Operation("CONSUMER.RESET.HB.c", {}, requests.JSApiConsumerResetRequest),
    Operation(
        "CONSUMER.DURABLE.CREATE.HB.c", {"stream_name": "HB", "config": CONSUMER}, ConsumerConfig, within="config"
    ),
    Operation("CONSUMER.CREATE.HB.c", {"stream_name": "HB", "config": CONSUMER}, ConsumerConfig, within="config"),
)


def bodies(operation: Operation) -> Iterator[str]:
    """All bodies of an operation."""
    yield from WHOLE
    holder = operation.body[operation.within] if operation.within else operation.body
    for name in [*names_of(operation.shape), "no_such_field"]:
        others = {key: value for key, value in holder.items() if key != name}
        yield _within(operation, json.dumps(others))
        for value in VALUES:
            fields = json.dumps(others)[1:-1]
            yield _within(operation, f"{{{fields}{', ' if fields else ''}{json.dumps(name)}: {value}}}")


def names_of(shape: type) -> list[str]:
    """The names of the fields of a wire class, as they are in JSON."""
    return [field.metadata[WIRE].name or field.name for field in attrs.fields(shape) if WIRE in field.metadata]


def _within(operation: Operation, text: str) -> str:
    if not operation.within:
        return text
    others = {key: value for key, value in operation.body.items() if key != operation.within}
    return f"{json.dumps(others)[:-1]}, {json.dumps(operation.within)}: {text}}}"
