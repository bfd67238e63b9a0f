# The part of a group in the end of a turn, as C sees it. See _turn.pyx.

from libc.stdint cimport int64_t


cdef class Noticed:
    cdef public object _event               # trio.Event; None while no task waits

    cpdef notify(self)


cdef class ProposalQueue:
    cdef public list queue                  # (proposal, done, committed)
    cdef public object _announced           # Fifo of (log index, to be called at its commit)
    cdef public object _waiting             # Fifo of (log index, to be called when it is applied)
    cdef public list new_reads              # that the members are asked about at the end of the turn
    cdef public list new_confirmed_reads    # that need no round, and wait for what is in the log by then
    cdef public object reads                # Fifo of (round, index to be applied, done)
    cdef public object confirmed_reads      # Fifo of (index to be applied, done): they need no round

    cpdef add(self, proposal, done, committed)
    cpdef seal(self, propose)
    cpdef bint tell_committed(self, int64_t index) except -1
    cpdef tell_applied(self, int64_t first_index, results)


cdef class AppliedSum:
    cdef public int64_t _bytes              # applied since the last checkpoint
    cdef public int64_t _entries
    cdef public int64_t _state_bytes        # of the last checkpoint
    cdef public int64_t _held_until_ns      # a peer fetches the newest one until then
    cdef public int64_t _bytes_min
    cdef public int64_t _entries_min
    cdef public int64_t _state_factor

    cpdef note_applied(self, entries)
    cpdef save_if_due(self, int64_t applied_index, int64_t now_ns)


cdef class TurnEnd:
    cdef public object _core
    cdef public object _log
    cdef public object _reached             # LogProgress
    cdef public object _machine
    cdef public AppliedSum _checkpointer
    cdef public object _mark_dirty
    cdef public int64_t applied_index
    cdef public object failed
    cdef public ProposalQueue proposals
    cdef public Noticed progress            # of the applied index, what is durable, the role, `failed`
    cdef public object tenure
    cdef public object outbox
    cdef public object _freshness
    cdef public object _commit_times
    cdef public object _sealed              # Fifo of (last index, time) of what was proposed in a turn
    cdef public object _committed           # between `learn` and `advance`: what is to be applied
    cdef public int64_t _persisted_token
    cdef public object _damage

    cdef _apply(self, entries, int64_t now_ns)
