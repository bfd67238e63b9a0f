"""Where an account has messages traced to, by its token, which changes while the server runs; both servers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.api.auth.test_claims_service import ADMIN, KINDS, OPERATOR, config, connected, update
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

PARENT: Final = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
MANY: Final = 300
ACCOUNT: Final = OPERATOR.account("A")
OF_THE_START: Final = OPERATOR.account("S", trace={"dest": "tr.s"})


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path, config=config(tmp_path / "jwt", ACCOUNT, OF_THE_START)) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    with connected(server, ACCOUNT.user()) as client:
        yield client


def listen(client: RawClient) -> None:
    for subject in ("tr.>", "foo", "end"):
        client.subscribe(subject)
    client.settle()


def heard(client: RawClient, *, traces: int, publishes: int = 1) -> tuple[list[str], list[bool]]:
    """Where traces of some messages are heard, and which of the messages say that they were not traced."""
    for _ in range(publishes):
        client.publish("foo", b"x", headers=(PARENT,))
    found = 0
    subjects: list[str] = []
    disabled: list[bool] = []
    deadline = time.monotonic() + PATIENCE_S
    while found < publishes or len(subjects) < traces:
        assert time.monotonic() < deadline, f"{found} messages, traces to {subjects}"
        event = client.next_event(PATIENCE_S)
        if isinstance(event, Message) and event.subject == "foo":
            found += 1
            disabled.append(b"trace disabled" in event.hdr)
        elif isinstance(event, Message):
            subjects.append(event.subject)
            assert json.loads(event.payload)["request"]["header"]["traceparent"] == [PARENT[1]]
    return subjects, disabled


def test_the_destination_is_in_force_at_once(server: Server, client: RawClient) -> None:
    listen(client)
    with connected(server, ADMIN) as admin:
        assert heard(client, traces=0) == ([], [False])
        assert update(admin, ACCOUNT, trace={"dest": "tr.a"}) == (200, "jwt updated")
        assert heard(client, traces=1) == (["tr.a"], [False])
        assert update(admin, ACCOUNT, trace={"dest": "tr.b", "sampling": 100}) == (200, "jwt updated")
        assert heard(client, traces=1) == (["tr.b"], [False])
        assert update(admin, ACCOUNT) == (200, "jwt updated")
        assert heard(client, traces=0) == ([], [False])
        assert client.settle() == []


def test_some_of_a_hundred_are_traced_and_the_others_say_so(server: Server, client: RawClient) -> None:
    listen(client)
    with connected(server, ADMIN) as admin:
        update(admin, ACCOUNT, trace={"dest": "tr.a", "sampling": 50})
    subjects, disabled = heard(client, traces=1, publishes=MANY)
    traced = disabled.count(False)
    assert MANY / 4 < traced < MANY * 3 / 4
    while len(subjects) < traced:
        event = client.next_event(PATIENCE_S)
        assert isinstance(event, Message), f"{traced} were traced, told of {len(subjects)}"
        subjects.append(event.subject)
    assert set(subjects) == {"tr.a"}


def test_a_destination_of_the_start_is_in_force(server: Server) -> None:
    with connected(server, OF_THE_START.user()) as other:
        listen(other)
        assert heard(other, traces=1)[0] == ["tr.s"]


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ({"sampling": 5}, "subject cannot be empty"),
        ({"dest": "tr.*"}, 'subject "tr.*" is not a valid publish subject'),
    ],
)
def test_a_destination_that_is_none_is_refused(server: Server, trace: dict[str, object], why: str) -> None:
    with connected(server, ADMIN) as admin:
        text = f"jwt validation failed - validation errors: [the account Trace.Destination {why}]"
        assert update(admin, ACCOUNT, trace=trace) == (500, text)


@pytest.mark.parametrize("sampling", [-1, 101])
def test_more_or_less_of_a_hundred_than_there_are_is_refused(server: Server, sampling: int) -> None:
    with connected(server, ADMIN) as admin:
        wrong = f"the account Trace.Sampling value '{sampling}' is not valid, should be in the range [1..100]"
        text = f"jwt validation failed - validation errors: [{wrong}]"
        assert update(admin, ACCOUNT, trace={"dest": "a", "sampling": sampling}) == (500, text)
