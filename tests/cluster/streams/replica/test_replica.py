"""One replica that leads, end to end on one node in memory."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.cluster.state.commands import StreamCommand, UpdateConfig, decode_stream_command
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.proposals import NotLeaderError
from jetraft.store.frames.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.config import DeliverPolicy, RetentionPolicy, StreamConfig, StreamSource
from jetraft.store.model.feature_level import BASE, FIRST
from jetraft.store.model.ids import NodeId
from jetraft.store.model.requests import JSApiMsgGetRequest, JSApiStreamPurgeRequest
from jetraft.store.port import StoreCorrupt
from tests.cluster.lab import (
    NODE,
    Node,
    Sent,
    add_consumer,
    assignment_of,
    finish,
    info_of,
    start_stream,
    stream_config,
)

S = 10**9
FROM_SEQ = {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE}


def publish(node: Node, *subjects: bytes, hdr: bytes = b"") -> list[Sent]:
    for subject in subjects:
        node.publish(subject, b"0123456789", hdr=hdr, reply=b"_INBOX.p")
    return node.turn()


def test_a_publish_is_acknowledged_when_it_is_durable_and_not_before() -> None:
    node = Node()
    log = MemLog()
    start_stream(node, log)
    log._durable_on_submit = False
    assert publish(node, b"s.a") == []
    log.complete()
    assert [sent.payload for sent in node.turn()] == [b'{"stream":"S","seq":1}']


def test_a_publish_in_flight_is_never_acknowledged_after_leadership_is_lost() -> None:
    node = Node()
    log = MemLog()
    replica = start_stream(node, log)
    log._durable_on_submit = False
    publish(node, b"s.a")
    replica.group.fail(RuntimeError("disk"), node.clock.mono_ns())
    log.complete()
    assert publish(node, b"s.a") == []
    assert not replica.is_leader
    with pytest.raises(NotLeaderError):
        replica.consumer_info("c")


def commands_of(log: MemLog) -> list[StreamCommand]:
    entries = log.entries(1, log.last_index, 1 << 20)
    return [decode_stream_command(one.frame[FRAME_HEADER_BYTES:]) for one in entries if one.kind == Kind.STREAM_OP]


def test_below_their_level_revisions_of_the_configuration_are_not_in_the_log() -> None:
    """A member that does not know the command stops at it (a build before 0.1.0 beside this one)."""
    node, log, level = Node(), MemLog(), FIRST
    node.site = attrs.evolve(node.site, level_in_use=lambda: level)
    replica = start_stream(node, log)
    changed = attrs.evolve(replica.assignment, config=stream_config(max_msgs=5), revision=8)
    replica.reconfigure(changed)
    node.turn()
    replica.reconfigure(attrs.evolve(changed, revision=9))
    node.turn()
    assert replica.config.max_msgs == 5
    assert {type(one) for one in commands_of(log)} == {UpdateConfig}
    assert len(commands_of(log)) == 2, "what is in force is not proposed again"
    level = BASE
    replica.reconfigure(attrs.evolve(changed, revision=10))
    node.turn()
    level = FIRST
    replica.reconfigure(attrs.evolve(changed, revision=11))
    node.turn()
    assert replica.machine.config_revision == 11, "every member has read one by then"


def test_a_restart_finds_messages_config_and_consumers() -> None:
    node = Node()
    log = MemLog()
    first = start_stream(node, log)
    publish(node, b"s.a", b"s.b", hdr=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    add_consumer(node, first, durable_name="c")
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", reply=b"_INBOX.r")
    node.turn()
    state, consumers = first.info().state, dict(first.machine.consumers)
    first.stop()

    again = start_stream(node, log)
    assert again.info().state == state
    assert again.machine.consumers == consumers
    (ack,) = publish(node, b"s.c", hdr=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    assert ack.payload == b'{"stream":"S","seq":1,"duplicate": true}'
    assert info_of(again, "c").num_ack_pending == 1


def test_messages_leave_when_they_are_too_old() -> None:
    node = Node()
    replica = start_stream(node, max_age=10 * S)
    publish(node, b"s.a")
    node.sleep(6 * S)
    publish(node, b"s.b")
    assert replica.info().state.messages == 2
    node.sleep(5 * S)
    assert replica.info().state.first_seq == 2
    node.sleep(10 * S)
    state = replica.info().state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 3, 2)


def test_a_new_leader_that_cannot_read_its_oldest_message_stops_and_the_node_goes_on() -> None:
    """It asks for the message's time, to know when it expires (simulator, rot seed 15)."""
    node = Node()
    log = MemLog()
    first = start_stream(node, log, max_age=10 * S)
    publish(node, b"s.a")
    first.stop()

    def damaged(_block: int, _offset: int) -> bytes:
        raise StoreCorrupt("the frame is damaged")

    log.frame_at = damaged  # type: ignore[method-assign, assignment]  # a log in memory does not rot
    assignment = assignment_of(node, stream_config(max_age=10 * S))
    again = StreamReplica.start(assignment=assignment, log=log, site=node.site)
    node.sleep(2 * S)
    assert isinstance(again.group.failed, StoreCorrupt)
    assert not again.is_leader


def test_a_new_configuration_takes_effect_when_it_is_applied() -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.a", b"s.a")
    config = attrs.evolve(replica.config, max_msgs=1, subjects=("t.>",))
    replica.reconfigure(attrs.evolve(replica.assignment, config=config))
    node.turn()
    assert replica.has_config(config)
    assert replica.info().state.messages == 1
    assert publish(node, b"s.a") == []
    assert [sent.payload for sent in publish(node, b"t.a")] == [b'{"stream":"S","seq":4}']


@pytest.mark.parametrize(
    ("request_", "purged", "left"),
    [
        (JSApiStreamPurgeRequest(), 4, []),
        (JSApiStreamPurgeRequest(filter="s.a"), 2, [2, 4]),
        (JSApiStreamPurgeRequest(seq=3), 2, [3, 4]),
        (JSApiStreamPurgeRequest(keep=1), 3, [4]),
        (JSApiStreamPurgeRequest(filter="s.a", keep=1), 1, [2, 3, 4]),
        (JSApiStreamPurgeRequest(filter="s.b", seq=4), 1, [1, 3, 4]),
    ],
)
def test_a_purge_removes_what_it_names(request_: JSApiStreamPurgeRequest, purged: int, left: list[int]) -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.b", b"s.a", b"s.b")
    assert finish(node, lambda: replica.purge(request_)) == purged
    assert replica.machine.store.next_matches((), 1, 10) == left


@pytest.mark.parametrize(
    ("request_", "purged", "removals"),
    [
        (JSApiStreamPurgeRequest(), 10, [10]),  # what is left is looked at, and not what goes
        (JSApiStreamPurgeRequest(filter=">", seq=10), 9, [9]),
        (JSApiStreamPurgeRequest(filter="s.a"), 5, [3, 2]),
        (JSApiStreamPurgeRequest(filter="s.*", keep=2), 8, [3, 3, 2]),
        (JSApiStreamPurgeRequest(seq=9), 8, [3, 3, 2]),
        (JSApiStreamPurgeRequest(keep=8), 2, [2]),
        (JSApiStreamPurgeRequest(filter="s.b", seq=4), 1, [1]),
    ],
)
def test_a_purge_of_many_messages_is_several_entries(
    request_: JSApiStreamPurgeRequest, purged: int, removals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetraft.cluster.streams.replica.removals.PURGED_MAX", 3)
    monkeypatch.setattr("jetraft.cluster.streams.replica.removals.KEPT_FEW", 1)
    node = Node()
    replica = start_stream(node)
    publish(node, *[b"s.a", b"s.b"] * 5)
    found: list[int] = []
    purge = replica.machine.store.purge

    def noting(**asked: Any) -> int:
        found.append(purge(**asked))
        return found[-1]

    monkeypatch.setattr(replica.machine.store, "purge", noting)
    assert finish(node, lambda: replica.purge(request_)) == purged
    assert found == removals


def test_what_is_too_old_goes_a_bounded_number_in_each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetraft.cluster.streams.replica.expiry.AGED_MAX", 3)
    node = Node()
    replica = start_stream(node, max_age=10 * S)
    publish(node, *[b"s.a"] * 10)
    found: list[int] = []
    remove_below = replica.machine.store.remove_below

    def noting(seq: int) -> int:
        found.append(remove_below(seq))
        return found[-1]

    monkeypatch.setattr(replica.machine.store, "remove_below", noting)
    node.sleep(11 * S)
    assert found == [3, 3, 3, 1]


@pytest.mark.parametrize("subject", ["", ">"])
def test_a_purge_up_to_a_sequence_that_is_still_to_come_moves_the_stream_there(subject: str) -> None:
    node = Node()
    log = MemLog()
    replica = start_stream(node, log)
    publish(node, b"s.a", b"s.b")
    assert finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(filter=subject, seq=100))) == 2
    assert [sent.payload for sent in publish(node, b"s.a")] == [b'{"stream":"S","seq":100}']
    assert finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(filter="s.*", seq=200))) == 1
    assert [sent.payload for sent in publish(node, b"s.a")] == [b'{"stream":"S","seq":101}']
    replica.stop()
    again = start_stream(node, log)
    assert (again.info().state.first_seq, again.info().state.last_seq) == (101, 101)


def test_a_purge_that_moves_a_stream_is_refused_while_leadership_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be refused, and what is published later would leave a gap."""
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a")
    monkeypatch.setattr(type(replica.group.core), "accepts_proposals", property(lambda _: False))
    with pytest.raises(ExceptionGroup) as refused:
        finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(seq=100)))
    assert refused.group_contains(NotLeaderError)


def test_a_purge_does_not_move_a_mirror() -> None:
    node = Node()
    replica = start_stream(node, mirror=StreamSource(name="O"), subjects=())
    finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(seq=100)))
    assert replica.machine.next_seq == 1


def test_a_message_that_is_gone_counts_against_no_limit_of_those_that_wait_for_an_ack() -> None:
    node = Node()
    replica = start_stream(node, max_msgs_per_subject=1)
    add_consumer(node, replica, durable_name="c", max_ack_pending=1)
    publish(node, b"s.a", b"s.b", b"s.c", b"s.d")
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":4,"expires":9000000000}', reply=b"_INBOX.r")
    assert [sent.subject for sent in node.turn() if sent.to == b"_INBOX.r"] == [b"s.a"]
    assert [sent.subject for sent in publish(node, b"s.a") if sent.to == b"_INBOX.r"] == [b"s.b"]
    node.sent.clear()
    assert finish(node, lambda: replica.delete_message(2, erase=False))
    info = info_of(replica, "c")
    assert (info.num_ack_pending, info.delivered.stream_seq, info.ack_floor.stream_seq) == (1, 3, 2)


@pytest.mark.parametrize("with_consumers", [True, False])
def test_what_nobody_wants_goes_when_a_stream_gets_interest_retention(*, with_consumers: bool) -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.b", b"s.a", b"s.b")
    if with_consumers:
        add_consumer(node, replica, durable_name="c", filter_subject="s.b")
        add_consumer(node, replica, durable_name="d", filter_subject="s.*", opt_start_seq=3, **FROM_SEQ)
    config = attrs.evolve(replica.config, retention=RetentionPolicy.INTEREST)
    replica.reconfigure(attrs.evolve(replica.assignment, config=config, revision=8))
    node.turn()
    assert replica.machine.store.next_matches((), 1, 9) == ([2, 3, 4] if with_consumers else [])


def test_what_nobody_wants_goes_when_a_consumer_of_an_interest_stream_has_other_filters() -> None:
    node = Node()
    replica = start_stream(node, retention=RetentionPolicy.INTEREST)
    add_consumer(node, replica, durable_name="c", filter_subject="s.a")
    publish(node, b"s.a", b"s.a")
    add_consumer(node, replica, durable_name="c", filter_subject="s.b")
    node.turn()
    assert replica.machine.store.messages == 0


def test_who_waits_for_messages_of_a_deleted_stream_is_told_that_the_consumer_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c")
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":4,"expires":9000000000}', reply=b"_INBOX.r")
    node.turn()
    monkeypatch.setattr(type(node.site), "has_no_row", lambda *_: True)
    replica.stop()
    assert [b"409 Consumer Deleted" in sent.hdr for sent in node.turn() if sent.to == b"_INBOX.r"] == [True]


def test_a_stream_may_forbid_purges_and_deletes() -> None:
    node = Node()
    replica = start_stream(node, deny_purge=True, deny_delete=True)
    publish(node, b"s.a")
    with pytest.raises(BaseExceptionGroup) as refused:
        finish(node, lambda: replica.purge(JSApiStreamPurgeRequest()))
    assert refused.group_contains(ApiError, match="stream purge not permitted")
    with pytest.raises(BaseExceptionGroup) as refused:
        finish(node, lambda: replica.delete_message(1, erase=True))
    assert refused.group_contains(ApiError, match="message delete not permitted")
    assert replica.info().state.messages == 1


def test_a_deleted_message_is_gone() -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.a")
    assert finish(node, lambda: replica.delete_message(1, erase=True))
    assert not finish(node, lambda: replica.delete_message(1, erase=True))
    with pytest.raises(BaseExceptionGroup) as refused:
        finish(node, lambda: replica.get_message(JSApiMsgGetRequest(seq=1)))
    assert refused.group_contains(ApiError, match="no message found")


@pytest.mark.parametrize("seq", [3, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_deleting_what_cannot_be_there_leaves_the_stream_as_it_is(seq: int) -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.a")
    assert not finish(node, lambda: replica.delete_message(seq, erase=True))
    publish(node, b"s.a")
    assert replica.info().state.messages == 3


@pytest.mark.parametrize(
    ("request_", "seq"),
    [
        (JSApiMsgGetRequest(seq=2), 2),
        (JSApiMsgGetRequest(last_by_subj="s.a"), 3),
        (JSApiMsgGetRequest(last_by_subj="s.*"), 4),
        (JSApiMsgGetRequest(next_by_subj="s.b", seq=3), 4),
        (JSApiMsgGetRequest(next_by_subj="s.b"), 2),
        (JSApiMsgGetRequest(start_time=0), 1),
        (JSApiMsgGetRequest(start_time=0, next_by_subj="s.b"), 2),
    ],
)
def test_a_message_is_found_by_what_is_asked(request_: JSApiMsgGetRequest, seq: int) -> None:
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.b", b"s.a", b"s.b")
    assert finish(node, lambda: replica.get_message(request_)).seq == seq


def test_a_rollup_replaces_what_was_there() -> None:
    node = Node()
    replica = start_stream(node, allow_rollup_hdrs=True)
    publish(node, b"s.a", b"s.b", b"s.a")
    publish(node, b"s.a", hdr=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
    assert replica.machine.store.next_matches((), 1, 10) == [2, 4]
    publish(node, b"s.c", hdr=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    assert replica.machine.store.next_matches((), 1, 10) == [5]


def test_a_first_sequence_is_respected() -> None:
    node = Node()
    replica = start_stream(node, first_seq=100)
    assert [sent.payload for sent in publish(node, b"s.a")] == [b'{"stream":"S","seq":100}']
    assert replica.info().state.first_seq == 100


def test_a_stopped_replica_listens_to_nothing() -> None:
    node = Node()
    replica = start_stream(node, allow_direct=True)
    assert node.sinks
    replica.stop()
    assert node.sinks == {}


def test_the_log_keeps_a_configuration_as_it_is() -> None:
    node = Node()
    replica = start_stream(node, description="ümläut", metadata={"a": "b"}, max_age=5 * S)
    assert isinstance(replica.machine.config, StreamConfig)
    assert replica.machine.config == replica.assignment.config


def ttl(text: str) -> bytes:
    return f"NATS/1.0\r\nNats-TTL: {text}\r\n\r\n".encode()


def test_a_message_leaves_after_its_own_time_to_live() -> None:
    node = Node()
    log = MemLog()
    replica = start_stream(node, log, allow_msg_ttl=True)
    publish(node, b"s.a", hdr=ttl("5s"))
    publish(node, b"s.a")
    publish(node, b"s.a", hdr=ttl("2"))
    node.sleep(3 * S)
    assert replica.machine.store.next_matches((), 1, 10) == [1, 2]
    replica.stop()
    again = start_stream(node, log, allow_msg_ttl=True)
    node.sleep(3 * S)
    assert again.machine.store.next_matches((), 1, 10) == [2]


def test_a_message_that_never_expires_outlives_max_age() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, max_age=5 * S)
    for text in ("never", "1h", "never"):
        publish(node, b"s.a", hdr=ttl(text))
    node.sleep(7 * S)
    assert replica.machine.store.next_matches((), 1, 10) == [1, 3]
    publish(node, b"s.a")
    node.sleep(7 * S)
    assert replica.machine.store.next_matches((), 1, 10) == [1, 3]


def test_messages_that_end_are_found_behind_many_that_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are looked at in each step; the next one goes on where that has ended."""
    monkeypatch.setattr("jetraft.cluster.streams.replica.expiry.LOOKS_MAX", 3)
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, max_age=5 * S)
    for text in ("never",) * 10 + ("1h", "never", "1h") + ("never",) * 10:
        publish(node, b"s.a", hdr=ttl(text))
    publish(node, b"s.a")
    assert node.sleep(4 * S) is not None
    assert replica.machine.messages == 24
    node.sleep(2 * S)
    assert replica.machine.store.next_matches((), 1, 99) == [*range(1, 11), 12, *range(14, 24)]
    publish(node, b"s.a")
    node.sleep(6 * S)
    assert replica.machine.messages == 21


def test_markers_are_placed_some_at_a_time_and_the_next_follow_when_these_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jetraft.cluster.streams.replica.expiry.MARKED_MAX", 3)
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=60 * S)
    for number in range(10):
        publish(node, b"s.%d" % number, hdr=ttl("60s"))
    node.sleep(60 * S)
    node.sleep(S // 2)
    assert replica.machine.store.next_matches((), 1, 99) == list(range(11, 21))
    node.sleep(61 * S)
    assert replica.machine.messages == 0


def test_a_watch_is_not_packed_when_it_is_applied() -> None:
    """A bucket may have a million keys, each a number in the packed form: the first checkpoint makes that."""
    node = Node()
    replica = start_stream(node)
    publish(node, b"s.a", b"s.b", b"s.a", b"s.c")
    add_consumer(node, replica, deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, durable_name="w", filter_subject="s.>")
    state = replica.machine.consumers["w"]
    assert (list(state.initial), state.packed) == ([2, 3, 4], b"")
    replica.machine.snapshot()
    assert state.packed == state.pack() != b""


def hdrs(replica: StreamReplica) -> dict[int, bytes]:
    store = replica.machine.store
    return {one.seq: one.hdr for one in store.load_many(store.next_matches((), 1, 100))}


def test_the_last_message_of_a_subject_leaves_a_marker_which_leaves_nothing() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=4 * S)
    publish(node, b"s.a", hdr=ttl("5s"))
    publish(node, b"s.a", hdr=ttl("5s"))
    publish(node, b"s.b", hdr=ttl("5s"))
    publish(node, b"s.b")
    node.sleep(7 * S)
    marker = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 4s\r\nNats-Rollup: sub\r\n\r\n"
    assert hdrs(replica) == {4: b"", 5: marker}
    node.sleep(9 * S)
    assert hdrs(replica) == {4: b""}
    assert replica.machine.last_seq == 5


def test_a_purge_of_a_key_is_a_marker_itself_and_leaves_no_other() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=2 * S)
    publish(node, b"s.purged", hdr=b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-TTL: 5s\r\n\r\n")
    publish(node, b"s.deleted", hdr=b"NATS/1.0\r\nKV-Operation: DEL\r\nNats-TTL: 5s\r\n\r\n")
    node.sleep(6 * S)
    store = replica.machine.store
    assert [one.subject for one in store.load_many(store.next_matches((), 1, 9))] == [b"s.deleted"]
    assert sorted(hdrs(replica)) == [3]


def test_max_age_leaves_markers_too() -> None:
    node = Node()
    replica = start_stream(
        node, max_age=3 * S, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=2 * S
    )
    for subject in (b"s.a", b"s.b", b"s.a"):
        publish(node, subject)
    node.sleep(4 * S)
    store = replica.machine.store
    assert [one.subject for one in store.load_many(store.next_matches((), 1, 9))] == [b"s.b", b"s.a"]
    assert sorted(hdrs(replica)) == [4, 5]
    node.sleep(9 * S)
    assert (store.messages, store.last_seq) == (0, 5)


def test_a_message_on_its_way_is_not_rolled_up_by_a_marker() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=S)
    publish(node, b"s.a", hdr=ttl("5s"))
    admission = replica._leadership.admission if replica._leadership else None
    assert admission is not None
    admission.admit(encode_capture(b"s.a", payload=b"new"), node.clock.unix_ns())
    assert admission.admit_markers([(b"s.a", 1)], node.clock.unix_ns()).publishes == []


def test_a_ttl_below_that_of_markers_is_lengthened() -> None:
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=4 * S)
    publish(node, b"s.a", hdr=b"NATS/1.0\r\nA: b\r\nNats-TTL: 1s\r\nC: d\r\n\r\n")
    publish(node, b"s.b", hdr=ttl("never"))
    publish(node, b"s.c", hdr=ttl("5s"))
    lengthened = b"NATS/1.0\r\nA: b\r\nC: d\r\nNats-TTL: 4\r\n\r\n"
    assert hdrs(replica) == {1: lengthened, 2: ttl("never"), 3: ttl("5s")}


@pytest.mark.parametrize(
    ("text", "code"),
    [("1", 0), ("1.5s", 0), ("NEVER", 0), ("", 0), ("0", 10165), ("abc", 10165), ("100ms", 10165), ("-1", 10165)],
)
def test_a_time_to_live_is_checked_as_the_reference_does(text: str, code: int) -> None:
    node = Node()
    start_stream(node, allow_msg_ttl=True)
    (answer,) = publish(node, b"s.a", hdr=ttl(text))
    assert (b"%d" % code if code else b'"seq":1}') in answer.payload


def test_expiry_that_meets_damage_leaves_it_to_those_who_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    replica = start_stream(node, allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=S)
    publish(node, b"s.a", hdr=ttl("5s"))

    def damaged(_seq: int) -> None:
        raise StoreCorrupt("a damaged frame")

    monkeypatch.setattr(replica.machine.store, "load", damaged)
    node.sleep(7 * S)
    assert replica.machine.store.messages == 1


def test_that_a_member_is_out_is_reported_when_no_leader_can_take_it_back() -> None:
    """It deletes its data then: while the change is not committed it is a member yet."""
    node, log, reported = Node(), MemLog(), list[StreamAssignment]()
    node.site = attrs.evolve(node.site, on_settled=reported.append)
    replica = start_stream(node, log)
    other = NodeId("other000")
    replica.group.change_members(Configuration(voters=(NODE,), learners=(other,)))
    node.turn()
    assert replica.group.configuration.learners == (other,)
    log._durable_on_submit = False

    replica.reconfigure(attrs.evolve(replica.assignment, revision=8, leaving=(other,)))
    node.sleep(S)

    assert replica.group.configuration.members == (NODE,)
    assert reported == []
    log._durable_on_submit = True
    log.complete()
    node.sleep(S)
    assert reported
    assert {row.revision for row in reported} == {8}
