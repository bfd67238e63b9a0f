"""What is taken of an origin's deliveries, and when they are broken."""

from jetraft.cluster.capture._capture import Capture, capture_at, encode_capture
from jetraft.cluster.origins.deliveries import Arrived, Deliveries, FlowControl, numbers_of
from jetraft.store.model import message


def delivery(seq: int, number: int, *, pending: int = 0) -> Capture:
    reply = b"$JS.ACK.O.c.1.%d.%d.1000.%d" % (seq, number, pending)
    return capture_at(encode_capture(b"a", reply, payload=b"x"), 0)


def status(code: int, text: bytes, reply: bytes = b"", fields: dict[bytes, bytes] | None = None) -> Capture:
    return capture_at(encode_capture(b"d", reply, message.status(code, text, fields)), 0)


def taken(deliveries: Deliveries, *captured: Capture) -> list[int]:
    found = [deliveries.take(one) for one in captured]
    return [one.seq for one in found if isinstance(one, Arrived)]


def test_messages_are_taken_in_order_and_gaps_of_the_origin_are_no_gaps() -> None:
    deliveries = Deliveries(last_seq=4)
    assert taken(deliveries, delivery(5, 1), delivery(9, 2), delivery(10, 3, pending=7)) == [5, 9, 10]
    assert (deliveries.is_broken, deliveries.num_pending) == (False, 7)


def test_a_delivery_that_is_missing_breaks_and_nothing_is_taken_after_it() -> None:
    deliveries = Deliveries(last_seq=0)
    assert taken(deliveries, delivery(1, 1), delivery(3, 3), delivery(4, 4), delivery(2, 2)) == [1]
    assert deliveries.is_broken


def test_what_an_origins_new_leader_delivers_again_is_passed_over() -> None:
    deliveries = Deliveries(last_seq=0)
    assert taken(deliveries, delivery(1, 1), delivery(2, 2), delivery(1, 1), delivery(2, 2), delivery(3, 3)) == [
        1,
        2,
        3,
    ]
    assert not deliveries.is_broken


def test_another_message_under_an_old_number_breaks() -> None:
    deliveries = Deliveries(last_seq=0)
    assert taken(deliveries, delivery(1, 1), delivery(2, 1)) == [1]
    assert deliveries.is_broken


def test_a_message_from_before_the_position_is_not_taken_twice() -> None:
    deliveries = Deliveries(last_seq=2)
    assert taken(deliveries, delivery(1, 1), delivery(2, 2), delivery(3, 3)) == [3]


def test_a_heartbeat_tells_of_deliveries_that_did_not_come() -> None:
    deliveries = Deliveries(last_seq=0)
    assert taken(deliveries, delivery(1, 1)) == [1]
    assert deliveries.take(status(100, b"Idle Heartbeat", fields={message.LAST_CONSUMER: b"1"})) is None
    assert not deliveries.is_broken
    deliveries.take(status(100, b"Idle Heartbeat", fields={message.LAST_CONSUMER: b"2"}))
    assert deliveries.is_broken


def test_flow_control_and_a_stalled_consumer_ask_for_an_answer() -> None:
    deliveries = Deliveries(last_seq=0)
    assert deliveries.take(status(100, b"FlowControl Request", b"$JS.FC.x")) == FlowControl(b"$JS.FC.x")
    stalled = status(100, b"Idle Heartbeat", fields={message.CONSUMER_STALLED: b"$JS.FC.y"})
    assert deliveries.take(stalled) == FlowControl(b"$JS.FC.y")


def test_the_end_of_the_consumer_breaks() -> None:
    deliveries = Deliveries(last_seq=0)
    assert deliveries.take(status(409, b"Consumer Deleted")) is None
    assert deliveries.is_broken


def test_ack_subjects_of_old_and_new_servers_are_read() -> None:
    assert numbers_of(b"$JS.ACK.S.c.1.22.3.44.5") == (22, 3, 44, 5)
    assert numbers_of(b"$JS.ACK.hub.hash.S.c.1.22.3.44.5") == (22, 3, 44, 5)
    assert numbers_of(b"$JS.ACK.hub.hash.S.c.1.22.3.44.5.token") == (22, 3, 44, 5)
    for other in (b"", b"_INBOX.x", b"$JS.ACK.S.c", b"$JS.ACK.S.c.1.a.3.44.5"):
        assert numbers_of(other) is None


def test_numbers_beyond_what_a_store_counts_to_are_no_numbers() -> None:
    for number in (b"-1", b"1_0", b"%d" % (1 << 62), b"9" * 5000):
        for place in range(4):
            numbers = [b"1", b"1", b"1", b"1"]
            numbers[place] = number
            assert numbers_of(b"$JS.ACK.O.c.1." + b".".join(numbers)) is None
    deliveries = Deliveries(last_seq=0)
    assert deliveries.take(status(100, b"Idle Heartbeat", fields={message.LAST_CONSUMER: b"9" * 5000})) is None
    assert not deliveries.is_broken
