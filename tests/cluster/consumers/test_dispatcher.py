"""The dispatcher of a stream's leader: which consumers it runs, and when it writes down what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetraft.cluster.consumers.crowd import HUNGRY_AT_ONCE_MAX, MESSAGES_EACH, PUT_OFF_MAX, Crowd
from jetraft.cluster.consumers.dispatcher import STARTED_AT_ONCE_MAX
from jetraft.cluster.consumers.runner import ConsumerRunner, make_core
from jetraft.cluster.turn_work import TurnWork
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import AckPolicy, DeliverPolicy
from jetraft.store.model.requests import JSApiStreamPurgeRequest
from tests.cluster.lab import Node, add_consumer, finish, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.consumers.dispatcher import DispatcherStatistics
    from jetraft.cluster.consumers.effects import Now
    from jetraft.cluster.ports import DeliveryRun, MessageSource
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9


def dispatcher(replica: StreamReplica) -> DispatcherStatistics:
    assert replica._leadership is not None
    return replica._leadership.dispatcher.statistics()


def pull(node: Node, name: str) -> list[bytes]:
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S." + name.encode(), b'{"batch":1,"no_wait":true}', reply=b"_INBOX.r")
    return [message.reply for message in node.turn() if message.reply]


def test_a_consumer_that_nobody_has_used_is_its_state_and_nothing_else() -> None:
    node = Node()
    replica = start_stream(node)
    node.publish(b"s.a", b"x")
    node.turn()
    for number in range(20):
        created = add_consumer(node, replica, durable_name=f"c{number}", ack_policy=AckPolicy.EXPLICIT)
        assert created.num_pending == 1
    assert (dispatcher(replica).consumers, dispatcher(replica).running) == (20, 0)
    assert replica.consumer_info("c7") == replica.consumer_info("c7")
    assert dispatcher(replica).running == 0, "asking makes nothing"
    assert len(pull(node, "c7")) == 1
    assert (dispatcher(replica).consumers, dispatcher(replica).running) == (20, 1)
    info = replica.consumer_info("c7")
    assert info is not None
    assert (info.num_pending, info.num_ack_pending) == (0, 1)


@pytest.mark.parametrize(
    ("fields", "running"),
    [({}, 0), ({"deliver_subject": "to.me"}, 1), ({"inactive_threshold": 60 * S}, 1)],
)
def test_what_can_happen_by_itself_is_watched_from_the_creation_on(fields: dict[str, object], running: int) -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c", **fields)
    assert dispatcher(replica).running == running


def test_a_new_leader_runs_the_consumers_that_wait_for_acks_and_no_others() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log)
    for _ in range(2):
        node.publish(b"s.a", b"x")
    for name in ("idle", "waiting", "done"):
        add_consumer(node, replica, durable_name=name, ack_policy=AckPolicy.EXPLICIT, ack_wait=S)
    pull(node, "waiting")
    (reply,) = pull(node, "done")
    node.publish(reply)
    node.sleep(S // 10)
    replica.stop()
    again = Node()
    replica = start_stream(again, log)
    assert (dispatcher(replica).consumers, dispatcher(replica).running) == (3, 1)
    assert pull(again, "waiting")[0].startswith(b"$JS.ACK.S.waiting.2.1.")
    assert pull(again, "done")[0].startswith(b"$JS.ACK.S.done.1.2.")


def test_a_consumer_at_rest_has_the_figures_of_the_core_that_it_would_get() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log)
    for subject in (b"s.a", b"s.b", b"s.a", b"s.c"):
        node.publish(subject, b"x")
    node.turn()
    kinds: dict[str, dict[str, object]] = {
        "all": {"ack_policy": AckPolicy.EXPLICIT},
        "unacked": {"ack_policy": AckPolicy.NONE},
        "some": {"ack_policy": AckPolicy.ALL, "filter_subject": "s.a"},
        "several": {"ack_policy": AckPolicy.EXPLICIT, "filter_subjects": ("s.a", "s.c")},
        "last": {
            "ack_policy": AckPolicy.EXPLICIT,
            "deliver_policy": DeliverPolicy.LAST_PER_SUBJECT,
            "filter_subject": "s.*",
        },
        "late": {
            "ack_policy": AckPolicy.EXPLICIT,
            "deliver_policy": DeliverPolicy.BY_START_SEQUENCE,
            "opt_start_seq": 3,
        },
        "used": {"ack_policy": AckPolicy.EXPLICIT},
    }
    for name, fields in kinds.items():
        add_consumer(node, replica, durable_name=name, **fields)
    (reply,) = pull(node, "used")
    node.publish(reply)
    node.sleep(S // 10)
    replica.stop()
    replica = start_stream(Node(), log)
    leadership = replica._leadership
    assert leadership is not None
    assert dispatcher(replica).running == 0
    left = {}
    for name in kinds:
        state = replica.machine.consumers[name]
        figures = leadership.dispatcher.figures(state, initial=False)
        assert figures == make_core(leadership.dispatcher, state).statistics()
        left[name] = figures.num_pending
    assert left == {"all": 4, "unacked": 4, "some": 2, "several": 3, "last": 3, "late": 2, "used": 3}


def test_a_new_leader_starts_many_consumers_in_slices_and_one_that_is_asked_for_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20,000 that nobody uses for a while took 1.8 s in one step."""
    node, log = Node(), MemLog()
    replica = start_stream(node, log)
    node.publish(b"s.a", b"x")
    for number in range(60):
        add_consumer(node, replica, durable_name=f"c{number}", inactive_threshold=3_600 * S)
    add_consumer(node, replica, durable_name="strict", metadata={"jetraft.strict_acks": "true"})
    replica.stop()
    again = Node()
    monkeypatch.setattr(TurnWork, "_wake", lambda _work: None)
    replica = start_stream(again, log)
    leadership = replica._leadership
    assert leadership is not None
    assert dispatcher(replica).running == STARTED_AT_ONCE_MAX
    assert leadership.dispatcher._strict == {b"strict"}, "an ack that comes now is judged as its consumer says"
    assert pull(again, "c59")[0].startswith(b"$JS.ACK.S.c59.1.")
    del replica.machine.consumers["c40"]
    again.site.work._work()
    assert dispatcher(replica).running == 59
    assert len(pull(again, "c59")) == 0, "it was not started a second time"


def test_a_leader_that_goes_before_all_consumers_are_started_starts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log)
    for number in range(40):
        add_consumer(node, replica, durable_name=f"c{number}", inactive_threshold=3_600 * S)
    replica.stop()
    again = Node()
    monkeypatch.setattr(TurnWork, "_wake", lambda _work: None)
    replica = start_stream(again, log)
    leadership = replica._leadership
    assert leadership is not None
    leadership.dispatcher.end()
    again.site.work._work()
    assert dispatcher(replica).running == 0


def test_a_deleted_consumer_that_never_ran_is_gone() -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    assert finish(node, lambda: replica.consumers.delete("c"))
    assert replica.consumer_info("c") is None
    assert pull(node, "c") == []


def test_what_nobody_waits_for_is_written_down_a_hundred_times_a_second() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log)
    for _ in range(50):
        node.publish(b"s.a", b"x")
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    node.sleep(S)
    before = log.last_index
    for _ in range(50):
        (reply,) = pull(node, "c")
        node.publish(reply)
        node.sleep(10**6)
    node.sleep(S)
    assert 5 <= log.last_index - before <= 7, "one at once, then every ten milliseconds"
    assert replica.machine.consumers["c"].ack_floor == (50, 50)


def pull_with_ack(node: Node, ack: bytes, body: bytes) -> list[bytes]:
    """An ack and the next request in one turn; returns the ack subjects of what is delivered."""
    node.publish(ack)
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=b"_INBOX.r")
    return [message.reply for message in node.turn() if message.reply]


def test_an_ack_makes_room_for_the_request_that_comes_with_it() -> None:
    node = Node()
    replica = start_stream(node)
    for _ in range(2):
        node.publish(b"s.a", b"x")
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1)
    (first,) = pull(node, "c")
    (second,) = pull_with_ack(node, first, b'{"batch":1,"no_wait":true}')
    assert second.startswith(b"$JS.ACK.S.c.1.2.2.")


def test_a_message_is_not_repeated_to_a_request_that_comes_with_its_ack() -> None:
    node = Node()
    replica = start_stream(node)
    for _ in range(2):
        node.publish(b"s.a", b"x")
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=S)
    (first,) = pull(node, "c")
    node.clock.now_ns += 2 * S  # its wait is over, and its timer comes in the same turn as the ack
    (second,) = pull_with_ack(node, first, b'{"batch":2,"no_wait":true}')
    assert second.startswith(b"$JS.ACK.S.c.1.2.2.")


def test_acks_are_noted_after_the_request_that_comes_with_them_is_served() -> None:
    node = Node()
    replica = start_stream(node)
    for _ in range(2):
        node.publish(b"s.a", b"x")
    add_consumer(node, replica, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
    (first,) = pull(node, "c")
    pending: list[int] = []
    deliver = node.deliver

    def spy(run: DeliveryRun, source: MessageSource) -> int:
        info = replica.consumer_info("c")
        assert info is not None
        pending.append(info.num_ack_pending)
        return deliver(run, source)

    node.deliver = spy  # type: ignore[method-assign]  # what the consumer looks like when its message leaves
    (second,) = pull_with_ack(node, first, b"1")
    assert pending == [2], "the first is not noted yet"
    node.publish(second)
    node.turn()
    info = replica.consumer_info("c")
    assert info is not None
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 2)


def test_the_deletion_of_an_unused_consumer_is_proposed_once_however_long_its_commit_takes() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log)
    add_consumer(node, replica, name="e", inactive_threshold=5 * S)
    log._durable_on_submit = False
    node.sleep(5 * S + 100)
    assert dispatcher(replica).entries_in_flight == 1
    log.complete()
    node.turn()
    assert replica.consumer_names() == []


def test_a_pull_consumer_is_not_unused_while_an_ack_is_awaited() -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c", inactive_threshold=5 * S, ack_wait=20 * S)
    node.publish(b"s.a", b"x")
    node.turn()
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", reply=b"_INBOX.r")
    (delivery,) = [sent for sent in node.turn() if sent.to == b"_INBOX.r"]
    node.sleep(18 * S)
    assert replica.consumer_names() == ["c"]
    node.publish(delivery.reply, b"+ACK")
    node.turn()
    node.sleep(4 * S)
    assert replica.consumer_names() == ["c"]
    node.sleep(6 * S)
    assert replica.consumer_names() == []


def test_what_is_never_acknowledged_keeps_a_consumer_for_its_ack_wait_and_its_threshold() -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c", inactive_threshold=5 * S, ack_wait=20 * S)
    node.publish(b"s.a", b"x")
    node.turn()
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", reply=b"_INBOX.r")
    node.turn()
    node.sleep(24 * S)
    assert replica.consumer_names() == ["c"]
    node.sleep(6 * S)
    assert replica.consumer_names() == []


def test_a_request_that_ends_counts_as_use() -> None:
    node = Node()
    replica = start_stream(node)
    add_consumer(node, replica, durable_name="c", inactive_threshold=5 * S)
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"expires":4000000000}', reply=b"_INBOX.r")
    node.turn()
    node.sleep(8 * S)
    assert replica.consumer_names() == ["c"]
    node.sleep(2 * S)
    assert replica.consumer_names() == []


class HeldLog(MemLog):
    """What is appended becomes durable when the test says so."""

    is_held = False

    def complete(self) -> None:
        if not self.is_held:
            super().complete()

    def release(self, submitted: tuple[int, int]) -> None:
        """Make durable what was submitted up to then."""
        self.progress.durable_token, self.progress.durable_index = submitted
        assert self.on_durable is not None
        self.on_durable()


def hungry(node: Node, replica: StreamReplica, count: int, *, batch: int = 9, **fields: object) -> None:
    """Consumers `c0`, `c1`, ... whose deliveries are in the log before they leave, each with a request that waits."""
    for number in range(count):
        own = {name: value % number if isinstance(value, str) else value for name, value in fields.items()}
        add_consumer(node, replica, durable_name=f"c{number}", metadata={"jetraft.strict_acks": "true"}, **own)
        node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c%d" % number, b'{"batch":%d}' % batch, reply=b"_INBOX.%d" % number)
    node.turn()
    assert dispatcher(replica).hungry == count


@pytest.mark.parametrize(("count", "entries"), [(HUNGRY_AT_ONCE_MAX, 3), (HUNGRY_AT_ONCE_MAX + 1, 2)])
def test_many_consumers_get_together_what_is_stored_while_their_last_deliveries_are_written(
    count: int, entries: int
) -> None:
    node, log = Node(), HeldLog()
    replica = start_stream(node, log)
    hungry(node, replica, count)
    log.is_held, submitted = True, []
    for body in (b"1", b"2", b"3"):
        node.publish(b"s.a", body)
        node.turn()
        submitted.append(log._submitted)
    stored = log.last_index
    sent = []
    for up_to in submitted:
        log.release(up_to)
        sent += node.turn()
    assert not sent
    log.is_held = False
    log.complete()
    sent += node.turn() + node.turn()
    assert log.last_index - stored == entries
    for number in range(count):
        assert [one.payload for one in sent if one.to == b"_INBOX.%d" % number] == [b"1", b"2", b"3"]


def test_many_consumers_get_what_is_stored_together_with_what_is_on_its_way() -> None:
    """The record of the first deliveries would be in the log behind the second messages, and leave with theirs."""
    node, log, count = Node(), HeldLog(), HUNGRY_AT_ONCE_MAX + 1
    replica = start_stream(node, log)
    hungry(node, replica, count, batch=99)
    log.is_held, submitted = True, []
    for turn in range(2):
        for number in range(count):
            node.publish(b"s.a", b"%d.%d" % (turn, number))
        node.turn()
        submitted.append(log._submitted)
    stored = log.last_index
    log.release(submitted[0])
    sent = node.turn()
    assert log.last_index == stored, "no delivery is recorded yet"
    log.is_held = False
    log.complete()
    sent += node.turn() + node.turn()
    assert log.last_index - stored == 1
    for number in range(count):
        assert len([one for one in sent if one.to == b"_INBOX.%d" % number]) == 2 * count


def test_a_crowd_is_put_off_where_that_saves_something_and_a_few_times_only() -> None:
    crowd, least = Crowd(), 20 * MESSAGES_EACH
    assert crowd.is_due(20, last_seq=5, coming=0)
    assert crowd.is_due(20, last_seq=10, coming=19)
    put_off = [crowd.is_due(20, last_seq=30 + number, coming=20) for number in range(PUT_OFF_MAX)]
    assert not any(put_off)
    assert crowd.is_put_off
    assert crowd.is_due(20, last_seq=50, coming=20)
    assert not crowd.is_put_off
    assert crowd.is_due(20, last_seq=50 + least, coming=20), "enough waits"
    assert not crowd.is_due(20, last_seq=50 + 2 * least - 1, coming=20)
    assert crowd.is_due(20, last_seq=50 + 2 * least, coming=20)
    assert not crowd.is_put_off


def test_of_many_consumers_only_those_with_something_new_are_stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    replica = start_stream(node)
    hungry(node, replica, HUNGRY_AT_ONCE_MAX + 1, filter_subject="s.%d")
    stepped = []
    step = ConsumerRunner.step

    def note(runner: ConsumerRunner, now: Now) -> None:
        stepped.append(runner.state.name)
        step(runner, now)

    monkeypatch.setattr(ConsumerRunner, "step", note)
    node.publish(b"s.3", b"x")
    node.publish(b"s.5", b"y")
    assert sorted(one.to for one in node.turn() + node.turn() if one.reply) == [b"_INBOX.3", b"_INBOX.5"]
    assert stepped == ["c3", "c5"]


def test_the_last_messages_of_many_subjects_are_counted_without_a_look_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    replica = start_stream(node)
    for number in range(50):
        node.publish(b"s.%d" % number, b"x")
    node.turn()
    looked = []
    monkeypatch.setattr(type(replica.machine), "is_live", lambda _machine, seq: looked.append(seq))
    monkeypatch.setattr(type(replica.machine.store), "load", lambda _store, seq: looked.append(seq))
    created = add_consumer(
        node, replica, durable_name="c", deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.*"
    )
    assert created.num_pending == 50
    node.publish(b"s.7", b"y")
    node.turn()
    assert info_of(replica, "c").num_pending == 51
    assert finish(node, lambda: replica.purge(JSApiStreamPurgeRequest(filter="s.7", keep=1))) == 1
    assert info_of(replica, "c").num_pending == 50, "what is gone is not counted"
    assert not looked
