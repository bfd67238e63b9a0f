# cython: language_level=3
"""The common step of a pull consumer: one request waits, nothing is due, and what is new goes to it in stream order.

`PullConsumer.step` defines what a step does; this is the same for that case alone, tested against it, and it costs a
fifth. Whatever is not that plain (several requests, limits in bytes, redeliveries, priorities, a pause, a pace, acks of
an earlier leader's deliveries) is left to it, before anything is changed.
"""

from libc.stdint cimport int64_t, uint64_t

from jetraft.cluster.consumers.effects import ConsumerEffects
from jetraft.cluster.consumers.pending import PendingTable
from jetraft.cluster.ports import DeliveryRun
from jetraft.cluster.state.commands import Delivered
from jetraft.store.model.config import AckPolicy, PriorityPolicy

from jetraft.store.stream._runs cimport Runs

cdef enum:
    DELIVERIES_MAX = 1000       # core.DELIVERIES_PER_STEP_MAX
cdef int64_t NEVER_NS = 2**63 - 1

cdef object NO_ACKS = AckPolicy.NONE
cdef object NO_PRIORITIES = PriorityPolicy.NONE
cdef bytes ONCE = b"\x01"       # core.ONCE


def plain_step(core, now):
    """The effects of a step; None where it is not plain: nothing has changed then."""
    cdef int64_t mono_ns = now.mono_ns, wake_ns, due_ns
    cdef uint64_t delivered = core.delivered_stream
    cdef int64_t remaining, wanted, limit, left, count, first
    cdef bint has_acks
    cdef Runs seqs, copy
    config = core.config
    pending = core.pending
    queue = core._waiting
    requests = queue._queue
    if len(requests) != 1 or queue._wake_ns <= mono_ns or type(pending) is not PendingTable:
        return None
    waiting = requests[0]
    request = waiting.request
    pinning = core._pinning
    pace = core._pace
    heap = pending._heap
    wake_ns = heap[0][0] if heap else NEVER_NS
    if (
        wake_ns <= mono_ns
        or pending._queue
        or request.max_bytes
        or request.no_wait
        or core._acked_ahead
        or config.pause_until is not None
        or core._pausing._until_ns is not None
        or config.priority_policy is not NO_PRIORITIES
        or pinning.events
        or pinning.ends_ns != NEVER_NS
        or pace._rate_bytes
        or pace._is_replaying
        or not core._has_interest(waiting.reply)
    ):
        return None
    if core._looked_upto:
        return None
    threshold_ns = config.inactive_threshold
    if threshold_ns and mono_ns - core._last_active_ns >= threshold_ns:
        return None

    remaining = waiting.remaining
    wanted = min(remaining, DELIVERIES_MAX)
    has_acks = config.ack_policy is not NO_ACKS
    limit = config.max_ack_pending
    if has_acks and limit > 0:
        wanted = min(wanted, limit - len(pending._unacked) - len(core._dead))
        if wanted <= 0 and core._vanished != core._selector.vanished:
            return None  # what waits for an ack may be gone from the stream
    left, seqs = core._selector.next_and_left(delivered, max(0, wanted))
    count = 0 if seqs is None else seqs.total
    if count == DELIVERIES_MAX and remaining > count:
        return None  # there is more to do at once

    out = core._out
    core._out = ConsumerEffects()
    core._left = left
    core._pausing.is_paused = False
    if count:
        first = core.delivered_consumer + 1
        left -= count
        out.sends.append(
            DeliveryRun(
                to=waiting.reply,
                ack_prefix=core._ack_prefix,
                stream_seqs=seqs,
                consumer_seqs=range(first, first + count),
                counts=ONCE * count,
                nums_pending=range(left + count - 1, left - 1, -1),
                headers_only=config.headers_only,
                requests=(waiting,),
            )
        )
        core.delivered_consumer = first + count - 1
        core.delivered_stream = seqs.high()
        core._left = left
        if has_acks:
            pending.add(seqs, first, mono_ns)
            wake_ns = pending._heap[0][0]
        copy = Runs()
        copy.extend(seqs)
        out.commands.append(Delivered(core.name, now.unix_ns, first, copy))
        core._selector.delivered(core.delivered_stream, left)
        core._last_active_ns = mono_ns
        core._last_delivered_unix_ns = now.unix_ns
        waiting.remaining = remaining - count
        waiting.delivered += count
        if request.heartbeat_ns:
            waiting.heartbeat_at_ns = mono_ns + request.heartbeat_ns
        if remaining == count:
            requests.popleft()
    if requests:
        due_ns = queue._wake_ns
        wake_ns = min(wake_ns, due_ns)
    if threshold_ns:
        wake_ns = min(wake_ns, max(<int64_t>(core._last_active_ns + threshold_ns), mono_ns + 1))
    out.wake_ns = None if wake_ns == NEVER_NS else wake_ns
    return out
