"""A hub and a leaf node, with jetraft at either end or at both: messages, queues, and JetStream across domains."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.leafs import (
    PAIR_IDS,
    PAIRS,
    PROBE,
    Pair,
    joined,
    listener,
    real_messages,
    remote,
    wait_interest,
)
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind

pytestmark = [pytest.mark.reference]


@pytest.fixture(scope="module", params=PAIRS, ids=PAIR_IDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    hub, leaf = request.param
    with joined(hub, leaf, tmp_path_factory.mktemp("pair")) as found:
        yield found


@pytest.fixture
def clients(pair: Pair) -> Iterator[tuple[RawClient, RawClient]]:
    with pair.clients() as found:
        yield found


def both_ways(clients: tuple[RawClient, RawClient]) -> list[tuple[RawClient, RawClient, str]]:
    """Who receives, who sends, and a prefix of subjects."""
    hub, leaf = clients
    return [(hub, leaf, f"up{hub.inbox[-4:]}"), (leaf, hub, f"down{hub.inbox[-4:]}")]


def real(messages: list[Message]) -> list[Message]:
    """Without those that only asked for interest."""
    return [message for message in messages if message.payload != PROBE]


def test_a_message_arrives_once_with_its_headers_and_reply(clients: tuple[RawClient, RawClient]) -> None:
    for receiver, sender, name in both_ways(clients):
        wide, narrow = receiver.subscribe(f"{name}.>"), receiver.subscribe(f"{name}.*")
        wait_interest(sender, f"{name}.a")
        sender.publish(f"{name}.a", b"1", headers=[("A", "b")])
        sender.publish(f"{name}.b", b"22", reply="r.s")
        for sid in (wide, narrow):
            found = real(receiver.messages(sid, 3))
            assert [(m.subject, m.payload, m.headers, m.reply) for m in found] == [
                (f"{name}.a", b"1", [("A", "b")], ""),
                (f"{name}.b", b"22", [], "r.s"),
            ]


def test_one_member_of_each_queue_group_gets_a_message(clients: tuple[RawClient, RawClient]) -> None:
    for receiver, sender, name in both_ways(clients):
        sids = [receiver.subscribe(name, "one"), receiver.subscribe(name, "one"), receiver.subscribe(name, "two")]
        plain = receiver.subscribe(name)
        receiver.subscribe(f"{name}.last")
        wait_interest(sender, f"{name}.last")  # interest is told in order, so that of the others is known, too
        for number in range(20):
            sender.publish(name, b"%d" % number)
        assert len(receiver.messages(plain, 20)) == 20
        receiver.settle()
        got = [receiver.messages(sid, 0) for sid in sids]
        assert len(got[0]) + len(got[1]) == 20
        assert len(got[2]) == 20


def test_a_member_of_a_queue_group_on_this_side_is_preferred(clients: tuple[RawClient, RawClient]) -> None:
    for far, near, name in both_ways(clients):
        there = far.subscribe(name, "q")
        wait_interest(near, name)
        far.messages(there, 1)
        here = near.subscribe(name, "q")
        for _ in range(20):
            near.publish(name, b"x")
        assert len(real(near.messages(here, 20))) == 20
        assert real(far.messages(there, 0)) == []


def test_a_request_is_answered_and_one_without_interest_refused(clients: tuple[RawClient, RawClient]) -> None:
    for responder, asker, name in both_ways(clients):
        sid = responder.subscribe(name)
        wait_interest(asker, name)
        inbox = asker.new_inbox()
        answers = asker.subscribe(inbox)
        asker.publish(name, b"?", reply=inbox)
        question = responder.messages(sid, 2)[-1]
        assert question.payload == b"?"
        responder.publish(question.reply, b"!")
        assert [m.payload for m in asker.messages(answers, 1)] == [b"!"]
        responder.send(f"UNSUB {sid}\r\n".encode())
        wait_interest(asker, name, wanted=False)


def test_a_stream_is_used_from_the_other_side_by_its_domain(clients: tuple[RawClient, RawClient]) -> None:
    hub, leaf = clients
    for owner, user, domain in ((leaf, hub, "leaf"), (hub, leaf, "hub")):
        name = f"{domain}{hub.inbox[-4:]}"
        owner.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"]})
        wait_interest(user, f"{name}.probe")
        assert owner.acknowledged(f"{name}.a", b"1")["domain"] == domain
        ack = user.acknowledged(f"{name}.b", b"2")
        assert (ack["stream"], ack["domain"]) == (name, domain)

        def ask(subject: str, body: object = None, user: RawClient = user, domain: str = domain) -> dict[str, object]:
            (answer,) = user.request(f"$JS.{domain}.API.{subject}", b"" if body is None else json.dumps(body).encode())
            found: dict[str, object] = json.loads(answer.payload)
            return found

        info = ask(f"STREAM.INFO.{name}")
        assert info["domain"] == domain
        assert info["state"]["messages"] >= 3  # type: ignore[index]  # JSON of a server
        assert ask("INFO")["domain"] == domain
        config = {"durable_name": "d", "ack_policy": "explicit", "deliver_policy": "last"}
        ask(f"CONSUMER.CREATE.{name}.d", {"stream_name": name, "config": config})
        pull = f"$JS.{domain}.API.CONSUMER.MSG.NEXT.{name}.d"
        message = user.request(pull, b'{"batch":1,"expires":5000000000}')[0]
        assert message.status == ""
        assert (message.subject, message.payload) == (f"{name}.b", b"2")
        user.request(message.reply, b"+ACK")
        assert ask(f"CONSUMER.INFO.{name}.d")["num_ack_pending"] == 0


def test_the_api_without_a_domain_is_that_of_the_own_side(clients: tuple[RawClient, RawClient]) -> None:
    hub, leaf = clients
    assert hub.api("INFO")["domain"] == "hub"
    assert leaf.api("INFO")["domain"] == "leaf"
    assert (hub.info["domain"], leaf.info["domain"]) == ("hub", "leaf")


def test_a_page_lists_the_connection(pair: Pair, clients: tuple[RawClient, RawClient]) -> None:
    for server, name, is_spoke in ((pair.hub, "leaf", False), (pair.leaf, "hub", True)):
        status, page = server.get("/leafz?subs=1")
        assert (status, page["leafnodes"]) == (200, 1)
        (row,) = page["leafs"]
        assert (row["name"], row["is_spoke"], row["account"], row["ip"]) == (name, is_spoke, "$G", "127.0.0.1")
        assert f"$JS.{name}.API.STREAM.>" in row["subscriptions_list"]
        assert server.get("/varz")[1]["leafnodes"] == 1


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_a_leaf_node_works_while_the_hub_is_away_and_is_read_when_it_is_back(
    hub: Kind, leaf: Kind, tmp_path: Path
) -> None:
    with joined(hub, leaf, tmp_path) as pair:
        with pair.clients() as (_, edge):
            edge.api("STREAM.CREATE.EDGE", {"name": "EDGE", "subjects": ["edge.*"]})
        pair.hub.stop()
        with RawClient(pair.leaf.address) as edge:
            for number in range(1, 6):
                assert edge.acknowledged("edge.a", b"%d" % number)["seq"] == number
        pair.hub.start()
        with pair.clients() as (centre, _):
            wait_interest(centre, "$JS.leaf.API.INFO")
            (answer,) = centre.request("$JS.leaf.API.STREAM.MSG.GET.EDGE", b'{"last_by_subj":"edge.a"}')
            assert json.loads(answer.payload)["message"]["data"] == "NQ=="


def as_user(address: tuple[str, int], user: str, password: str) -> RawClient:
    """A client with a name."""
    client = RawClient(address, connect=False)
    client.connect(**{"user": user, "pass": password})
    return client


ACCOUNTS = """
accounts { A { users: [{user: a, password: pa}] }, B { users: [{user: b, password: pb}] } }
"""


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_a_connection_belongs_to_one_account_at_each_end(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    users = "authorization { users: [ {user: leaf, password: secret, account: B} ] }"
    hub_more = ACCOUNTS + listener(1, users).replace("port: 1\n", "port: LEAFPORT\n")
    leaf_more = ACCOUNTS + remote(2, "account: A", "leaf:secret@").replace(':2"', ':LEAFPORT"')
    with (
        joined(hub, leaf, tmp_path, hub_more=hub_more, leaf_more=leaf_more) as pair,
        as_user(pair.leaf.address, "a", "pa") as sender,
        as_user(pair.hub.address, "b", "pb") as receiver,
        as_user(pair.hub.address, "a", "pa") as stranger,
    ):
        wanted, other = receiver.subscribe("x"), stranger.subscribe("x")
        wait_interest(sender, "x")
        sender.publish("x", b"1")
        assert [m.payload for m in real(receiver.messages(wanted, 2))] == [b"1"]
        assert stranger.messages(other, 0) == []


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_what_is_denied_does_not_cross(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    more = remote(2, 'deny_imports: "in.>"\ndeny_exports: ["out.>"]').replace(':2"', ':LEAFPORT"')
    with joined(hub, leaf, tmp_path, leaf_more=more) as pair, pair.clients() as (centre, edge):
        for far, near, denied in ((centre, edge, "out"), (edge, centre, "in")):
            sid = far.subscribe(">")
            wait_interest(near, "open.a")
            near.publish(f"{denied}.a", b"denied")
            near.publish("open.a", b"last")
            assert real_messages(far, sid, 1) == [b"last"]
            far.send(f"UNSUB {sid}\r\n".encode())
