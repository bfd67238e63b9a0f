"""Pull consumers end to end on one node in memory; statuses as nats-server 2.15.1 sends them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.consumers.pending import PendingTable
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import AckPolicy, DeliverPolicy, RetentionPolicy
from tests.cluster.lab import Node, Sent, add_consumer, finish, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9
NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"


class Client:
    """A stream with some messages, one consumer `c`, and a client that pulls from it."""

    def __init__(self, *subjects: bytes, stream: dict[str, Any] | None = None, **consumer: Any) -> None:
        self.node = Node()
        self.replica: StreamReplica = start_stream(self.node, **(stream or {}))
        self.publish(*subjects)
        self.info = add_consumer(self.node, self.replica, durable_name="c", **consumer)

    def publish(self, *subjects: bytes) -> None:
        for subject in subjects:
            self.node.publish(subject, b"0123456789")
        self.node.turn()

    def pull(self, body: bytes = b"", *, sleep_ns: int = 0, reply: bytes = b"_INBOX.r") -> list[Sent]:
        self.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=reply)
        return self.node.sleep(sleep_ns)

    def ack(self, message: Sent, body: bytes = b"", reply: bytes = b"") -> list[Sent]:
        self.node.publish(message.reply, body, reply=reply)
        return self.node.turn()


def seqs(sent: list[Sent]) -> list[int]:
    return [int(message.reply.split(b".")[5]) for message in sent if message.reply]


def statuses(sent: list[Sent]) -> list[bytes]:
    return [message.hdr for message in sent if not message.reply]


def test_a_batch_has_exact_ack_subjects() -> None:
    client = Client(b"s.a", b"s.a", b"s.a")
    sent = client.pull(b'{"batch":2}')
    ts_ns = client.replica.machine.last_ts_ns
    assert [message.reply for message in sent] == [
        b"$JS.ACK.S.c.1.1.1.%d.2" % ts_ns,
        b"$JS.ACK.S.c.1.2.2.%d.1" % ts_ns,
    ]
    assert {(message.to, message.subject, message.payload) for message in sent} == {
        (b"_INBOX.r", b"s.a", b"0123456789")
    }


def test_a_request_waits_for_messages_to_come() -> None:
    client = Client()
    assert client.pull(b"2") == []
    client.node.publish(b"s.a")
    assert seqs(client.node.turn()) == [1]
    client.node.publish(b"s.a")
    assert seqs(client.node.turn()) == [2]


def test_no_wait_ends_when_nothing_is_left() -> None:
    client = Client(b"s.a", b"s.a")
    sent = client.pull(b'{"batch":10,"no_wait":true}')
    assert (seqs(sent), statuses(sent)) == ([1, 2], [NO_MESSAGES])
    assert statuses(client.pull(b'{"batch":1,"no_wait":true}')) == [NO_MESSAGES]


def test_no_wait_with_expires_is_one_shot() -> None:
    client = Client()
    assert client.pull(b'{"batch":5,"no_wait":true,"expires":%d}' % S) == []
    client.node.publish(b"s.a")
    sent = client.node.turn()
    assert (seqs(sent), statuses(sent)) == ([1], [NO_MESSAGES])


def test_an_expired_request_says_what_it_did_not_get() -> None:
    client = Client(b"s.a")
    sent = client.pull(b'{"batch":3,"expires":%d}' % S, sleep_ns=2 * S)
    assert seqs(sent) == [1]
    assert statuses(sent) == [
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: 0\r\n\r\n"
    ]


def test_heartbeats_come_while_nothing_else_does() -> None:
    client = Client(b"s.a")
    client.pull()
    sent = client.pull(b'{"batch":1,"expires":%d,"idle_heartbeat":%d}' % (S, S // 4), sleep_ns=2 * S)
    alive = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    assert statuses(sent)[:-1] == [alive] * 3
    assert statuses(sent)[-1].startswith(b"NATS/1.0 408 Request Timeout")


def test_max_bytes_counts_subject_ack_subject_and_payload() -> None:
    client = Client(b"s.a", b"s.a", b"s.a")
    size = len(b"s.a" + b"0123456789") + len(client.pull(b"1")[0].reply)
    sent = client.pull(b'{"batch":3,"max_bytes":%d}' % (size + 4))
    assert seqs(sent) == [2]
    assert statuses(sent) == [
        b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: 4\r\n\r\n"
    ]
    assert seqs(client.pull(b'{"batch":3,"max_bytes":%d}' % size)) == [3]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"batch":6}', b"NATS/1.0 409 Exceeded MaxRequestBatch of 5\r\n\r\n"),
        (b'{"batch":1,"expires":%d}' % (6 * S), b"NATS/1.0 409 Exceeded MaxRequestExpires of 5s\r\n\r\n"),
        (b'{"batch":1,"max_bytes":101}', b"NATS/1.0 409 Exceeded MaxRequestMaxBytes of 100\r\n\r\n"),
        (b"{", b"NATS/1.0 400 Bad Request - unexpected end of JSON input\r\n\r\n"),
    ],
)
def test_a_request_over_the_consumer_s_limits_is_refused(body: bytes, status: bytes) -> None:
    client = Client(b"s.a", max_batch=5, max_expires=5 * S, max_bytes=100)
    assert statuses(client.pull(body)) == [status]


def test_a_full_queue_refuses_and_is_silent_to_those_with_heartbeats() -> None:
    client = Client(max_waiting=2)
    client.pull(b"1", reply=b"_INBOX.1")
    client.pull(b"1", reply=b"_INBOX.2")
    assert statuses(client.pull(b"1")) == [b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"]
    assert client.pull(b'{"batch":1,"expires":%d,"idle_heartbeat":%d}' % (S, S // 4)) == []


def test_a_consumer_without_a_limit_of_its_own_holds_a_bounded_number_of_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jetraft.cluster.consumers.pull.WAITING_MAX", 3)
    client = Client(max_waiting=1_000)
    for number in range(3):
        assert client.pull(b"1", reply=b"_INBOX.%d" % number) == []
    assert statuses(client.pull(b"1")) == [b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"]


def test_many_pending_messages_are_looked_for_over_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetraft.cluster.consumers.acknowledging.LOOKS_PER_STEP", 4)
    client = Client(*[b"s.a"] * 10, max_ack_pending=10)
    assert len(client.pull(b"10")) == 10
    begun: list[int] = []
    missing = PendingTable.missing

    def noting(table: PendingTable, exists: Any, after_seq: int, count_max: int) -> Any:
        assert count_max == 4
        begun.append(after_seq)
        return missing(table, exists, after_seq, count_max)

    monkeypatch.setattr(PendingTable, "missing", noting)
    for seq in (2, 6, 9):
        finish(client.node, partial(client.replica.delete_message, seq, erase=False))
    info_of(client.replica, "c")
    client.node.turn()
    client.node.sleep(S)
    assert begun[:3] == [0, 4, 8]
    assert info_of(client.replica, "c").num_ack_pending == 7


def test_requests_of_clients_that_left_make_room() -> None:
    client = Client(max_waiting=1)
    client.pull(b"1", reply=b"gone.1")
    assert client.pull(b"1") == []
    client.node.publish(b"s.a")
    assert seqs(client.node.turn()) == [1]


def test_a_message_is_not_spent_on_a_client_that_left() -> None:
    client = Client()
    client.pull(b"1", reply=b"gone.1")
    client.pull(b"1", reply=b"_INBOX.r")
    client.node.publish(b"s.a")
    assert [(message.to, message.reply.split(b".")[4]) for message in client.node.turn()] == [(b"_INBOX.r", b"1")]


def test_two_clients_share_in_turn() -> None:
    client = Client()
    client.pull(b"5", reply=b"_INBOX.1")
    client.pull(b"5", reply=b"_INBOX.2")
    client.publish(b"s.a")
    for _ in range(3):
        client.node.publish(b"s.a")
    sent = client.node.turn()
    assert sorted((message.to, seq) for message, seq in zip(sent, seqs(sent), strict=True)) == [
        (b"_INBOX.1", 3),
        (b"_INBOX.2", 2),
        (b"_INBOX.2", 4),
    ]


def test_unacked_messages_come_again_and_acked_ones_do_not() -> None:
    client = Client(b"s.a", b"s.a")
    first, _second = client.pull(b"2")
    client.ack(first)
    client.node.sleep(31 * S)
    (again,) = client.pull(b'{"batch":5}')
    assert again.reply.startswith(b"$JS.ACK.S.c.2.2.3.")


def test_a_nak_brings_a_message_back_at_once_or_later() -> None:
    client = Client(b"s.a")
    (first,) = client.pull()
    client.ack(first, b"-NAK")
    (second,) = client.pull()
    client.ack(second, b"-NAK 2s")
    assert client.pull(b'{"batch":1,"expires":%d}' % (3 * S), sleep_ns=S) == []
    assert seqs(client.node.sleep(2 * S)) == [1]


def test_a_terminated_message_does_not_come_again() -> None:
    client = Client(b"s.a")
    client.ack(client.pull()[0], b"+TERM")
    client.node.sleep(60 * S)
    assert statuses(client.pull(b'{"no_wait":true}')) == [NO_MESSAGES]


def test_progress_postpones_redelivery() -> None:
    client = Client(b"s.a", ack_wait=10 * S)
    (message,) = client.pull()
    for _ in range(3):
        client.node.sleep(8 * S)
        client.ack(message, b"+WPI")
    assert info_of(client.replica, "c").num_redelivered == 0
    client.node.sleep(11 * S)
    assert seqs(client.pull()) == [1]


def test_a_message_is_given_up_after_max_deliver() -> None:
    client = Client(b"s.a", max_deliver=2, ack_wait=S)
    for _ in range(2):
        assert seqs(client.pull()) == [1]
        client.node.sleep(2 * S)
    assert statuses(client.pull(b'{"no_wait":true}')) == [NO_MESSAGES]
    assert info_of(client.replica, "c").num_ack_pending == 0
    assert client.replica.machine.messages == 1


@pytest.mark.parametrize("retention", [RetentionPolicy.WORK_QUEUE, RetentionPolicy.INTEREST])
@pytest.mark.parametrize("reply", [b"", b"_INBOX.d"])
def test_a_message_that_was_given_up_goes_with_a_late_ack(retention: RetentionPolicy, reply: bytes) -> None:
    client = Client(stream={"retention": retention}, max_deliver=1, ack_wait=S)
    client.publish(b"s.a", b"s.a", b"s.a")
    sent = client.pull(b"3")
    client.node.sleep(2 * S)
    assert client.replica.machine.messages == 3
    for late, left in ((sent[0], 2), (sent[2], 1)):
        client.ack(late, reply=reply)
        assert client.replica.machine.messages == left
    client.ack(sent[0])
    assert client.replica.machine.messages == 1


def test_a_late_ack_leaves_what_another_consumer_waits_for() -> None:
    client = Client(stream={"retention": RetentionPolicy.INTEREST}, max_deliver=1, ack_wait=S)
    add_consumer(client.node, client.replica, durable_name="other")
    client.publish(b"s.a")
    sent = client.pull(b"1")
    client.node.sleep(2 * S)
    client.ack(sent[0])
    assert client.replica.machine.messages == 1


def test_a_late_ack_of_what_the_filter_leaves_out_removes_nothing() -> None:
    client = Client(stream={"retention": RetentionPolicy.WORK_QUEUE}, filter_subject="s.a")
    client.publish(b"s.b", b"s.a")
    client.pull(b"1")
    client.node.publish(b"$JS.ACK.S.c.1.1.1.1700000000000000000.0", b"")
    client.node.turn()
    assert client.replica.machine.messages == 2


@pytest.mark.parametrize("body", [b"", b"-NAK", b"+WPI", b"+TERM", b"+NXT", b"what"])
def test_an_ack_where_nothing_is_acknowledged_finds_no_responder(body: bytes) -> None:
    client = Client(b"s.a", b"s.a", ack_policy=AckPolicy.NONE)
    (sent,) = client.pull(b"1")
    (answer,) = client.ack(sent, body, reply=b"_INBOX.d")
    assert answer.hdr == b"NATS/1.0 503\r\nNats-Subject: %s\r\n\r\n" % sent.reply
    assert client.ack(sent, body) == []
    client.node.publish(b"$JS.ACK.S.c.1.2.2.1700000000000000000.0", b"")
    assert seqs(client.pull(b"1")) == [2]


def test_no_wait_that_the_limit_of_acks_holds_up_ends_with_the_next_timer() -> None:
    client = Client(*[b"s.a"] * 5, max_ack_pending=2)
    asked = b'{"batch":4,"no_wait":true,"expires":%d,"idle_heartbeat":%d}' % (4 * S, S)
    sent = client.pull(asked, sleep_ns=S + 1)
    assert (seqs(sent), statuses(sent)) == ([1, 2], [NO_MESSAGES])
    assert info_of(client.replica, "c").num_waiting == 0


def test_the_timer_of_another_request_ends_it_too() -> None:
    client = Client(*[b"s.a"] * 5, max_ack_pending=2)
    client.pull(b'{"batch":4,"no_wait":true,"expires":%d}' % (4 * S))
    sent = client.pull(b'{"batch":1,"expires":%d}' % S, sleep_ns=S + 1, reply=b"_INBOX.other")
    assert sorted((one.to, one.hdr[:12]) for one in sent) == [
        (b"_INBOX.other", b"NATS/1.0 408"),
        (b"_INBOX.r", b"NATS/1.0 404"),
    ]


def test_an_ack_that_asks_for_the_next_gets_it() -> None:
    client = Client(b"s.a", b"s.a")
    (first,) = client.pull()
    assert seqs(client.ack(first, b"+NXT", reply=b"_INBOX.n")) == [2]
    assert info_of(client.replica, "c").ack_floor.stream_seq == 1


def test_a_double_ack_is_answered_once_and_also_when_repeated() -> None:
    client = Client(b"s.a")
    (message,) = client.pull()
    for _ in range(2):
        assert [(sent.to, sent.hdr, sent.payload) for sent in client.ack(message, reply=b"_INBOX.d")] == [
            (b"_INBOX.d", b"", b"")
        ]


@pytest.mark.parametrize("body", [b"+ACK", b"-NAK", b"+WPI", b"+TERM", b"junk"])
def test_every_ack_with_a_reply_is_answered(body: bytes) -> None:
    client = Client(b"s.a")
    assert len(client.ack(client.pull()[0], body, reply=b"_INBOX.d")) == 1


def test_an_ack_for_a_message_that_does_not_exist_is_ignored() -> None:
    client = Client(b"s.a")
    client.node.publish(b"$JS.ACK.S.c.1.99.99.1.0", reply=b"_INBOX.d")
    assert client.node.turn() == []


def test_an_ack_from_before_this_leader_is_honoured() -> None:
    client = Client(b"s.a", b"s.a", b"s.a")
    client.node.publish(b"$JS.ACK.S.c.1.2.2.1.0", reply=b"_INBOX.d")
    assert len(client.node.turn()) == 1
    assert info_of(client.replica, "c").num_pending == 2
    sent = client.pull(b"3")
    assert seqs(sent) == [1, 3]
    assert sent[-1].reply.endswith(b".0")


def test_ack_all_acknowledges_everything_before() -> None:
    client = Client(*[b"s.a"] * 4, ack_policy=AckPolicy.ALL)
    sent = client.pull(b"4")
    client.ack(sent[2])
    info = info_of(client.replica, "c")
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (3, 1)


def test_max_ack_pending_holds_back_new_messages() -> None:
    client = Client(*[b"s.a"] * 3, max_ack_pending=2)
    sent = client.pull(b"3")
    assert seqs(sent) == [1, 2]
    assert seqs(client.ack(sent[0])) == [3]


def test_unknown_consumers_have_no_responders() -> None:
    client = Client()
    client.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.x", reply=b"_INBOX.r")
    (sent,) = client.node.turn()
    assert sent.hdr == b"NATS/1.0 503\r\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.S.x\r\n\r\n"


def test_deleting_a_consumer_ends_its_requests() -> None:
    client = Client()
    client.pull(b"1")
    assert finish(client.node, lambda: client.replica.consumers.delete("c"))
    assert statuses(client.node.kept) == [b"NATS/1.0 409 Consumer Deleted\r\n\r\n"]
    assert not finish(client.node, lambda: client.replica.consumers.delete("c"))


def test_a_leader_that_stops_ends_requests() -> None:
    client = Client()
    client.pull(b"1")
    client.replica.became_follower(2, None)
    assert statuses(client.node.turn()) == [b"NATS/1.0 409 Leadership Change\r\n\r\n"]


def test_an_unused_ephemeral_is_deleted() -> None:
    client = Client()
    add_consumer(client.node, client.replica, name="e")
    client.node.sleep(4 * S)
    assert "e" in client.replica.consumer_names()
    client.node.sleep(2 * S)
    assert client.replica.consumer_names() == ["c"]


SUBJECTS = [b"s.a", b"s.b", b"s.a", b"s.c", b"s.b"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"deliver_policy": DeliverPolicy.NEW}, [6]),
        ({"deliver_policy": DeliverPolicy.LAST}, [5, 6]),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "s.>"}, [3, 4, 5, 6]),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "s.b"}, [5]),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 4}, [4, 5, 6]),
        ({"filter_subject": "s.a"}, [1, 3, 6]),
        ({"filter_subjects": ("s.b", "s.c")}, [2, 4, 5]),
        ({"filter_subject": "s.a", "deliver_policy": DeliverPolicy.LAST}, [3, 6]),
    ],
)
def test_a_consumer_sees_what_its_policy_and_filters_say(fields: dict[str, Any], expected: list[int]) -> None:
    client = Client(*SUBJECTS, **fields)
    client.publish(b"s.a")
    sent = client.pull(b"10")
    assert seqs(sent) == expected
    assert [int(message.reply.rpartition(b".")[2]) for message in sent] == list(range(len(expected)))[::-1]


def test_headers_only_leaves_out_the_payload() -> None:
    client = Client(b"s.a", headers_only=True)
    (message,) = client.pull()
    assert (message.hdr, message.payload) == (b"NATS/1.0\r\nNats-Msg-Size: 10\r\n\r\n", b"")


actions = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["s.a", "s.b"])),
        st.tuples(st.just("pull"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(0, 9)),
        st.tuples(st.just("nak"), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(1, 12)),
        st.tuples(st.just("sleep"), st.integers(1, 40)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(actions, st.sampled_from(["", "s.a"]))
def test_every_message_is_delivered_until_it_is_acked_and_never_after(  # noqa: C901  (a table of steps)
    history: list[tuple[str, Any]], filter_subject: str
) -> None:
    client = Client(filter_subject=filter_subject)
    wanted, delivered, acked = set[int](), list[Sent](), set[int]()

    def receive(sent: list[Sent]) -> None:
        for message in sent:
            if message.reply:
                (seq,) = seqs([message])
                assert seq not in acked
                assert seq in wanted
                delivered.append(message)

    for kind, value in history:
        match kind:
            case "publish":
                client.node.publish(value.encode())
                receive(client.node.turn())
                seq = client.replica.machine.last_seq
                if filter_subject in ("", value):
                    wanted.add(seq)
                    receive([])
            case "pull":
                receive(client.pull(b'{"batch":%d,"no_wait":true}' % value))
            case "ack" | "nak" if delivered:
                message = delivered[value % len(delivered)]
                if kind == "ack":
                    acked |= set(seqs([message]))
                receive(client.ack(message, b"+ACK" if kind == "ack" else b"-NAK"))
            case "remove":
                finish(client.node, partial(client.replica.delete_message, value, erase=False))
                wanted.discard(value)
            case "sleep":
                receive(client.node.sleep(value * S))
        info = info_of(client.replica, "c")
        undelivered = {seq for seq in wanted if seq > info.delivered.stream_seq}
        assert info.num_pending == len(undelivered)
    client.node.sleep(31 * S)
    receive(client.pull(b'{"batch":100,"no_wait":true}'))
    assert {seq for message in delivered for seq in seqs([message])} | acked >= wanted


def held_client(replicas: int) -> tuple[Client, MemLog]:
    """A client of a stream with two messages whose log makes nothing durable until it is told to."""
    log = MemLog()
    client = Client(b"s.a", b"s.a", stream={"log": log, "num_replicas": replicas})
    log._durable_on_submit = False
    return client, log


def test_a_replicated_consumer_sends_when_the_delivery_is_committed() -> None:
    client, log = held_client(3)
    assert client.pull(b"1") == []
    assert statuses(client.pull(b"{")) == []
    log.complete()
    sent = client.node.turn()
    assert seqs(sent[:1]) == [1]
    assert statuses(sent[1:]) == [b"NATS/1.0 400 Bad Request - unexpected end of JSON input\r\n\r\n"]


def test_a_consumer_with_one_replica_sends_at_once_but_answers_a_double_ack_when_it_is_durable() -> None:
    client, log = held_client(1)
    (message,) = client.pull(b"1")
    assert client.ack(message, reply=b"_INBOX.d") == []
    while log.durable_index < log.last_index:
        log.complete()
        client.node.kept += client.node.turn()
    assert [sent.to for sent in client.node.kept] == [b"_INBOX.d"]


def test_what_was_not_committed_is_never_sent_after_leadership_is_lost() -> None:
    client, log = held_client(3)
    client.pull(b"1")
    client.replica.group.fail(RuntimeError("disk"), client.node.clock.mono_ns())
    log.complete()
    (status,) = client.node.turn()
    assert status.hdr == b"NATS/1.0 409 Leadership Change\r\n\r\n", "the request got nothing, and its client is told"


def test_delivery_counts_survive_a_restart() -> None:
    log = MemLog()
    client = Client(b"s.a", stream={"log": log}, ack_wait=S)
    for _ in range(2):
        client.pull()
        client.node.sleep(2 * S)
    client.replica.stop()
    client.replica = start_stream(client.node, log)
    client.node.sleep(2 * S)
    (message,) = client.pull()
    assert message.reply.startswith(b"$JS.ACK.S.c.3.1.3.")


def test_who_has_left_is_not_counted_among_those_that_wait() -> None:
    client = Client()
    client.node.subscriptions.add(b"gone")
    client.pull(b"5", reply=b"gone")
    client.pull(b"1")
    assert info_of(client.replica, "c").num_waiting == 2
    client.node.subscriptions.remove(b"gone")
    assert info_of(client.replica, "c").num_waiting == 1


def test_who_has_left_does_not_stand_before_a_request_that_does_not_wait() -> None:
    client = Client(b"s.a", b"s.a", max_ack_pending=1)
    client.node.subscriptions.add(b"gone")
    (first,) = client.pull(b"5", reply=b"gone")
    client.node.subscriptions.remove(b"gone")
    assert client.pull(b'{"batch":1,"no_wait":true,"expires":%d}' % S) == []
    assert seqs(client.ack(first)) == [2]
