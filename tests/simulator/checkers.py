"""What must hold, whatever happens: checked from outside, after every step.

One leader (and one process of it) per term; one entry per (index, term), with one predecessor; a leader has everything
that was committed in earlier terms; what is committed and applied at an index is the same everywhere; the commit index
of a process never goes back; nothing is applied beyond the own durable end; an acknowledged command is never lost.
"""

from collections.abc import Sequence

from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog
from tests.simulator.world import ViolationError, World


class Checker:
    """The memory of everything that was ever seen in a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[int, tuple[NodeId, int]] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}  # by index: (term, frame)
        self._committed_in: dict[int, int] = {}  # by index: the lowest term in which a member knew it
        self.acknowledged: dict[bytes, int] = {}  # by body: its index

    def on_append(self, log: GroupLog, entry: Entry, first: Entry) -> None:
        """Log matching: (index, term) names one entry and one predecessor."""
        prev_term = log.term_at(entry.index - 1) if entry is first else None
        if prev_term is None and entry is first:
            raise ViolationError(f"an append at {entry.index} leaves a hole")
        key = (entry.index, entry.term)
        known = self._entries.setdefault(key, (entry.frame, -1 if prev_term is None else prev_term))
        if known[0] != entry.frame:
            raise ViolationError(f"log matching: two entries with index and term {key}")
        if prev_term is not None and known[1] not in {-1, prev_term}:
            raise ViolationError(f"log matching: two predecessors of {key}")

    def on_leader(self, term: int, node: NodeId, process: int, log: GroupLog) -> None:
        """Election safety and leader completeness."""
        known = self._leaders.setdefault(term, (node, process))
        if known != (node, process):
            raise ViolationError(f"two leaders in term {term}: {known} and {(node, process)}")
        for index, (entry_term, _) in self.committed.items():
            if self._committed_in[index] < term and index >= log.first_index and log.term_at(index) != entry_term:
                raise ViolationError(f"leader {node} of term {term} lacks committed entry {index}")
        self._world.counts["leaders"] = len(self._leaders)

    def on_commit(self, node: NodeId, term: int, entry: Entry) -> None:
        """State machine safety, on what is known to be committed."""
        known = self.committed.setdefault(entry.index, (entry.term, entry.frame))
        self._committed_in[entry.index] = min(term, self._committed_in.get(entry.index, term))
        if known != (entry.term, entry.frame):
            raise ViolationError(f"{node} has another entry committed at {entry.index}")

    def on_apply(self, node: NodeId, entries: Sequence[Entry], log: GroupLog) -> None:
        """State machine safety, on what is applied, and rule 5."""
        for entry in entries:
            if entry.index > log.durable_index:
                raise ViolationError(f"{node} applies {entry.index}, durable is {log.durable_index}")
            known = self.committed.get(entry.index)
            if known is not None and known != (entry.term, entry.frame):
                raise ViolationError(f"{node} applies another entry at {entry.index}")

    def on_acknowledged(self, body: bytes, index: int) -> None:
        """The proposer was told OK."""
        self.acknowledged[body] = index
        known = self.committed.get(index)
        if known is not None and not known[1].endswith(body):
            raise ViolationError(f"{body!r} was acknowledged at {index}, where something else is committed")
