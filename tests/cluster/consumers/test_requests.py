from typing import Any

import pytest

from jetraft.cluster.consumers.requests import (
    HEARTBEAT_NS_MIN,
    BadRequestError,
    PullRequest,
    Waiting,
    WaitingQueue,
    parse_pull_request,
    pending_status,
)

JSON: dict[str, Any] = {"group": "", "priority": 0}  # of a body that says nothing of groups


@pytest.mark.parametrize(
    ("payload", "request_"),
    [
        (b"", PullRequest()),
        (b"5", PullRequest(batch=5)),
        (b" 5 ", PullRequest(batch=5)),
        (b"+5", PullRequest(batch=5)),
        (b"0", PullRequest()),
        (b"-3", PullRequest()),
        (b"abc", PullRequest()),
        (b"[1]", PullRequest()),
        (b"{}", PullRequest(**JSON)),
        (b'{"batch":-1}', PullRequest(**JSON)),
        (b'{"foo":1,"no_wait":true}', PullRequest(no_wait=True, **JSON)),
        (
            b'{"batch":9,"expires":50,"max_bytes":7,"idle_heartbeat":25}',
            PullRequest(batch=9, expires_ns=50, max_bytes=7, heartbeat_ns=HEARTBEAT_NS_MIN, **JSON),
        ),
        (
            b'{"group":"g","min_pending":2,"min_ack_pending":3,"id":"x","priority":4}',
            PullRequest(group="g", min_pending=2, min_ack_pending=3, pin_id="x", priority=4),
        ),
    ],
)
def test_a_request_is_read_as_the_reference_reads_it(payload: bytes, request_: PullRequest) -> None:
    assert parse_pull_request(payload) == request_


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"{", "unexpected end of JSON input"),
        (b'{"batch":1,"expires":50,"idle_heartbeat":26}', "heartbeat value too large"),
        (b'{"batch":1,"idle_heartbeat":1}', "heartbeat value too large"),
        (b'{"priority":10}', "Priority must be between 0 and 9"),
        (b"{xx}", "invalid character 'x' looking for beginning of object key string"),
        (b'{"batch":"x"}', "json: cannot unmarshal string into Go struct field .batch of type int"),
    ],
)
def test_a_bad_request_is_refused_in_the_reference_s_words(payload: bytes, text: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_pull_request(payload)
    assert str(refused.value) == text


def queue_of(*batches: int) -> WaitingQueue:
    queue = WaitingQueue()
    for number, batch in enumerate(batches):
        queue.add(Waiting.begin(b"%d" % number, PullRequest(batch=batch), 0))
    return queue


def test_requests_are_served_in_turn() -> None:
    queue, served = queue_of(2, 1, 3), []
    while (waiting := queue.head()) is not None:
        served.append(waiting.reply)
        waiting.take(1, 1, 0)
        queue.advance()
    assert served == [b"0", b"1", b"2", b"0", b"2", b"2"]


def test_a_request_that_used_up_its_bytes_is_done() -> None:
    waiting = Waiting.begin(b"r", PullRequest(batch=5, max_bytes=10), 0)
    assert waiting.admits(10)
    assert not waiting.admits(11)
    waiting.take(1, 10, 0)
    assert waiting.remaining == 0


def test_the_queue_wakes_for_its_earliest_deadline() -> None:
    queue = WaitingQueue()
    queue.add(Waiting.begin(b"a", PullRequest(expires_ns=50), 100))
    queue.add(Waiting.begin(b"b", PullRequest(expires_ns=90, heartbeat_ns=30), 100))
    assert queue.wake_ns == 130
    removed = queue.remove_if(lambda waiting: waiting.reply == b"b")
    queue.rest()
    assert [waiting.reply for waiting in removed] == [b"b"]
    assert queue.wake_ns == 150


def test_a_status_says_what_was_not_delivered() -> None:
    waiting = Waiting.begin(b"r", PullRequest(batch=3, max_bytes=56), 0)
    waiting.take(1, 52, 0)
    assert pending_status(409, b"Message Size Exceeds MaxBytes", waiting) == (
        b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: 4\r\n\r\n"
    )
