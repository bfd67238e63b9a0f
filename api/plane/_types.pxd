"""The data dictionary of the data plane: every C structure, its fields and their units.

A `plane_t` owns everything. An `acct_t` is an account: a space of subjects of its own, which messages leave by imports alone. A
`conn_t` is one client connection; a `sub_t` one subscription of a client, of a sink (an internal subscriber that
collects messages for Python, a batch at a time) or of a route (a peer node's interest). Connections, subscriptions and
sinks belong to one account. `node_t` is a token of an account's subject tree. Freed structures wait in a graveyard until the end of the turn, so a match
result that is being walked never points at freed memory.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from jetraft.api.tls._state cimport tls_t
from jetraft.api.websocket._state cimport ws_t

cdef enum SubKind:
    SUB_CLIENT = 0
    SUB_SINK = 1
    SUB_SHADOW = 2      # of a client's or sink's, in the account that its account imports a stream from
    SUB_ROUTE = 3       # a peer's interest; those before it receive here
    SUB_LEAF = 4        # interest of the server at the other end of a leaf node connection
    SUB_LEAF_SHADOW = 5 # of such interest, as SUB_SHADOW
    SUB_SERVICE = 6     # a service that the account imports
    SUB_ANSWERS = 7     # the answers to what came to the account through a service that it exports

cdef enum:                  # MessageOrigin: who sends a message; the numbers of cluster/capture/reach.py
    FROM_CLIENT = 0
    FROM_LEAF = 1
    FROM_LINK = 2
    FROM_DELIVERY = 3
    FROM_ANSWER = 4
    FROM_TRACE = 7
    FROM_SERVER = 9
    ORIGINS = 10

cdef enum:                  # SinkKind, likewise: what a receiver in this server takes messages for
    SINK_REPLY = 4
    SINK_SERVICE = 6
    SINK_KINDS = 7

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
    CLOSE_SLOW_PENDING = 5      # slow consumer: more than max_pending bytes in its buffer
    CLOSE_SLOW_DEADLINE = 6     # slow consumer: nothing written for write_deadline
    CLOSE_STALE = 7             # pings were not answered
    CLOSE_AUTH = 8
    CLOSE_AUTH_TIMEOUT = 9
    CLOSE_WRITE_ERROR = 10
    CLOSE_SHUTDOWN = 11
    CLOSE_MAX_SUBSCRIPTIONS = 12
    CLOSE_KICKED = 13
    CLOSE_TLS_HANDSHAKE = 20
    CLOSE_MAX_CONNECTIONS = 21
    CLOSE_DUPLICATE_LEAF = 22
    CLOSE_MAX_ACCOUNT_CONNECTIONS = 26
    CLOSE_READ_ERROR = 30       # it broke the rules of WebSocket

cdef struct buf_t:
    char* data
    size_t start        # first byte not yet consumed
    size_t end          # one past the last byte
    size_t cap

ctypedef void (*connect_fn)(plane_t*, conn_t*, const char*, Py_ssize_t) noexcept with gil
ctypedef void (*leaf_text_fn)(plane_t*, conn_t*, int, const char*, Py_ssize_t) noexcept with gil
ctypedef void (*interest_fn)(plane_t*, sub_t*, bint) noexcept nogil
ctypedef void (*first_ping_fn)(plane_t*, conn_t*) noexcept with gil
ctypedef void (*unread_fn)(plane_t*, conn_t*) noexcept nogil
ctypedef void (*upgrade_fn)(plane_t*, conn_t*, const char*, Py_ssize_t) noexcept with gil
# what was refused (Violation), its subject, the queue and the id of the subscription
ctypedef void (*violation_fn)(plane_t*, conn_t*, int, text_t, text_t, text_t) noexcept with gil
# a message that left `plane.crossings` from a place on have to take; returns the number of receivers
ctypedef uint32_t (*cross_fn)(plane_t*, conn_t*, msg_t*, uint32_t) noexcept nogil
# what becomes of a request whose latency is measured; see `Latencies` in _exchange.pyi
ctypedef bint (*measure_fn)(plane_t*, Measure, uint64_t, conn_t*, service_import_t*, msg_t*) noexcept with gil
# writes the JSON that tells an exporter of the requester: of this connection (NULL: none), within these crossings
ctypedef bint (*requester_fn)(plane_t*, conn_t*, crossing_t*, text_t*) noexcept with gil

cdef struct text_t:         # bytes of somebody else
    const char* p
    Py_ssize_t n

cdef enum Measure:
    MEASURE_REQUEST = 0     # a request is handed over; answers whether it is measured
    MEASURE_UNHEARD = 1     # nobody received it
    MEASURE_ANSWER = 2      # its first answer has come
    MEASURE_LATE = 3        # it did not come in time
    MEASURE_SERVED = 4      # a peer's request arrives where the service may be
    MEASURE_REPLIED = 5     # and its answer leaves

cdef enum Violation:
    VIOLATES_PUBLISH = 0
    VIOLATES_REPLY = 1
    VIOLATES_SUBSCRIBE = 2
    VIOLATES_TOKENS = 3

# a line of the protocol, whether a client sent it, and its payload (NULL: it has none)
ctypedef void (*protocol_fn)(plane_t*, conn_t*, bint, const char*, Py_ssize_t, const char*, Py_ssize_t) noexcept with gil

cdef enum Tracing:
    TRACE_OFF = 0           # the message is delivered, maybe with other headers
    TRACE_DROPPED = 1       # it was for a trace that cannot be made
    TRACE_ON = 2

# of a client's message or a peer's; the other one is NULL
ctypedef Tracing (*begin_trace_fn)(plane_t*, conn_t*, route_t*, acct_t*, msg_t*) noexcept with gil
ctypedef void (*violate_traced_fn)(plane_t*, msg_t*) noexcept with gil
ctypedef uint32_t (*deliver_traced_fn)(plane_t*, acct_t*, conn_t*, msg_t*) noexcept with gil
# a traced request is handed over, with these headers there; TRACE_OFF: the account there does not let it be traced
ctypedef Tracing (*cross_traced_fn)(plane_t*, service_import_t*, msg_t*, msg_t*) noexcept with gil
ctypedef void (*deliver_traced_here_fn)(plane_t*, acct_t*, msg_t*, const char*, uint32_t) noexcept with gil

cdef enum Packing:          # how what is sent is compressed
    PACKS_NOT = 0           # in the format, and as it is
    PACKS_FAST = 1
    PACKS_BETTER = 2        # it is compressed as PACKS_FAST
    PACKS_BEST = 3          # the same
    PACKS_AUTO = 4

cdef enum Guard:            # what is asked at each delivery to a connection
    GUARD_DENIED = 1        # a wildcard subscription reaches subjects that its user may not see
    GUARD_REPLIES = 2       # its user may answer what it received
    GUARD_REVIEW = 4        # it has subscriptions that were not asked again since it was granted other rights, see _reviews.pyx

cdef struct queue_name_t:   # a queue that an entry of a permission names
    queue_name_t* next
    char* name
    Py_ssize_t n

cdef struct grant_t:        # a token of a list of permissions; the tree of tokens is the list
    char* token
    Py_ssize_t n
    uint8_t plain           # an entry without a queue ends here
    queue_name_t* queues    # entries with one that end here
    grant_t* star           # child `*`
    grant_t* rest           # child `>`
    grant_t** children      # literal ones, sorted
    uint32_t count

cdef enum:
    VERDICT_BYTES = 53      # subjects as long are remembered; a verdict has the size of a line of the cache

cdef struct verdict_t:
    uint64_t hash
    uint8_t n               # 0: empty
    uint8_t verdict
    uint8_t spare
    char subject[53]

cdef struct verdicts_t:     # what was found out lately, by subject
    verdict_t* slots
    uint32_t mask           # 0: nothing yet
    uint32_t misses         # since it has this size

cdef struct perms_t:        # of one user, for all of its connections; NULL where there is no list
    grant_t* publish_allow
    grant_t* publish_deny
    grant_t* subscribe_allow
    grant_t* subscribe_deny
    uint8_t answers         # it may answer what it received
    int64_t answers_max     # of one message; negative: no limit
    int64_t answers_ns      # how long it may; negative: for ever
    verdicts_t publish
    verdicts_t deliver

cdef struct reply_t:        # a reply subject that a connection received and may publish to; its text is behind it
    reply_t* next_in_bucket
    reply_t* older
    reply_t* newer
    uint64_t hash
    int64_t since_ns
    int64_t count           # of answers
    uint16_t n

cdef struct replies_t:
    reply_t** buckets
    uint32_t mask
    uint32_t count
    reply_t* oldest
    reply_t* newest

cdef struct piece_t:        # of a transform; see store/model/mapping/transforms.py
    uint8_t kind            # PieceKind
    uint16_t text_len
    uint16_t source_count
    char* text
    uint16_t* sources
    int64_t number

cdef struct transform_t:
    piece_t* pieces
    uint16_t count
    int32_t tail            # the token with which the rest begins; -1: there is none

cdef struct choice_t:       # a destination of a mapping
    transform_t* to
    uint32_t below          # of 100 numbers: those from the one of the choice before on are its own

cdef struct mapping_t:      # of subjects that are published in an account
    mapping_t* next
    char* source
    uint16_t source_len
    uint16_t choice_count
    choice_t* choices

cdef struct stream_import_t:
    stream_import_t* next
    uint64_t id             # of no other import while the plane lives
    acct_t* exporter
    char* source            # the exporter's subjects
    char* local             # what they are called here; each with its length
    uint16_t source_len
    uint16_t local_len
    transform_t* shown      # from source to local; NULL: they are the same
    transform_t* back       # from local to source
    uint8_t traced          # traces tell of its receivers

cdef struct export_t:       # a service, for all that import it
    uint32_t id
    uint8_t many            # answers to one request, until an empty one
    uint8_t measured        # latencies are sampled
    uint8_t traced          # traces go on into its account
    int64_t threshold_ns    # how long an answer may take
    uint32_t waiting        # answers that may come
    answer_t* oldest
    answer_t* newest
    export_t* next

cdef struct service_import_t:
    service_import_t* next
    uint64_t id             # as that of a stream
    acct_t* importer
    acct_t* exporter
    export_t* service
    transform_t* to         # NULL: the subject stays
    uint8_t share           # the requester is described to the exporter
    sub_t* sub

cdef struct answer_t:       # the way back of an answer; its subject there is behind it
    answer_t* next_in_bucket
    answer_t* older
    answer_t* newer
    uint64_t id             # the last token of the subject that the exporter's side answers to
    acct_t* acct            # in which that is
    acct_t* to
    export_t* service
    int64_t since_ns
    uint8_t measured        # its latency is; until the first answer
    uint8_t many            # answers may come, whatever the service says: traces
    uint16_t n

cdef struct crossing_t:     # a request on its way through services, one inside the other
    crossing_t* outer
    service_import_t* service

cdef struct room_t:
    char subject[65535]     # SUBJECT_ROOM
    char mapped[65535]
    char reply[32]
    buf_t data
cdef struct leaf_t:         # of a connection that links this server to a leaf node, or to its hub
    uint8_t due             # the message being delivered is for it
    uint8_t admitted        # it is in its account: interest and messages are exchanged
    uint8_t solicited       # this server connected
    uint8_t spoke           # the hub is at the other end
    uint8_t isolated        # it is not told the interest of other leaf nodes
    uint8_t cluster_len
    char cluster[255]       # of the server at the other end; its name where it has no cluster
    conn_t* conn
    transform_t* shown      # if it is due: that of the copy which was added last
    leaf_t* next            # in the list of its account

cdef struct leaf_pick_t:    # a queue group of one message that was given to a leaf node
    leaf_t* leaf
    transform_t* shown
    const char* name
    uint16_t name_len

cdef enum:
    LEAF_PICKS_MAX = 64     # queue groups of one message that go to leaf nodes

cdef struct packed_t:       # of a connection whose bytes are compressed, those of TLS alone outside of it
    buf_t arrived           # not decoded yet: a part of a chunk, or what is left for the next turn
    buf_t wire              # encoded, not sent yet
    size_t passed_over      # bytes of a chunk without data that are still to come
    uint8_t begun           # the other end has named the format
    uint8_t named           # and this one has
    char* plain             # a decoded block of which a part is left, or NULL
    size_t plain_at
    size_t plain_size
    uint8_t backlog         # that, or whole chunks, are left for the next turn
    uint8_t mode            # Packing; PACKS_AUTO: by the round trip
    uint8_t rtt_count
    int64_t rtts_ns[4]      # up to which a mode is used, by mode; 0: it is not

cdef struct conn_t:
    int fd              # -1: bytes are fed and taken by Python
    tls_t* tls          # NULL: what is sent and received is in the clear
    ws_t* ws            # NULL: and it is the protocol itself
    leaf_t* leaf        # NULL: a client
    packed_t* packed    # NULL: what is exchanged is not compressed
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
    uint8_t protocol    # 1: accepts INFO at any time
    uint8_t info_sent   # the second INFO was sent, after the first PONG
    uint8_t dirty       # on the plane's dirty list
    uint8_t want_write  # waits for EPOLLOUT
    uint8_t paused      # not read until paused_until_ns (back-pressure), or until it is released
    uint8_t stalled     # the last that was read of it went to a peer that is behind: little is read at a time
    uint8_t held        # its CONNECT is being judged: what follows it waits
    uint8_t ending      # on the plane's list of those whose subscriptions end, see _connections.pyx
    uint64_t share_turn # the turn in which it spent that
    uint64_t spent      # of its share of a turn, see _share.pxd
    uint64_t read_turn  # the turn in which it was read last
    uint8_t passed_over # it was ready when a turn had done its work: on the plane's list of those that the next one begins with
    uint8_t resting     # it has had its share of this turn: the rest of what it sent waits for the next one
    uint8_t pings_out
    uint8_t guard       # Guard bits
    int64_t max_payload         # the server's, or a smaller one of its user
    int64_t max_subs            # negative: no limit
    perms_t* perms      # NULL: may do everything
    replies_t* replies
    acct_t* acct
    char* partial       # an incomplete protocol line or message
    size_t partial_len
    char* kept          # the allocation in which `partial` lies
    buf_t out
    size_t counted      # bytes that `out` and `partial` take in plane_t.unread
    sub_t** buckets     # sid -> subscription, chained
    uint32_t bucket_count       # any number: see _sids.pyx
    uint32_t bucket_cap
    uint32_t bucket_mask        # of the next power of two, less one
    uint32_t sub_count
    uint32_t ended_buckets      # of those: they are empty, as all subscriptions end
    uint32_t reviewed_buckets   # of those, while its guard has GUARD_REVIEW: the rights in force allow what is in them
    service_import_t* described     # the service to whose exporter `requester` describes this connection
    char* requester
    Py_ssize_t requester_len
    int64_t started_ns
    int64_t last_active_ns
    int64_t pinged_ns           # when the PING was sent whose PONG is awaited; 0: none
    int64_t rtt_ns              # of the last PING that was answered, of CONNECT before
    int64_t blocked_since_ns    # 0: the last send wrote everything
    int64_t paused_until_ns
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    uint32_t slot       # place in plane_t.conns
    conn_t* next_dead

cdef enum:
    SID_NEAR = 24           # longest sid that is stored inside its subscription, bytes
    SUBJECT_NEAR = 24       # longest subject that is stored inside its answer, bytes
    LINE_BYTES = 64         # a line of the processor's cache

cdef union owner_t:         # by sub_t.kind
    conn_t* conn
    sink_t* sink
    route_t* route
    sub_t* main             # of a shadow
    service_import_t* service
    acct_t* acct            # of answers

cdef struct shadow_t:       # in the place of a shadow's sid
    stream_import_t* by
    sub_t* next

cdef struct sub_t:          # 128 bytes, aligned to a cache line; the first line has what a delivery needs
    uint8_t kind            # SubKind
    uint8_t closed
    uint8_t local_only      # a sink, or a hub's interest, that is not told to peers
    uint16_t sid_len
    owner_t of
    int64_t max_msgs        # 0: no limit
    int64_t delivered
    char near[24]           # SID_NEAR: the sid or a pointer to it, see `sid_of`
    node_t* node
    queue_t* queue          # NULL: plain
    uint32_t sid_hash       # the lower half
    uint32_t weight         # members behind a queue subscription of a route or of a leaf node; otherwise 1
    sub_t* shadows          # of a client's, a sink's or a leaf node's
    sub_t* next_in_bucket
    uint32_t place          # in the array of its node or queue: not before it, see drop_sub of _tree.pyx
    sub_t* prev_of_owner    # in the list of a route's or sink's subscriptions; when it has ended, of those that are dead
    sub_t* next_of_owner
    acct_t* acct

cdef struct queue_t:
    char* name
    uint16_t name_len
    uint64_t hash
    sub_t** members
    uint32_t count
    uint32_t cap
    uint32_t local_count    # members of which peers are told
    uint32_t announced      # last full announcement of interest that included it
    uint8_t untold          # it is among plane_t.untold_queues
    node_t* node
    queue_t* next           # of its node, or of those that are dead
    queue_t* prev
    queue_t* next_in_bucket # of plane_t.queues

cdef union plain_t:         # a node's plain subscriptions: most have one
    sub_t* only
    sub_t** subs

cdef struct node_t:         # 72 bytes, followed by its token
    node_t* parent
    node_t* star            # child `*`
    node_t* rest            # child `>`
    queue_t* queues
    plain_t plain
    uint32_t hash           # of (parent, token)
    uint32_t children       # literal children in the hash table
    uint32_t count
    uint32_t cap            # of plain.subs; 0: plain.only is used
    uint32_t local_count    # plain subscriptions of which peers are told
    uint32_t announced      # last full announcement of interest that included it
    uint16_t token_len      # of the token, which follows the node in the same allocation: `token_of`

cdef struct acct_t:
    node_t root             # of the account's subject tree; the root alone has no parent
    leaf_t* leafs           # its leaf node connections
    uint32_t id             # 0: `$G`; of no account before or after it while the plane lives
    uint32_t slot           # place in plane_t.accts: what peers are told as its number
    uint64_t salt           # of hashes of subjects: places in tables that accounts share; 0 for `$G`
    uint64_t wild_generation
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    uint64_t inserts        # subscriptions that were ever added
    uint64_t slow_consumers
    uint64_t routed_in_msgs # from and to peers; in_msgs and out_msgs are of clients
    uint64_t routed_in_bytes
    uint64_t routed_out_msgs
    uint64_t routed_out_bytes
    uint32_t conn_count
    uint32_t own_subs       # of clients and sinks
    uint32_t peer_subs      # of routes
    uint32_t handles        # Python objects that stand for it
    uint32_t peer_names     # routes whose peer has a number for it
    uint16_t name_len
    char name[256]          # ACCOUNT_NAME_MAX and one
    mapping_t* mappings     # in the order in which they are tried
    stream_import_t* stream_imports
    service_import_t* services      # that it imports
    sub_t* answers          # NULL: no service of the account was imported, and no answer wanted
    uint8_t measured        # it exports services whose latency is sampled
    char answers_subject[16]        # `_R_.`, six letters and a dot, ANSWERS_PREFIX bytes
    int64_t max_connections         # -1: no limit, here and below
    int64_t max_subscriptions       # of one connection
    int64_t max_payload

cdef struct slot_t:         # of the token table
    node_t* node            # NULL: free
    uint32_t hash           # the node's; compared first, so that other nodes are not read

cdef struct group_t:        # queue groups with one name that match one subject
    char* name
    uint16_t name_len
    uint32_t first          # into match_t.members
    uint32_t count

cdef struct match_t:        # two cache lines; with a short subject and one receiver only the first is read
    uint64_t generation
    uint64_t wild_generation
    uint32_t key            # the account's id and which generation counter it depends on: `key_of`
    uint16_t subject_len
    uint16_t subject_cap
    char near[24]           # SUBJECT_NEAR: a short subject
    sub_t* only             # the plain subscription, if it is the only one
    uint32_t count          # of plain subscriptions
    uint32_t group_count
    sub_t** subs            # the plain subscriptions, if they are several
    char* subject           # a longer subject
    uint32_t cap
    uint32_t group_cap
    group_t* groups
    sub_t** members
    queue_t** queues        # scratch while matching
    uint32_t member_count
    uint32_t member_cap
    uint32_t queue_count
    uint32_t queue_cap

cdef struct sink_t:
    uint32_t id
    uint8_t dirty
    uint8_t closed
    uint8_t traced          # of a stream: a traced message carries the number of its trace as its origin
    uint8_t shown           # it takes a consumer's deliveries: under the subjects that a client would see
    uint32_t admits         # the origins that reach it, a bit each
    buf_t buf               # capture records
    uint64_t msgs
    acct_t* acct
    sub_t* subs
    sink_t* next_dead

cdef struct route_t:
    uint32_t id
    uint8_t dirty
    uint64_t stamp          # number of the last message sent to this peer: one copy per message
    buf_t buf               # route records
    int64_t pause_ns        # for which its producers are not read, as much waits in its link; 0: it keeps up
    sub_t* subs
    uint8_t gone            # its link is down: what it had subscribed to ends
    uint8_t knows_accounts  # the peer understands records of accounts other than `$G`
    uint8_t knows_traces    # the peer delivers nothing that is for a trace only
    uint8_t knows_origins   # the peer reads the origin of a message in its record
    uint32_t* told_ids      # by slot: id of the account that the peer knows by that number; 0: of none
    uint32_t told_cap
    acct_t** heard          # by the peer's number; NULL: not in use
    uint32_t heard_cap
    uint64_t out_msgs
    uint64_t in_msgs
    uint64_t out_bytes      # headers and payloads
    uint64_t in_bytes

cdef struct msg_t:          # one message that is being delivered; it owns no memory
    const char* subject     # what subscriptions are matched by
    uint16_t subject_len
    const char* shown       # what receivers see as the subject
    uint16_t shown_len
    const char* reply
    uint16_t reply_len
    const char* data        # headers, then payload
    uint32_t hdr_len
    uint32_t size           # of data
    uint8_t origin          # MessageOrigin

cdef struct watch_t:        # a descriptor of another module, which ends the wait of a turn when it is ready
    int fd
    uint8_t ready

cdef struct ptrs_t:         # a growing array of pointers
    void** items
    uint32_t count
    uint32_t cap

cdef enum:
    GENERATIONS = 256       # buckets of first tokens; a change of `_INBOX.x` does not flush `orders.y`
    ACCOUNTS_MAX = 1 << 16  # that there are at a time, and whose numbers a peer may use
    ACCOUNT_IDS_MAX = 1 << 24       # a key has so many, see `key_of`; ids are not used again
    ACCOUNT_NAME_MAX = 255          # bytes
    SUBJECT_ROOM = 65535            # bytes that a subject can have in a message
    CROSSINGS_MAX = 32              # accounts through which a message goes on
    ANSWERS_PREFIX = 11             # bytes before the id in the subject of an answer
    RANDOM_POOL = 64

cdef struct plane_t:
    uint64_t seed
    acct_t* global_acct     # `$G`
    ptrs_t accts            # by slot; NULL: free
    uint32_t next_acct_id
    uint8_t accts_idle      # some may have nothing left
    slot_t* table           # open addressing: (parent, token) -> node, of all accounts
    uint32_t table_mask
    uint32_t table_used     # nodes in it, and in the one before
    slot_t* table_before    # half as large; its nodes move by parts, see _tree.pyx. NULL: all have
    uint32_t table_before_mask
    uint32_t table_moved    # places of it whose nodes have moved
    node_t gone             # in a place of it whose node has moved or is gone: of no parent
    uint64_t generations[GENERATIONS]   # of all accounts, each with its own places for its tokens
    match_t* cache          # aligned to its entries
    void* cache_memory      # what is freed for it
    uint32_t* cache_tags    # of the same places, by hash; 0: empty
    match_t scratch         # result of an uncached match
    uint64_t rng
    uint64_t stamp
    ptrs_t leafs_due        # that the message being delivered is for: each with the transform of its subject, or NULL
    leaf_pick_t* leaf_picks # its queue groups that go there, LEAF_PICKS_MAX at most
    uint32_t leaf_pick_count
    const char* origin      # cluster of the leaf node that sent what a route delivers now
    uint16_t origin_len     # 0: none did
    group_t origin_mark     # tells peers of it, in the place of a queue group
    char origin_name[256]
    uint32_t admits[7]      # SINK_KINDS: the origins that reach a kind of sink, a bit each
    uint8_t stays           # a hub sent what goes to another account now: not for peers
    uint8_t domain_len
    char domain[255]        # of JetStream: `$JS.<domain>.API.` is another name of `$JS.API.`
    perms_t* route_perms    # of routes; NULL: none. The owner keeps the object
    uint8_t route_guard     # GUARD_DENIED: a peer's wildcards reach what they deny
    uint8_t retelling       # what is told of interest takes back what may not be told any more
    uint32_t announcement   # number of the full announcement of interest that goes on
    uint32_t announcements  # of the last one
    ptrs_t dirty_conns
    ptrs_t dirty_sinks
    ptrs_t dirty_routes
    ptrs_t routes           # of all links that are up
    ptrs_t conns            # all open connections
    ptrs_t sinks
    ptrs_t paused_conns
    ptrs_t resting_conns
    ptrs_t passed_conns     # ready, and passed over by the last turn, the first of them first
    ptrs_t ending_conns     # whose subscriptions end a share a turn: closed, or with another CONNECT to be judged
    ptrs_t ending_routes    # of links that are down, the same
    ptrs_t reviewed_conns   # whose subscriptions are asked again a share a turn, see _reviews.pyx
    uint64_t ends_turn      # the turn of which this is left:
    uint32_t ends_left      # subscriptions that may end in it beside those that clients end one by one
    uint32_t tellings       # announcements of all interest that have to go on, see _plane.pyx and _leafs.pyx
    sub_t* told_next        # of a sink's or route's subscriptions, where one of them goes on
    ptrs_t untold_queues    # large queue groups whose weight leaf nodes are told at the end of the turn; NULL: it ended
    uint64_t work       # done for connections beyond compiled code, see _share.pxd
    uint64_t moved      # work of compiled code, in the same unit
    uint64_t turn_began # work and what was moved before the turn that goes on
    uint64_t turn_work  # how much all connections together may have done in a turn, as far as it is known what that takes
    uint64_t work_cost  # ns that 1,024 units have taken lately
    uint64_t work_late  # of both, what a connection has in a turn that is past this:
    uint64_t work_end   # of both, where connections that are read get little: all together have had their share of the turn
    uint8_t external_traces # an account has messages with `traceparent` traced
    uint8_t note_interest   # somebody wants to know which subscriptions come and go
    buf_t interest_changes  # their subjects: u32 account id, u16 length, bytes
    ptrs_t watches
    uint32_t ready_watches
    uint8_t stalls_producers    # 0: nobody is paused because a receiver is slow
    uint8_t stall           # a receiver of the connection being read has more than half of max_pending waiting
    int64_t route_pause_ns  # the longest pause of the peers that were sent something of the connection being read
    uint32_t slow_routes    # the peers that are behind
    size_t route_turn_bytes # for one peer in one turn; then little is read at a time. 0: no limit
    uint8_t route_full      # that was reached in this turn
    int64_t wake_ns         # the first of the paused is read again, or earlier
    char* recv_buf          # shared by all connections
    size_t recv_cap
    uint32_t crossing_depth
    room_t* rooms[32]       # CROSSINGS_MAX: what each depth works in; NULL: not needed yet
    char* mapped            # what the subject of a publish is mapped to; SUBJECT_ROOM, NULL: no account has mappings
    char* shown             # what a shadow's owner sees as the subject; the same, NULL: no account imports a stream
    uint8_t crossed         # a message was matched within another one: answers that were found before may be gone
    ptrs_t crossings        # subscriptions to which the message that is being delivered still has to go
    crossing_t* crossing    # the innermost
    answer_t** answers      # by id, of all accounts
    uint32_t answer_mask
    uint32_t answer_count
    export_t* exports
    uint32_t last_export    # the number that was given last
    uint64_t last_import
    uint64_t random[64]     # from the system, for what must not be guessed
    uint32_t random_left
    uint8_t routed          # what crosses now came from a peer
    uint8_t tracing         # what crosses now is traced
    text_t unmapped         # the subject that a client published, where it is mapped; n 0: it is not
    cross_fn cross
    measure_fn measure
    requester_fn describe
    connect_fn on_connect
    first_ping_fn on_first_ping
    violation_fn on_violation
    protocol_fn on_protocol
    uint8_t log_protocol    # every line is logged
    leaf_text_fn on_leaf_text
    interest_fn on_interest # a subscription comes or goes in an account with leaf nodes
    begin_trace_fn begin_trace          # see _tracing.pyx
    violate_traced_fn violate_traced
    deliver_traced_fn deliver_traced
    deliver_traced_here_fn deliver_traced_here
    cross_traced_fn cross_traced
    upgrade_fn on_upgrade   # NULL: no listener for WebSocket
    void* owner             # the Python object of the callbacks
    conn_t* dead_conns
    sub_t* dead_subs
    sub_t* free_subs        # free subscriptions in the slabs, chained by `prev_of_owner`
    ptrs_t sub_slabs
    queue_t* dead_queues
    queue_t** queues        # all that there are, by node and name: see _queues.pyx
    uint32_t queue_buckets  # any number
    uint32_t queue_buckets_cap
    uint32_t queue_mask     # of the next power of two, less one
    uint32_t queue_count
    sink_t* dead_sinks
    int epfd
    int64_t now_ns          # monotonic, read once a turn
    # limits
    int64_t max_payload
    int64_t max_control_line
    int64_t max_pending
    unread_fn bound_unread      # NULL: no limit of what waits for all connections together
    size_t max_unread
    size_t unread               # bytes that buffers of what waits take, sent or received, if there is that limit
    size_t received             # bytes of this turn, if there is that limit
    size_t keep_bytes           # a buffer that is empty again is kept up to this size
    int64_t max_subscriptions   # 0: no limit
    uint32_t max_sub_tokens     # of the subject of a subscription; 0: no limit
    # counters
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    uint64_t routed_in_msgs     # from and to peers; in_msgs and out_msgs are of clients
    uint64_t routed_in_bytes
    uint64_t routed_out_msgs
    uint64_t routed_out_bytes
    uint64_t sub_count
    uint64_t slow_consumers
    uint64_t turns
    uint64_t sends
    uint64_t recvs
    int spin_score          # how often polling found an event lately; 0: polling is suspended, see _reader.pyx
    int spin_skipped        # waits without polling since it was suspended
    uint64_t cache_misses
    uint64_t stalls

cdef inline bint reaches(uint32_t admits, uint8_t origin) noexcept nogil:
    """Whether a message of this origin reaches what admits those."""
    return (admits >> origin) & 1


cdef inline bint is_judged(uint8_t origin) noexcept nogil:
    """Whether the sender of a message was allowed to publish it, as far as it is known."""
    return origin <= FROM_LINK or origin == FROM_SERVER


cdef inline uint64_t next_random(plane_t* plane) noexcept nogil:
    """xorshift64*: cheap, and good enough to spread messages."""
    cdef uint64_t x = plane.rng
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    plane.rng = x
    return x * 0x2545F4914F6CDD1Du


cdef inline shadow_t* shadow_of(sub_t* sub) noexcept nogil:
    """What is particular to a shadow."""
    return <shadow_t*>&sub.near[0]


cdef inline const char* sid_of(sub_t* sub) noexcept nogil:
    """The bytes of a client's subscription id."""
    if sub.sid_len <= SID_NEAR:
        return &sub.near[0]
    return (<char**>&sub.near[0])[0]


cdef inline char* token_of(node_t* node) noexcept nogil:
    """The bytes of a node's token."""
    return <char*>(node + 1)


cdef inline sub_t** plain_subs(node_t* node) noexcept nogil:
    """The plain subscriptions of a node."""
    return &node.plain.only if node.cap == 0 else node.plain.subs


cdef inline uint32_t key_of(acct_t* acct, uint32_t bucket) noexcept nogil:
    """What an answer depends on: the account, and one of GENERATIONS counters."""
    return acct.id * GENERATIONS + bucket


cdef inline const char* subject_of(match_t* match) noexcept nogil:
    """The bytes of the subject of an answer."""
    if match.subject_len <= SUBJECT_NEAR:
        return &match.near[0]
    return match.subject


cdef inline sub_t** plain_of(match_t* match) noexcept nogil:
    """The plain subscriptions of an answer."""
    return &match.only if match.count == 1 else match.subs


cdef inline void note_pong(conn_t* conn, int64_t now_ns) noexcept nogil:
    """A client has answered the PINGs that it was sent."""
    conn.pings_out = 0
    if conn.pinged_ns:
        conn.rtt_ns = max(now_ns - conn.pinged_ns, 1)
        conn.pinged_ns = 0


cdef inline void count_sent(plane_t* plane, route_t* route, acct_t* acct, uint32_t size) noexcept nogil:
    """A message goes to a peer."""
    plane.routed_out_msgs += 1
    plane.routed_out_bytes += size
    route.out_msgs += 1
    route.out_bytes += size
    acct.routed_out_msgs += 1
    acct.routed_out_bytes += size


cdef inline void count_received(plane_t* plane, route_t* route, acct_t* acct, uint32_t size) noexcept nogil:
    """A message has come from a peer."""
    plane.routed_in_msgs += 1
    plane.routed_in_bytes += size
    route.in_msgs += 1
    route.in_bytes += size
    acct.routed_in_msgs += 1
    acct.routed_in_bytes += size
