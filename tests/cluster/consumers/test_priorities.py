"""Priority groups on one node in memory, where time jumps; tests/conformance has the answers of both servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.consumers.requests import PullRequest, Waiting, WaitingQueue
from jetraft.store.model.config import ConsumerAction, PriorityPolicy
from tests.cluster.consumers.test_pull import Client, S, seqs, statuses
from tests.cluster.lab import Sent, finish, info_of

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

WRONG_PIN = b"NATS/1.0 423 Nats-Wrong-Pin-Id\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n"
MISMATCH = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"


def client_of(policy: PriorityPolicy, *subjects: bytes, **consumer: Any) -> Client:
    return Client(*subjects, priority_policy=policy, priority_groups=("g",), **consumer)


def pull(client: Client, to: str, **fields: Any) -> list[Sent]:
    body = json.dumps({"batch": 1, "expires": 600 * S, "group": "g", **fields}).encode()
    return client.pull(body, reply=b"_INBOX." + to.encode())


def publish(client: Client) -> list[Sent]:
    client.node.publish(b"s.a", b"x")
    return client.node.turn()


def receivers(sent: list[Sent]) -> list[bytes]:
    return [message.to.removeprefix(b"_INBOX.") for message in sent if message.reply]


def pin_of(sent: list[Sent]) -> str:
    lines = sent[0].hdr.decode().split("\r\n")
    return next(line.removeprefix("Nats-Pin-Id: ") for line in lines if line.startswith("Nats-Pin-Id: "))


def pinned(replica: StreamReplica) -> str:
    return info_of(replica, "c").priority_groups[0].pinned_client_id


def test_one_client_gets_everything_until_its_pin_ends() -> None:
    client = client_of(PriorityPolicy.PINNED_CLIENT, priority_timeout=10 * S)
    pull(client, "A", batch=3)
    pull(client, "B", batch=3)
    first = publish(client)
    pin = pin_of(first)
    assert receivers(first + publish(client)) == [b"A", b"A"]
    assert pinned(client.replica) == pin
    client.node.sleep(10 * S)
    assert pinned(client.replica) == ""
    assert receivers(publish(client)) == [b"B"]
    assert pinned(client.replica) not in ("", pin)
    sent = publish(client)  # A's request is the next in turn, with the old id
    assert (receivers(sent), statuses(sent)) == ([b"B"], [WRONG_PIN])


def test_a_request_of_the_pinned_client_keeps_its_pin() -> None:
    client = client_of(PriorityPolicy.PINNED_CLIENT, b"s.a", priority_timeout=10 * S)
    pin = pin_of(pull(client, "A"))
    client.node.sleep(9 * S)
    assert statuses(pull(client, "B", id="another")) == [MISMATCH]
    pull(client, "A", id=pin)
    client.node.sleep(9 * S)
    assert pinned(client.replica) == pin
    client.node.sleep(S)
    assert pinned(client.replica) == ""


def test_deliveries_alone_do_not_keep_a_pin() -> None:
    client = client_of(PriorityPolicy.PINNED_CLIENT, b"s.a", priority_timeout=10 * S)
    pull(client, "A", batch=9)
    client.node.sleep(9 * S)
    assert receivers(publish(client)) == [b"A"]
    client.node.sleep(S)
    assert pinned(client.replica) == ""


def test_an_unpin_lets_the_next_request_take_the_pin() -> None:
    client = client_of(PriorityPolicy.PINNED_CLIENT, b"s.a")
    pin = pin_of(pull(client, "A"))
    pull(client, "B")
    assert client.replica.consumers.unpin("c", "g")
    assert statuses(pull(client, "A", id=pin)) == []  # nothing to deliver: nobody is refused yet
    sent = publish(client)
    assert (receivers(sent), statuses(sent)) == ([b"B"], [])  # in turn: A's comes behind B's
    assert statuses(publish(client)) == [WRONG_PIN]


def test_a_reset_keeps_the_pin() -> None:
    client = client_of(PriorityPolicy.PINNED_CLIENT, b"s.a")
    pin = pin_of(pull(client, "A"))
    finish(client.node, lambda: client.replica.reset_consumer("c", 1))
    assert pinned(client.replica) == pin


def test_another_policy_ends_a_pin_and_sorts_what_waits() -> None:
    client = client_of(PriorityPolicy.PINNED_CLIENT, b"s.a")
    pull(client, "A")
    pull(client, "B", priority=5)
    pull(client, "C", priority=2)
    config = info_of(client.replica, "c").config
    assert config is not None
    changed = type(config).from_json(
        json.dumps({**config.to_json_dict(), "priority_policy": "prioritized", "priority_timeout": 0}).encode()
    )
    finish(
        client.node,
        lambda: client.replica.create_consumer(changed, action=ConsumerAction.CREATE_OR_UPDATE, pedantic=False),
    )
    assert pinned(client.replica) == ""
    assert receivers(publish(client) + publish(client)) == [b"C", b"B"]


def test_a_minimum_is_reached_by_messages_or_by_acks_that_are_due() -> None:
    client = client_of(PriorityPolicy.OVERFLOW)
    pull(client, "A", batch=9, min_pending=3)
    assert receivers(publish(client) + publish(client)) == []
    assert receivers(publish(client)) == [b"A"]  # then two are left
    pull(client, "B", batch=9, min_pending=9, min_ack_pending=2)
    assert receivers(pull(client, "C")) == [b"C", b"B"]  # with C's, two are unacknowledged
    assert seqs(publish(client)) == [4]


def test_max_bytes_holds_for_a_request_of_a_group() -> None:
    client = client_of(PriorityPolicy.PRIORITIZED)
    pull(client, "A", max_bytes=10)
    pull(client, "B", priority=1)
    sent = publish(client)
    assert receivers(sent) == [b"B"]
    assert [status.split(b"\r\n")[0] for status in statuses(sent)] == [b"NATS/1.0 409 Message Size Exceeds MaxBytes"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=12))
def test_requests_are_served_by_priority_and_in_turn_within_one(asked: list[tuple[int, int]]) -> None:
    queue = WaitingQueue()
    queue.order(is_sorted=True)
    for number, (priority, batch) in enumerate(asked):
        queue.add(Waiting.begin(b"%d" % number, PullRequest(batch=batch, priority=priority), 0))
    served = []
    while (waiting := queue.head()) is not None:
        served.append(int(waiting.reply))
        waiting.take(1, 1, 0)
        queue.advance()
    wanted = []
    for priority in range(10):
        left = [[number, batch] for number, (level, batch) in enumerate(asked) if level == priority]
        while left:
            wanted += [number for number, _ in left]
            left = [[number, batch - 1] for number, batch in left if batch > 1]
    assert served == wanted
