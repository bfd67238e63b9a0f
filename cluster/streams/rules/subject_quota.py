"""How many bytes the messages of one subject may have (`jetraft.max_bytes_per_subject`), as admission judges it. Pure.

The excess of a subject is dropped when a message is applied (store/stream/_quota.pyx), the oldest first. Refused is
only what no dropping makes room for: a message that is larger than the limit by itself, and with
`discard_new_per_subject` each message that finds its subject full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from jetraft.cluster.streams.publishing.candidate import PublishRefused, rolls_up
from jetraft.store.model import errors
from jetraft.store.model.extensions import stream_extensions

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.cluster.streams.publishing.publish import Publish
    from jetraft.store.model.config import StreamConfig


class StreamInFlight(Protocol):
    """Questions about the stream, with what is in flight."""

    def bytes_before(self, subject: bytes) -> int:
        """The bytes of a subject's messages."""

    def message_bytes(self, message: Candidate) -> int:
        """The bytes that a message will count."""


@attrs.frozen(slots=True)
class SubjectQuota:
    """The limit of one stream."""

    bytes_max: int
    refuses_new: bool

    @classmethod
    def of(cls, config: StreamConfig) -> SubjectQuota | None:
        """The quota of a configuration; None without a limit."""
        bytes_max = stream_extensions(config).max_bytes_per_subject
        return cls(bytes_max, config.discard_new_per_subject) if bytes_max else None

    def check(self, held: StreamInFlight, publish: Publish, message: Candidate, config: StreamConfig) -> None:
        """Raise PublishRefused when there is no room behind all that is in flight and in `publish`."""
        need, used = held.message_bytes(message), 0
        if self.refuses_new and not rolls_up(message, config):
            used = held.bytes_before(message.subject) + publish.records.bytes_of(message.subject)
        if used + need > self.bytes_max:
            text = "maximum bytes per subject exceeded: the message needs {} bytes, {} of {} are in use"
            err = text.format(need, used, self.bytes_max)
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err=err))
