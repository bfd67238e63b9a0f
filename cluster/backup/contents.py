"""The content of an archive, checked: state, consumers, messages in order, each within its limits. Pure.

An archive comes from a client, so nothing in it is believed: sizes are bounded before memory is taken, sequences must
ascend within what the state says, all messages together may not have more bytes than the state, which is what room was
looked for. Source of the rules: ADR "JetStream Stream Backup and Restore V2".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.backup.archive import CONSUMER_PREFIX, STATE_NAME, ArchiveEntry, cut_off
from jetraft.cluster.backup.consumers import SEQ_MAX, ConsumerParts, UnfinishedConsumer
from jetraft.store.model import errors
from jetraft.store.model.message import valid_block
from jetraft.store.model.state import StreamState
from jetraft.store.model.subject import NAME_BYTES_MAX, valid_asset_name, valid_publish_subject
from jetraft.store.s2.framing import CorruptArchiveError
from jetraft.store.stream.consumer_state import ConsumerState

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig

CONSUMERS_MAX: Final = 100_000
SUBJECTS_REMEMBERED: Final = 10_000
TS_NS_MAX: Final = (1 << 63) - 1


@attrs.frozen(slots=True)
class Removal:
    """Messages that have come before were removed; only archives of the first version say so."""

    seqs: tuple[int, ...]


@attrs.frozen(slots=True)
class ArchiveEnd:
    """The archive was whole. Returns where the stream ends, whether there is a message or not."""

    last_seq: int
    last_ts_ns: int


Item = StreamState | ConsumerState | ArchiveEntry | Removal | ArchiveEnd  # an entry is a message
Found = Item | UnfinishedConsumer


class Contents:
    """Entries in, items out. `finish` says whether the archive was whole."""

    def __init__(self, config: StreamConfig, now_unix_ns: int) -> None:
        self._config = config
        self._now_unix_ns = now_unix_ns
        self._consumers_left = 0
        self._names: set[str] = set()
        self._subjects: set[bytes] = set()
        self._message_bytes = 0
        self._last_seq = 0
        self._ended = False
        self.state: StreamState | None = None
        self.messages = 0

    def begin_first_version(self, bytes_max: int) -> StreamState:
        """Take messages and consumers in any order, of an archive that does not begin with a state."""
        self.state = StreamState(messages=SEQ_MAX, bytes=bytes_max, first_seq=1, last_seq=SEQ_MAX)
        return self.state

    def take(self, entry: ArchiveEntry) -> Found:
        """The item of the next entry. Raises CorruptArchiveError."""
        if self._ended:
            raise CorruptArchiveError("archive: invalid archive stream")
        if self.state is None:
            self.state = self._state(entry)
            return self.state
        if self._consumers_left:
            return self._consumer(entry)
        if entry.is_end:
            self._ended = True
            return ArchiveEnd(self.state.last_seq, self.state.last_ts_ns)
        return self._message(entry, self.state)

    def finish(self) -> None:
        """Raise CorruptArchiveError when the archive ended too early."""
        if self.state is None or not self._ended:
            raise cut_off()

    def _state(self, entry: ArchiveEntry) -> StreamState:
        if entry.name != STATE_NAME or entry.seq:
            raise CorruptArchiveError("snapshot state missing")
        try:
            state = StreamState.from_json(entry.body)
        except errors.ApiError as error:
            raise CorruptArchiveError(f"snapshot state corrupt: {error}") from error
        if not 0 <= state.consumer_count <= CONSUMERS_MAX or state.last_seq > SEQ_MAX:
            raise CorruptArchiveError("snapshot state corrupt")
        span = state.last_seq - state.first_seq + 1
        unused = state.first_seq == state.last_seq == 0
        if not unused and (span < 0 or state.first_seq < 1):
            raise CorruptArchiveError("snapshot state corrupt")
        if state.messages > (0 if unused else span) or (state.messages == 0 and span != 0 and not unused):
            raise CorruptArchiveError("snapshot state corrupt")
        self._consumers_left = state.consumer_count
        self._last_seq = max(0, state.first_seq - 1)
        return state

    def _consumer(self, entry: ArchiveEntry) -> UnfinishedConsumer:
        if not entry.name.startswith(CONSUMER_PREFIX) or entry.seq or entry.hdr:
            raise CorruptArchiveError(f"invalid consumer entry {entry.name[:80]!r}")
        self._consumers_left -= 1
        return self.consumer(entry.name.removeprefix(CONSUMER_PREFIX), entry.body, ConsumerParts())

    def consumer(self, raw: bytes, body: bytes, parts: ConsumerParts) -> UnfinishedConsumer:
        """The consumer of a name and a body, or of parts that are there. Raises CorruptArchiveError."""
        name = raw.decode("utf-8", "replace")
        if not valid_asset_name(raw) or len(raw) > NAME_BYTES_MAX:
            raise CorruptArchiveError(f"invalid consumer entry {name!r:.80}")
        if name in self._names or len(self._names) >= CONSUMERS_MAX:
            raise CorruptArchiveError(f"consumer {name!r} twice")
        self._names.add(name)
        return UnfinishedConsumer(name, self._config, self._now_unix_ns, body, parts)

    def _message(self, entry: ArchiveEntry, state: StreamState) -> ArchiveEntry:
        if not self._last_seq < entry.seq <= state.last_seq:
            raise CorruptArchiveError(f"snapshot sequence {entry.seq} out of order")
        if not 0 <= entry.ts_ns <= TS_NS_MAX or not self._is_valid(entry.name):
            raise CorruptArchiveError(f"invalid message at sequence {entry.seq}")
        if entry.hdr and not valid_block(entry.hdr):
            raise CorruptArchiveError(f"invalid header at sequence {entry.seq}")
        size = len(entry.hdr) + len(entry.body)
        if 0 < self._config.max_msg_size < size:
            raise CorruptArchiveError(errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.with_values().description)
        self._message_bytes += size + len(entry.name)
        self.messages += 1
        if self._message_bytes > state.bytes or self.messages > state.messages:
            raise CorruptArchiveError("snapshot message bytes exceed maximum store message size")
        self._last_seq = entry.seq
        return entry

    def _is_valid(self, subject: bytes) -> bool:
        """Whether one may publish to it; remembers those that were looked at, as subjects mostly come again."""
        if subject in self._subjects:
            return True
        if len(self._subjects) >= SUBJECTS_REMEMBERED:
            self._subjects.clear()
        if not valid_publish_subject(subject):
            return False
        self._subjects.add(subject)
        return True
