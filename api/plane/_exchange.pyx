"""What accounts give each other and what is mapped within one, as Python sets it up and changes it.

Between turns only: no message is being delivered then. Subscriptions that there are already get the shadows of an import
that begins, and lose those of one that ends. Answers on their way are still given back while their service is exported.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from jetraft.api.plane._accounts cimport Account
from jetraft.api.plane._answers cimport answer_drop, open_answers
from jetraft.api.plane._crossings cimport cross, rooms_free, service_import_free
from jetraft.api.plane._mappings cimport mapping_free, mapping_new
from jetraft.api.plane._deliver cimport drop_subscription
from jetraft.api.plane._leaf_interest cimport is_loop_check
from jetraft.api.plane._shadows cimport add_shadows_of, drop_shadows_of, stream_import_free
from jetraft.api.plane._leafs cimport Leafs
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._text cimport valid_subject
from jetraft.api.plane._transforms cimport transform_new
from jetraft.api.plane._tree cimport node_subject, sublist_add
from jetraft.api.plane._types cimport (
    ANSWERS_PREFIX,
    MEASURE_ANSWER,
    MEASURE_LATE,
    MEASURE_REQUEST,
    MEASURE_SERVED,
    MEASURE_UNHEARD,
    SUB_LEAF,
    SUB_SERVICE,
    SUBJECT_ROOM,
    Measure,
    acct_t,
    conn_t,
    crossing_t,
    export_t,
    mapping_t,
    msg_t,
    plane_t,
    service_import_t,
    sink_t,
    stream_import_t,
    sub_t,
    text_t,
)

cdef enum:
    SUBJECT_OF_SUB = 8192   # bytes; SUBJECT_MAX of _tree.pyx


cdef bint describe_callback(plane_t* plane, conn_t* conn, crossing_t* crossing, text_t* text) noexcept with gil:
    return (<Exchange>plane.owner)._describe(conn, crossing, text)


cdef bint measure_callback(plane_t* plane, Measure what, uint64_t number, conn_t* conn, service_import_t* service, msg_t* msg) noexcept with gil:
    return (<Exchange>plane.owner)._measure(what, number, conn, service, msg)


cdef void free_account(acct_t* acct) noexcept:
    cdef mapping_t* mapping
    cdef stream_import_t* stream
    cdef service_import_t* service
    while acct.mappings != NULL:
        mapping = acct.mappings
        acct.mappings = mapping.next
        mapping_free(mapping)
    while acct.stream_imports != NULL:
        stream = acct.stream_imports
        acct.stream_imports = stream.next
        stream_import_free(stream)
    while acct.services != NULL:
        service = acct.services
        acct.services = service.next
        service_import_free(service)


cdef void shade(plane_t* plane, sub_t* sub, stream_import_t* by, bint begins) noexcept nogil:
    cdef char subject[SUBJECT_OF_SUB]
    cdef Py_ssize_t n
    if not begins:
        drop_shadows_of(plane, sub, by)
        return
    if sub.kind == SUB_LEAF and is_loop_check(sub.node):
        return
    n = node_subject(sub.node, subject, sizeof(subject))
    if n:
        add_shadows_of(plane, sub, by, subject, n)


cdef void shade_all(plane_t* plane, conn_t* conn, acct_t* acct, stream_import_t* by, bint begins) noexcept nogil:
    """Give or end the shadows of every subscription of a connection, if the account is its own."""
    cdef uint32_t i
    cdef sub_t* sub
    for i in range(conn.bucket_count if conn.acct == acct else 0):
        sub = conn.buckets[i]
        while sub != NULL:
            shade(plane, sub, by, begins)
            sub = sub.next_in_bucket


cdef char* copied(bytes text) except NULL:
    cdef char* made = <char*>malloc(PyBytes_GET_SIZE(text) + 1)
    if made == NULL:
        raise MemoryError
    memcpy(made, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return made


cdef char* room() except NULL:
    cdef char* made = <char*>malloc(SUBJECT_ROOM)
    if made == NULL:
        raise MemoryError
    return made


cdef class Exchange(Leafs):
    """Connections, sinks and leaf nodes, with imports, mappings and limits of accounts. _exchange.pyi has the types."""

    def __cinit__(self, *, request_info=None, **_options):
        self.request_info = request_info
        self.described = b""
        self.p.cross = cross
        self.p.measure = measure_callback
        self.p.describe = describe_callback

    def __dealloc__(self):
        cdef export_t* service
        cdef uint32_t i
        while self.p.exports != NULL:
            service = self.p.exports
            while service.oldest != NULL:
                answer_drop(&self.p, service.oldest)
            self.p.exports = service.next
            free(service)
        for i in range(self.p.accts.count):
            if self.p.accts.items[i] != NULL:
                free_account(<acct_t*>self.p.accts.items[i])
        rooms_free(&self.p)
        free(self.p.answers)
        free(self.p.mapped)
        free(self.p.shown)
        free(self.p.crossings.items)

    def export_service(self, *, bint many, int64_t threshold_ns, measured=None, bint traced=False):
        """Export a service, with one answer to a request or many; returns a number for what imports it.

        `measured` is told the latencies of its answers. With `traced` traces go on into the account.
        """
        cdef export_t* service = <export_t*>calloc(1, sizeof(export_t))
        if service == NULL:
            raise MemoryError
        self.p.last_export += 1
        service.id = self.p.last_export
        service.many = many
        service.threshold_ns = threshold_ns
        service.next = self.p.exports
        self.p.exports = service
        service.traced = traced
        self._measure_service(service, measured)
        return service.id

    cdef export_t* _export(self, uint32_t number) except NULL:
        cdef export_t* found = self.p.exports
        while found != NULL and found.id != number:
            found = found.next
        if found == NULL:
            raise ValueError(f"no service has the number {number}")
        return found

    def change_service(self, uint32_t number, *, bint many, int64_t threshold_ns, measured=None, bint traced=False):
        """Let a service have other answers from now on."""
        cdef export_t* service = self._export(number)
        service.many = many
        service.threshold_ns = threshold_ns
        service.traced = traced
        self._measure_service(service, measured)

    cdef void _measure_service(self, export_t* service, measured):
        service.measured = measured is not None
        if measured is not None:
            self.latencies = measured

    def measure_account(self, Account account not None, measured):
        """Tell of requests to an account that come from peers, and of answers that go there; None: of none."""
        cdef acct_t* acct = account.within(&self.p)
        acct.measured = measured is not None
        if measured is not None:
            self.latencies = measured

    def answers_prefix(self, Account account not None):
        """What the second token is of the subjects on which this node expects answers in an account."""
        cdef acct_t* acct = account.within(&self.p)
        if not open_answers(&self.p, acct):
            raise MemoryError
        return acct.answers_subject[4:ANSWERS_PREFIX - 1]

    def end_service(self, uint32_t number):
        """Export a service no more; answers that are on their way are lost. Nothing may import it."""
        cdef export_t* service = self._export(number)
        cdef export_t** link = &self.p.exports
        cdef service_import_t* by
        cdef uint32_t i
        for i in range(self.p.accts.count):
            by = NULL if self.p.accts.items[i] == NULL else (<acct_t*>self.p.accts.items[i]).services
            while by != NULL:
                if by.service == service:
                    raise ValueError(f"the service {number} is imported")
                by = by.next
        while service.oldest != NULL:
            answer_drop(&self.p, service.oldest)
        while link[0] != service:
            link = &link[0].next
        link[0] = service.next
        free(service)

    def import_service(self, Account account not None, bytes subject, Account exporter not None, uint32_t export, *, to, bint share=False):
        """Let requests of an account on a subject go to an exported service; `to` None: the subject stays.

        Returns the import's number.
        """
        cdef acct_t* acct = account.within(&self.p)
        cdef export_t* found = self._export(export)
        cdef service_import_t* service
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        service = <service_import_t*>calloc(1, sizeof(service_import_t))
        if service == NULL:
            raise MemoryError
        self.p.last_import += 1
        service.id = self.p.last_import
        service.next = acct.services
        acct.services = service
        service.importer = acct
        service.exporter = exporter.within(&self.p)
        service.service = found
        service.share = share
        service.to = NULL if to is None else transform_new(to)
        service.sub = sub_new(&self.p, SUB_SERVICE, NULL, 0)
        if service.sub == NULL or not open_answers(&self.p, service.exporter):
            raise MemoryError
        service.sub.of.service = service
        service.sub.local_only = True       # each node hands over what enters there
        sublist_add(&self.p, acct, service.sub, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), NULL, 0)
        return service.id

    def import_stream(self, Account account not None, bytes subject, Account exporter not None, bytes source, *, shown, back, bint traced=False):
        """Let subscriptions of an account to a subject receive what is published on `source` in another.

        `shown` and `back` lead from one to the other, None: they are the same. Returns the import's number.
        """
        cdef acct_t* acct = account.within(&self.p)
        cdef stream_import_t* stream = <stream_import_t*>calloc(1, sizeof(stream_import_t))
        cdef stream_import_t** last = &acct.stream_imports
        if stream == NULL:
            raise MemoryError
        while last[0] != NULL:
            last = &last[0].next
        last[0] = stream
        self.p.last_import += 1
        stream.id = self.p.last_import
        stream.exporter = exporter.within(&self.p)
        stream.traced = traced
        stream.source, stream.source_len = copied(source), <uint16_t>PyBytes_GET_SIZE(source)
        stream.local, stream.local_len = copied(subject), <uint16_t>PyBytes_GET_SIZE(subject)
        stream.shown = NULL if shown is None else transform_new(shown)
        stream.back = NULL if back is None else transform_new(back)
        if self.p.shown == NULL:
            self.p.shown = room()
        self._shade(acct, stream, True)
        return stream.id

    def end_import(self, Account account not None, uint64_t number):
        """Let an account import something no more."""
        cdef acct_t* acct = account.within(&self.p)
        cdef stream_import_t** stream = &acct.stream_imports
        cdef stream_import_t* gone
        cdef service_import_t** service = &acct.services
        while stream[0] != NULL and stream[0].id != number:
            stream = &stream[0].next
        while service[0] != NULL and service[0].id != number:
            service = &service[0].next
        if stream[0] != NULL:
            gone = stream[0]
            self._shade(acct, gone, False)
            stream[0] = gone.next
            stream_import_free(gone)
        elif service[0] != NULL:
            self._end_service_import(service)
        else:
            raise ValueError(f"the account has no import {number}")

    cdef void _end_service_import(self, service_import_t** link):
        cdef service_import_t* gone = link[0]
        cdef conn_t* conn
        cdef uint32_t i
        link[0] = gone.next
        drop_subscription(&self.p, gone.sub)
        for i in range(self.p.conns.count):     # the next import may have its address
            conn = <conn_t*>self.p.conns.items[i]
            if conn.described == gone:
                conn.described = NULL
        service_import_free(gone)

    cdef void _shade(self, acct_t* acct, stream_import_t* by, bint begins):
        """Give all subscriptions of an account the shadows of an import, or end these."""
        cdef uint32_t i
        cdef sink_t* sink
        cdef sub_t* sub
        for i in range(self.p.conns.count):
            shade_all(&self.p, <conn_t*>self.p.conns.items[i], acct, by, begins)
        for i in range(0 if begins else self.p.ending_conns.count):     # closed, but not without subscriptions yet
            shade_all(&self.p, <conn_t*>self.p.ending_conns.items[i], acct, by, False)
        for i in range(self.p.sinks.count):
            sink = <sink_t*>self.p.sinks.items[i]
            sub = sink.subs if sink.acct == acct else NULL
            while sub != NULL:
                shade(&self.p, sub, by, begins)
                sub = sub.next_of_owner

    def map_subject(self, Account account not None, bytes source, choices):
        """Let what an account publishes on a subject go to one of several, by weights of 100."""
        cdef mapping_t** last = &account.within(&self.p).mappings
        while last[0] != NULL:
            last = &last[0].next
        last[0] = mapping_new(source, choices)
        if self.p.mapped == NULL:
            self.p.mapped = room()

    def unmap(self, Account account not None):
        """Map nothing any more that an account publishes."""
        cdef acct_t* acct = account.within(&self.p)
        cdef mapping_t* mapping
        while acct.mappings != NULL:
            mapping = acct.mappings
            acct.mappings = mapping.next
            mapping_free(mapping)

    def limit(self, Account account not None, *, int64_t max_connections=-1, int64_t max_subscriptions=-1, int64_t max_payload=-1):
        """Limit an account, and each of the connections that enter it from now on."""
        cdef acct_t* acct = account.within(&self.p)
        acct.max_connections = max_connections
        acct.max_subscriptions = max_subscriptions
        acct.max_payload = max_payload

    cdef bint _measure(self, Measure what, uint64_t number, conn_t* conn, service_import_t* by, msg_t* msg) except -1:
        """Tell of a request whose latency is measured; see Latencies in _exchange.pyi."""
        told = self.latencies
        cid = 0 if conn == NULL else conn.cid
        if what == MEASURE_REQUEST:
            return conn != NULL and told.requested(
                by.service.id,
                number,
                cid,
                by.importer.name[:by.importer.name_len].decode(),
                msg.data[:msg.hdr_len],
                msg.reply[:msg.reply_len],
                share=bool(by.share),
            )
        if what == MEASURE_ANSWER:
            told.answered(number, cid, routed=bool(self.p.routed))
        elif what == MEASURE_UNHEARD:
            told.unheard(number)
        elif what == MEASURE_LATE:
            told.late(number)
        elif what == MEASURE_SERVED:
            told.served(msg.reply[:msg.reply_len])
        else:
            told.replied(msg.subject[:msg.subject_len], cid)
        return True

    cdef bint _describe(self, conn_t* conn, crossing_t* crossing, text_t* text) except False:
        """Ask for what an exporter is told of a requester. A connection keeps it for the service it asked last."""
        cdef crossing_t* first = crossing
        cdef service_import_t* last = crossing.service
        while first.outer != NULL:
            first = first.outer
        account = first.service.importer.name[:first.service.importer.name_len]
        through = b"" if first == crossing else last.importer.name[:last.importer.name_len]
        made = b'{"acc":"%s"}' % account
        if self.request_info is not None:
            cid = conn.cid if conn != NULL and first.service.share else 0
            rtt_ns = conn.rtt_ns if conn != NULL else 0
            made = self.request_info(cid, account.decode(), through.decode(), rtt_ns)
        self.described = made
        text.p = PyBytes_AS_STRING(made)
        text.n = PyBytes_GET_SIZE(made)
        # A round trip is measured soon after the start of a connection: what lacks it is asked for again.
        if conn != NULL and first == crossing and conn.rtt_ns:
            free(conn.requester)
            conn.requester, conn.requester_len = copied(made), text.n
            conn.described = crossing.service
        return True
