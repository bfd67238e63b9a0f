"""Push consumers end to end on one node in memory; flow control as nats-server 2.15.1 does it."""

from __future__ import annotations

from typing import Any

from jetraft.cluster.consumers.push import WINDOW_BYTES_MAX, WINDOW_BYTES_START, FlowWindow
from jetraft.store.model.config import AckPolicy, DeliverPolicy
from tests.cluster.lab import Node, Sent, add_consumer, finish, info_of, start_stream

MS = 10**6
S = 10**9


class Subscriber:
    """A stream, one push consumer `p`, and somebody who listens to its deliver subject."""

    def __init__(self, *subjects: bytes, is_listening: bool = True, **consumer: Any) -> None:
        self.node = Node()
        self.replica = start_stream(self.node)
        for subject in subjects:
            self.node.publish(subject, b"0123456789")
        self.node.turn()
        if is_listening:
            self.node.subscriptions.add(b"to.me")
        fields = {"name": "p", "deliver_subject": "to.me", "ack_policy": AckPolicy.NONE, **consumer}
        self.info = add_consumer(self.node, self.replica, **fields)

    def receive(self, sleep_ns: int = 0) -> list[Sent]:
        kept, self.node.kept = self.node.kept, []
        return kept + self.node.sleep(sleep_ns)


def subjects_of(sent: list[Sent]) -> list[bytes]:
    return [message.subject for message in sent if message.to != message.subject]


def statuses(sent: list[Sent]) -> list[bytes]:
    return [message.hdr for message in sent if message.to == message.subject]


def test_messages_come_by_themselves_with_ack_subjects() -> None:
    client = Subscriber(b"s.a", b"s.b")
    sent = client.receive()
    assert [(message.to, message.subject) for message in sent] == [(b"to.me", b"s.a"), (b"to.me", b"s.b")]
    assert sent[1].reply.startswith(b"$JS.ACK.S.p.1.2.2.")
    client.node.publish(b"s.c")
    assert subjects_of(client.receive()) == [b"s.c"]


def test_the_answer_to_the_creation_tells_what_is_to_come() -> None:
    client = Subscriber(b"s.a", b"s.b", b"s.a", deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.>")
    assert (client.info.num_pending, client.info.delivered.consumer_seq) == (2, 0)
    assert subjects_of(client.receive()) == [b"s.b", b"s.a"]


def test_nothing_is_sent_while_nobody_listens_and_all_of_it_later() -> None:
    client = Subscriber(b"s.a", is_listening=False, inactive_threshold=60 * S)
    assert client.receive(5 * S) == []
    assert info_of(client.replica, "p").num_pending == 1
    client.node.subscriptions.add(b"to.me")
    assert subjects_of(client.receive()) == [b"s.a"], "in the turn in which somebody begins to listen"


def test_a_consumer_without_listeners_costs_no_timer() -> None:
    client = Subscriber(b"s.a", is_listening=False, durable_name="p")
    client.receive()
    leadership = client.replica._leadership
    assert leadership is not None
    runner = leadership.dispatcher.runner("p")
    assert runner is not None
    assert runner.core.step(runner._dispatcher.now()).wake_ns is None


def test_the_listeners_of_a_new_deliver_subject_count_and_those_of_the_old_one_do_not() -> None:
    client = Subscriber(b"s.a", is_listening=False, durable_name="p")
    add_consumer(client.node, client.replica, durable_name="p", deliver_subject="to.you", ack_policy=AckPolicy.NONE)
    client.node.subscriptions.add(b"to.me")
    assert client.receive() == []
    client.node.subscriptions.add(b"to.you")
    assert [message.to for message in client.receive()] == [b"to.you"]


def test_nothing_is_watched_for_a_consumer_that_is_gone() -> None:
    client = Subscriber()
    assert len(client.node.watches) == 1
    finish(client.node, lambda: client.replica.consumers.delete("p"))
    assert client.node.watches == {}


def test_a_consumer_that_nobody_listens_to_is_deleted() -> None:
    client = Subscriber(is_listening=True)
    client.node.sleep(20 * S)
    assert client.replica.consumer_names() == ["p"]
    client.node.subscriptions.clear()
    client.node.sleep(6 * S)
    assert client.replica.consumer_names() == []


def test_unacked_messages_are_pushed_again() -> None:
    client = Subscriber(b"s.a", ack_policy=AckPolicy.EXPLICIT, ack_wait=S)
    (first,) = client.receive()
    (again,) = client.receive(1500 * MS)
    assert (first.reply.split(b".")[4], again.reply.split(b".")[4]) == (b"1", b"2")
    client.node.publish(again.reply)
    assert client.receive(5 * S) == []


def test_a_pull_from_a_push_consumer_is_refused() -> None:
    client = Subscriber()
    client.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.p", reply=b"_INBOX.r")
    client.node.subscriptions.add(b"_INBOX.>")
    assert statuses(client.receive()) == [b"NATS/1.0 409 Consumer is push based\r\n\r\n"]


def test_heartbeats_say_where_the_consumer_is() -> None:
    client = Subscriber(b"s.a", idle_heartbeat=200 * MS)
    client.receive()
    assert (
        statuses(client.receive(500 * MS))
        == [b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"] * 2
    )


def test_a_stalled_consumer_goes_on_after_the_answer() -> None:
    client = Subscriber(idle_heartbeat=200 * MS, flow_control=True)
    for _ in range(4):
        client.node.publish(b"s.big", b"x" * 900_000)
    sent = client.receive(300 * MS)
    assert subjects_of(sent) == [b"s.big"] * 3
    (question,) = [message for message in sent if b"FlowControl" in message.hdr]
    assert question.hdr == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert sent.index(question) == 2
    assert statuses(sent)[-1].endswith(b"Nats-Consumer-Stalled: %s\r\n\r\n" % question.reply)
    client.node.publish(question.reply)
    assert subjects_of(client.receive()) == [b"s.big"]


def stored(seq: int) -> bytes:
    """The headers of an answer: everything is stored up to a sequence."""
    return b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (seq, seq)


def flow_acked(*subjects: bytes, **fields: Any) -> Subscriber:
    return Subscriber(*subjects, ack_policy=AckPolicy.FLOW_CONTROL, durable_name="p", **fields)


def questions(sent: list[Sent]) -> list[Sent]:
    return [message for message in sent if b"FlowControl" in message.hdr]


def test_what_an_answer_says_is_stored_is_acknowledged() -> None:
    client = flow_acked(*[b"s.a"] * 5, max_ack_pending=3)
    sent = client.receive()
    assert len(subjects_of(sent)) == 3
    (question,) = questions(sent)
    assert sent[-1] is question, "as soon as no more may be delivered"
    client.node.publish(question.reply, hdr=stored(2))
    sent = client.receive()
    assert [message.reply.split(b".")[5] for message in sent if message.to != message.subject] == [b"4", b"5"]
    info = info_of(client.replica, "p")
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (2, 3)


def test_while_something_is_unacknowledged_each_heartbeat_asks() -> None:
    client = flow_acked(b"s.a")
    assert questions(client.receive(900 * MS)) == []
    (question,) = questions(client.receive(200 * MS))
    client.node.publish(question.reply)
    (question,) = questions(client.receive(S))
    assert info_of(client.replica, "p").num_ack_pending == 1, "an answer that says nothing acknowledges nothing"
    client.node.publish(question.reply, hdr=stored(1))
    assert questions(client.receive(3 * S)) == []
    assert info_of(client.replica, "p").num_ack_pending == 0


def test_what_is_not_delivered_yet_cannot_be_acknowledged() -> None:
    client = flow_acked(*[b"s.a"] * 4, max_ack_pending=2)
    (question,) = questions(client.receive())
    client.node.publish(question.reply, hdr=stored(99))
    assert len(subjects_of(client.receive())) == 2
    assert info_of(client.replica, "p").ack_floor.stream_seq == 2


def test_nothing_is_delivered_again_before_a_reset() -> None:
    client = flow_acked(b"s.a", b"s.b")
    client.receive()
    assert subjects_of(client.receive(3600 * S)) == []
    finish(client.node, lambda: client.replica.reset_consumer("p", 0))
    assert subjects_of(client.receive()) == [b"s.a", b"s.b"]


def test_an_ack_subject_finds_nobody() -> None:
    client = flow_acked(b"s.a")
    (sent,) = client.receive()
    client.node.publish(sent.reply, reply=b"_INBOX.r")
    assert statuses(client.receive())[0].startswith(b"NATS/1.0 503")
    assert info_of(client.replica, "p").num_ack_pending == 1


def test_the_window_grows_with_every_answer_up_to_its_limit() -> None:
    window = FlowWindow()
    limits = []
    for number in range(6):
        limits.append(window.limit_bytes)
        assert window.sent(window.limit_bytes, 1)
        window.ask(b"%d" % number, number)
        window.answered(b"another")
        assert window.asked_with
        window.answered(b"%d" % number)
        assert window.pending_bytes == 0
    assert limits[0] == WINDOW_BYTES_START
    assert limits[-1] == WINDOW_BYTES_MAX
