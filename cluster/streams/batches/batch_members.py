"""The messages of an atomic batch under judgement: each is judged on the stream as it was before the batch.

An expectation that a batch's own messages would decide is refused: an expected sequence of a subject that
it has written, a rollup of what it has written. One refusal refuses the batch. Order and texts are nats-server
2.15.1's, observed; source: jetstream_batching.go, checkMsgHeadersPreClusteredProposal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jetraft.cluster.state.headers import parse_seq
from jetraft.cluster.streams.publishing.candidate import (
    PublishRefused,
    check_rollup,
    check_supported,
    check_unsupported_origin,
)
from jetraft.cluster.streams.rules.counters import check_increment
from jetraft.cluster.streams.rules.subject_quota import SubjectQuota
from jetraft.cluster.streams.schedules.scheduling import check_schedule, check_scheduler
from jetraft.store.model import errors
from jetraft.store.model.config import DiscardPolicy
from jetraft.store.model.extensions import stream_extensions

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.cluster.streams.publishing.publish import Known, Publish
    from jetraft.store.model.config import StreamConfig


class StreamBefore(Protocol):
    """Questions about the stream: as applied, and with everything in flight."""

    def last_seq_before(self, pattern: bytes) -> int:
        """The last sequence of a subject, or of all that match a pattern."""

    def count_before(self, subject: bytes) -> int:
        """Messages of a subject."""

    def bytes_before(self, subject: bytes) -> int:
        """The bytes of a subject's messages, where a limit counts them."""

    def held_before(self) -> tuple[int, int]:
        """Messages, and their bytes as they count against max_bytes."""

    def message_bytes(self, message: Candidate) -> int:
        """The bytes that a message will count against max_bytes."""

    def duplicate_of(self, message: Candidate) -> Known | None:
        """The first copy of a message with an id, among the messages of the open publish too."""


class Members:
    """The judge of one batch; `publish` has the messages that have passed."""

    def __init__(self, before: StreamBefore, config: StreamConfig, publish: Publish, *, now_ns: int) -> None:
        """`now_ns` is the time that the messages are stamped with."""
        self._now_ns = now_ns
        self._before = before
        self._config = config
        self._stream = config.name.encode()
        self._publish = publish
        self._quota = SubjectQuota.of(config)

    def check(self, message: Candidate) -> None:
        """Raise PublishRefused, or the message passes and is to be added to the publish."""
        headers = message.headers
        if headers.get(b"Nats-Expected-Last-Msg-Id"):
            raise PublishRefused(
                errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER.with_values(header="Nats-Expected-Last-Msg-Id")
            )
        check_increment(message, self._config)
        check_supported(headers, self._stream, self._config)
        if self._before.duplicate_of(message) is not None:
            raise PublishRefused(errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE.with_values())
        self._check_expected_sequences(message)
        check_schedule(message, self._config, self._now_ns)
        check_scheduler(message, self._config)
        check_unsupported_origin(headers)
        self._check_rollup(message)
        self._check_room(message)

    @property
    def takes_plain(self) -> bool:
        """Whether a message without headers that ask for something always passes."""
        config = self._config
        if config.discard is DiscardPolicy.NEW or config.allow_msg_counter:
            return False
        return self._quota is None and not stream_extensions(config).max_subjects

    def _check_expected_sequences(self, message: Candidate) -> None:
        headers, last_seq = message.headers, self._publish.records.next_seq - 1
        expected = headers.get(b"Nats-Expected-Last-Sequence")
        if expected and parse_seq(expected) != last_seq:
            raise PublishRefused(errors.STREAM_WRONG_LAST_SEQUENCE.with_values(seq=last_seq))
        if expected and self._publish.records.count:
            raise PublishRefused(errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.with_values())
        expected = headers.get(b"Nats-Expected-Last-Subject-Sequence")
        pattern = headers.get(b"Nats-Expected-Last-Subject-Sequence-Subject")
        if expected:
            self._check_subject_seq(pattern or message.subject, parse_seq(expected))
        elif pattern:
            raise PublishRefused(errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.with_values())

    def _check_subject_seq(self, pattern: bytes, expected: int) -> None:
        if self._publish.records.count_of(pattern):
            raise PublishRefused(errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.with_values())
        found = self._before.last_seq_before(pattern)
        if found != expected:
            raise PublishRefused(errors.STREAM_WRONG_LAST_SEQUENCE.with_values(seq=found))

    def _check_rollup(self, message: Candidate) -> None:
        rollup = message.headers.get(b"Nats-Rollup", b"").lower()
        check_rollup(message.headers, self._config)
        if rollup == b"sub" and self._publish.records.count_of(message.subject):
            raise PublishRefused(errors.STREAM_ROLLUP_FAILED.with_values(err="batch rollup sub invalid"))
        if rollup == b"all" and self._publish.records.count:
            raise PublishRefused(errors.STREAM_ROLLUP_FAILED.with_values(err="batch rollup all invalid"))

    def _check_room(self, message: Candidate) -> None:
        """Discard policy `new`: the stream has room for all of the batch; what it replaces does not count."""
        config = self._config
        if self._quota is not None:
            self._quota.check(self._before, self._publish, message, config)
        if config.discard is not DiscardPolicy.NEW:
            return
        messages, size = self._before.held_before()
        if 0 < config.max_msgs <= messages + self._publish.records.count:
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err="maximum messages exceeded"))
        size += self._publish.records.stored_bytes + self._before.message_bytes(message)
        if 0 < config.max_bytes < size:
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err="maximum bytes exceeded"))
        if (
            config.discard_new_per_subject
            and config.max_msgs_per_subject > 0
            and not message.headers.get(b"Nats-Rollup")
        ):
            count = self._before.count_before(message.subject) + self._publish.records.count_of(message.subject)
            if count >= config.max_msgs_per_subject:
                err = "maximum messages per subject exceeded"
                raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err=err))
