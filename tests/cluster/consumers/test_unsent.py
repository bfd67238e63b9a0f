"""What is chosen for delivery and gone from the stream when its commit comes: everything spent on it is given back.

In a turn of the lab a publish that comes before a pull is proposed before what the pull is given, and not yet applied
when that is chosen. So what the publish removes is gone when the choice is committed.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.consumers.runner import STEPS_COPIED
from jetraft.store.model.config import AckPolicy, DiscardPolicy, RetentionPolicy
from tests.cluster.consumers.test_pull import Client, held_client, seqs, statuses
from tests.cluster.lab import Node, Sent, add_consumer, info_of, start_stream

S = 10**9
MS = 10**6
FULL: dict[str, Any] = {"num_replicas": 3, "max_msgs": 4}


def full(*, stream: dict[str, Any] | None = None, **consumer: Any) -> Client:
    return Client(*[b"s.a"] * 4, stream=FULL if stream is None else stream, **consumer)


def pull_behind(client: Client, subjects: list[bytes], body: bytes, reply: bytes = b"_INBOX.r") -> list[Sent]:
    """A request in the turn in which these are published."""
    for subject in subjects:
        client.node.publish(subject, b"0123456789")
    return client.pull(body, reply=reply)


def pending_of(status: bytes) -> tuple[int, int]:
    fields = dict(line.split(b": ") for line in status.split(b"\r\n")[1:] if line)
    return int(fields[b"Nats-Pending-Messages"]), int(fields[b"Nats-Pending-Bytes"])


def test_a_request_gets_as_many_as_it_asked_for_while_the_stream_drops_its_oldest() -> None:
    client = full()
    assert seqs(pull_behind(client, [b"s.a", b"s.a"], b'{"batch":4,"expires":%d}' % S)) == [3, 4, 5, 6]


def test_the_next_ones_are_copied_so_a_reader_at_the_tail_gets_what_it_was_given() -> None:
    client = full(stream={"num_replicas": 3, "max_msgs": 1})
    assert seqs(pull_behind(client, [b"s.a"], b"1")) == [5], "the first was gone"
    client.publish(b"s.a")
    assert seqs(pull_behind(client, [b"s.a"], b"1")) == [6], "gone as well, and sent"
    assert seqs(client.pull(b"1")) == [7]
    for seq in range(8, 8 + STEPS_COPIED):
        client.publish(b"s.a")
        assert seqs(client.pull(b"1")) == [seq], "nothing is removed any more"
    client.publish(b"s.a")
    assert seqs(pull_behind(client, [b"s.a"], b"1")) == [9 + STEPS_COPIED], "and so it was not copied"


def test_no_messages_is_not_said_of_a_stream_that_has_one() -> None:
    client = full(stream={"num_replicas": 3, "max_msgs": 1})
    sent = pull_behind(client, [b"s.a"], b'{"batch":5,"no_wait":true}')
    assert (seqs(sent), statuses(sent)) == ([5], [b"NATS/1.0 404 No Messages\r\n\r\n"])


def test_bytes_are_given_back_as_well() -> None:
    client = full()
    size = len(b"s.a" + b"0123456789") + len(client.pull(b"1")[0].reply)
    sent = pull_behind(client, [b"s.a", b"s.a"], b'{"batch":9,"max_bytes":%d}' % (3 * size + 5))
    assert seqs(sent) == [3, 4, 5]
    assert pending_of(statuses(sent)[0]) == (6, 5)


def test_no_place_among_those_that_wait_for_an_ack_is_held_by_what_nobody_got() -> None:
    client = full(max_ack_pending=2)
    assert seqs(pull_behind(client, [b"s.a"] * 2, b'{"batch":4,"expires":%d}' % S)) == [3, 4]
    assert info_of(client.replica, "c").num_ack_pending == 2


def test_a_consumer_without_acks_reads_a_stream_that_its_delivery_empties() -> None:
    stream = {"num_replicas": 3, "retention": RetentionPolicy.INTEREST}
    client = Client(stream=stream, ack_policy=AckPolicy.NONE)
    client.publish(b"s.a", b"s.a")
    assert seqs(client.pull(b"5")) == [1, 2]


def test_a_push_consumer_s_window_is_not_filled_by_what_was_not_sent() -> None:
    node = Node()
    replica = start_stream(node, **FULL)
    fields = {"deliver_subject": "to.me", "flow_control": True, "idle_heartbeat": 60 * S}
    add_consumer(node, replica, durable_name="p", ack_policy=AckPolicy.NONE, **fields)
    for _ in range(4):
        node.publish(b"s.a", b"x" * 400_000)
    node.turn()
    for _ in range(3):  # with the listener of this turn, who is served behind these
        node.publish(b"s.a", b"y" * 1000)
    node.subscriptions.add(b"to.me")
    sent = node.turn()
    messages = [message for message in sent if message.reply.startswith(b"$JS.ACK.")]
    assert seqs(messages) == [4, 5, 6, 7]
    assert replica._leadership is not None
    runner = replica._leadership.dispatcher.runner("p")
    assert runner is not None
    window = runner.core._window  # type: ignore[union-attr]
    assert window.pending_bytes == sum(len(m.subject) + len(m.payload) + len(m.reply) for m in messages)
    (question,) = [message.reply for message in sent if message.reply.startswith(b"$JS.FC.")]
    node.publish(question)
    node.turn()
    assert window.pending_bytes == sum(len(m.subject) + len(m.payload) + len(m.reply) for m in messages), (
        "the question stood behind the three that were gone"
    )


requests = st.fixed_dictionaries(
    {"batch": st.integers(1, 6), "expires": st.just(S)},
    optional={"no_wait": st.booleans(), "max_bytes": st.integers(40, 300)},
)
events = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.just("pull"), requests),
    st.tuples(st.just("ack"), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.integers(1, 12)),
    st.tuples(st.just("sleep"), st.sampled_from([MS, 120 * MS])),
    st.tuples(st.just("turn"), st.none()),
)
configs = st.fixed_dictionaries(
    {"ack_policy": st.sampled_from(list(AckPolicy)[:3])},
    optional={"max_ack_pending": st.integers(1, 5), "ack_wait": st.just(100 * MS), "headers_only": st.just(value=True)},
)
streams = st.fixed_dictionaries(
    {"num_replicas": st.just(3), "max_msgs": st.sampled_from([1, 3, 6])},
    optional={"retention": st.just(RetentionPolicy.INTEREST), "discard": st.just(DiscardPolicy.OLD)},
)


class History:
    """What happens to a consumer whose stream loses messages, and what its client has seen of it."""

    def __init__(self, stream: dict[str, Any], config: dict[str, Any]) -> None:
        self.client = Client(stream=stream, **config)
        self.asked: dict[bytes, dict[str, Any]] = {}
        self.sent: list[Sent] = []

    def happen(self, kind: str, what: Any) -> None:
        node, replica = self.client.node, self.client.replica
        match kind:
            case "publish":
                for _ in range(what):
                    node.publish(b"s.a", b"0123456789")
            case "pull":
                reply = b"_INBOX.%d" % len(self.asked)
                self.asked[reply] = what
                body = ",".join(f'"{name}":{str(value).lower()}' for name, value in what.items())
                node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", f"{{{body}}}".encode(), reply=reply)
            case "ack":
                delivered = [message.reply for message in self.sent if message.reply]
                if delivered:
                    node.publish(delivered[what % len(delivered)])
            case "remove":
                replica.machine.store.remove([what])
                replica.machine.mutations += 1
            case "sleep":
                self.sent += node.sleep(what)
            case "turn":
                self.sent += node.turn()

    def check(self, reply: bytes) -> None:
        """A request is filled, or has ended with a status that says what is left of it."""
        request, got = self.asked[reply], [message for message in self.sent if message.to == reply]
        messages, ends = [message for message in got if message.reply], statuses(got)
        size = sum(len(message.subject) + 10 + len(message.reply) for message in messages)
        if len(messages) == request["batch"] or size == request.get("max_bytes"):
            assert ends == []
            return
        (end,) = ends
        if b"Nats-Pending-Messages" in end:
            left_bytes = request["max_bytes"] - size if "max_bytes" in request else 0
            assert pending_of(end) == (request["batch"] - len(messages), left_bytes)
        else:
            assert end.startswith((b"NATS/1.0 404 No Messages", b"NATS/1.0 408 Requests Pending"))


@settings(max_examples=300, deadline=None)
@given(streams, configs, st.lists(events, min_size=6, max_size=24))
def test_what_a_request_was_counted_is_what_its_client_got(
    stream: dict[str, Any], config: dict[str, Any], history: list[tuple[str, Any]]
) -> None:
    """Each ends filled, or with a status that says what is left of it; none waits beside a message it could have."""
    life = History(stream, config)
    for kind, what in [*history, ("turn", None)]:
        life.happen(kind, what)
    info = info_of(life.client.replica, "c")
    limit = life.client.replica.machine.consumers["c"].config.max_ack_pending
    assert not info.num_waiting or not info.num_pending or 0 < limit <= info.num_ack_pending
    life.happen("sleep", 2 * S)
    for reply in life.asked:
        life.check(reply)


def test_a_request_that_expires_before_its_messages_leave_says_what_it_did_not_get_in_the_end() -> None:
    client, log = held_client(3)
    assert client.pull(b'{"batch":5,"expires":%d}' % S, sleep_ns=2 * S) == []
    client.replica.machine.store.remove([1])
    log.complete()
    sent = client.node.turn()
    assert seqs(sent) == [2]
    assert [pending_of(status) for status in statuses(sent)] == [(4, 0)]


@pytest.mark.parametrize("reason", ["leader", "deleted"])
def test_a_request_whose_messages_never_left_is_told_that_its_consumer_ends(reason: str) -> None:
    client, log = held_client(3)
    client.pull(b"1")
    if reason == "leader":
        client.replica.group.fail(RuntimeError("disk"), client.node.clock.mono_ns())
        expected = b"NATS/1.0 409 Leadership Change\r\n\r\n"
    else:
        assert client.replica._leadership is not None
        client.replica._leadership.dispatcher.deleted(client.replica.machine.consumers["c"])
        expected = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
    log.complete()
    assert [message.hdr for message in client.node.turn()] == [expected]
