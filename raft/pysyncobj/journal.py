"""The group's log in the shape of PySyncObj's journal: its index, its terms, its vote, and nothing of its own.

PySyncObj numbers from 1 and cannot live with an empty log: it adds an entry of its own then, in the constructor. The
view shows it the boundary, the point just before the first entry, as an entry that is always there. So its index is the
log's index plus one, and every reader here converts: `journal index = log index + JOURNAL_OFFSET`.

It sees of an entry only index and term. The command that it reads back is one opaque byte of a type that it neither
interprets nor unpickles; what it appends is an `Entry` that a leader sent, a `Proposal` to be sealed, or its own no-op.
Durability stays with the log and its tokens, which the guard watches; compaction is the group's (`GroupLog.trim`).
"""

from typing import Final, overload

from jetraft.raft.engine.port import Proposal, Sealer
from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog, HardState

JOURNAL_OFFSET: Final = 1
OPAQUE_COMMAND: Final = b"\x09"  # a type byte that PySyncObj 0.3.17 gives no meaning to (its own are 0 to 3)

JournalEntry = tuple[bytes, int, int]  # (command, journal index, term), as PySyncObj wants it


class JournalView:
    """PySyncObj's Journal over a GroupLog: every change goes to the log at once, and nothing is kept here."""

    __slots__ = ("_commit_index", "_incarnation", "_log", "_seal")

    def __init__(self, log: GroupLog, *, seal: Sealer, incarnation: int, commit_index: int) -> None:
        self._log = log
        self._seal = seal
        self._incarnation = incarnation
        self._commit_index = commit_index

    # Reading.

    def __len__(self) -> int:
        return self._log.last_index - self._log.boundary[0] + 1

    @overload
    def __getitem__(self, position: int) -> JournalEntry: ...

    @overload
    def __getitem__(self, position: slice) -> list[JournalEntry]: ...

    def __getitem__(self, position: int | slice) -> JournalEntry | list[JournalEntry]:
        """By position from the boundary, as in a list."""
        positions = range(len(self))[position]
        return self._entry(positions) if isinstance(positions, int) else [self._entry(each) for each in positions]

    def _entry(self, position: int) -> JournalEntry:
        index = self._log.boundary[0] + position
        return OPAQUE_COMMAND, index + JOURNAL_OFFSET, self.term_at(index)

    def term_at(self, index: int) -> int:
        """The term at a log index from the boundary to the end."""
        term = self._log.term_at(index)
        assert term is not None, "a log knows the terms from its boundary to its end"
        return term

    @property
    def last_index(self) -> int:
        """The log's last index."""
        return self._log.last_index

    # Writing.

    def add(self, command: Entry | Proposal | bytes, idx: int, term: int) -> None:
        """Append one entry; readable at once, durable when the log says so."""
        index = idx - JOURNAL_OFFSET
        assert index == self._log.last_index + 1, "PySyncObj appends without holes"
        entry = command if isinstance(command, Entry) else self._sealed(command, index, term)
        assert (entry.index, entry.term) == (index, term)
        self._log.append([entry])

    def _sealed(self, command: Proposal | bytes, index: int, term: int) -> Entry:
        """A new entry of this leader; bytes can only be the no-op that PySyncObj writes when it is elected."""
        proposal = command if isinstance(command, Proposal) else Proposal(kind=Kind.NOOP)
        frame = self._seal(
            proposal.kind,
            index=index,
            term=term,
            incarnation=self._incarnation,
            body=proposal.body,
            first_seq=proposal.first_seq,
            count=proposal.count,
        )
        return Entry(index=index, term=term, kind=proposal.kind, frame=frame)

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803  (PySyncObj's names)
        """Cut from a position on."""
        assert entryFrom > 0, "the boundary is committed"
        self._log.cut_from(self._log.boundary[0] + entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803  (PySyncObj's names)
        """Never called: PySyncObj's compaction is off, the group trims its log."""
        raise NotImplementedError

    def clear(self) -> None:
        """Never called: a snapshot replaces the log itself, and this view with it."""
        raise NotImplementedError

    # Term, vote and commit index.

    def setCurrentTerm(self, term: int, votedForNodeId: NodeId | None) -> None:  # noqa: N802, N803  (as above)
        """Note term and vote; the guard lets nothing leave that promises them before they are durable."""
        self._log.set_hard_state(HardState(term=term, vote=votedForNodeId))

    def getCurrentTerm(self) -> int:  # noqa: N802  (PySyncObj's name)
        """The term noted last."""
        return self._log.hard_state.term

    def getVotedForNodeId(self) -> NodeId | None:  # noqa: N802  (PySyncObj's name)
        """The vote noted last."""
        return self._log.hard_state.vote

    def getRaftCommitIndex(self) -> int:  # noqa: N802  (PySyncObj's name)
        """The beginning of this process: what a checkpoint covers."""
        return self._commit_index + JOURNAL_OFFSET

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803  (PySyncObj's names)
        """Not kept: after a restart the commit index is learnt again, from a checkpoint and from a leader."""

    def onOneSecondTimer(self) -> None:  # noqa: N802  (PySyncObj's name)
        """Nothing to do: see `setCurrentTerm`."""

    def _destroy(self) -> None:
        """The log belongs to the group."""
