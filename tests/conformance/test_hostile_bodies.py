"""Every API request with a field missing, added, of a wrong type, huge or deep is answered as by nats-server.

An error has its code, and its text apart from those in `TEXTS`; and no error changes anything.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.hostile_bodies import CONSUMER, DEEP, OPERATIONS, STREAM, Operation, bodies
from tests.harness.forms import examples
from tests.harness.raw import RawClient
from tests.harness.server import Server

if TYPE_CHECKING:
    from pathlib import Path

PART = 16 // examples(1, long=16)  # of the bodies of an operation, one in so many
TEXTS = (  # of odd characters, of depths, and of bytes behind a value
    "exceeded max depth",
    "parsing time",
    "can not unmarshal",
    "unknown priority policy",
    "looking for beginning of value",
)
OWN_WAY = {
    "CONSUMER.RESET.HB.c": ('"no_such_field": [[', '"no_such_field": {"a":{'),  # nats-server passes over any depth
    "STREAM.CREATE.HB": ('"sources": []',),  # for nats-server another configuration than one without the field
}
ANY_ERROR = (
    '"sourcing": true',  # not served
    '"max_bytes": 9223372036854775807',  # no room for it, and another configuration than the stream has
)
Clients = tuple[RawClient, RawClient]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    directory: Path = tmp_path_factory.mktemp("hostile")
    with (
        Server("jetraft", directory=directory / "jetraft") as own,
        Server("reference", directory=directory / "reference") as reference,
        RawClient(own.address) as one,
        RawClient(reference.address) as other,
    ):
        yield one, other


@pytest.mark.long_form
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.subject)
def test_a_hostile_body_is_answered_as_by_the_reference_and_an_error_changes_nothing(
    clients: Clients, operation: Operation
) -> None:
    begin(clients)
    before = state_of(clients[0])
    for number, body in enumerate(bodies(operation)):
        if number % PART:
            continue
        own, reference = (ask(client, operation.subject, body) for client in clients)
        assert is_alike(operation, body, own, reference), (body[:200], own, reference)
        if own is None:
            begin(clients)  # it may have changed something
        elif number % 5 == 0:
            assert state_of(clients[0]) == before, body[:200]
    begin(clients)


def begin(clients: Clients) -> None:
    """The same stream, messages and consumer on both."""
    for client in clients:
        client.api("STREAM.DELETE.HB")
        assert "error" not in client.api("STREAM.CREATE.HB", STREAM)
        for number in range(3):
            client.acknowledged("hb.a", b"%d" % number)
        created = client.api("CONSUMER.DURABLE.CREATE.HB.c", {"stream_name": "HB", "config": CONSUMER})
        assert "error" not in created


def state_of(client: RawClient) -> list[Any]:
    """What an error must leave as it is."""
    info, consumers = client.api("STREAM.INFO.HB", {"deleted_details": True}), client.api("CONSUMER.LIST.HB")
    streams = client.api("STREAM.NAMES")["streams"]
    numbers = {key: value for key, value in info["state"].items() if not key.endswith("ts")}
    shown = [{**one, "ts": "", "created": "", "cluster": {}} for one in consumers["consumers"]]
    return [info["config"], numbers, shown, streams]


def ask(client: RawClient, subject: str, body: str) -> tuple[int, int, str] | None:
    """The error of an answer."""
    answers = client.request(f"$JS.API.{subject}", body.encode())
    assert answers, f"no answer to {body[:200]}"
    error = json.loads(answers[0].payload).get("error")
    return None if error is None else (error["code"], error.get("err_code", 0), error["description"])


def is_alike(
    operation: Operation, body: str, own: tuple[int, int, str] | None, reference: tuple[int, int, str] | None
) -> bool:
    if any(text in body for text in ANY_ERROR):
        return own is not None and reference is not None
    if any(text in body for text in OWN_WAY.get(operation.subject, ())):
        return True
    if own is None or reference is None:
        return own is reference
    may_differ = any(text in own[2] for text in TEXTS) or DEEP in body
    return own[:2] == reference[:2] and (may_differ or own[2] == reference[2])
