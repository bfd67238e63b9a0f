"""The state machine port: what a group does with a committed entry. Pure.

The group calls these methods from the one thread of the node, inside a turn. `apply` is handed whole batches, in log
order, without the entries that belong to consensus itself (no-ops and configurations). Every replica applies the same
entries, so `apply` must be deterministic: no clock, no randomness, no iteration over unordered sets.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import DeferredState, Entry

NO_LIVE_MESSAGES = 2**63  # what `first_live_seq` says when no message of the log is live: every block may go
CONSENSUS_KINDS = frozenset({Kind.NOOP, Kind.RAFT_CONFIG})


class StateMachine(Protocol):
    """Derived state over one group's log."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """One result per entry. A bad command is a result; an exception is a bug and stops the group."""
        ...

    def snapshot(self) -> bytes:
        """The state after the last applied entry, as `restore` reads it."""
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state by a snapshot: at start, and when a replica that was far behind has caught up."""
        ...

    def became_leader(self, term: int) -> None:
        """All entries of earlier terms and the leader's own no-op are applied: the state is complete, it may admit."""
        ...

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        """Leadership was lost, or the known leader changed: drop what was in flight."""
        ...

    @property
    def first_live_seq(self) -> int:
        """Blocks that lie wholly below this stream sequence may be trimmed (`NO_LIVE_MESSAGES`: all of them)."""
        ...


@runtime_checkable
class DefersState(Protocol):
    """A machine whose snapshot may be long, and is finished elsewhere."""

    def deferred_snapshot(self) -> DeferredState:
        """What `snapshot` returns, of which the long part is made later, in any thread."""
        ...


def apply_entries(machine: StateMachine, entries: Sequence[Entry]) -> Sequence[object]:
    """Let the machine apply what is its own; one result per entry, None for those of consensus itself."""
    for entry in entries:
        if entry.kind in CONSENSUS_KINDS:
            break
    else:  # nearly always
        results = machine.apply(entries)
        assert len(results) == len(entries), "apply returns one result per entry"
        return results
    commands = [entry for entry in entries if entry.kind not in CONSENSUS_KINDS]
    if not commands:
        return [None] * len(entries)
    results = machine.apply(commands)
    assert len(results) == len(commands), "apply returns one result per entry"
    by_command = iter(results)
    return [None if entry.kind in CONSENSUS_KINDS else next(by_command) for entry in entries]
