"""Carries out the effects of `fence.py`: atomic batches over a publishing connection, questions to the leader.

While the commit of one batch is on its way, the messages of the next one are staged; its commit needs the sequence of
the fence before it. What was staged in vain is dropped by the server after 10 s without a message.
"""

import logging
import secrets
from collections.abc import Generator
from typing import Any

import attrs

from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.wire import Frame
from pyspark_jetstream.write.fence import NO_ROOM, Effect, NoRoom, Publish, ReadBack, ReadFence, RemoveFences
from pyspark_jetstream.write.frames import batched, committing
from pyspark_jetstream.write.publisher import Publisher, Publishers, RefusedPublishError, read_ack
from pyspark_jetstream.write.rows import Rows
from pyspark_jetstream.write.target import WritableStream

LOG = logging.getLogger("pyspark_jetstream")

# Another fence is there than expected: by another attempt, or by this one, when its ack was lost.
WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
INCOMPLETE = 10176  # the leader changed, or dropped the batch after its 10 s
TOO_MANY_BATCHES = 10210
TOO_LARGE = 10199  # the server takes smaller batches
NOT_STORED = 10077  # the stream is full (discard=new), among other reasons: the text says which
FULL = ("maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded")


@attrs.frozen(slots=True, eq=False)
class Staged:
    """A batch without its last message, at the leader of the time."""

    rows: Rows
    batch_id: bytes
    token: int  # of the reply to its first message
    publisher: Publisher


class FencedWriter:
    """Publishes one partition; `subject` is that of its fences."""

    def __init__(self, publishers: Publishers, stream: WritableStream, subject: str, *, allow_rollup: bool) -> None:
        self._publishers = publishers
        self._stream = stream
        self._subject = subject
        self._allow_rollup = allow_rollup
        self._stages_ahead = True
        self._staged: Staged | None = None
        self._fences_note = ""  # of a stream that stays full

    def write(self, attempt: Generator[Effect, Any, int]) -> int:
        """Run an attempt to its end; returns how many rows it has published. Raises what the attempt raises."""
        outcome: Any = None
        while True:
            try:
                effect = attempt.send(outcome)
            except StopIteration as ended:
                return int(ended.value)
            match effect:
                case ReadFence():
                    outcome = self._stream.last_fence(self._subject)
                case ReadBack():
                    LOG.warning("%s: rows come in another order; what is stored is read back", self._subject)
                    outcome = self._stream.rows_up_to(effect.fence)
                case Publish():
                    outcome = self._publish(effect)
                case RemoveFences():
                    left = self._stream.keep_newest_fences(self._subject.rsplit(".", 2)[0])
                    self._fences_note, outcome = f"; {left}", None

    def _publish(self, wish: Publish) -> int | NoRoom | None:
        """The fence's sequence; None where another fence may be the last one now; NO_ROOM for a smaller piece."""
        publisher = self._publishers.get()
        try:
            staged, self._staged = self._staged, None
            if staged is None or staged.rows is not wish.rows or staged.publisher is not publisher:
                staged = self._stage(publisher, wish.rows)
            token = self._commit(staged, wish)
            if self._stages_ahead and wish.following is not None:
                self._staged = self._stage(publisher, wish.following)
            ack = read_ack(self._answer(staged, token), self._stream.stream)
        except RefusedPublishError as refused:
            return self._refused(refused, wish)
        except ServerError as error:
            self._staged = None
            is_full = str(NOT_STORED) in str(error) and any(reason in str(error) for reason in FULL)
            self._publishers.failed(ServerError(f"{error}{self._fences_note}") if is_full else error, keep=is_full)
            return NO_ROOM if is_full else None
        if ack.count != len(wish.rows) + 1:
            raise AssertionError(f"a batch of {len(wish.rows) + 1} messages was acknowledged as {ack.count}")
        self._publishers.progressed()
        return ack.seq

    def _refused(self, refused: RefusedPublishError, wish: Publish) -> NoRoom | None:
        self._staged = None
        if refused.err_code == TOO_LARGE and len(wish.rows) > 1:
            return NO_ROOM
        if refused.err_code in WRONG_LAST_SEQUENCE:
            self._publishers.failed(refused, keep=True)
        elif refused.err_code == INCOMPLETE:
            self._publishers.failed(refused)
        else:
            raise refused
        return None

    def _stage(self, publisher: Publisher, rows: Rows) -> Staged:
        """Send the rows of a batch; a refusal of its first message is read with the answer to its commit."""
        staged = Staged(rows, secrets.token_hex(10).encode(), publisher.new_token(), publisher)
        if len(rows):
            publisher.send(batched(rows, staged.batch_id, publisher.reply(staged.token)))
        return staged

    def _commit(self, staged: Staged, wish: Publish) -> int:
        token = staged.publisher.new_token()
        lines = b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % wish.expected
        if self._allow_rollup and wish.fence.previous == 0:
            lines += b"Nats-Rollup: sub\r\n"  # the fences before it are not needed
        message = committing(
            self._subject.encode(),
            staged.publisher.reply(token),
            batch_id=staged.batch_id,
            number=len(staged.rows) + 1,
            lines=lines,
            payload=wish.fence.payload(),
        )
        staged.publisher.send(message)
        return token

    def _answer(self, staged: Staged, token: int) -> Frame:
        """The reply to the commit; raises ServerError where that to the first message says that it was not taken."""
        while True:
            for found, frame in staged.publisher.replies():
                if found == token:
                    return frame
                if found == staged.token and frame.payload:
                    self._check_first(frame)
            staged.publisher.receive()

    def _check_first(self, frame: Frame) -> None:
        try:
            read_ack(frame, self._stream.stream)
        except ServerError as error:
            if str(TOO_MANY_BATCHES) in str(error):
                self._stages_ahead = False
            raise
