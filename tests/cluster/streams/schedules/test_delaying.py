"""Messages that wait until they are due, on one node in memory: hidden, in their order, once, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from jetraft.cluster.state.machine import StreamMachine
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy, DeliverPolicy, DiscardPolicy, Republish, RetentionPolicy
from jetraft.store.model.gotime import format_time
from jetraft.store.model.requests import JSApiStreamPurgeRequest
from tests.cluster.lab import Node, Sent, add_consumer, finish, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9
MS = 10**6
WAITING = b"$JETRAFT.DELAYED."


def delayed(node: Node, log: MemLog | None = None, **fields: Any) -> StreamReplica:
    metadata = {"jetraft.delayed": "true", **fields.pop("metadata", {})}
    return start_stream(node, log, metadata=metadata, **fields)


def publish(node: Node, subject: bytes = b"s.a", payload: bytes = b"x", **headers: str) -> dict[str, Any]:
    """Publish one message; `Jetraft_Delay="5s"` is a header. Returns the answer."""
    hdr = message.build({name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})
    node.publish(subject, payload, hdr=hdr, reply=b"_INBOX.p")
    (answer,) = [sent for sent in node.turn() if sent.to == b"_INBOX.p"]
    found: dict[str, Any] = orjson.loads(answer.payload)
    return found


def refusal(answer: dict[str, Any]) -> tuple[int, str]:
    return answer["error"]["err_code"], answer["error"]["description"]


def visible(replica: StreamReplica) -> list[bytes]:
    """The payloads that a consumer without a filter would be given."""
    store = replica.machine.store
    seqs = replica.machine.next_runs((), 1, 1000)
    assert replica.machine.num_pending((), 1) == len(seqs)
    assert list(seqs) == list(replica.machine.next_runs((b"s.>",), 1, 1000))
    return [found.payload for found in store.load_many(seqs)]


def pull(node: Node, batch: int = 10) -> list[Sent]:
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":%d,"no_wait":true}' % batch, reply=b"_INBOX.r")
    return [sent for sent in node.turn() if sent.reply.startswith(b"$JS.ACK")]


def test_a_message_is_acknowledged_at_once_and_seen_when_it_is_due() -> None:
    node = Node()
    replica = delayed(node)
    moment = format_time(node.clock.unix_ns() + 5 * S)
    assert publish(node, b"s.a", b"later", Jetraft_Delay="5s", Colour="red", Nats_Msg_Id="m") == {
        "stream": "S",
        "seq": 1,
    }
    assert publish(node, b"s.a", b"now") == {"stream": "S", "seq": 2}
    assert visible(replica) == [b"now"]
    waiting = replica.machine.store.load(1)
    assert waiting is not None
    assert (waiting.subject, waiting.payload) == (WAITING + b"1.s.a", b"later")
    node.sleep(4990 * MS)
    assert visible(replica) == [b"now"]
    node.sleep(30 * MS)
    assert visible(replica) == [b"now", b"later"]
    due = replica.machine.store.load(3)
    assert due is not None
    assert due.subject == b"s.a"
    assert dict(message.items(due.hdr)) == {
        b"Colour": b"red",
        b"Jetraft-Deliver-At": moment.encode(),
        b"Jetraft-Delayed-Msg-Id": b"m",
        b"Nats-Scheduler": WAITING + b"1.s.a",
        b"Nats-Schedule-Next": b"purge",
    }
    assert replica.machine.messages == 2, "what has waited is gone with the same entry"
    assert publish(node, b"s.a", b"later", Jetraft_Delay="5s", Nats_Msg_Id="m")["duplicate"] is True


def test_messages_of_one_subject_come_in_the_order_in_which_they_are_due() -> None:
    node = Node()
    replica = delayed(node, max_msgs_per_subject=10)
    for wait in (50, 10, 30, 20, 40, 10):
        publish(node, b"s.a", b"%d" % wait, Jetraft_Delay=f"{wait}s")
    at = format_time(node.clock.unix_ns() + 15 * S)
    publish(node, b"s.b", b"15", Jetraft_Deliver_At=at)
    publish(node, b"s.b", b"5", Jetraft_Delay=str(5 * S))
    node.sleep(60 * S)
    assert visible(replica) == [b"5", b"10", b"10", b"15", b"20", b"30", b"40", b"50"]
    assert replica.machine.num_subjects == 2


def test_a_message_that_is_due_already_does_not_wait() -> None:
    node = Node()
    replica = delayed(node)
    publish(node, Jetraft_Deliver_At="2001-01-01T00:00:00Z")
    publish(node, Jetraft_Delay="0s")
    assert len(visible(replica)) == 2


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"Jetraft_Delay": "soon"}, "Jetraft-Delay is a duration or a number of nanoseconds, not 'soon'"),
        ({"Jetraft_Delay": "-5s"}, "Jetraft-Delay is a duration or a number of nanoseconds, not '-5s'"),
        ({"Jetraft_Deliver_At": "9999-12-31T23:59:59-23:00"}, "a message can not wait beyond the year 9999"),
        ({"Jetraft_Delay": "9" * 20}, f"Jetraft-Delay is a duration or a number of nanoseconds, not {'9' * 20!r}"),
        ({"Jetraft_Deliver_At": "noon"}, "Jetraft-Deliver-At is a time of RFC 3339, not 'noon'"),
        (
            {"Jetraft_Delay": "5s", "Jetraft_Deliver_At": "2999-01-01T00:00:00Z"},
            "Jetraft-Delay and Jetraft-Deliver-At can not be both",
        ),
        ({"Jetraft_Delay": "2h"}, "a wait of 2h0m0s is longer than the stream keeps messages, 1h0m0s"),
    ],
)
def test_a_time_that_can_not_be_is_refused(headers: dict[str, Any], text: str) -> None:
    node = Node()
    replica = delayed(node, max_age=3600 * S)
    assert refusal(publish(node, **headers)) == (10189, text)
    assert replica.machine.messages == 0


def test_without_the_key_the_headers_are_like_any_other() -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, Jetraft_Delay="5s")
    assert len(visible(replica)) == 1


def test_batches_and_schedules_can_not_wait() -> None:
    node = Node()
    delayed(node, allow_atomic=True, allow_batched=True, allow_msg_schedules=True, allow_rollup_hdrs=True)
    batch: dict[str, Any] = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1", "Nats_Batch_Commit": "1"}
    assert "Jetraft-Delay" in refusal(publish(node, Jetraft_Delay="5s", **batch))[1]
    schedule: dict[str, Any] = {"Nats_Schedule": "@every 10s", "Nats_Schedule_Target": "s.b"}
    assert refusal(publish(node, Jetraft_Delay="5s", **schedule)) == (10189, "a schedule can not wait itself")
    forged: dict[str, Any] = {"Nats_Scheduler": "$JETRAFT.DELAYED.1.s.a", "Nats_Schedule_Next": "purge"}
    assert "error" in publish(node, b"s.b", **forged), "nobody but the server says that a message is due"


def test_no_member_of_a_batch_that_comes_at_once_waits() -> None:
    """Messages that ask for nothing are staged in runs behind the first one; this one asks for something."""
    node = Node()
    replica = delayed(node, allow_atomic=True)
    for place, last in ((1, b""), (2, b"Jetraft-Delay: 5s\r\n"), (3, b"Nats-Batch-Commit: 1\r\n")):
        hdr = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%s\r\n" % (place, last)
        node.publish(b"s.a", b"x", hdr=hdr, reply=b"_INBOX.p" if place == 3 else b"")
    answers = [sent.payload for sent in node.turn() if sent.to == b"_INBOX.p"]
    assert b'"err_code":10176' in b"".join(answers), "the batch is incomplete"
    assert not replica.machine.last_seq


def test_a_consumer_is_given_what_is_due_and_counts_nothing_else() -> None:
    node = Node()
    replica = delayed(node)
    publish(node, b"s.a", b"later", Jetraft_Delay="5s")
    for policy in (DeliverPolicy.LAST, DeliverPolicy.LAST_PER_SUBJECT, DeliverPolicy.ALL):
        filters = {"filter_subject": ">"} if policy is DeliverPolicy.LAST_PER_SUBJECT else {}
        info = add_consumer(node, replica, name=policy.value, deliver_policy=policy, **filters)
        assert info.num_pending == 0, policy
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    assert pull(node) == []
    node.sleep(6 * S)
    assert info_of(replica, "c").num_pending == 1
    (found,) = pull(node)
    assert (found.subject, found.payload) == (b"s.a", b"later")


@pytest.mark.parametrize("wanted", ["s.a", ""])
@pytest.mark.parametrize("retention", [RetentionPolicy.INTEREST, RetentionPolicy.WORK_QUEUE])
def test_what_waits_is_kept_where_acks_decide_what_is_kept(retention: RetentionPolicy, wanted: str) -> None:
    node = Node()
    replica = delayed(node, retention=retention)
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT, filter_subject=wanted)
    publish(node, b"s.a", b"later", Jetraft_Delay="5s")
    publish(node, b"s.a", b"now")
    (found,) = pull(node)
    node.publish(found.reply, b"+ACK")
    node.turn()
    assert replica.machine.messages == 1
    finish(node, lambda: replica._leading().consumers.delete("c"))
    assert replica.machine.messages == 1
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    node.sleep(6 * S)
    (found,) = pull(node)
    node.publish(found.reply, b"+ACK")
    node.turn()
    assert replica.machine.messages == 0


def test_what_waits_outlives_a_consumer_that_would_have_been_given_it() -> None:
    node = Node()
    replica = delayed(node, retention=RetentionPolicy.INTEREST)
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    publish(node, b"s.a", b"later", Jetraft_Delay="5s")
    finish(node, lambda: replica._leading().consumers.delete("c"))
    assert replica.machine.messages == 1


def test_no_interest_by_then_keeps_nothing() -> None:
    node = Node()
    replica = delayed(node, retention=RetentionPolicy.INTEREST)
    publish(node, Jetraft_Delay="5s")
    assert replica.machine.messages == 1
    node.sleep(6 * S)
    assert replica.machine.messages == 0


def test_a_restart_gives_what_was_missed_once_and_in_order() -> None:
    node, log = Node(), MemLog()
    first = delayed(node, log)
    for wait in (30, 10, 20, 300):
        publish(node, b"s.a", b"%d" % wait, Jetraft_Delay=f"{wait}s")
    first.stop()
    node.sleep(60 * S)
    again = delayed(node, log)
    node.sleep(S)
    assert visible(again) == [b"10", b"20", b"30"]
    node.sleep(300 * S)
    assert visible(again) == [b"10", b"20", b"30", b"300"]


def test_what_was_in_flight_when_leadership_was_lost_comes_once() -> None:
    node, log = Node(), MemLog()
    first = delayed(node, log)
    publish(node, b"s.a", b"later", Jetraft_Delay="5s")
    log._durable_on_submit = False
    node.sleep(10 * S)
    assert visible(first) == [], "it is proposed and not committed"
    first.stop()
    log.complete()
    log._durable_on_submit = True
    again = delayed(node, log)
    node.sleep(10 * S)
    assert visible(again) == [b"later"]


def test_a_snapshot_has_what_waits_and_hides_it() -> None:
    node, log = Node(), MemLog()
    replica = delayed(node, log)
    publish(node, b"s.a", b"later", Jetraft_Delay="5s")
    publish(node, b"s.a", b"now")
    machine = replica.machine
    copy = StreamMachine(type(machine.store)(log, machine.store.limits), machine._events)
    copy.restore(machine.snapshot())
    assert copy.schedules.rows == machine.schedules.rows
    assert list(copy.next_runs((), 1, 10)) == [2]
    assert list(copy.store.next_runs((), 1, 10)) == [1, 2], "digests and backups have all"


def test_what_waits_is_cancelled_by_its_sequence_or_its_subject() -> None:
    node = Node()
    replica = delayed(node)
    for subject in (b"s.a", b"s.b", b"s.b"):
        publish(node, subject, Jetraft_Delay="5s")
    replica.machine.store.remove([1])
    finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(filter="$JETRAFT.DELAYED.*.s.b")))
    node.sleep(10 * S)
    assert replica.machine.messages == 0


def test_limits_of_discard_new_are_judged_when_a_message_is_published() -> None:
    node = Node()
    replica = delayed(node, discard=DiscardPolicy.NEW, max_msgs=2, metadata={"jetraft.max_subjects": "2"})
    publish(node, b"s.a", b"later", Jetraft_Delay="5s")
    publish(node, b"s.b", b"now")
    assert refusal(publish(node, b"s.b"))[0] == 10077
    assert refusal(publish(node, b"s.b", Jetraft_Delay="5s"))[0] == 10077
    node.sleep(10 * S)
    assert visible(replica) == [b"now", b"later"], "it takes the place of what has waited"


def test_rollups_and_times_to_live_begin_when_the_message_is_due() -> None:
    node = Node()
    replica = delayed(node, allow_rollup_hdrs=True, allow_msg_ttl=True)
    publish(node, b"s.a", b"old")
    publish(node, b"s.a", b"later", Jetraft_Delay="10s", Nats_TTL="5s", Nats_Rollup="sub")
    node.sleep(9 * S)
    assert visible(replica) == [b"old"]
    node.sleep(2 * S)
    assert visible(replica) == [b"later"]
    node.sleep(10 * S)
    assert replica.machine.messages == 0


def test_what_waits_is_not_republished_until_it_is_due() -> None:
    node = Node()
    node.subscriptions.add(b"copy.>")
    delayed(node, republish=Republish(src=">", dest="copy.>"))
    node.publish(b"s.a", b"later", hdr=message.build({b"Jetraft-Delay": b"5s"}))
    assert [sent for sent in node.turn() if sent.to.startswith(b"copy.")] == []
    seen = [sent for sent in node.sleep(6 * S) if sent.to.startswith(b"copy.")]
    assert [(sent.to, sent.payload) for sent in seen] == [(b"copy.s.a", b"later")]
