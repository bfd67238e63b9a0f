"""Sinks: receivers in Python, which get what was captured for them once a turn; and publishing from Python."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from jetraft.api.routing._connections cimport Connections
from jetraft.api.routing._deliver cimport deliver, drop_subscription, match_for, tell_interest
from jetraft.api.routing._tree cimport sub_new, sublist_add
from jetraft.api.wire._text cimport valid_subject
from jetraft.api.wire._types cimport SUB_ROUTE, SUB_SINK, match_t, msg_t, plain_of, sink_t, sub_t
from jetraft.api.wire._writer cimport buf_free, push_ptr

cdef enum:
    CAPTURE_HEAD = 20
    BUF_KEEP_BYTES = 4 * 1024 * 1024


cdef size_t bytes_waiting(sub_t* sub, list routes):
    """What waits for the receiver behind a subscription; that of a peer is added to `routes`."""
    if sub.closed or sub.kind == SUB_SINK:
        return 0
    if sub.kind == SUB_ROUTE:
        routes.append(sub.of.route.id)
        return sub.of.route.buf.end - sub.of.route.buf.start
    return sub.of.conn.out.end - sub.of.conn.out.start


cdef class Sinks(Connections):
    """Connections, and receivers in Python: a batch a turn for each of them, and messages from here."""

    def __cinit__(self, **_options):
        self.sinks = {}
        self.sink_ptrs = {}

    def add_sink(self, bytes subject, handler, *, bytes queue=b"", bint local_only=False):
        """Subscribe `handler` (called with a capture batch once a turn); returns the handle for remove_sink."""
        cdef sink_t* sink
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        sink = <sink_t*>calloc(1, sizeof(sink_t))
        if sink == NULL:
            raise MemoryError
        self.next_id += 1
        sink.id = self.next_id
        push_ptr(&self.p.sinks, sink)
        self.sinks[sink.id] = handler
        self.sink_ptrs[sink.id] = <size_t>sink
        self.extend_sink(sink.id, subject, queue=queue, local_only=local_only)
        return sink.id

    def extend_sink(self, handle, bytes subject, *, bytes queue=b"", bint local_only=False):
        """Capture another subject into the same batches, so that messages of both keep their order."""
        cdef sub_t* sub
        cdef sink_t* sink = <sink_t*><size_t>self.sink_ptrs[handle]
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        sub = sub_new(&self.p, SUB_SINK, NULL, 0)
        if sub == NULL:
            raise MemoryError
        sub.of.sink = sink
        sub.local_only = local_only
        sub.next_of_owner = sink.subs
        if sink.subs != NULL:
            sink.subs.prev_of_owner = sub
        sink.subs = sub
        if sublist_add(&self.p, sub, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue)):
            tell_interest(&self.p, NULL, sub.node, sub.queue, sub.queue.local_count if sub.queue != NULL else 1)

    def remove_sink(self, handle):
        """End a sink; what it captured in this turn and was not handled yet is dropped."""
        cdef sink_t* sink
        cdef uint32_t i
        address = self.sink_ptrs.pop(handle, None)
        self.sinks.pop(handle, None)
        if address is None:
            return
        sink = <sink_t*><size_t>address
        while sink.subs != NULL:
            drop_subscription(&self.p, sink.subs)
        sink.closed = 1
        for i in range(self.p.sinks.count):
            if self.p.sinks.items[i] == sink:
                self.p.sinks.count -= 1
                self.p.sinks.items[i] = self.p.sinks.items[self.p.sinks.count]
                break
        sink.next_dead = self.p.dead_sinks
        self.p.dead_sinks = sink

    def run_sinks(self):
        """Hand every dirty sink's batch to its handler; handlers may publish, which may dirty sinks again."""
        cdef sink_t* sink
        cdef uint32_t count
        cdef list batches
        while self.p.dirty_sinks.count:
            batches = []
            count = self.p.dirty_sinks.count
            for i in range(count):
                sink = <sink_t*>self.p.dirty_sinks.items[i]
                sink.dirty = 0
                if not sink.closed and sink.buf.end:
                    batches.append((sink.id, PyBytes_FromStringAndSize(sink.buf.data, sink.buf.end)))
                sink.buf.start = sink.buf.end = 0
                if sink.buf.cap > BUF_KEEP_BYTES:
                    buf_free(&sink.buf)
            self.p.dirty_sinks.count = 0
            for sink_id, batch in batches:
                handler = self.sinks.get(sink_id)
                if handler is not None:
                    handler(batch)

    # -- publishing from Python

    def send(self, bytes to, *, bytes subject=None, bytes reply=b"", bytes hdr=b"", bytes payload=b""):
        """Deliver to the subscribers of `to`, who see `subject`; returns the number of receivers, a peer counting once."""
        cdef msg_t msg
        cdef bytes data = hdr + payload if hdr else payload
        msg.subject = PyBytes_AS_STRING(to)
        msg.subject_len = <uint16_t>PyBytes_GET_SIZE(to)
        if subject is None:
            msg.shown = msg.subject
            msg.shown_len = msg.subject_len
        else:
            msg.shown = PyBytes_AS_STRING(subject)
            msg.shown_len = <uint16_t>PyBytes_GET_SIZE(subject)
        msg.reply = PyBytes_AS_STRING(reply)
        msg.reply_len = <uint16_t>PyBytes_GET_SIZE(reply)
        msg.data = PyBytes_AS_STRING(data)
        msg.hdr_len = <uint32_t>PyBytes_GET_SIZE(hdr)
        msg.size = <uint32_t>PyBytes_GET_SIZE(data)
        return deliver(&self.p, NULL, &msg, match_for(&self.p, msg.subject, msg.subject_len))

    def send_batch(self, bytes records):
        """Deliver capture records back to back, each to the subject that it carries; returns the receivers in all."""
        cdef const char* p = PyBytes_AS_STRING(records)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(records), at = 0
        cdef uint32_t length, payload_len
        cdef uint64_t taken = 0
        cdef msg_t msg
        while at < n:
            if n - at < CAPTURE_HEAD:
                raise ValueError(f"capture record cut short at byte {at} of {n}")
            memcpy(&length, p + at, 4)
            memcpy(&msg.hdr_len, p + at + 4, 4)
            memcpy(&payload_len, p + at + 8, 4)
            memcpy(&msg.subject_len, p + at + 12, 2)
            memcpy(&msg.reply_len, p + at + 14, 2)
            if length != CAPTURE_HEAD + <int64_t>msg.subject_len + msg.reply_len + msg.hdr_len + payload_len or length > n - at:
                raise ValueError(f"capture record does not add up at byte {at} of {n}")
            msg.subject = msg.shown = p + at + CAPTURE_HEAD
            msg.shown_len = msg.subject_len
            msg.reply = msg.subject + msg.subject_len
            msg.data = msg.reply + msg.reply_len
            msg.size = msg.hdr_len + payload_len
            taken += deliver(&self.p, NULL, &msg, match_for(&self.p, msg.subject, msg.subject_len))
            at += length
        return taken

    def has_interest(self, bytes subject):
        """True when a client, a sink or a peer wants messages of this subject."""
        cdef match_t* match = match_for(&self.p, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        return match.count > 0 or match.group_count > 0

    def waiting_bytes(self, bytes subject):
        """What waits for the local receiver of this subject that is furthest behind, in bytes, and its peers' routes."""
        cdef match_t* match = match_for(&self.p, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef size_t most = 0
        cdef uint32_t i, k
        routes = []
        for i in range(match.count):
            most = max(most, bytes_waiting(plain_of(match)[i], routes))
        for i in range(match.group_count):
            for k in range(match.groups[i].count):
                most = max(most, bytes_waiting(match.members[match.groups[i].first + k], routes))
        return most, routes

    def note_interest(self, bint wanted):
        """Begin or stop to remember which subscriptions come and go."""
        self.p.note_interest = wanted

    def take_interest_changes(self):
        """The subjects of the subscriptions that came or went since the last call, in order."""
        cdef uint16_t n
        cdef size_t at = 0
        if self.p.interest_changes.end == 0:
            return ()
        subjects = []
        while at < self.p.interest_changes.end:
            memcpy(&n, self.p.interest_changes.data + at, 2)
            subjects.append(PyBytes_FromStringAndSize(self.p.interest_changes.data + at + 2, n))
            at += 2 + n
        self.p.interest_changes.start = self.p.interest_changes.end = 0
        return subjects
