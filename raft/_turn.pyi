from collections.abc import Callable, Sequence

import trio

from jetraft.raft.changes import Change
from jetraft.raft.checkpointing import Checkpointer, CheckpointPolicy
from jetraft.raft.engine.port import Engine, Proposal
from jetraft.raft.engine.ready import Ready
from jetraft.raft.freshness import Freshness
from jetraft.raft.machine import StateMachine
from jetraft.raft.outbox import RaftOutbox
from jetraft.raft.proposals import Committed, Done, Proposals
from jetraft.raft.tenure import Tenure
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.histogram import Histogram
from jetraft.store.port import Entry, GroupLog, LogProgress, StoreError

DISK_ERRORS: tuple[type[StoreError], type[OSError]]

class Noticed:
    _event: trio.Event | None
    def notify(self) -> None: ...

class ProposalQueue:
    queue: list[tuple[Proposal, Done | None, Committed | None]]
    _announced: Fifo[tuple[int, Committed]]
    _waiting: Fifo[tuple[int, Done]]
    new_reads: list[Done]
    new_confirmed_reads: list[Done]
    reads: Fifo[tuple[int, int, Done]]
    confirmed_reads: Fifo[tuple[int, Done]]
    def add(self, proposal: Proposal, done: Done | None, committed: Committed | None) -> None: ...
    def seal(self, propose: Callable[[list[Proposal]], int]) -> None: ...
    def tell_committed(self, index: int) -> bool: ...
    def tell_applied(self, first_index: int, results: Sequence[object]) -> None: ...

class AppliedSum:
    _bytes: int
    _entries: int
    _state_bytes: int
    _held_until_ns: int
    _bytes_min: int
    _entries_min: int
    _state_factor: int
    def __init__(self, policy: CheckpointPolicy, state_bytes: int) -> None: ...
    def note_applied(self, entries: Sequence[Entry]) -> None: ...
    def save_if_due(self, applied_index: int, now_ns: int) -> None: ...

class TurnEnd:
    _core: Engine
    _log: GroupLog
    _reached: LogProgress
    _machine: StateMachine
    _checkpointer: Checkpointer
    _mark_dirty: Callable[[], None]
    applied_index: int
    failed: Exception | None
    proposals: Proposals
    progress: Change
    tenure: Tenure
    outbox: RaftOutbox
    _freshness: Freshness
    _commit_times: Histogram
    _sealed: Fifo[tuple[int, int]]
    _committed: Sequence[Entry]
    _persisted_token: int
    _damage: StoreError | OSError | None
    def learn(self, now_ns: int) -> bool: ...
    def advance(self, now_ns: int) -> None: ...
    def _seal_queue(self, now_ns: int) -> None: ...
    def _put(self, ready: Ready, now_ns: int) -> None: ...
    def fail(self, error: Exception, now_ns: int) -> None: ...
