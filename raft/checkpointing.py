"""When the state is checkpointed and the log trimmed.

A checkpoint is worth its cost when much was applied since the last one, measured against the size of the state: then
the bytes written for checkpoints stay a fraction of the bytes written for entries. The log is trimmed when a checkpoint
is durable; the log itself holds the trim back to the older of the two checkpoints that it keeps, which is also the tail
that a peer returning from a short absence needs (rule 33). While a peer fetches a checkpoint nothing of this happens
(rule 36).
"""

from typing import TYPE_CHECKING

import attrs

from jetraft.raft._turn import AppliedSum
from jetraft.raft.engine.membership import ConfigurationHistory
from jetraft.raft.engine.messages import SnapshotOffer
from jetraft.raft.machine import DefersState, StateMachine
from jetraft.store.port import Checkpoint, DeferredState, GroupLog

if TYPE_CHECKING:
    from jetraft.store.model.files.manifest import Manifest


@attrs.frozen(kw_only=True, slots=True)
class CheckpointPolicy:
    """How much must have been applied since the last checkpoint."""

    applied_bytes_min: int = 32 << 20  # one block of a large stream
    applied_entries_min: int = 50_000  # replaying them at start takes about a second
    state_bytes_factor: int = 4  # checkpoints cost at most a quarter of what the log costs


@attrs.frozen(slots=True)
class Unsaved:
    """The entries applied since the newest checkpoint; monotonic time of that one, None if this process took none."""

    entries: int
    applied_bytes: int
    saved_at_ns: int | None


@attrs.frozen(slots=True)
class _Saved:
    """A checkpoint that was saved, without its state; durable when the log has come to `token`."""

    index: int
    term: int
    members: bytes
    first_live_seq: int
    token: int


class Checkpointer(AppliedSum):
    """Saves checkpoints of one group and trims its log behind them.

    The blocks that the *older* of the two checkpoints needs are kept: its messages are those that were live when it was
    taken, not those that are live now, and either may be what the next start begins with.
    """

    __slots__ = (
        "_configurations",
        "_log",
        "_machine",
        "_saved",
        "_saved_at_ns",
        "trim_token",
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
        term: int = 0,
    ) -> None:
        """`index`, `term`, `state_bytes`: of the checkpoint that the machine was restored from; zeros when none was."""
        super().__init__(policy, state_bytes)
        self._log = log
        self._machine = machine
        self._configurations = configurations
        members = configurations.encode_at(index)
        first_live_seq = machine.first_live_seq if index else 0
        self._saved = [_Saved(index, term, members, first_live_seq, log.token())]  # two at most
        self.trim_token: int | None = None  # of the checkpoint behind which the log is to be trimmed when it is durable
        self._saved_at_ns: int | None = None

    @property
    def index(self) -> int:
        """The index of the newest checkpoint, durable or not; 0 when there is none."""
        return self._saved[-1].index

    @property
    def has_older(self) -> bool:
        """Whether a checkpoint before the newest one is kept."""
        return self._saved[0].index < self._saved[-1].index

    def hold_until(self, until_ns: int) -> None:
        """A peer fetches the newest checkpoint: take no other, and trim nothing, until then."""
        self._held_until_ns = max(self._held_until_ns, until_ns)

    def is_held(self, now_ns: int) -> bool:
        """Whether a peer may be fetching."""
        return now_ns < self._held_until_ns

    def save(self, applied_index: int, now_ns: int) -> None:
        """Checkpoint the state after `applied_index`; durable through the log's next batch."""
        term = self._log.term_at(applied_index)
        assert term is not None, "what is applied is in the log or its boundary"
        members = self._configurations.encode_at(applied_index)
        machine = self._machine
        state = machine.deferred_snapshot() if isinstance(machine, DefersState) else machine.snapshot()
        self._log.save_checkpoint(applied_index, term, members, state)
        self._configurations.rebase(applied_index)
        token = self.trim_token = self._log.token()
        saved = _Saved(applied_index, term, members, self._machine.first_live_seq, token)
        self._saved = [self._saved[-1], saved]
        self._state_bytes = state.bytes_about if isinstance(state, DeferredState) else len(state)
        self._bytes = self._entries = 0
        self._saved_at_ns = now_ns

    def unsaved(self) -> Unsaved:
        """The entries that the next checkpoint would add."""
        return Unsaved(self._entries, self._bytes, self._saved_at_ns)

    def offer(self, term: int) -> SnapshotOffer | None:
        """The offer to a peer that is behind the log: the newest durable checkpoint. Reads nothing from disk."""
        durable = (saved for saved in reversed(self._saved) if saved.token <= self._log.durable_token)
        newest = next(durable, None)
        if newest is None or newest.index < max(1, self._log.boundary[0]):
            return None
        return SnapshotOffer(term=term, index=newest.index, index_term=newest.term, members=newest.members)

    def manifest_of(self, checkpoint: Checkpoint) -> "Manifest":
        """The blocks that go with a durable checkpoint, as it was read from the log.

        One that is older than was offered is offered from now on: the newer one cannot be read.
        """
        unknown = _Saved(checkpoint.index, checkpoint.term, checkpoint.members, 0, 0)
        known = next((saved for saved in self._saved if saved.index == checkpoint.index), unknown)
        if checkpoint.index < self.index and self._saved[-1].token <= self._log.durable_token:
            self._saved = [known]
        return self._log.manifest_of(checkpoint, known.first_live_seq)

    def newest(self) -> "tuple[Manifest, Checkpoint] | None":
        """The newest durable checkpoint, and the blocks that go with it. Reads a file."""
        checkpoint = self._log.checkpoint_reader()()
        return None if checkpoint is None else (self.manifest_of(checkpoint), checkpoint)

    def trim_if_durable(self, now_ns: int) -> int:
        """Trim once the newest checkpoint is on disk and no member fetches; returns how many blocks were dropped."""
        if self.trim_token is None or self._log.durable_token < self.trim_token or now_ns < self._held_until_ns:
            return 0
        self.trim_token = None
        oldest = self._saved[0]
        return self._log.trim(oldest.first_live_seq, oldest.index)
