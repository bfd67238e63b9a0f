"""What a client finds that is back at once after its server was restarted: answers to everything, and its consumer."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

STREAMS = 8
ENDS = (Server.stop, Server.kill, Server.stop)
RETRIED = (10008, 503)  # JetStream is temporarily unavailable; no responders
ORDERED = {
    "name": "ordered",
    "ack_policy": "none",
    "max_deliver": 1,
    "mem_storage": True,
    "num_replicas": 1,
    "idle_heartbeat": 100_000_000,
    "inactive_threshold": 300_000_000_000,
}


def first_connection(server: Server) -> RawClient:
    """The connection of a client that tries again and again while the server starts."""
    server.start(wait=False)
    found: list[RawClient] = []

    def connected() -> bool:
        try:
            found.append(RawClient(server.address))
        except ConnectionRefusedError:
            return False
        return True

    server.running.wait_until(connected, what="a client was connected")
    return found[0]


def requests_of(number: int, start: int) -> list[tuple[str, bytes]]:
    """What is asked about one stream, in the order in which it is sent: subject and body."""
    stream, new = f"S{number}", f"new{start}"
    config = {"name": new, "ack_policy": "none", "mem_storage": True, "deliver_subject": "nobody"}
    return [
        (f"$JS.API.STREAM.INFO.{stream}", b""),
        (f"$JS.API.CONSUMER.INFO.{stream}.old", b""),
        (f"$JS.API.CONSUMER.CREATE.{stream}.{new}", json.dumps({"stream_name": stream, "config": config}).encode()),
        (f"$JS.API.CONSUMER.NAMES.{stream}", b""),
        (f"s{number}", b"more"),
    ]


def is_good(answer: Message) -> bool:
    """Whether an answer is a success, or an error after which clients ask again."""
    if answer.status:
        return int(answer.status.split()[0]) in RETRIED
    error = json.loads(answer.payload).get("error")
    return error is None or error["err_code"] in RETRIED


def test_every_request_from_the_first_connection_on_is_answered_once(start_server: Callable[..., Server]) -> None:
    """All requests are sent at once, when the server's INFO is there, before the server has said that it is ready."""
    server = start_server()
    with RawClient(server.address) as client:
        for number in range(STREAMS):
            stream = f"S{number}"
            assert "error" not in client.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"s{number}"]})
            config = {"durable_name": "old", "ack_policy": "explicit"}
            made = client.api(f"CONSUMER.CREATE.{stream}.old", {"stream_name": stream, "config": config})
            assert "error" not in made
    for start, end in enumerate(ENDS):
        end(server)
        asked = [request for number in range(STREAMS) for request in requests_of(number, start)]
        asked += [("$JS.API.INFO", b""), ("$JS.API.STREAM.NAMES", b""), ("$JS.API.STREAM.LIST", b"")]
        with first_connection(server) as client:
            sid = client.subscribe(f"{client.inbox}.*")
            for number, (subject, body) in enumerate(asked):
                client.publish(subject, body, reply=f"{client.inbox}.{number}")
            answers = client.messages(sid, len(asked), PATIENCE_S)
            server.wait_listening()
        counts = Counter(int(answer.subject.rpartition(".")[2]) for answer in answers)
        assert {asked[number][0]: counts[number] for number in range(len(asked)) if counts[number] != 1} == {}
        assert [answer for answer in answers if not is_good(answer)] == []


def next_delivery(client: RawClient, sid: str) -> tuple[int, int]:
    """Sequences in the stream and of the consumer of the next message; heartbeats are passed over."""
    while True:
        (message, *rest) = client.messages(sid, 1, PATIENCE_S)
        client.unclaimed += rest
        if not message.status:
            words = message.reply.split(".")
            return int(words[5]), int(words[6])


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_a_consumer_in_memory_goes_on_where_it_was(
    start_server: Callable[..., Server], kind: Kind, end: Callable[[Server], object]
) -> None:
    """Its client only subscribes again. In nats-server it is gone, in a cluster of nats-server it goes on too.

    After a crash it may deliver the last messages again, and the client of an ordered consumer sees it.
    """
    server = start_server()
    with RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        deliver = client.new_inbox()
        sid = client.subscribe(deliver)
        body = {"stream_name": "S", "config": {**ORDERED, "deliver_subject": deliver}}
        assert "error" not in client.api("CONSUMER.CREATE.S.ordered", body)
        for sequence in (1, 2, 3):
            client.acknowledged("s", b"")
            assert next_delivery(client, sid) == (sequence, sequence)
    end(server)
    with first_connection(server) as client:
        sid = client.subscribe(deliver)
        client.acknowledged("s", b"")
        if kind == "reference":
            assert client.api("CONSUMER.INFO.S.ordered")["error"]["err_code"] == 10014
            return
        stream_seq, consumer_seq = next_delivery(client, sid)
        assert stream_seq == consumer_seq
        assert stream_seq == 4 or (end is Server.kill and stream_seq < 4)
        assert client.api("CONSUMER.NAMES.S")["consumers"] == ["ordered"]


def test_what_was_delivered_and_acknowledged_before_a_stop_is_known_after_it(
    start_server: Callable[..., Server],
) -> None:
    """Nobody awaits these acks: they gather for a moment before they are written, and the server is stopped in it."""
    server = start_server()
    with RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        config = {"durable_name": "C", "ack_policy": "explicit"}
        assert "error" not in client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
        for _ in range(3):
            client.acknowledged("s", b"")
        for _ in range(3):
            (delivered,) = client.request("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
            client.publish(delivered.reply, b"+ACK")
        client.settle()
        server.stop()
    server.start()
    with RawClient(server.address) as client:
        info = client.api("CONSUMER.INFO.S.C")
    assert all(info[place][seq] == 3 for place in ("delivered", "ack_floor") for seq in ("consumer_seq", "stream_seq"))
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)
