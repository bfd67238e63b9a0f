"""The data dictionary of the data plane: every C structure, its fields and their units.

A `plane_t` owns everything. A `conn_t` is one client connection; a `sub_t` one subscription of a client, of a sink
(an internal subscriber that collects messages for Python, a batch at a time) or of a route (a peer node's interest).
`node_t` is a token of the subject tree. Freed structures wait in a graveyard until the end of the turn, so a match
result that is being walked never points at freed memory.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum SubKind:
    SUB_CLIENT = 0
    SUB_SINK = 1
    SUB_ROUTE = 2

cdef enum ConnState:
    CONN_OPEN = 0
    CONN_CLOSING = 1    # closed by us or by the peer; freed at the end of the turn

# Why a connection was closed; the texts are in reasons.py.
cdef enum CloseReason:
    CLOSE_NONE = 0
    CLOSE_CLIENT = 1            # the peer closed it
    CLOSE_PROTOCOL = 2          # protocol violation
    CLOSE_MAX_PAYLOAD = 3
    CLOSE_MAX_CONTROL_LINE = 4
    CLOSE_SLOW_PENDING = 5      # slow consumer: more than max_pending bytes wait
    CLOSE_SLOW_DEADLINE = 6     # slow consumer: nothing written for write_deadline
    CLOSE_STALE = 7             # pings without an answer
    CLOSE_AUTH = 8
    CLOSE_AUTH_TIMEOUT = 9
    CLOSE_WRITE_ERROR = 10
    CLOSE_SHUTDOWN = 11
    CLOSE_MAX_SUBSCRIPTIONS = 12
    CLOSE_KICKED = 13

cdef struct buf_t:
    char* data
    size_t start        # first byte not yet consumed
    size_t end          # one past the last byte
    size_t cap

ctypedef void (*connect_fn)(plane_t*, conn_t*, const char*, Py_ssize_t) noexcept with gil
ctypedef void (*first_ping_fn)(plane_t*, conn_t*) noexcept with gil

cdef struct conn_t:
    int fd              # -1: bytes are fed and taken by Python (TLS, WebSocket)
    uint64_t cid
    uint8_t state       # ConnState
    uint8_t reason      # CloseReason
    uint8_t connected   # CONNECT received
    uint8_t verbose
    uint8_t pedantic
    uint8_t echo
    uint8_t headers
    uint8_t no_responders
    uint8_t auth_required
    uint8_t protocol    # 1: understands INFO at any time
    uint8_t info_sent   # the second INFO, after the first PONG
    uint8_t dirty       # on the plane's dirty list
    uint8_t want_write  # waits for EPOLLOUT
    uint8_t paused      # not read until paused_until_ns (back-pressure)
    uint8_t pings_out
    char* partial       # an incomplete protocol line or message
    size_t partial_len
    buf_t out
    sub_t** buckets     # sid -> subscription, chained
    uint32_t bucket_count
    uint32_t sub_count
    int64_t started_ns
    int64_t last_active_ns
    int64_t blocked_since_ns    # 0: the last send wrote everything
    int64_t paused_until_ns
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    uint32_t slot       # place in plane_t.conns
    conn_t* next_dead

cdef enum:
    SID_NEAR = 24           # bytes of a subscription's id that stand in it
    SUBJECT_NEAR = 24       # bytes of a subject that stand in its answer
    LINE_BYTES = 64         # of the processor's cache

cdef union owner_t:         # by sub_t.kind
    conn_t* conn
    sink_t* sink
    route_t* route

cdef struct sub_t:          # 128 bytes; what a delivery needs stands in the first line, to which it is aligned
    uint8_t kind            # SubKind
    uint8_t closed
    uint8_t local_only      # a sink whose interest is not told to peers
    uint16_t sid_len
    owner_t of
    int64_t max_msgs        # 0: no limit
    int64_t delivered
    char near[24]           # SID_NEAR: the sid, or where it is, see `sid_of`
    node_t* node
    queue_t* queue          # NULL: plain
    uint64_t sid_hash
    uint32_t weight         # members behind a route's queue subscription
    sub_t* next_in_bucket
    sub_t* next_dead
    sub_t* prev_of_owner    # list of a route's or sink's subscriptions
    sub_t* next_of_owner
    uint64_t spare

cdef struct queue_t:
    char* name
    uint16_t name_len
    uint64_t hash
    sub_t** members
    uint32_t count
    uint32_t cap
    uint32_t local_count    # members that peers must know of
    uint32_t told           # last full telling of interest that covered it
    queue_t* next

cdef union plain_t:         # a node's plain subscriptions: most have one
    sub_t* only
    sub_t** subs

cdef struct node_t:         # 72 bytes and its token
    node_t* parent
    node_t* star            # child `*`
    node_t* rest            # child `>`
    queue_t* queues
    plain_t plain
    uint32_t hash           # of (parent, token)
    uint32_t children       # literal children in the hash table
    uint32_t count
    uint32_t cap            # of plain.subs; 0: there is plain.only, if `count` says so
    uint32_t local_count    # plain subscriptions that peers must know of
    uint32_t told           # last full telling of interest that covered it
    uint16_t token_len      # of the token, which is behind the node in the same piece of memory: `token_of`

cdef struct slot_t:         # of the token table
    node_t* node            # NULL: free
    uint32_t hash           # the node's: another one is passed over without being touched

cdef struct group_t:        # queue groups of one name that match one subject
    char* name
    uint16_t name_len
    uint32_t first          # into match_t.members
    uint32_t count

cdef struct match_t:        # two lines; of one short subject with one receiver the first says everything
    uint64_t generation
    uint64_t wild_generation
    uint32_t bucket         # which generation counter it depends on
    uint16_t subject_len
    uint16_t subject_cap
    char near[24]           # SUBJECT_NEAR: the subject, when it is as short
    sub_t* only             # the plain subscription, when there is one
    uint32_t count          # of plain ones
    uint32_t group_count
    sub_t** subs            # the plain ones, when there are several
    char* subject           # a longer one
    uint32_t cap
    uint32_t group_cap
    group_t* groups
    sub_t** members
    queue_t** queues        # scratch while matching
    uint32_t member_count
    uint32_t member_cap
    uint16_t queue_count
    uint16_t queue_cap

cdef struct sink_t:
    uint32_t id
    uint8_t dirty
    uint8_t closed
    buf_t buf               # capture records
    uint64_t msgs
    sub_t* subs
    sink_t* next_dead

cdef struct route_t:
    uint32_t id
    uint8_t dirty
    uint64_t stamp          # number of the last message sent to this peer: one copy per message
    buf_t buf               # route records
    sub_t* subs
    uint64_t out_msgs
    uint64_t in_msgs

cdef struct msg_t:          # one message on its way; nothing is owned
    const char* subject     # what subscriptions are matched by
    uint16_t subject_len
    const char* shown       # what receivers see as the subject
    uint16_t shown_len
    const char* reply
    uint16_t reply_len
    const char* data        # headers, then payload
    uint32_t hdr_len
    uint32_t size           # of data

cdef struct watch_t:        # a descriptor of somebody else, watched so that a waiting turn ends when it is ready
    int fd
    uint8_t ready

cdef struct ptrs_t:         # a growing array of pointers
    void** items
    uint32_t count
    uint32_t cap

cdef enum:
    GENERATIONS = 256       # buckets of first tokens; a change of `_INBOX.x` does not flush `orders.y`

cdef struct plane_t:
    uint64_t seed
    node_t root
    slot_t* table           # open addressing: (parent, token) -> node
    uint32_t table_mask
    uint32_t table_used
    uint64_t generations[GENERATIONS]
    uint64_t wild_generation
    match_t* cache          # aligned to its entries
    void* cache_memory      # what is freed for it
    uint32_t* cache_tags    # of the same places, by hash; 0: empty
    match_t scratch         # result of an uncached match
    uint64_t rng
    uint64_t stamp
    uint32_t telling        # number of the last full telling of interest
    ptrs_t dirty_conns
    ptrs_t dirty_sinks
    ptrs_t dirty_routes
    ptrs_t routes           # all that are up
    ptrs_t conns            # all that are open
    ptrs_t sinks
    ptrs_t paused_conns
    uint8_t note_interest   # somebody wants to know which subscriptions come and go
    buf_t interest_changes  # their subjects: u16 length, bytes
    ptrs_t watches
    uint32_t ready_watches
    uint8_t stall           # a receiver of the connection being read is far behind
    char* recv_buf          # shared by all connections
    size_t recv_cap
    connect_fn on_connect
    first_ping_fn on_first_ping
    void* face              # the Python object that the callbacks belong to
    conn_t* dead_conns
    sub_t* dead_subs
    sub_t* free_subs        # places in the slabs, chained by `next_dead`
    ptrs_t sub_slabs
    queue_t* dead_queues
    sink_t* dead_sinks
    int epfd
    int64_t now_ns          # monotonic, read once a turn
    # limits
    int64_t max_payload
    int64_t max_control_line
    int64_t max_pending
    int64_t max_subscriptions   # 0: no limit
    # counters
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    uint64_t sub_count
    uint64_t slow_consumers
    uint64_t turns
    uint64_t sends
    uint64_t recvs
    int spin_score                # of late successes of looking again without sleeping; 0 = it does not pay
    int spin_skipped
    uint64_t cache_misses
    uint64_t stalls

cdef inline const char* sid_of(sub_t* sub) noexcept nogil:
    """The bytes of a client's subscription id."""
    if sub.sid_len <= SID_NEAR:
        return &sub.near[0]
    return (<char**>&sub.near[0])[0]


cdef inline char* token_of(node_t* node) noexcept nogil:
    """The bytes of a node's token."""
    return <char*>(node + 1)


cdef inline sub_t** hanging(node_t* node) noexcept nogil:
    """The plain subscriptions of a node."""
    return &node.plain.only if node.cap == 0 else node.plain.subs


cdef inline const char* subject_of(match_t* match) noexcept nogil:
    """The bytes of the subject that an answer is for."""
    if match.subject_len <= SUBJECT_NEAR:
        return &match.near[0]
    return match.subject


cdef inline sub_t** plain_of(match_t* match) noexcept nogil:
    """The plain subscriptions of an answer."""
    return &match.only if match.count == 1 else match.subs
