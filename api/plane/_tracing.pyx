"""Delivers messages that are traced: as _deliver.pyx does, but each receiver becomes an event of the trace.

A message that is for a trace only reaches no receiver here: clients and sinks are named, the leader of a stream judges and
does not store it, and peers get it with its headers, which say the same to them. Python objects are made freely here:
such messages are rare, and the others do not come this way.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from jetraft.api.plane._answers cimport answer_new, answer_subject
from jetraft.api.plane._connections cimport Connections
from jetraft.api.plane._deliver cimport PICKS_MAX, capture, draw_member, give, match_for, pick_t, send_to_route
from jetraft.api.plane._from_route cimport is_of_others, named
from jetraft.api.plane._leaf_out cimport pick_leaf, read_origin, send_to_leafs
from jetraft.api.plane._permissions cimport LEAVE_NO, may_publish, may_receive
from jetraft.api.plane._route_permissions cimport is_kept_back
from jetraft.api.plane._shadows cimport shown_by
from jetraft.api.plane._tree cimport node_subject
from jetraft.api.plane._types cimport (
    CONN_OPEN,
    SUB_CLIENT,
    SUB_ROUTE,
    SUB_SERVICE,
    SUB_SHADOW,
    SUB_SINK,
    TRACE_DROPPED,
    TRACE_OFF,
    TRACE_ON,
    VIOLATES_PUBLISH,
    Tracing,
    acct_t,
    answer_t,
    conn_t,
    group_t,
    match_t,
    msg_t,
    next_random,
    plain_of,
    plane_t,
    route_t,
    service_import_t,
    shadow_of,
    stream_import_t,
    sub_t,
    text_t,
)

cdef enum:
    KIND_CLIENT = 0     # of events
    KIND_ROUTE = 1
    TRACED_ORIGIN = 0x80000000      # see cluster/capture/reach.py
    TRACED_ONLY = 0x40000000
    TRACES_MAX = 1 << 20            # of a turn; the others are delivered without events of streams


NO_ECHO = "Not delivered because of no echo"
DENIED = "Not delivered because subscription denies this subject"
SUBSCRIPTION_CLOSED = "Not delivered because subscription is closed"
CLIENT_CLOSED = "Not delivered because client is closed"


cdef void serve_traces(plane_t* plane) noexcept:
    """Let a plane trace messages."""
    plane.begin_trace = begin_trace
    plane.violate_traced = violate_traced
    plane.deliver_traced = deliver_traced
    plane.deliver_traced_here = deliver_traced_here
    plane.cross_traced = cross_traced


cdef Tracing begin_trace(plane_t* plane, conn_t* conn, route_t* route, acct_t* acct, msg_t* msg) noexcept with gil:
    """Ask what to do with a message; its headers are changed where that is the answer."""
    cdef Connections owner = <Connections>plane.owner
    cdef bytes hdr = msg.data[:msg.hdr_len]
    cdef text_t dest, nothing
    cdef int kind = KIND_CLIENT if conn != NULL else KIND_ROUTE
    if owner.trace_handler is None:
        return TRACE_OFF
    found = owner.trace_handler.from_leaf(hdr) if conn != NULL and conn.leaf != NULL else owner.trace_handler.begin(
        kind,
        conn.cid if conn != NULL else route.id,
        "" if conn != NULL else owner.route_names.get(route.id, ""),
        acct.name[:acct.name_len].decode(),
        plane.unmapped.p[:plane.unmapped.n] if plane.unmapped.n else msg.subject[:msg.subject_len],
        hdr,
        msg.size,
    )
    if found is None:
        return TRACE_OFF
    if not found.is_trace:
        if found.hdr is not None:
            put_headers(owner, msg, found.hdr)
        return TRACE_DROPPED if found.is_dropped else TRACE_OFF
    if conn != NULL and conn.perms != NULL:
        dest.p = nothing.p = PyBytes_AS_STRING(found.dest)
        dest.n = PyBytes_GET_SIZE(found.dest)
        nothing.n = 0
        if may_publish(plane, conn, dest.p, dest.n) == LEAVE_NO:
            plane.on_violation(plane, conn, VIOLATES_PUBLISH, dest, nothing, nothing)
            return TRACE_DROPPED
    if plane.unmapped.n:
        found.mapped(msg.subject[:msg.subject_len])
    owner.traces.append(found)
    return TRACE_ON


cdef object trace_in_work(plane_t* plane):
    """The trace that was begun last."""
    cdef list traces = (<Connections>plane.owner).traces
    return traces[len(traces) - 1]


cdef void put_headers(Connections owner, msg_t* msg, bytes hdr):
    """Let a message have other headers. They live until the next message that is changed."""
    owner.trace_data = hdr + msg.data[msg.hdr_len:msg.size]
    msg.data = PyBytes_AS_STRING(owner.trace_data)
    msg.hdr_len = <uint32_t>PyBytes_GET_SIZE(hdr)
    msg.size = <uint32_t>PyBytes_GET_SIZE(owner.trace_data)


cdef void violate_traced(plane_t* plane, msg_t* msg) noexcept with gil:
    """The publisher may not publish the message whose trace was begun last."""
    trace_in_work(plane).violated(msg.subject[:msg.subject_len])


# -- local receivers

cdef bint give_traced(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg, trace):
    """Deliver to a local subscription, unless this is for the trace only; False when it would not get the message."""
    cdef char text[8192]
    cdef Py_ssize_t n
    if sub.kind == SUB_SINK:
        return capture_traced(plane, sub, origin, msg, trace)
    if sub.kind == SUB_SHADOW:
        return give_shadow_traced(plane, sub, origin, msg, trace)
    if sub.kind == SUB_SERVICE:
        return give(plane, sub, origin, msg) != 0       # `cross_traced` decides
    if sub.kind != SUB_CLIENT:      # what is traced by a leaf node is its affair
        return not trace.only and give(plane, sub, origin, msg) != 0
    error = ""
    if sub.closed:
        error = SUBSCRIPTION_CLOSED
    elif sub.of.conn.state != CONN_OPEN:
        error = CLIENT_CLOSED
    elif origin == sub.of.conn and not origin.echo:
        error = NO_ECHO
    elif sub.of.conn.guard and not may_receive(plane, sub, msg):
        error = DENIED
    n = node_subject(sub.node, text, sizeof(text)) if not sub.closed else 0
    queue = sub.queue.name[:sub.queue.name_len] if sub.queue != NULL and not sub.closed else b""
    trace.to_client(sub.of.conn.cid, text[:n], queue, error, account=sub.acct.name[:sub.acct.name_len].decode())
    if error:
        return False
    if not trace.only:
        give(plane, sub, origin, msg)
    return True


cdef bint give_shadow_traced(plane_t* plane, sub_t* shadow, conn_t* origin, msg_t* msg, trace):
    """Deliver to the owner of a shadow, who is named where its account lets it be."""
    cdef stream_import_t* by = shadow_of(shadow).by
    cdef sub_t* main = shadow.of.main
    cdef msg_t here = msg[0]
    if not shown_by(plane, by, &here):
        return False
    trace.to_importer(main.acct.name[:main.acct.name_len].decode(), here.subject[:here.subject_len])
    if by.traced:
        return give_traced(plane, main, origin, &here, trace)
    return not trace.only and give(plane, main, origin, &here) != 0


cdef Tracing cross_traced(plane_t* plane, service_import_t* by, msg_t* msg, msg_t* there) noexcept with gil:
    """A traced request goes to another account: where that lets it be traced, events find their way back."""
    cdef Connections owner = <Connections>plane.owner
    cdef char subject[64]
    cdef answer_t* answer
    cdef bytes hdr = msg.data[:msg.hdr_len], dest
    trace = trace_in_work(plane)
    trace.to_service(
        by.exporter.name[:by.exporter.name_len].decode(), msg.subject[:msg.subject_len], there.subject[:there.subject_len]
    )
    if not by.service.traced:
        if trace.only:
            return TRACE_DROPPED
        put_headers(owner, there, trace.ended(hdr))
        return TRACE_OFF
    dest = trace.dest_of(hdr)
    answer = answer_new(plane, by.exporter, by.importer, PyBytes_AS_STRING(dest), PyBytes_GET_SIZE(dest), by.service)
    if answer == NULL:
        return TRACE_DROPPED
    answer.many = 1
    put_headers(owner, there, trace.led_to(hdr, subject[:answer_subject(answer, subject)]))
    return TRACE_ON


cdef bint capture_traced(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg, trace):
    """Hand a message to a sink. That of a stream gets it in any case, with the number of its trace."""
    cdef Connections owner = <Connections>plane.owner
    cdef uint32_t number = <uint32_t>(len(owner.traces) - 1)
    cdef msg_t changed = msg[0]
    cdef bint is_api = msg.subject_len > 8 and memcmp(msg.subject, b"$JS.API.", 8) == 0
    if sub.closed:
        return False
    if sub.of.sink.traced and number < TRACES_MAX:
        hdr = trace.to_stream(owner.trace_streams[sub.of.sink.id], msg.data[:msg.hdr_len])
        if PyBytes_GET_SIZE(hdr) != <Py_ssize_t>msg.hdr_len or not trace.only:
            put_headers(owner, &changed, hdr)
        return capture(plane, sub.of.sink, TRACED_ORIGIN | number | (TRACED_ONLY if trace.only else 0), &changed)
    if is_api:
        trace.to_api(msg.subject[:msg.subject_len])
    if trace.only:
        return not is_api
    return give(plane, sub, origin, msg) != 0


cdef bint give_group_traced(
    plane_t* plane, match_t* match, group_t* group, conn_t* origin, msg_t* msg, trace, bint local, route_t** chosen
):
    """Deliver to one member of a queue group; a peer that was chosen is returned in `chosen`."""
    cdef sub_t* sub
    cdef uint32_t i, start = 0
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind == SUB_SINK and not sub.closed:
            return give_traced(plane, sub, origin, msg, trace)
    if not draw_member(plane, match, group, local, &start):
        return not trace.only and pick_leaf(plane, match, group, origin, msg, next_random(plane), local) != 0
    for i in range(group.count):
        sub = match.members[group.first + (start + i) % group.count]
        if sub.kind == SUB_ROUTE:
            if not local and not sub.closed and not sub.of.route.gone and not (plane.route_guard and is_kept_back(plane, msg)):
                chosen[0] = sub.of.route
                return True
        elif sub.kind < SUB_ROUTE and give_traced(plane, sub, origin, msg, trace):
            return True
    return not trace.only and pick_leaf(plane, match, group, origin, msg, next_random(plane), local) != 0


# -- one message

cdef uint32_t deliver_traced(plane_t* plane, acct_t* acct, conn_t* conn, msg_t* msg) noexcept with gil:
    """Deliver the message whose trace was begun last; returns the number of receivers, a peer counting once."""
    cdef match_t* match = match_for(plane, acct, msg.subject, msg.subject_len)
    cdef uint32_t i, taken = 0, pick_count = 0, first = plane.crossings.count
    cdef route_t* chosen
    cdef pick_t picks[PICKS_MAX]
    cdef sub_t* sub
    cdef uint8_t before
    trace = trace_in_work(plane)
    plane.stamp += 1
    for i in range(match.count):
        sub = plain_of(match)[i]
        if sub.kind == SUB_ROUTE:
            if not sub.closed and not (plane.route_guard and is_kept_back(plane, msg)):
                sub.of.route.stamp = plane.stamp
        else:
            taken += give_traced(plane, sub, conn, msg, trace)
    for i in range(match.group_count):
        chosen = NULL
        taken += give_group_traced(plane, match, &match.groups[i], conn, msg, trace, pick_count == PICKS_MAX, &chosen)
        if chosen != NULL:
            picks[pick_count].route = chosen
            picks[pick_count].group = &match.groups[i]
            pick_count += 1
            taken -= 1
            chosen.stamp = plane.stamp
    for i in range(plane.routes.count):
        if (<route_t*>plane.routes.items[i]).stamp == plane.stamp:
            taken += send_traced(plane, acct, <route_t*>plane.routes.items[i], msg, trace, picks, pick_count)
    if plane.leafs_due.count:
        send_to_leafs(plane, msg)
    if plane.crossings.count != first:
        before = plane.tracing
        plane.tracing = 1
        taken += plane.cross(plane, conn, msg, first)
        plane.tracing = before
    return taken


cdef bint send_traced(plane_t* plane, acct_t* acct, route_t* route, msg_t* msg, trace, pick_t* picks, uint32_t pick_count):
    """Send a traced message to a peer with the number of its hop; False when the peer would deliver it by mistake."""
    cdef Connections owner = <Connections>plane.owner
    cdef msg_t changed = msg[0]
    hdr = trace.to_peer(
        route.id, owner.route_names.get(route.id, ""), msg.data[:msg.hdr_len], understands=bool(route.knows_traces)
    )
    if hdr is None:
        return False
    put_headers(owner, &changed, hdr)
    send_to_route(plane, acct, route, &changed, picks, pick_count)
    return True


cdef void deliver_traced_here(
    plane_t* plane, acct_t* acct, msg_t* msg, const char* queues, uint32_t queue_count
) noexcept with gil:
    """Deliver a peer's message here: to all plain subscriptions and to one local member of each queue it names."""
    cdef match_t* match = match_for(plane, acct, msg.subject, msg.subject_len)
    cdef route_t* chosen = NULL
    cdef uint32_t i, first = plane.crossings.count
    trace = trace_in_work(plane)
    if queue_count:
        read_origin(plane, queues, queue_count)
    for i in range(match.count):
        if not is_of_others(plain_of(match)[i]):
            give_traced(plane, plain_of(match)[i], NULL, msg, trace)
    for i in range(match.group_count):
        if named(queues, queue_count, &match.groups[i]):
            give_group_traced(plane, match, &match.groups[i], NULL, msg, trace, True, &chosen)
    if plane.leafs_due.count:
        send_to_leafs(plane, msg)
    if plane.crossings.count != first:
        plane.cross(plane, NULL, msg, first)
    plane.origin_len = 0
