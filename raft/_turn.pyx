# cython: language_level=3
"""The part of a group in the end of a turn: learn what is durable and committed, apply it, append what is queued.

Each publish goes through it twice, in the turn that appends it and in the one that finds it durable. So the steps that
every turn takes are compiled; what else a group does, and what a failure leads to, is in the Python classes that go on
from these (turns.py, proposals.py, checkpointing.py, changes.py). What Raft decides is asked of the engine, at the same
places as ever: nothing of it is kept here. tests/simulator/test_turn_ways.py plays the same seeds with the same in Python.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from jetraft.raft.engine.ready import NOTHING
from jetraft.raft.freshness import ENDLESS_NS
from jetraft.raft.machine import apply_entries
from jetraft.store.model._fifo import Fifo
from jetraft.store.port import StoreError

cdef enum:
    BYTES_MAX = 1 << 20         # applied in one go; a replay at start is cut into turns of some milliseconds
    ENTRIES_MAX = 250           # in one go: an entry costs some 8 us, and a flush has several rounds

# What a bad disk answers. It ends this group and no other: the owner opens the log again, and has it repaired.
DISK_ERRORS = StoreError, OSError
cdef object _OK = None  # Outcome.OK, whose module goes on from this one
cdef object _NOTHING = NOTHING
cdef object _ENDLESS_NS = ENDLESS_NS


cdef class Noticed:
    """What tasks wait for; `notify` costs next to nothing while none does."""

    cpdef notify(self):
        """Wake all tasks that wait."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()


cdef class ProposalQueue:
    """Proposals for the end of the turn, then for their commit and for their end."""

    def __init__(self):
        global _OK
        if _OK is None:
            from jetraft.raft.proposals import Outcome
            _OK = Outcome.OK
        self.queue = []
        self._announced = Fifo()
        self._waiting = Fifo()
        self.new_reads = []
        self.new_confirmed_reads = []
        self.reads = Fifo()
        self.confirmed_reads = Fifo()

    cpdef add(self, proposal, done, committed):
        """Keep one for the end of the turn."""
        self.queue.append((proposal, done, committed))

    cpdef seal(self, propose):
        """Let the leader append what is queued; `propose` returns the index of the first."""
        cdef list queue = self.queue
        cdef int64_t index
        self.queue = []
        index = propose([<object> item[0] for item in queue])
        for _, done, committed in queue:
            if done is not None:
                self._waiting.append((index, done))
            if committed is not None:
                self._announced.append((index, committed))
            index += 1

    cpdef bint tell_committed(self, int64_t index) except -1:
        """Everything up to `index` is committed and about to be applied; returns whether any caller had asked."""
        announced = self._announced
        if not announced or <int64_t> announced[0][0] > index:
            return False
        while announced and <int64_t> announced[0][0] <= index:
            announced.popleft()[1]()
        return True

    cpdef tell_applied(self, int64_t first_index, results):
        """The entries from `first_index` on are applied, with these results."""
        cdef int64_t index, end = first_index + <int64_t> len(results)
        waiting = self._waiting
        while waiting and <int64_t> waiting[0][0] < end:
            index, done = waiting.popleft()
            done(_OK, results[index - first_index])


cdef class AppliedSum:
    """What was applied since the last checkpoint. `save` of the class that goes on from this one takes the next."""

    def __init__(self, policy, int64_t state_bytes):
        self._bytes_min = policy.applied_bytes_min
        self._entries_min = policy.applied_entries_min
        self._state_factor = policy.state_bytes_factor
        self._state_bytes = state_bytes

    cpdef note_applied(self, entries):
        """These entries are applied."""
        cdef bytes frame
        self._entries += <int64_t> len(entries)
        for entry in entries:
            frame = entry.frame
            self._bytes += PyBytes_GET_SIZE(frame)

    cpdef save_if_due(self, int64_t applied_index, int64_t now_ns):
        """Checkpoint when that is worth its cost now, and no member fetches the present one."""
        if self._bytes < self._bytes_min and self._entries < self._entries_min:
            return
        if self._bytes >= self._state_factor * self._state_bytes and now_ns >= self._held_until_ns:
            self.save(applied_index, now_ns)


cdef class TurnEnd:
    """`fail`, `takes_part` and `_put` are of the class that goes on from this one."""

    def learn(self, int64_t now_ns):
        """Count what became durable, and tell the callers that asked what is committed; returns whether any had.

        Called at the end of a turn for groups that were marked dirty. `advance` follows in the same turn.
        """
        cdef int64_t applied_index = self.applied_index
        cdef int64_t last_index, committed_index, token
        reached, core = self._reached, self._core
        self._committed = ()
        if self.failed is not None or reached.failed is not None or self._damage is not None:
            return False
        try:
            token = reached.durable_token
            if token != self._persisted_token:
                self._persisted_token = token
                self.progress.notify()
                # Before the engine counts: what waited for the disk leaves ahead of what is sent because of it.
                self.outbox.release(token)
                core.persisted(now_ns)
                if (ready := core.take_ready()) is not _NOTHING:
                    self._put(ready, now_ns)
                if self._checkpointer.trim_token is not None:
                    self._checkpointer.trim_if_durable(now_ns)
            last_index = core.applicable_index
            if applied_index >= last_index:
                return False
            if last_index - applied_index > ENTRIES_MAX:
                last_index = applied_index + ENTRIES_MAX
            self._committed = self._log.entries(applied_index + 1, last_index, BYTES_MAX)
        except DISK_ERRORS as error:  # the owner repairs the log
            self.fail(error, now_ns)
            return False
        committed_index, sealed = self._committed[len(self._committed) - 1].index, self._sealed
        while sealed and <int64_t> sealed[0][0] <= committed_index:
            self._commit_times.note(now_ns - <int64_t> sealed.popleft()[1])
        return self.proposals.tell_committed(committed_index)

    def advance(self, int64_t now_ns):
        """Apply what is committed, append what is queued, let the engine send."""
        cdef ProposalQueue proposals = self.proposals
        if (self.failed is not None or self._reached.failed is not None) and not self.takes_part(now_ns):
            return
        core, tenure, freshness = self._core, self.tenure, self._freshness
        try:
            if self._committed and self._damage is None:
                self._apply(self._committed, now_ns)
            if self._damage is not None:  # met before, or by what was applied
                self.fail(self._damage, now_ns)
                return
            if tenure.term_led and not tenure.is_leader and self.applied_index >= <int64_t> core.term_start_index:
                tenure.begin()  # everything before the term is applied
            if proposals.queue:
                self._seal_queue(now_ns)
            if tenure.term_led and (
                proposals.new_reads or proposals.reads or proposals.new_confirmed_reads or proposals.confirmed_reads
            ):
                self._answer_reads(now_ns)
            core.flush(now_ns)
            if (ready := core.take_ready()) is not _NOTHING:
                self._put(ready, now_ns)
        except DISK_ERRORS as error:  # an entry that was to be sent, or a message that a new leader looks at
            self.fail(error, now_ns)
        if self.failed is None and not (tenure.is_leader and freshness.until_ns == _ENDLESS_NS):  # it is known to lead
            freshness.note(
                is_leader=tenure.is_leader,
                told_index=core.told_commit_index,
                applied_index=self.applied_index,
                now_ns=now_ns,
            )

    cdef _apply(self, entries, int64_t now_ns):
        """Apply what is committed and durable here, up to a bound per turn."""
        try:
            results = apply_entries(self._machine, entries)
        except Exception as error:  # whatever apply raises is a bug of the machine: rule 26
            self.fail(error, now_ns)
            return
        self._committed = ()
        self.applied_index = entries[len(entries) - 1].index
        self._checkpointer.note_applied(entries)
        self.proposals.tell_applied(entries[0].index, results)
        self.progress.notify()
        if self.applied_index < <int64_t> self._core.applicable_index:
            self._mark_dirty()
        if self._damage is None:
            self._checkpointer.save_if_due(self.applied_index, now_ns)

    def _seal_queue(self, int64_t now_ns):
        """Append the queued proposals, one entry each; while a transfer runs they wait for its end."""
        if not self.tenure.is_leader:
            self.proposals.refuse_queued()
        elif self._core.accepts_proposals:
            self.proposals.seal(self._core.propose)
            self._sealed.append((self._log.last_index, now_ns))
