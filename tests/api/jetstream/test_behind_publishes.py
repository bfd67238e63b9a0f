"""Real processes: who asks sees what it has published before, without having waited for an ack.

The publishes and the question travel in one piece, so nothing is stored yet when the question is looked at.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

APP: Final[dict[str, Any]] = {"user": "app", "pass": "app"}
OUT: Final[dict[str, Any]] = {"user": "out", "pass": "out"}

ROUNDS = 8
EACH = 40
ACCOUNTS = """
accounts {
  APP: { jetstream: enabled, users: [ { user: app, password: app } ],
         exports: [ { service: "in.>" }, { service: "$JS.API.>", response_type: stream } ] }
  OUT: { users: [ { user: out, password: out } ],
         imports: [ { service: { account: APP, subject: "in.>" } },
                    { service: { account: APP, subject: "$JS.API.>" }, to: "JS.app.>" } ] }
}
"""
Sees = Callable[[list[Message], int], bool]


def last_payload(number: int) -> bytes:
    return b"%d" % number


def sees_info(messages: list[Message], number: int) -> bool:
    return bool(json.loads(messages[0].payload)["state"]["last_seq"] == number)


def sees_consumer(messages: list[Message], number: int) -> bool:
    return bool(json.loads(messages[0].payload)["num_pending"] == number)


def sees_get(messages: list[Message], number: int) -> bool:
    return bool(json.loads(messages[0].payload).get("message", {}).get("seq") == number)


def sees_direct(messages: list[Message], number: int) -> bool:
    return messages[0].payload == last_payload(number)


def sees_all(messages: list[Message], number: int) -> bool:
    return len([message for message in messages if message.payload]) == number


QUESTIONS: dict[str, tuple[str, dict[str, object] | None, Sees]] = {
    "STREAM.INFO": ("$JS.API.STREAM.INFO.S", None, sees_info),
    "CONSUMER.INFO": ("$JS.API.CONSUMER.INFO.S.c", None, sees_consumer),
    "MSG.GET": ("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "in.a"}, sees_get),
    "DIRECT.GET": ("$JS.API.DIRECT.GET.S.in.a", None, sees_direct),
    "no_wait": ("$JS.API.CONSUMER.MSG.NEXT.S.c", {"batch": 10_000, "no_wait": True}, sees_all),
}


def make(client: RawClient, replicas: int) -> None:
    config = {"name": "S", "subjects": ["in.>"], "allow_direct": True, "num_replicas": replicas}
    client.api("STREAM.DELETE.S")
    assert "error" not in client.api("STREAM.CREATE.S", config)
    body = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "none"}}
    assert "error" not in client.api("CONSUMER.DURABLE.CREATE.S.c", body)


def ask_behind(client: RawClient, question: str, first: int, *, prefix: str = "$JS.API") -> list[Message]:
    """Publish and ask in one piece; what comes back, up to a status or as many messages as there are."""
    subject, body, _ = QUESTIONS[question]
    payload = b"" if body is None else json.dumps(body).encode()
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    last = first + EACH - 1
    pieces = [b"PUB in.a %d\r\n%s\r\n" % (len(last_payload(n)), last_payload(n)) for n in range(first, last + 1)]
    asked = subject.replace("$JS.API", prefix, 1)
    pieces.append(b"PUB %s %s %d\r\n%s\r\n" % (asked.encode(), inbox.encode(), len(payload), payload))
    client.send(b"".join(pieces))
    found: list[Message] = []
    while not found or (question == "no_wait" and not found[-1].status and len(found) < EACH):
        event = client.next_event(PATIENCE_S)
        assert event is not None, "no answer"
        if isinstance(event, Message) and event.sid == sid:
            found.append(event)
    return found


def check(client: RawClient, question: str, *, prefix: str = "$JS.API") -> None:
    sees = QUESTIONS[question][2]
    for turn in range(ROUNDS):
        messages = ask_behind(client, question, turn * EACH + 1, prefix=prefix)
        number = EACH if question == "no_wait" else (turn + 1) * EACH
        assert sees(messages, number), (turn, messages[:2])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    config = directory / "accounts.conf"
    config.write_text(ACCOUNTS)
    with Server("jetraft", directory=directory, flags=("-c", str(config))) as running:
        yield running


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_client_sees_what_it_has_sent(server: Server, question: str) -> None:
    with RawClient(server.address, **APP) as client:
        make(client, 1)
        check(client, question)


@pytest.mark.parametrize("question", ["STREAM.INFO", "MSG.GET", "DIRECT.GET"])
def test_a_client_of_another_account_does_too(server: Server, question: str) -> None:
    with RawClient(server.address, **APP) as owner:
        make(owner, 1)
        with RawClient(server.address, **OUT) as client:
            check(client, question, prefix="JS.app")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name != "DIRECT.GET"])
def test_at_every_node_of_a_cluster_what_the_leader_answers_comes_behind(cluster: Cluster, question: str) -> None:
    """(A direct get may be answered by a replica that follows, which has what is committed.)"""
    for node in cluster.nodes:
        with RawClient(node.address) as client:
            make(client, 3)
            check(client, question)
