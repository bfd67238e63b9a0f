"""An ack that publishes: a worker's result and the end of its task in one step.

A client that answers a delivery with the header `Jetraft-Publish: <subject>` publishes what it sends there, and
acknowledges the delivery, in one entry of the log: both are stored, or neither. The stream's leader admits the message
(cluster/streams/admission/ack_publish.py), which names the delivery in a header; applied, it acknowledges it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.state.ack_header import with_ack
from jetraft.store.model import message
from jetraft.store.stream._runs import Runs

if TYPE_CHECKING:
    from jetraft.cluster.capture._capture import Capture
    from jetraft.cluster.consumers.acknowledging import Acknowledging
    from jetraft.cluster.consumers.acks import AckSubject
    from jetraft.cluster.consumers.effects import Now

PUBLISH: Final = b"Jetraft-Publish"


class AckOutcome(Enum):
    """The outcome. The client is told, but of a stale one and by a leader that does not hear."""

    STORED = "stored"  # and acknowledged, once the entry is applied
    KNOWN = "known"  # the stream has a message with this id: an ack is all that is left to do
    REPEATED = "repeated"  # the same, and nothing waits for the ack
    STALE = "stale"  # of a delivery that is not the newest
    REFUSED = "refused"
    UNHEARD = "unheard"  # this leader proposes nothing any more


@attrs.frozen(kw_only=True, slots=True)
class AckPublish:
    """A client's wish."""

    record: bytes  # the message, as a capture record
    is_newest: bool  # its delivery is the newest one, and awaited
    allowed: str  # the subjects that acks of the consumer may publish to; empty: none


class AckPublisher(Protocol):
    """The leader of the stream."""

    @property
    def messages_coming(self) -> int:
        """How many messages are on their way into the stream: taken, and not applied yet."""

    def publish_with_ack(self, asked: AckPublish) -> AckOutcome:
        """Store the message, in one entry with the ack, or answer why not."""


def asked_by(captured: Capture, subject: AckSubject, *, is_newest: bool, allowed: str) -> AckPublish | None:
    """The message that an ack asks to publish; None for nothing."""
    target = message.get(captured.hdr, PUBLISH) if captured.hdr else None
    if target is None:
        return None
    hdr = with_ack(message.strip(captured.hdr, PUBLISH), subject.consumer, subject.stream_seq, subject.count)
    record = encode_capture(target, captured.reply, hdr, captured.payload)
    return AckPublish(record=record, is_newest=is_newest, allowed=allowed)


def note_outcome(core: Acknowledging, subject: AckSubject, outcome: AckOutcome, reply: bytes, now: Now) -> None:
    """Tell the consumer what came of an ack that publishes."""
    if outcome is AckOutcome.STORED:
        core.settled(subject, now)
    elif outcome is AckOutcome.KNOWN:
        core.acknowledge(Runs((subject.stream_seq,)), now)
    elif outcome is AckOutcome.STALE:
        core.refuse_stale(reply)
