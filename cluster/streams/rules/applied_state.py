"""A stream's applied state as admission reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jetraft.store.stream._search import LastSearch
    from jetraft.store.stream.stream_store import StoredMessage


class AppliedState(Protocol):
    """A stream's applied state as admission reads it."""

    @property
    def messages(self) -> int:
        """Live messages."""

    @property
    def stored_bytes(self) -> int:
        """The bytes that count against max_bytes."""

    @property
    def num_subjects(self) -> int:
        """Subjects with live messages."""

    @property
    def next_seq(self) -> int:
        """The sequence of the next message: above every sequence that may have been given out."""

    @property
    def last_ts_ns(self) -> int:
        """The time of the last message, 0 for none."""

    @property
    def last_msg_id(self) -> bytes:
        """The Nats-Msg-Id of the last message, empty when it had none."""

    def last_for(self, pattern: bytes) -> int:
        """The last live sequence whose subject matches, 0 for none."""

    def search_last(self, pattern: bytes) -> LastSearch:
        """A search for the same, in steps."""

    def count_for(self, subject: bytes) -> int:
        """Live messages of one subject."""

    def bytes_for(self, subject: bytes) -> int:
        """Their bytes, where a limit counts them, else 0."""

    def load(self, seq: int) -> StoredMessage | None:
        """A live message. Raises StoreCorrupt for one that is damaged."""

    def seq_of_msg_id(self, msg_id: bytes, now_unix_ns: int) -> int | None:
        """The sequence of a message with this id inside the window of duplicates."""

    def is_unwanted(self, subject: bytes) -> bool:
        """True when retention is by interest and no consumer is interested in this subject."""
