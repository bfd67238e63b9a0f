"""The second engine: unmodified PySyncObj behind the guard, and the only door to that library.

Selected with `jetstream { raft_engine: pysyncobj }`, for clusters whose groups keep their members; raft/engine/core.py
is the default. It exists to be compared with: two engines, one of them written by others, answer the same simulator
seeds.

PySyncObj is used as a passive core. Its clock never matters, since every wait in its configuration is longer than a
process lives; it has no thread, no socket, no file; it is ticked when something was decided. What is touched of it:

    module globals    `createJournal` hands through a journal object; the pickle functions raise
    undocumented      `_applyCommand`, `_checkCommandsToApply`, `_getLeader`
    mangled names     `_SyncObj__raftLastApplied`: the group applies entries, PySyncObj skips them

Two habits of it are put to use. It may stand for election only while it sees a peer, so it is shown one for just that
moment (`_Transport.glimpse`); and its deadline is moved into the past by the message with which a leader hands over.
All that holds for one version, so the engine refuses to start with any other.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pysyncobj
import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.syncobj
import pysyncobj.version
from pysyncobj.node import Node

from jetraft.raft.engine.member import Member
from jetraft.raft.engine.membership import ConfigurationHistory
from jetraft.raft.engine.messages import SnapshotOffer, VoteRequest
from jetraft.raft.engine.port import CoreSetup, EngineUnavailableError, Proposal
from jetraft.raft.pysyncobj.guard import Guard, other_voters
from jetraft.raft.pysyncobj.journal import JOURNAL_OFFSET, JournalView
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog

VERSION: Final = "0.3.17"
NEVER_S: Final = 1e15  # longer than any process lives, and far from where doubles lose seconds
FOLLOWER, CANDIDATE, LEADER = range(3)  # PySyncObj's _RAFT_STATE
BELOW_ANY_TERM: Final = -1  # a log that ends in this term is never up to date: the request cannot be granted


class PickleRefusedError(Exception):
    """PySyncObj wanted to pickle or unpickle something. Nothing here may."""


def create_engine(
    setup: CoreSetup,
    *,
    log: GroupLog,
    configurations: ConfigurationHistory,
    commit_index: int,
    snapshot_offer: Callable[[int], SnapshotOffer | None],
) -> Member:
    """One member of one group whose log PySyncObj keeps in order. Raises EngineUnavailableError."""
    prepare_library()
    journal = JournalView(log, seal=setup.seal, incarnation=setup.incarnation, commit_index=commit_index)
    voters = configurations.current.voters
    replica = SyncObjReplica(setup.node_id, other_voters(setup.node_id, voters), journal)
    return Member(
        setup,
        decider=Guard(replica, is_alone=tuple(voters) == (setup.node_id,)),
        log=log,
        configurations=configurations,
        commit_index=commit_index,
        snapshot_offer=snapshot_offer,
    )


def prepare_library() -> None:
    """Check the version, let journals through, and make pickling impossible. Raises EngineUnavailableError."""
    installed = pysyncobj.version.VERSION
    if installed != VERSION:
        raise EngineUnavailableError(f"raft_engine pysyncobj needs pysyncobj=={VERSION}, {installed} is installed")
    pysyncobj.syncobj.createJournal = _hand_through
    for module in (pysyncobj.pickle, pysyncobj.journal):
        for name in ("load", "loads", "dump", "dumps"):
            if hasattr(module, name):
                setattr(module, name, _refuse_pickle)


def _hand_through(journal: JournalView) -> JournalView:
    return journal


def _refuse_pickle(*_args: object) -> None:
    raise PickleRefusedError("PySyncObj may not pickle or unpickle anything in this process")


class SyncObjReplica:
    """One SyncObj as the guard's Replica: methods become its messages, and its answers their results.

    The library makes its object whole in its constructor, so this one does. It is passive (`_configuration`): no
    thread, timer or socket starts.
    """

    __slots__ = ("_journal", "_other", "_state", "_sync_obj", "_transport")

    def __init__(self, node_id: NodeId, others: Sequence[NodeId], journal: JournalView) -> None:
        self._journal = journal
        self._other = Node(others[0])  # any other node, where the library wants one and which one does not matter
        self._state = FOLLOWER
        self._transport = _Transport()
        self._sync_obj = pysyncobj.SyncObj(
            Node(node_id),
            [Node(other) for other in others],
            self._configuration(),
            nodeClass=Node,
            transport=self._transport,
        )

    def _configuration(self) -> Any:
        """Passive: nothing happens because time passes; nothing is compacted, nothing refused for its number."""
        return pysyncobj.SyncObjConf(
            autoTick=False,
            journalFile=self._journal,
            onStateChanged=self._on_state_changed,
            dynamicMembershipChange=False,
            commandsWaitLeader=False,
            commandsQueueSize=0,
            useFork=False,
            appendEntriesPeriod=NEVER_S / 10,
            raftMinTimeout=NEVER_S,
            raftMaxTimeout=NEVER_S * 2,
            connectionTimeout=NEVER_S * 2,
            leaderFallbackTimeout=NEVER_S,
            logCompactionMinEntries=1 << 62,
            logCompactionMinTime=NEVER_S,
        )

    def _on_state_changed(self, _old: int, new: int) -> None:
        self._state = new

    # What it has decided.

    @property
    def term(self) -> int:
        """See Replica."""
        term: int = self._sync_obj.raftCurrentTerm
        return term

    @property
    def leads(self) -> bool:
        """See Replica."""
        return self._state == LEADER

    @property
    def stands(self) -> bool:
        """See Replica."""
        return self._state == CANDIDATE

    @property
    def commit_index(self) -> int:
        """See Replica."""
        commit_index: int = self._sync_obj.raftCommitIndex
        return commit_index - JOURNAL_OFFSET

    # Elections.

    def stand(self) -> None:
        """See Replica. The leader's word to take over moves the deadline; a tick that sees a peer does the rest."""
        leader = self._sync_obj._getLeader()  # noqa: SLF001  (see the module)
        self._transport.deliver(leader, {"type": "timeout_now", "term": self.term})
        with self._transport.glimpse(self._other):
            self._tick()
        assert self._state != FOLLOWER, "a deadline in the past and a peer in sight make a candidate"

    def raise_term(self, term: int) -> None:
        """See Replica."""
        assert term > self.term
        self._transport.deliver(
            self._other,
            {"type": "request_vote", "term": term, "last_log_index": 0, "last_log_term": BELOW_ANY_TERM},
        )
        assert (self.term, self._state) == (term, FOLLOWER)

    def asked_for_vote(self, candidate: NodeId, request: VoteRequest) -> bool:
        """See Replica."""
        answer = self._transport.deliver(
            Node(candidate),
            {
                "type": "request_vote",
                "term": request.term,
                "last_log_index": request.last_index + JOURNAL_OFFSET,
                "last_log_term": request.last_term,
            },
        )
        return answer is not None

    def count_vote(self, voter: NodeId) -> None:
        """See Replica."""
        self._transport.deliver(Node(voter), {"type": "response_vote", "term": self.term})

    # The log.

    def follow(self, leader: NodeId, term: int) -> None:
        """See Replica."""
        self._append(leader, term, prev_index=self._journal.last_index, entries=(), commit_index=0)
        assert (self.term, self._state) == (term, FOLLOWER)

    def take(self, leader: NodeId, *, prev_index: int, entries: Sequence[Entry], commit_index: int) -> None:
        """See Replica."""
        self._append(leader, self.term, prev_index=prev_index, entries=entries, commit_index=commit_index)

    def _append(
        self, leader: NodeId, term: int, *, prev_index: int, entries: Sequence[Entry], commit_index: int
    ) -> None:
        answer = self._transport.deliver(
            Node(leader),
            {
                "type": "append_entries",
                "term": term,
                "prevLogIdx": prev_index + JOURNAL_OFFSET,
                "prevLogTerm": self._journal.term_at(prev_index),
                "entries": [(entry, entry.index + JOURNAL_OFFSET, entry.term) for entry in entries],
                "commit_index": commit_index + JOURNAL_OFFSET,
            },
        )
        assert answer is not None, "PySyncObj answers every append"
        assert answer["success"], "the point was found to match before PySyncObj was told"

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """See Replica."""
        for proposal in proposals:
            self._sync_obj._applyCommand(proposal, None)  # noqa: SLF001  (see the module)
        self._sync_obj._checkCommandsToApply()  # noqa: SLF001  (see the module)

    def holds(self, member: NodeId, index: int) -> None:
        """See Replica."""
        self._transport.deliver(
            Node(member),
            {
                "type": "next_node_idx",
                "next_node_idx": index + 1 + JOURNAL_OFFSET,
                "success": True,
                "reset": False,
            },
        )
        self._tick()

    def _tick(self) -> None:
        """Let it stand or count.

        Entries that were committed earlier are not applied again: entries mean nothing to it.
        """
        self._sync_obj._SyncObj__raftLastApplied = self._sync_obj.raftCommitIndex  # noqa: SLF001  (see the module)
        self._sync_obj.doTick()


class _Transport:
    """PySyncObj's Transport: it sees no peer, and hears and says what the guard lets it."""

    ready: Final = True

    def __init__(self) -> None:
        self._receive: Callable[[Any, dict[str, Any]], None] | None = None
        self._connected: Callable[[Any], None] | None = None
        self._disconnected: Callable[[Any], None] | None = None
        self._answer: dict[str, Any] | None = None

    def deliver(self, sender: Any, message: dict[str, Any]) -> dict[str, Any] | None:
        """Hand PySyncObj a message; returns what it wants to answer."""
        assert self._receive is not None
        self._answer = None
        self._receive(sender, message)
        return self._answer

    @contextlib.contextmanager
    def glimpse(self, node: Any) -> Iterator[None]:
        """Let it see a peer for a moment."""
        assert self._connected is not None
        assert self._disconnected is not None
        self._connected(node)
        yield
        self._disconnected(node)

    def send(self, _node: Any, message: dict[str, Any]) -> bool:
        """Keep an answer. Requests for votes and appends to peers are the guard's to send."""
        if message["type"] in {"response_vote", "next_node_idx"}:
            self._answer = message
        return True

    def setOnMessageReceivedCallback(self, callback: Callable[[Any, dict[str, Any]], None]) -> None:  # noqa: N802
        self._receive = callback

    def setOnNodeConnectedCallback(self, callback: Callable[[Any], None]) -> None:  # noqa: N802
        self._connected = callback

    def setOnNodeDisconnectedCallback(self, callback: Callable[[Any], None]) -> None:  # noqa: N802
        self._disconnected = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: object) -> None:  # noqa: N802
        """There are none."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: object) -> None:  # noqa: N802
        """There are none."""

    def setOnUtilityMessageCallback(self, message: str, callback: object) -> None:  # noqa: N802
        """There are none: they would change members and hand over leadership behind the guard's back."""
