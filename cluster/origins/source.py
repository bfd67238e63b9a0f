"""The way of one source's messages: through the admission of the stream, among what clients publish.

Each copy names its origin in a header (`source_header`), from which applying notes the position. So the position is
changed by the entry that stores the message. Messages that the stream does not want (a repetition by its id, a message
that is too large) is passed over; when that is the last there is, a command notes the position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.origins._plain import SourceRun
from jetraft.cluster.origins.subjects import without_expectations
from jetraft.cluster.state import commands
from jetraft.cluster.state.source_header import SourcePosition, header_parts, header_value, key_of
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model import message
from jetraft.store.model.feature_level import LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.origins.asking import Answer
    from jetraft.cluster.origins.deliveries import Arrived, Deliveries
    from jetraft.cluster.origins.subjects import SubjectChanges
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamSource


class Admitting(Protocol):
    """The leader of the stream."""

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""

    def admit_copies(self, batch: bytes) -> tuple[int, ApiError | None]:
        """Judge and propose capture records in this turn; returns how many are passed over at the end.

        With an error: how many at the end are not judged, because the stream is full.
        """

    def admit_plain_copies(self, batch: bytes, start: int, run: SourceRun) -> int:
        """Propose deliveries that need no judging from an offset on, and advance `run`; the offset of the next."""


class SourceIntake:
    """Implements Intake for one term."""

    def __init__(  # noqa: PLR0913  (what it works with)
        self,
        group: Group,
        machine: StreamMachine,
        leader: Admitting,
        source: StreamSource,
        *,
        subjects: SubjectChanges,
        behind: int = 0,
        level_in_use: Callable[[], int] = lambda: LEVEL,
    ) -> None:
        """`behind` is the position that was reached in this term, which may not be applied.

        `level_in_use` is a feature level. Below that of notes the next leader reads again what is passed over here.
        """
        self._level_in_use = level_in_use
        self._group = group
        self._machine = machine
        self._leader = leader
        self._source = source
        self._subjects = subjects
        self._key = key_of(source)
        found = machine.sources.get(self._key, SourcePosition(0))
        self._seq, self._identity = max(found.seq, behind), found.identity

    @property
    def position(self) -> int:
        """The origin's last sequence that was proposed or passed over."""
        return self._seq

    @property
    def proposed_seq(self) -> int:
        """The stream's last sequence, with what is in flight."""
        return self._leader.next_seq - 1

    @property
    def applied_seq(self) -> int:
        """The stream's last sequence."""
        return self._machine.last_seq

    def begins(self, answer: Answer) -> bool:
        """Note which origin that is; another one than the last is read from its start."""
        known, self._identity = self._identity, answer.identity or self._identity
        if known and known != self._identity and self._seq:
            self._seq = 0
            self._note()
            return False
        return True

    def take_plain(self, batch: bytes, start: int, deliveries: Deliveries) -> int:
        """Propose deliveries whose headers say nothing to JetStream."""
        if deliveries.is_broken:
            return start
        run = SourceRun(
            *header_parts(self._source, self._identity),
            consumer_seq=deliveries.consumer_seq,
            last_seq=deliveries.last_seq,
            change=self._subjects.of if self._subjects else None,
        )
        end = self._leader.admit_plain_copies(batch, start, run)
        if end > start:
            self._seq = deliveries.last_seq = run.last_seq
            deliveries.consumer_seq, deliveries.num_pending = run.consumer_seq, run.num_pending
        return end

    def take(self, messages: Sequence[Arrived]) -> ApiError | None:
        """Propose copies. An error: the stream is full."""
        left, error = self._leader.admit_copies(b"".join(map(self._copy, messages)))
        if error is not None:
            if left < len(messages):
                self._seq = messages[len(messages) - left - 1].seq
            return error
        self._seq = messages[-1].seq
        if left:
            self._note()
        return None

    def _copy(self, arrived: Arrived) -> bytes:
        subject = self._subjects.of(arrived.subject)
        value = header_value(self._source, arrived.seq, arrived.subject, self._identity)
        hdr = without_expectations(arrived.hdr, message.STREAM_SOURCE) if arrived.hdr else b""
        return encode_capture(subject, hdr=message.append(hdr, message.STREAM_SOURCE, value), payload=arrived.payload)

    def _note(self) -> None:
        level = self._machine.level(self._level_in_use())
        note = commands.at_level(commands.NoteSource(self._key, self._seq, self._identity), level)
        if note is not None:
            self._group.propose(Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(note)))
