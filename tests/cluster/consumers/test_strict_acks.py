"""`jetraft.strict_acks` and `jetraft.nak_backoff` on one node in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.consumers._acks import sort_acks
from jetraft.store.log.mem_log import MemLog
from tests.cluster.lab import Node, Sent, add_consumer, info_of, start_stream

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica

S = 10**9
STALE = b"NATS/1.0 409 Stale Ack\r\n\r\n"
STRICT = {"jetraft.strict_acks": "true"}


class Client:
    """A stream with one message and a consumer `c` of it."""

    def __init__(self, metadata: dict[str, str], log: MemLog | None = None, **consumer: Any) -> None:
        self.node = Node()
        self.replica: StreamReplica = start_stream(self.node, log)
        if log is None or not self.replica.machine.consumers:
            self.node.publish(b"s.a", b"x")
            self.node.turn()
            fields = {"durable_name": "c", "ack_wait": S, "metadata": metadata, **consumer}
            add_consumer(self.node, self.replica, **fields)

    def pull(self) -> bytes:
        """The ack subject of what is delivered, empty for nothing."""
        self.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"no_wait":true}', reply=b"_INBOX.r")
        return next((sent.reply for sent in self.node.turn() if sent.reply), b"")

    def ack(self, subject: bytes, body: bytes = b"") -> list[Sent]:
        self.node.publish(subject, body, reply=b"_INBOX.a")
        return [sent for sent in self.node.turn() if sent.to == b"_INBOX.a"]

    @property
    def pending(self) -> int:
        return info_of(self.replica, "c").num_ack_pending

    @property
    def stale_acks(self) -> int:
        assert self.replica._leadership is not None
        return self.replica._leadership.dispatcher.statistics().stale_acks


def redelivered(client: Client) -> tuple[bytes, bytes]:
    """The ack subjects of the first and of the second delivery."""
    first = client.pull()
    client.node.sleep(2 * S)
    return first, client.pull()


@pytest.mark.parametrize("body", [b"", b"+ACK", b"-NAK", b"+WPI", b"+NXT", b"+TERM no use"])
def test_an_ack_of_an_older_delivery_is_refused_and_changes_nothing(body: bytes) -> None:
    client = Client(STRICT)
    first, second = redelivered(client)
    (answer,) = client.ack(first, body)
    assert (answer.hdr, client.stale_acks, client.pending) == (STALE, 1, 1)
    assert client.pull() == b"", "a negative one repeats nothing"
    (answer,) = client.ack(second)
    assert (answer.hdr, client.pending) == (b"", 0)


def test_without_the_key_it_counts() -> None:
    client = Client({})
    first, _ = redelivered(client)
    (answer,) = client.ack(first)
    assert (answer.hdr, client.pending) == (b"", 0)


def test_a_plain_ack_of_an_older_delivery_is_counted_and_has_no_effect() -> None:
    client = Client(STRICT)
    first, second = redelivered(client)
    client.node.publish(first)
    client.node.turn()
    assert (client.stale_acks, client.pending) == (1, 1)
    client.node.publish(second)
    client.node.turn()
    assert (client.stale_acks, client.pending) == (1, 0)


def test_an_ack_of_what_is_settled_is_refused() -> None:
    client = Client(STRICT)
    subject = client.pull()
    client.ack(subject)
    (answer,) = client.ack(subject)
    assert answer.hdr == STALE


def test_the_key_may_come_and_go() -> None:
    client = Client({})
    first, _ = redelivered(client)
    add_consumer(client.node, client.replica, durable_name="c", ack_wait=S, metadata=STRICT)
    client.node.publish(first)
    client.node.turn()
    assert (client.stale_acks, client.pending) == (1, 1)
    add_consumer(client.node, client.replica, durable_name="c", ack_wait=S)
    client.node.publish(first)
    client.node.turn()
    assert client.pending == 0


@pytest.mark.parametrize(("metadata", "known"), [(STRICT, 2), ({}, 1)])
def test_a_delivery_of_a_single_replica_is_in_the_log_before_it_leaves(metadata: dict[str, str], known: int) -> None:
    """Others leave first, so a leader after a crash may deliver again with the numbers of before."""
    log = MemLog()
    client = Client(metadata, log)
    client.node.publish(b"s.b", b"y")
    client.node.sleep(S)
    assert client.pull()
    assert client.pull(), "in the same hundredth of a second, where no entry is made that no client waits for"
    client.replica.stop()
    again = Client(metadata, log)
    assert again.replica.machine.consumers["c"].delivered_stream == known


def test_acks_of_strict_consumers_are_never_sorted_as_plain() -> None:
    subjects = [b"$JS.ACK.S.%s.1.%d.9.1.0" % (name, seq) for seq in (1, 2, 3) for name in (b"a", b"b")]
    batch = b"".join(encode_capture(subject) for subject in subjects)
    plain, others = sort_acks(batch, {b"b"})
    assert ({name: list(seqs) for name, seqs in plain.items()}, len(others)) == ({b"a": [1, 2, 3]}, 3)
    assert len(sort_acks(batch, set())[1]) == len(sort_acks(batch)[1]) == 0


@pytest.mark.parametrize(("metadata", "waits"), [({"jetraft.nak_backoff": "true"}, [1, 3, 5, 5]), ({}, [0, 0, 0, 0])])
def test_a_nak_without_a_delay_waits_as_the_backoff_says(metadata: dict[str, str], waits: list[int]) -> None:
    client = Client(metadata, backoff=(S, 3 * S, 5 * S), ack_wait=0)
    subject = client.pull()
    for wait in waits:
        client.node.publish(subject, b"-NAK")
        client.node.turn()
        if wait:
            client.node.sleep(wait * S - S // 10)
            assert client.pull() == b""
            client.node.sleep(S // 5)
        subject = client.pull()
        assert subject


def test_a_nak_with_a_delay_waits_for_that() -> None:
    client = Client({"jetraft.nak_backoff": "true"}, backoff=(30 * S,), ack_wait=0)
    subject = client.pull()
    client.node.publish(subject, b'-NAK {"delay":1000000000}')
    client.node.sleep(2 * S)
    assert client.pull()
