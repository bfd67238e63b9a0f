"""Acknowledgements as clients send them: what their subject names, and what their body says.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ts>.<pending>
    $JS.ACK.<domain>.<account hash>. and the same from <stream> on, with an optional token at the end

Bodies: empty, `+ACK`, `+OK`; `-NAK` with an optional delay; `+WPI`; `+NXT` with an optional pull request; `+TERM` with
an optional reason. Anything else acknowledges nothing, as in nats-server. Source: consumer.go (processAck), ADR-15.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs
import orjson

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.consumers._acks import ack_places
from jetraft.store.model.gotime import parse_duration

if TYPE_CHECKING:
    from jetraft.cluster.advisories import Advisories


class AckKind(Enum):
    """The wish of an ack."""

    ACK = "+ACK"
    NAK = "-NAK"
    PROGRESS = "+WPI"
    NEXT = "+NXT"
    TERM = "+TERM"
    NOTHING = ""


ACKNOWLEDGING: Final = frozenset({AckKind.ACK, AckKind.TERM, AckKind.NEXT})


@attrs.frozen(slots=True)
class AckSubject:
    """The delivery that an ack is about."""

    consumer: bytes
    stream_seq: int
    consumer_seq: int
    count: int


@attrs.frozen(slots=True)
class Ack:
    """One ack, read."""

    kind: AckKind
    delay_ns: int = 0  # of a NAK
    body: bytes = b""  # of NEXT: the pull request
    reason: str = ""  # of TERM


PLAIN: Final = Ack(AckKind.ACK)
NOTHING: Final = Ack(AckKind.NOTHING)


def parse_ack_subject(subject: bytes) -> AckSubject | None:
    """The delivery that an ack subject names; None when it is not one."""
    found = ack_places(subject)
    if found is None:
        return None
    consumer, count, stream_seq, consumer_seq = found
    return AckSubject(consumer, stream_seq, consumer_seq, count)


def named_in(batch: bytes, consumer: bytes) -> dict[int, int]:
    """The deliveries of a consumer that captured acks name: stream sequence to consumer sequence."""
    found = (parse_ack_subject(captured.subject) for captured in captures(batch))
    return {ack.stream_seq: ack.consumer_seq for ack in found if ack is not None and ack.consumer == consumer}


def parse_ack_body(body: bytes) -> Ack:
    """The content of an ack's body."""
    if body in {b"", b"+ACK", b"+OK"}:
        return PLAIN
    if body == b"+WPI":
        return Ack(AckKind.PROGRESS)
    if body.startswith(b"-NAK"):
        return Ack(AckKind.NAK, delay_ns=_delay_ns(body.removeprefix(b"-NAK").strip()))
    if body.startswith(b"+NXT"):
        return Ack(AckKind.NEXT, body=body.removeprefix(b"+NXT").strip())
    if body.startswith(b"+TERM"):
        return Ack(AckKind.TERM, reason=body.removeprefix(b"+TERM").strip().decode(errors="replace"))
    return NOTHING


def _delay_ns(text: bytes) -> int:
    """The delay of a NAK: JSON or a Go duration; anything else is none."""
    if text.startswith(b"{"):
        try:
            delay = orjson.loads(text).get("delay", 0)
        except orjson.JSONDecodeError:
            return 0
        return max(0, delay) if type(delay) is int else 0
    return max(0, parse_duration(text.decode(errors="replace")) or 0)


def tell_refused(advisories: Advisories, stream: str, consumer: str, subject: AckSubject, ack: Ack) -> None:
    """Advise that a message was refused, or terminated for a reason that may stand behind `+TERM`."""
    places = {"consumer_seq": subject.consumer_seq, "stream_seq": subject.stream_seq, "deliveries": subject.count}
    if ack.kind is AckKind.NAK:
        advisories.refused(stream, consumer, **places)
    else:
        advisories.terminated(stream, consumer, **places, reason=ack.reason)
