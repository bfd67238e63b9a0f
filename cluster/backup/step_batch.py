"""A restore's steps on their way to the stream's leader (the payload of `backup.fill`)."""

from __future__ import annotations

import enum
from typing import Final

import attrs

from jetraft.cluster.state.commands import decode_consumer_commands, decode_stream_command
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, list_of, member_of, message_of, number, octets, protocol
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind

STEPS_MAX: Final = 1024  # `StepPlanner` ends a batch at half of it
BYTES_MAX: Final = 64 << 20  # as a forwarded request


class StepKind(enum.IntEnum):
    """The records that a step adds."""

    CONSUMER = 1
    MESSAGES = 2
    SKIP = 3
    REMOVE = 4


@protocol("a step of a restore", bytes_max=BYTES_MAX)
@attrs.frozen(slots=True)
class RestoreStep(Message):
    """One entry to be: `first_seq` and `count` say which sequences it uses up."""

    kind: StepKind = attrs.field(metadata=member_of({kind.value: kind for kind in StepKind}))
    first_seq: int = attrs.field(metadata=number())
    count: int = attrs.field(metadata=number())
    body: bytes = attrs.field(metadata=octets(BYTES_MAX))


@protocol("steps of a restore", bytes_max=BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class StepBatch(Message):
    """Steps for the stream that the entry `incarnation` of the meta log has created."""

    incarnation: int = attrs.field(metadata=number())
    steps: tuple[RestoreStep, ...] = attrs.field(metadata=list_of(message_of(RestoreStep), STEPS_MAX))

    @classmethod
    def unpack(cls, packed: bytes) -> StepBatch:
        """The batch of `pack`, of which every body can be applied. Raises RemoteProtocolError."""
        batch = super().unpack(packed)
        for step in batch.steps:
            _check_body(step)
        return batch


def _check_body(step: RestoreStep) -> None:
    """A committed step is applied by every replica, and applying never refuses."""
    try:
        if step.kind is StepKind.MESSAGES:
            seal(Kind.MESSAGES, index=0, term=0, incarnation=0, body=step.body, count=step.count, summed=True)
        elif step.kind is StepKind.CONSUMER:
            decode_consumer_commands(step.body)
        else:
            decode_stream_command(step.body)
    except (ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"a step of a restore whose body is none: {error}") from error
