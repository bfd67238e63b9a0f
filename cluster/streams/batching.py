"""Messages of batches on their way through admission: what is staged, what becomes one publish, what is refused.

`atomic.py` keeps what waits for its commit, `members.py` judges a whole batch; here they meet the admission of the
stream, which gives sequences. A whole batch is a publish of its own, so it is one entry of the log whatever its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetraft.cluster.capture._capture import capture_at, encode_capture
from jetraft.cluster.streams.atomic import AtomicBatches, Declined, Kept, Step, Whole
from jetraft.cluster.streams.candidate import Candidate, PublishRefused, check_shape
from jetraft.cluster.streams.members import Members, StreamBefore
from jetraft.cluster.streams.puback import batch_ack, error_ack
from jetraft.cluster.streams.publish import Abandoned
from jetraft.cluster.streams.traced import refused_text
from jetraft.store.model import errors, message

if TYPE_CHECKING:
    from jetraft.cluster.streams.batch_room import BatchRoom
    from jetraft.cluster.streams.publish import Publish, Turn
    from jetraft.store.model.config import StreamConfig


class Admission(StreamBefore, Protocol):
    """The admission of the stream, as batches use it."""

    def begin_alone(self, turn: Turn) -> Publish:
        """A publish of its own, behind all that the turn has admitted so far."""

    def add(self, publish: Publish, message: Candidate, batch: bytes, start: int, *, acked: bool) -> None:
        """Give a message that has passed its sequence."""

    def end_alone(self, turn: Turn, publish: Publish) -> None:
        """The publish is complete: it is to be proposed."""

    def take_back(self, publish: Publish) -> None:
        """The publish is not to be: none of its messages has passed."""


class Batching:
    """The batches of one stream during one term of leadership."""

    def __init__(self, room: BatchRoom, *, domain: str) -> None:
        self._domain = domain
        self.atomic = AtomicBatches(room)

    def follow(self, config: StreamConfig) -> None:
        """Judge by this configuration from now on; what it does not allow is dropped."""
        self._config = config
        self._stream = config.name.encode()
        if not config.allow_atomic:
            self.atomic.end()

    def take(self, admission: Admission, turn: Turn, record: bytes, member: Candidate, now_ns: int) -> None:
        """A message of an atomic batch: it is staged, or ends its batch."""
        reply = member.reply if not self._config.no_ack else b""
        try:
            step = self._staged(record, member, now_ns)
            if isinstance(step, Declined):
                self._refuse(turn, reply, member, step)
                return
            if isinstance(step, Whole):
                self._admit(admission, turn, step, reply)
        except PublishRefused as refused:
            self._refuse(turn, reply, member, Declined(refused.error))
            return
        if isinstance(step, Kept):
            turn.admitted.has_staged = True
            turn.answer(reply, b"")
        turn.trace(member)

    def _staged(self, record: bytes, member: Candidate, now_ns: int) -> Step:
        check_shape(member, self._config)
        if not self._config.allow_atomic:
            return Declined(errors.ATOMIC_PUBLISH_DISABLED.with_values())
        return self.atomic.take(member.headers, record, now_ns)

    def _refuse(self, turn: Turn, reply: bytes, member: Candidate, refused: Declined) -> None:
        if refused.abandoned:
            turn.admitted.abandoned.append(Abandoned(member.headers[b"Nats-Batch-Id"], refused.abandoned))
        turn.answer(reply, error_ack(self._stream, refused.error))
        turn.trace(member, refused_text(refused.error, member.headers))

    def _admit(self, admission: Admission, turn: Turn, whole: Whole, reply: bytes) -> None:
        """Make the messages of a batch one publish; raises PublishRefused for all of them."""
        publish = admission.begin_alone(turn)
        members = Members(admission, self._config, publish)
        try:
            for place, staged in enumerate(whole.records, 1):
                record = as_stored(staged, commits=whole.ends_before and place == len(whole.records))
                member = Candidate.at(record, 0)
                members.check(member)
                admission.add(publish, member, record, 0, acked=False)
        except PublishRefused:
            admission.take_back(publish)
            raise
        if reply:
            seq, count = publish.records.next_seq - 1, publish.records.count
            publish.answers.append((reply, batch_ack(self._stream, seq, whole.batch_id, count, self._domain)))
        admission.end_alone(turn, publish)


def as_stored(record: bytes, *, commits: bool) -> bytes:
    """A staged message as it is stored: without the API level that it required; `commits` adds the commit to it."""
    found = capture_at(record, 0)
    hdr = found.hdr
    if message.REQUIRED_API_LEVEL in hdr:
        hdr = message.strip(hdr, message.REQUIRED_API_LEVEL)
    if commits:
        hdr = message.append(hdr, message.BATCH_COMMIT, b"1")
    return record if hdr == found.hdr else encode_capture(found.subject, found.reply, hdr, found.payload)
