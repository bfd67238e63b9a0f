"""Expectations of a message about the stream: the last sequence, that of a subject, the last id. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.state.headers import parse_seq
from jetraft.cluster.streams.publishing.candidate import PublishRefused
from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.streams.publishing.candidate import Candidate


def check_expected_sequences(message: Candidate, last_seq: int, last_seq_of: Callable[[bytes], int]) -> None:
    """Raise PublishRefused unless the last sequence, and that of a subject or pattern, are as expected."""
    expected = message.headers.get(b"Nats-Expected-Last-Sequence")
    if expected and parse_seq(expected) != last_seq:
        raise PublishRefused(errors.STREAM_WRONG_LAST_SEQUENCE.with_values(seq=last_seq))
    expected = message.headers.get(b"Nats-Expected-Last-Subject-Sequence")
    pattern = message.headers.get(b"Nats-Expected-Last-Subject-Sequence-Subject")
    if pattern and not expected:
        raise PublishRefused(errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.with_values())
    if expected:
        last_seq = last_seq_of(pattern or message.subject)
        if parse_seq(expected) != last_seq:
            raise PublishRefused(errors.STREAM_WRONG_LAST_SEQUENCE.with_values(seq=last_seq))


def check_last_msg_id(headers: dict[bytes, bytes], last_msg_id: bytes) -> None:
    """Raise PublishRefused unless the id of the last message is as expected."""
    expected = headers.get(b"Nats-Expected-Last-Msg-Id")
    if expected and expected != last_msg_id:
        last = last_msg_id.decode(errors="replace")
        raise PublishRefused(errors.STREAM_WRONG_LAST_MSG_ID.with_values(id=last))
