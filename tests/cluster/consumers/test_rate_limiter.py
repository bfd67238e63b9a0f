"""The pace of deliveries: replay at the original speed, and a limit of bits per second."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.consumers.rate_limiter import RateLimiter
from jetraft.store.model.config import ConsumerConfig, ReplayPolicy
from jetraft.store.model.gotime import ZERO_TIME_NS
from tests.cluster.consumers.test_pull import Client, seqs, statuses
from tests.cluster.consumers.test_push import Subscriber, subjects_of
from tests.cluster.lab import Node, Sent, add_consumer, finish, start_stream

MS = 10**6
S = 10**9


def test_without_brakes_everything_is_free() -> None:
    assert RateLimiter(ConsumerConfig(), 100).is_free
    assert not RateLimiter(ConsumerConfig(rate_limit_bps=800), 100).is_free


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 2 * S)), min_size=1, max_size=40))
def test_over_any_time_no_more_leaves_than_the_rate_and_one_burst(messages: list[tuple[int, int]]) -> None:
    rate, burst = 1000, 2000
    pace = RateLimiter(ConsumerConfig(rate_limit_bps=rate * 8), burst)
    now_ns, begun_ns, sent = 7 * S, 7 * S, 0
    for size, pause_ns in messages:
        now_ns = max(now_ns + pause_ns, pace.due_ns(1, size, now_ns + pause_ns))
        pace.delivered(1, size, now_ns)
        sent += size
        excess = max(0, size - burst)  # of a message larger than the bucket, which waits until that is full
        assert sent <= burst + excess + (now_ns - begun_ns) * rate // S + len(messages)


def test_a_bucket_at_rest_fills_up_to_one_burst_and_no_further() -> None:
    pace = RateLimiter(ConsumerConfig(rate_limit_bps=8000), 500)
    assert pace.due_ns(1, 500, S) <= S
    pace.delivered(1, 500, S)
    assert pace.due_ns(1, 100, S) == S + 100 * MS
    assert pace.due_ns(1, 500, 60 * S) <= 60 * S
    pace.delivered(1, 500, 60 * S)
    assert pace.due_ns(1, 500, 60 * S) == 60 * S + 500 * MS


def test_replay_waits_for_gaps_of_more_than_a_millisecond_until_it_has_caught_up() -> None:
    pace = RateLimiter(ConsumerConfig(replay_policy=ReplayPolicy.ORIGINAL), 500)
    assert pace.due_ns(100 * S, 1, 7 * S) == 7 * S
    pace.delivered(100 * S, 1, 7 * S)
    assert pace.due_ns(100 * S + MS, 1, 7 * S) == 7 * S
    assert pace.due_ns(103 * S, 1, 8 * S) == 10 * S
    pace.caught_up()
    assert pace.is_free


def spread(node: Node) -> None:
    """Four messages, a second apart."""
    for number in range(4):
        node.publish(b"s.%d" % number, b"0123456789")
        node.turn()
        node.sleep(S)


def test_a_push_consumer_replays_at_the_speed_of_the_publisher() -> None:
    node = Node()
    replica = start_stream(node)
    spread(node)
    node.subscriptions.add(b"to.me")
    add_consumer(node, replica, durable_name="p", deliver_subject="to.me", replay_policy=ReplayPolicy.ORIGINAL)
    begun_ns, arrived = node.clock.now_ns, len(subjects_of(node.kept))
    while arrived < 4:
        arrived += len(subjects_of(node.sleep(100 * MS)))
        assert arrived <= 1 + (node.clock.now_ns - begun_ns) // S
    assert 3 * S <= node.clock.now_ns - begun_ns <= 3 * S + 200 * MS
    node.publish(b"s.5", b"x")
    node.sleep(10 * S)
    node.publish(b"s.6", b"x")
    assert subjects_of(node.turn()) == [b"s.6"], "it has caught up"


def test_a_pull_that_does_not_wait_waits_for_the_replay() -> None:
    node = Node()
    replica = start_stream(node)
    spread(node)
    add_consumer(node, replica, durable_name="c", replay_policy=ReplayPolicy.ORIGINAL)
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":9,"no_wait":true}', reply=b"_INBOX.r")
    assert seqs(node.turn()) == [1]
    rest = node.sleep(5 * S)
    assert seqs(rest) == [2, 3, 4]
    assert len(statuses(rest)) == 1


def test_a_rate_limit_spreads_what_waits() -> None:
    node = Node()
    replica = start_stream(node, max_msg_size=1000)
    for _ in range(4):
        node.publish(b"s.a", b"x" * 900)
    node.turn()
    node.subscriptions.add(b"to.me")
    add_consumer(node, replica, durable_name="p", deliver_subject="to.me", rate_limit_bps=8000)
    first = subjects_of(node.kept) + subjects_of(node.turn())
    assert len(first) == 1
    assert len(subjects_of(node.sleep(S))) == 1
    assert len(subjects_of(node.sleep(S))) == 1


def pause(client: Client, until_ns: int | None) -> list[Sent]:
    """Pause the consumer as the API does; what was sent meanwhile."""
    client.node.kept.clear()
    finish(client.node, lambda: client.replica.consumers.pause("c", until_ns))
    return [*client.node.kept, *client.node.turn()]


def test_a_pause_is_told_when_it_begins_and_when_time_or_a_request_ends_it() -> None:
    client = Client()
    client.node.subscriptions.add(b"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>")
    begin_ns = client.node.clock.unix_ns()
    for is_resumed in (False, True):
        told = pause(client, begin_ns + 10 * S) + client.node.sleep(5 * S)
        told += pause(client, None) if is_resumed else client.node.sleep(6 * S) + pause(client, None)
        events = [orjson.loads(sent.payload) for sent in told]
        assert [(event["paused"], event["consumer"]) for event in events[:2]] == [(True, "c"), (False, "c")]
        begin_ns = client.node.clock.unix_ns()


def test_a_pause_that_is_the_zero_time_is_none() -> None:
    client = Client(pause_until=ZERO_TIME_NS)
    config = client.replica.machine.consumers["c"].config
    assert config.metadata["_nats.req.level"] == "0"
    pause(client, client.node.clock.unix_ns() + S)
    pause(client, ZERO_TIME_NS)
    assert client.replica.machine.consumers["c"].config.pause_until is None


def test_an_update_does_not_end_a_pause() -> None:
    client = Client()
    until_ns = client.node.clock.unix_ns() + 10 * S
    pause(client, until_ns)
    add_consumer(client.node, client.replica, durable_name="c", description="d", pause_until=1)
    assert client.replica.machine.consumers["c"].config.pause_until == until_ns


def test_a_paused_consumer_delivers_nothing_and_goes_on_by_itself() -> None:
    client = Client(b"s.a", b"s.a")
    pause(client, client.node.clock.unix_ns() + 10 * S)
    info = client.replica.consumer_info("c")
    assert info is not None
    assert (info.paused, info.pause_remaining_ns) == (True, 10 * S)
    assert seqs(client.pull(b'{"batch":2,"expires":60000000000}')) == []
    client.publish(b"s.a")
    assert client.node.sleep(9 * S) == []
    assert seqs(client.node.sleep(2 * S)) == [1, 2]


def test_a_paused_consumer_keeps_its_heartbeat() -> None:
    client = Subscriber(b"s.a", idle_heartbeat=S)
    client.receive()
    until_ns = client.node.clock.unix_ns() + 5 * S
    finish(client.node, lambda: client.replica.consumers.pause("p", until_ns))
    client.node.publish(b"s.b")
    sent = client.receive(3500 * MS)
    assert subjects_of(sent) == []
    assert 3 <= len(sent) <= 4
    assert subjects_of(client.receive(3 * S)) == [b"s.b"]
