"""What accounts give each other and what is mapped within one, as Python sets it up before clients come.

The plane keeps it as long as it lives; subscriptions that there are already get no shadows.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from jetraft.api.plane._accounts cimport Account
from jetraft.api.plane._answers cimport answer_drop, open_answers
from jetraft.api.plane._crossings cimport cross, rooms_free, service_import_free
from jetraft.api.plane._mappings cimport mapping_free, mapping_new
from jetraft.api.plane._shadows cimport stream_import_free
from jetraft.api.plane._leafs cimport Leafs
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._text cimport valid_subject
from jetraft.api.plane._transforms cimport transform_new
from jetraft.api.plane._tree cimport sublist_add
from jetraft.api.plane._types cimport (
    SUB_SERVICE,
    SUBJECT_ROOM,
    acct_t,
    conn_t,
    crossing_t,
    export_t,
    mapping_t,
    plane_t,
    service_import_t,
    stream_import_t,
    text_t,
)


cdef bint describe_callback(plane_t* plane, conn_t* conn, crossing_t* crossing, text_t* text) noexcept with gil:
    return (<Exchange>plane.owner)._describe(conn, crossing, text)


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

    def export_service(self, *, bint many, int64_t threshold_ns):
        """Export a service, with one answer to a request or many; returns a number for what imports it."""
        cdef export_t* service = <export_t*>calloc(1, sizeof(export_t))
        if service == NULL:
            raise MemoryError
        service.id = 1 if self.p.exports == NULL else self.p.exports.id + 1
        service.many = many
        service.threshold_ns = threshold_ns
        service.next = self.p.exports
        self.p.exports = service
        return service.id

    def import_service(self, Account account not None, bytes subject, Account exporter not None, uint32_t export, *, to, bint share=False):
        """Let requests of an account on a subject go to an exported service; `to` None: the subject stays."""
        cdef acct_t* acct = account.within(&self.p)
        cdef export_t* found = self.p.exports
        cdef service_import_t* service
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        while found != NULL and found.id != export:
            found = found.next
        if found == NULL:
            raise ValueError(f"no service has the number {export}")
        service = <service_import_t*>calloc(1, sizeof(service_import_t))
        if service == NULL:
            raise MemoryError
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

    def import_stream(self, Account account not None, bytes subject, Account exporter not None, bytes source, *, shown, back):
        """Let subscriptions of an account to a subject receive what is published on `source` in another.

        `shown` and `back` lead from one to the other, None: they are the same.
        """
        cdef acct_t* acct = account.within(&self.p)
        cdef stream_import_t* stream = <stream_import_t*>calloc(1, sizeof(stream_import_t))
        cdef stream_import_t** last = &acct.stream_imports
        if stream == NULL:
            raise MemoryError
        while last[0] != NULL:
            last = &last[0].next
        last[0] = stream
        stream.exporter = exporter.within(&self.p)
        stream.source, stream.source_len = copied(source), <uint16_t>PyBytes_GET_SIZE(source)
        stream.local, stream.local_len = copied(subject), <uint16_t>PyBytes_GET_SIZE(subject)
        stream.shown = NULL if shown is None else transform_new(shown)
        stream.back = NULL if back is None else transform_new(back)
        if self.p.shown == NULL:
            self.p.shown = room()

    def map_subject(self, Account account not None, bytes source, choices):
        """Let what an account publishes on a subject go to one of several, by weights of 100."""
        cdef mapping_t** last = &account.within(&self.p).mappings
        while last[0] != NULL:
            last = &last[0].next
        last[0] = mapping_new(source, choices)
        if self.p.mapped == NULL:
            self.p.mapped = room()

    def limit(self, Account account not None, *, int64_t max_connections=-1, int64_t max_subscriptions=-1, int64_t max_payload=-1):
        """Limit an account, and each of the connections that enter it from now on."""
        cdef acct_t* acct = account.within(&self.p)
        acct.max_connections = max_connections
        acct.max_subscriptions = max_subscriptions
        acct.max_payload = max_payload

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
            made = self.request_info(conn.cid if conn != NULL else 0, account.decode(), through.decode(), bool(first.service.share))
        self.described = made
        text.p = PyBytes_AS_STRING(made)
        text.n = PyBytes_GET_SIZE(made)
        if conn != NULL and first == crossing:
            free(conn.requester)
            conn.requester, conn.requester_len = copied(made), text.n
            conn.described = crossing.service
        return True
