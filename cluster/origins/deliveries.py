"""Deliveries of an origin's consumer: messages in the order of its sequence, and its statuses. Pure.

The consumer numbers what it delivers. A number that is missing, or comes again for another message, means that
something was lost on the way: these deliveries are broken, and another consumer has to start behind the last message
that was taken. A heartbeat says the number that the consumer has reached. Source: ADR-17 (ordered consumers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from jetraft.cluster.state.headers import parse_seq
from jetraft.store.model import message

if TYPE_CHECKING:
    from jetraft.cluster.capture._capture import Capture

ACK_PREFIX: Final = b"$JS.ACK."
STATUS_START: Final = b"NATS/1.0 "
OLD_ACK_TOKENS: Final = 9  # $JS.ACK.<stream>.<consumer>.<count>.<stream seq>.<consumer seq>.<time>.<pending>
NEW_ACK_TOKENS: Final = 11  # with domain and account before the stream; others may follow
CONTROL: Final = b"100"
NUMBER_MAX: Final = (1 << 62) - 1  # what the store counts to; a time in ns of the year 2116


class Arrived(NamedTuple):
    """A message of an origin, as it is there."""

    seq: int
    ts_ns: int
    subject: bytes
    hdr: bytes
    payload: bytes
    ack: bytes


class AckNumbers(NamedTuple):
    """The numbers in the reply subject of a delivery."""

    stream_seq: int
    consumer_seq: int
    ts_ns: int
    num_pending: int


@attrs.frozen(slots=True)
class FlowControl:
    """The consumer wants an answer to this subject when everything before it is taken care of."""

    reply: bytes


@attrs.define(eq=False)
class Deliveries:
    """The deliveries of one consumer. `last_seq` is the origin's sequence up to which everything was taken before."""

    last_seq: int
    consumer_seq: int = 0
    num_pending: int = 0
    is_broken: bool = False  # something is missing: nothing is taken any more

    def take(self, captured: Capture) -> Arrived | FlowControl | None:
        """The message, or the question, that a captured message is; None for what needs nothing done."""
        hdr = captured.hdr
        if hdr.startswith(STATUS_START) and not captured.payload_len:
            return self._status(captured)
        numbers = numbers_of(captured.reply)
        if numbers is None or self.is_broken:
            return None
        if numbers.consumer_seq != self.consumer_seq + 1:
            # The origin's new leader may deliver again what its predecessor has delivered.
            self.is_broken = numbers.consumer_seq > self.consumer_seq or numbers.stream_seq > self.last_seq
            return None
        self.consumer_seq, self.num_pending = numbers.consumer_seq, numbers.num_pending
        if numbers.stream_seq <= self.last_seq:
            return None
        self.last_seq = numbers.stream_seq
        return Arrived(numbers.stream_seq, numbers.ts_ns, captured.subject, hdr, captured.payload, captured.reply)

    def stored_hdr(self) -> bytes:
        """An answer to flow control: the origin's sequences up to which everything is taken care of."""
        hdr = message.append(b"", message.LAST_CONSUMER, b"%d" % self.consumer_seq)
        return message.append(hdr, message.LAST_STREAM, b"%d" % self.last_seq)

    def _status(self, captured: Capture) -> FlowControl | None:
        code = captured.hdr[len(STATUS_START) :][: len(CONTROL)]
        if code != CONTROL:
            self.is_broken = True  # the consumer is deleted, or its server gives up
            return None
        if captured.reply:
            return FlowControl(captured.reply)
        reached = message.get(captured.hdr, message.LAST_CONSUMER)
        if reached is not None and parse_seq(reached) > self.consumer_seq:
            self.is_broken = True
        stalled = message.get(captured.hdr, message.CONSUMER_STALLED)
        return FlowControl(stalled) if stalled else None


def numbers_of(reply: bytes) -> AckNumbers | None:
    """The numbers in an ack subject; None for another subject."""
    parts = reply.split(b".")
    if not reply.startswith(ACK_PREFIX):
        return None
    if len(parts) == OLD_ACK_TOKENS:
        numbers = parts[5:9]
    elif len(parts) >= NEW_ACK_TOKENS:
        numbers = parts[7:11]
    else:
        return None
    found = AckNumbers(*map(parse_seq, numbers))
    return found if all(0 <= number <= NUMBER_MAX for number in found) else None
