"""When the state is checkpointed and the log trimmed.

A checkpoint is worth its cost when much was applied since the last one, measured against the size of the state: then
the bytes written for checkpoints stay a fraction of the bytes written for entries. The log is trimmed when a checkpoint
is durable; the log itself holds the trim back to the older of the two checkpoints that it keeps, which is also the tail
that a peer returning from a short absence needs (rule 33).
"""

from collections.abc import Sequence

import attrs

from jetraft.raft.machine import StateMachine
from jetraft.raft.membership import ConfigurationHistory
from jetraft.store.port import Entry, GroupLog


@attrs.frozen(kw_only=True, slots=True)
class CheckpointPolicy:
    """How much must have been applied since the last checkpoint."""

    applied_bytes_min: int = 32 << 20  # one block of a large stream
    applied_entries_min: int = 50_000  # replaying them at start takes about a second
    state_bytes_factor: int = 4  # checkpoints cost at most a quarter of what the log costs


class Checkpointer:
    """Saves checkpoints of one group and trims its log behind them.

    The blocks that the *older* of the two checkpoints needs are kept: its messages are those that were live when it was
    taken, not those that are live now, and either may be what the next start begins with.
    """

    __slots__ = (
        "_bytes",
        "_configurations",
        "_entries",
        "_log",
        "_machine",
        "_policy",
        "_saved",
        "_state_bytes",
        "_trim_token",
    )

    def __init__(  # noqa: PLR0913  (what a group is made of)
        self,
        policy: CheckpointPolicy,
        *,
        log: GroupLog,
        machine: StateMachine,
        configurations: ConfigurationHistory,
        index: int,
        state_bytes: int,
    ) -> None:
        self._policy = policy
        self._log = log
        self._machine = machine
        self._configurations = configurations
        self._saved = [(index, machine.first_live_seq if index else 0)]  # (index, first live sequence), two at most
        self._state_bytes = state_bytes
        self._bytes = 0
        self._entries = 0
        self._trim_token: int | None = None

    @property
    def index(self) -> int:
        """The index of the newest checkpoint, durable or not; 0 when there is none."""
        return self._saved[-1][0]

    def live_seqs(self) -> list[tuple[int, int]]:
        """(index, first sequence that was live) of the checkpoints kept, the newest first."""
        return self._saved[::-1]

    def note_applied(self, entries: Sequence[Entry]) -> None:
        """These entries are applied."""
        self._entries += len(entries)
        self._bytes += sum(len(entry.frame) for entry in entries)

    def is_due(self) -> bool:
        """Whether a checkpoint is worth its cost now."""
        policy = self._policy
        enough = self._bytes >= policy.applied_bytes_min or self._entries >= policy.applied_entries_min
        return enough and self._bytes >= policy.state_bytes_factor * self._state_bytes

    def save(self, applied_index: int) -> None:
        """Checkpoint the state after `applied_index`; durable through the log's next batch."""
        term = self._log.term_at(applied_index)
        assert term is not None, "what is applied is in the log or its boundary"
        members = self._configurations.at(applied_index).encode()
        state = self._machine.snapshot()
        self._log.save_checkpoint(applied_index, term, members, state)
        self._configurations.rebase(applied_index)
        self._saved = [self._saved[-1], (applied_index, self._machine.first_live_seq)]
        self._state_bytes, self._bytes, self._entries = len(state), 0, 0
        self._trim_token = self._log.token()

    def trim_if_durable(self) -> int:
        """Trim once after the newest checkpoint is on disk; returns how many blocks were dropped."""
        if self._trim_token is None or self._log.durable_token < self._trim_token:
            return 0
        self._trim_token = None
        index, first_live_seq = self._saved[0]
        return self._log.trim(first_live_seq, index)
