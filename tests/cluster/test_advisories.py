"""What is told in the system account, and how often."""

import json
import random
from typing import Any

from jetraft.cluster.advisories import NodeAdvisories
from jetraft.cluster.streams.replica.loss_news import TOLD_NS
from tests.cluster.lab import Node, add_consumer, start_stream

EVENTS = b"$JS.EVENT.>"
LOST = b"$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.S"
ENVELOPE = {"type", "id", "timestamp"}


def told(node: Node) -> list[dict[str, Any]]:
    return [json.loads(sent.payload) for sent in node.sent]


def advisories(accounts: dict[str, Node], system_account: str = "SYS") -> NodeAdvisories:
    clock = next(iter(accounts.values())).clock
    return NodeAdvisories(
        outboxes=accounts.__getitem__, clock=clock, rng=random.Random(1), system_account=system_account
    )


def listening() -> Node:
    node = Node()
    node.subscriptions.add(EVENTS)
    return node


def test_a_leader_is_told_in_its_account_and_with_the_accounts_name_in_the_system_account() -> None:
    accounts = {"A": listening(), "SYS": listening()}
    advisories(accounts).of("A").stream_leader("S", "n1", [])
    (mine,), (systems,) = told(accounts["A"]), told(accounts["SYS"])
    assert systems == {**mine, "account": "A"}
    assert "account" not in mine


def test_a_stream_of_the_system_account_is_told_once() -> None:
    accounts = {"SYS": listening()}
    advisories(accounts).of("SYS").stream_leader("S", "n1", [])
    assert len(told(accounts["SYS"])) == 1


def test_a_full_disk_is_told_in_the_system_account_only() -> None:
    accounts = {"A": listening(), "SYS": listening()}
    advisories(accounts).out_of_storage("n1", "ID", "C")
    (event,) = told(accounts["SYS"])
    assert event.pop("type") == "io.nats.jetstream.advisory.v1.server_out_of_space"
    assert {name: event[name] for name in event.keys() - ENVELOPE} == {
        "server": "n1",
        "server_id": "ID",
        "cluster": "C",
    }
    assert told(accounts["A"]) == []


def test_without_a_system_account_nothing_of_the_server_is_told() -> None:
    accounts = {"A": listening()}
    advisories(accounts, system_account="").out_of_storage("n1", "ID", "C")
    assert told(accounts["A"]) == []


def test_a_stream_tells_of_a_lost_quorum_once_in_a_while_and_only_of_a_term_that_it_led() -> None:
    node = listening()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c")
    term = replica.group.term

    def losses() -> int:
        return sum(sent.subject == LOST for sent in node.sent)

    def lead_again() -> None:
        replica.became_leader(term)
        assert replica.is_leader

    replica.became_follower(term + 1, None)  # an election
    assert losses() == 0
    lead_again()
    replica.became_follower(term, None)
    assert losses() == 1
    assert [event["consumer"] for event in told(node) if event["type"].endswith(".consumer_quorum_lost")] == ["c"]
    lead_again()
    replica.became_follower(term, None)
    assert losses() == 1
    node.clock.advance(TOLD_NS)
    lead_again()
    replica.became_follower(term, None)
    assert losses() == 2
