"""Sinks: receivers in Python, which get their captured messages once a turn; and publishing from Python."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memchr, memcpy

from jetraft.api.plane._accounts cimport Account
from jetraft.api.plane._connections cimport Connections
from jetraft.api.plane._deliver cimport deliver, drop_subscription, match_for, tell_interest
from jetraft.api.plane._shadows cimport add_shadows
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._tracing cimport serve_traces
from jetraft.api.plane._tree cimport find_child, sublist_add
from jetraft.api.plane._text cimport valid_subject
from jetraft.api.plane._types cimport FROM_ANSWER, FROM_TRACE, SINK_REPLY, SINK_SERVICE, SUB_ANSWERS, SUB_LEAF_SHADOW, SUB_ROUTE, SUB_SERVICE, SUB_SHADOW, SUB_SINK, acct_t, group_t, match_t, msg_t, node_t, plain_of, plane_t, reaches, sink_t, sub_t
from jetraft.api.plane._writer cimport buf_free, push_ptr
from jetraft.cluster.capture._capture cimport Captured, read_capture

from jetraft.cluster.capture.reach import SinkKind, admitted_by


cdef size_t bytes_waiting(sub_t* sub, list routes):
    """The bytes that wait for the receiver of a subscription; the route of a peer is added to `routes`."""
    if sub.kind == SUB_SHADOW or sub.kind == SUB_LEAF_SHADOW:
        sub = sub.of.main
    if sub.closed or sub.kind == SUB_SINK or sub.kind == SUB_SERVICE or sub.kind == SUB_ANSWERS:
        return 0
    if sub.kind == SUB_ROUTE:
        routes.append(sub.of.route.id)
        return sub.of.route.buf.end - sub.of.route.buf.start
    return sub.of.conn.out.end - sub.of.conn.out.start


cdef bint is_reached(plane_t* plane, sub_t* sub, uint8_t origin) noexcept nogil:
    """Whether a message of this origin would be given to a subscription."""
    if sub.kind == SUB_SHADOW:
        sub = sub.of.main
    if sub.kind == SUB_SINK:
        return reaches(sub.of.sink.admits, origin)
    return sub.kind != SUB_SERVICE or reaches(plane.admits[SINK_SERVICE], origin)


cdef class Sinks(Connections):
    """Connections, with sinks and publishing from Python."""

    def __cinit__(self, **_options):
        self.sinks = {}
        self.sink_ptrs = {}
        for kind in SinkKind:
            self.p.admits[kind] = admitted_by(kind)
        serve_traces(&self.p)

    def add_sink(self, Account account not None, bytes subject, handler, *, unsigned int kind=SINK_REPLY, bytes queue=b"", bint local_only=False):
        """Subscribe `handler` (called with a capture batch once a turn); returns the handle for remove_sink.

        `kind` (SinkKind of cluster/capture/reach.py) says who is heard.
        """
        cdef acct_t* acct = account.within(&self.p)
        cdef sink_t* sink
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        sink = <sink_t*>calloc(1, sizeof(sink_t))
        if sink == NULL:
            raise MemoryError
        self.next_id += 1
        sink.id = self.next_id
        sink.acct = acct
        sink.admits = self.p.admits[kind]
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
        if sublist_add(&self.p, sink.acct, sub, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue)):
            tell_interest(&self.p, sink.acct, NULL, sub.node, sub.queue, sub.queue.local_count if sub.queue != NULL else 1)
        if sink.acct.stream_imports != NULL:
            add_shadows(&self.p, sub, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def show_subjects(self, handle):
        """Capture messages from now on under the subjects that their receivers see, as those of a consumer."""
        (<sink_t*><size_t>self.sink_ptrs[handle]).shown = 1

    def remove_sink(self, handle):
        """End a sink; messages captured in this turn that were not handled yet are dropped."""
        cdef sink_t* sink
        cdef uint32_t i
        address = self.sink_ptrs.pop(handle, None)
        self.sinks.pop(handle, None)
        self.trace_streams.pop(handle, None)
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
                if sink.buf.cap > self.p.keep_bytes:
                    buf_free(&sink.buf)
            self.p.dirty_sinks.count = 0
            for sink_id, batch in batches:
                handler = self.sinks.get(sink_id)
                if handler is not None:
                    handler(batch)
        if self.traces:
            self._send_traces()
            self.run_sinks()

    # -- traces of messages

    def trace_sink(self, handle, str stream not None):
        """The sink is of the leader of a stream, which says with `settle_trace` what became of a traced message."""
        self.trace_streams[handle] = stream
        (<sink_t*><size_t>self.sink_ptrs[handle]).traced = 1

    def settle_trace(self, uint32_t number, str stream not None, *, str subject not None, bint no_interest, str error not None):
        """What became of a traced message in a stream; harmless when its trace has been sent."""
        if number < len(self.traces):
            self.traces[number].stored(stream, subject, no_interest=no_interest, error=error)

    def trace_external(self, bint wanted):
        """Ask about messages with `traceparent` too."""
        self.p.external_traces = wanted

    cdef void _send_traces(self):
        """Send the traces of this turn; what they name is complete."""
        cdef list traces = self.traces
        self.traces = []
        for trace in traces:
            hdr, payload = trace.encoded()
            self.send(self.account(trace.account), trace.dest, hdr=hdr, payload=payload, origin=FROM_TRACE)

    # -- publishing from Python

    def send(self, Account account not None, bytes to, *, bytes subject=None, bytes reply=b"", bytes hdr=b"", bytes payload=b"", uint8_t origin=FROM_ANSWER):
        """Deliver to the subscribers of `to`, who see `subject`; returns the number of receivers, a peer counting once.

        `origin` (MessageOrigin of cluster/capture/reach.py) says on whose behalf, and with it which sinks are reached.
        """
        cdef acct_t* acct = account.within(&self.p)
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
        msg.origin = origin
        return deliver(&self.p, acct, NULL, &msg, match_for(&self.p, acct, msg.subject, msg.subject_len))

    def send_batch(self, Account account not None, bytes records, *, uint8_t origin=FROM_ANSWER):
        """Deliver capture records back to back, each to the subject that it carries; returns the receivers in all."""
        cdef acct_t* acct = account.within(&self.p)
        cdef const char* p = PyBytes_AS_STRING(records)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(records), at = 0
        cdef uint64_t taken = 0
        cdef Captured record
        cdef msg_t msg
        msg.origin = origin
        while at < n:
            if not read_capture(<const uint8_t*>p + at, n - at, &record):
                raise ValueError(f"malformed capture record at byte {at} of {n}")
            msg.subject = msg.shown = <const char*>record.subject
            msg.subject_len = msg.shown_len = <uint16_t>record.subject_len
            msg.reply = <const char*>record.reply
            msg.reply_len = <uint16_t>record.reply_len
            msg.data = <const char*>record.hdr
            msg.hdr_len = <uint32_t>record.hdr_len
            msg.size = <uint32_t>(record.hdr_len + record.payload_len)
            taken += deliver(&self.p, acct, NULL, &msg, match_for(&self.p, acct, msg.subject, msg.subject_len))
            at += record.length
        return taken

    def has_interest(self, Account account not None, bytes subject, bytes queue=b"", *, uint8_t origin=FROM_ANSWER):
        """True when a client, a sink or a peer would receive a message of this origin on a subject; as a member of `queue`."""
        cdef acct_t* acct = account.within(&self.p)
        cdef match_t* match = match_for(&self.p, acct, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef group_t* group
        cdef uint32_t i, k
        if not queue:
            for i in range(match.count):
                if is_reached(&self.p, plain_of(match)[i], origin):
                    return True
        for i in range(match.group_count):
            group = &match.groups[i]
            if queue and group.name[:group.name_len] != queue:
                continue
            for k in range(group.count):
                if is_reached(&self.p, match.members[group.first + k], origin):
                    return True
        return False

    def is_subscribed(self, Account account not None, bytes subject):
        """True when there is a subscription whose subject is exactly this literal one, of a client, a sink or a peer."""
        cdef node_t* node = &account.within(&self.p).root
        cdef const char* at = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t left = PyBytes_GET_SIZE(subject), token
        cdef const char* dot
        while node != NULL:
            dot = <const char*>memchr(at, c".", left)
            token = left if dot == NULL else dot - at
            node = find_child(&self.p, node, at, token)
            if dot == NULL:
                break
            left -= token + 1
            at = dot + 1
        return node != NULL and (node.count > 0 or node.queues != NULL)

    def waiting_bytes(self, Account account not None, bytes subject):
        """What waits for the local receiver of this subject that is furthest behind, in bytes, and its peers' routes."""
        cdef acct_t* acct = account.within(&self.p)
        cdef match_t* match = match_for(&self.p, acct, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef size_t most = 0
        cdef uint32_t i, k
        routes = []
        for i in range(match.count):
            most = max(most, bytes_waiting(plain_of(match)[i], routes))
        for i in range(match.group_count):
            for k in range(match.groups[i].count):
                most = max(most, bytes_waiting(match.members[match.groups[i].first + k], routes))
        if most and self.p.unread > self.p.max_unread // 2:
            most = self.p.unread    # who asks for much and reads slowly would cost others their connections
        return most, routes

    def note_interest(self, bint wanted):
        """Start or stop recording the subjects of subscriptions that are added and removed."""
        self.p.note_interest = wanted

    def take_interest_changes(self):
        """Account ids and subjects of the subscriptions that came or went since the last call, in order."""
        cdef uint32_t account
        cdef uint16_t n
        cdef size_t at = 0
        if self.p.interest_changes.end == 0:
            return ()
        changes = []
        while at < self.p.interest_changes.end:
            memcpy(&account, self.p.interest_changes.data + at, 4)
            memcpy(&n, self.p.interest_changes.data + at + 4, 2)
            changes.append((account, PyBytes_FromStringAndSize(self.p.interest_changes.data + at + 6, n)))
            at += 6 + n
        self.p.interest_changes.start = self.p.interest_changes.end = 0
        return changes
