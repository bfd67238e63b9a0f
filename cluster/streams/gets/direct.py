"""Direct gets: every replica that has the mandate for reads answers from its own store, without asking the leader.

    one message         by sequence, by time, the last of a subject, the next of a subject
    a batch             from a sequence or time on, of one subject or all, ends with 204 EOB
    many last messages  the last of every subject that matches, as of a sequence or time; ends with 204 EOB

A batch is served in slices, some per turn, so that a large one does not keep others waiting; it pauses while its reader
is behind. A replica whose mandate (mandate.py) ends leaves the queue group, and tells those whose requests it has, also
between two slices, 503: what a client hears where there is no subscriber. It asks again, and another replica answers.

Clients that must not read stale data say how far the replica has to be (`Jetraft-Min-Last-Seq`): one that is not
waits a moment (held_gets.py) and then refuses; every EOB says how far it is. Linearizable reads wait until the leader
has said how far that is (confirmed_gets.py).
Source: stream.go (getDirectRequest, getDirectMulti), ADR-31.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import SinkKind
from jetraft.cluster.memory_budget import Shortage
from jetraft.cluster.streams.gets._direct import DirectEncoder
from jetraft.cluster.streams.gets.batch_get import NO_LIMIT, BatchGet
from jetraft.cluster.streams.gets.column_gets import column_facts, column_slice
from jetraft.cluster.streams.gets.confirmed_gets import ConfirmedGets
from jetraft.cluster.streams.gets.direct_request import (
    BAD,
    DAMAGED,
    LAST_SEQ,
    MIN_LAST_SEQ,
    NO_RESULTS,
    NOT_FOUND,
    TOO_MANY,
    DirectRequest,
    RefusedError,
    behind,
    check_level,
    parse_direct_request,
)
from jetraft.cluster.streams.gets.held_gets import HeldGets
from jetraft.cluster.streams.gets.read_wish import UNCONFIRMED, wish_of
from jetraft.store.model import message
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.extensions import stream_extensions
from jetraft.store.model.subject import is_literal
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.capture._capture import Capture
    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.cluster.streams.mandate import Mandate
    from jetraft.raft.proposals import Done, Outcome
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.stream._search import Search
    from jetraft.store.stream.stream_store import StoredMessage, StreamStore

QUEUE: Final = b"_sys_"  # as nats-server: one replica answers each request
MULTI_LAST_MAX: Final = 1024  # as nats-server: more subjects are refused with 413
TAKE_NS: Final = 2_000_000  # of one turn, for new requests; the others have their turns
VISITS_AT_ONCE: Final = 2_000  # subjects that a search looks at before it becomes a job: 0.1 ms
VISITS: Final = 4_000  # between two looks at the clock
SLICE_MESSAGES: Final = 512  # of one request in one turn
SLICE_BYTES: Final = 1 << 20
SLICES_PER_TURN: Final = 4  # of all batches
TURN_NS: Final = 5_000_000  # then no other slice begins: a turn in which nothing else is served
BATCHES_MAX: Final = 1024  # requests being served on this replica; more are refused
CLIENT_BATCHES_MAX: Final = 256  # of one connection: it cannot take the places of all
UNREAD_BYTES_MAX: Final = 4 << 20  # wait for a reader: its batches pause; a sixteenth of max_pending, which ends it
PAUSE_NS: Final = 5_000_000  # then its connection is looked at again; nats-server stalls producers for 2 to 10 ms
LOOKS_PER_TURN: Final = 64  # at paused batches, or the looking would be the load
BEHIND_BYTES_MAX: Final = 4 << 20  # of requests behind publishes on their way; more are refused
NO_PLACE: Final = -1  # the message is not part of a batch
BUSY: Final = message.status(429, b"Too Many Requests")
NO_RESPONDERS: Final = message.status(503)  # as the server says where there is no subscriber: the client asks again


class Taken(Protocol):
    """The messages that a replica has taken as the leader, and not applied yet."""

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing of that."""

    def settle(self, done: Done) -> None:
        """Call `done` when what was taken so far is applied, or this replica leads no more."""


@attrs.frozen(slots=True)
class Sought:
    """A request that is searched for in steps, and what is made of it then."""

    reply: bytes
    hdr: bytes
    search: Search
    finish: Callable[[], bytes | BatchGet]  # raises RefusedError


class DirectGets:
    """The direct gets of one replica."""

    def __init__(  # noqa: PLR0913  (what it reads, by what right, and how it is called)
        self,
        site: Site,
        machine: StreamMachine,
        stream: str,
        *,
        mandate: Mandate,
        origin: str = "",
        row: StreamAssignment | None = None,
        taken: Taken | None = None,
    ) -> None:
        """`taken` is what this replica has taken as the leader of the stream; None: it is of another stream.

        With `origin` a mirror answers what that stream is asked; the answers name the mirror.

        Without the `row` of the stream there are no answers in columns, which state when it was created, and no
        linearizable reads: a mirror never has all of its origin.
        """
        self._site = site
        self._machine = machine
        self._mandate = mandate
        self._taken = taken
        self._behind_bytes = 0  # requests that wait for publishes that came before them
        self._created_ns = 0 if row is None else row.created_ns
        self._prefix = f"$JS.API.DIRECT.GET.{origin or stream}".encode()
        self._encoder = DirectEncoder(stream.encode())
        self._sinks: list[int] = []
        self._batches: Fifo[BatchGet] = Fifo()
        self._of_client: dict[int, int] = {}  # how many of them
        self._timer: TimerHandle | None = None
        self._held = HeldGets(site.timers, site.clock, self._refuse)
        self._ready = b""  # captures that were held
        confirm = _never if row is None else partial(site.confirm_read, row)
        self._unconfirmed = ConfirmedGets(confirm, serve=self._confirmed, refuse=self._refuse_unconfirmed)
        self._is_linearizable = False  # all reads of this stream are
        self._confirmed_now = b""  # captures that are confirmed

    def follow(self, config: StreamConfig) -> None:
        """Listen while the stream allows direct gets."""
        self._is_linearizable = stream_extensions(config).linearizable_reads
        if config.allow_direct:
            self.listen()
        else:
            self.end()

    def listen(self) -> None:
        """Take requests, until `end`."""
        if not self._sinks:
            outbox = self._site.outbox
            self._sinks = [
                outbox.add_sink(self._prefix, self.on_requests, kind=SinkKind.API, queue=QUEUE),
                outbox.add_sink(self._prefix + b".>", self.on_requests, kind=SinkKind.API, queue=QUEUE),
            ]

    def end(self) -> None:
        """Stop listening, tell those who wait for more that they have to ask elsewhere."""
        for handle in self._sinks:
            self._site.outbox.remove_sink(handle)
        self._sinks = []
        waiting = self._held.drop() + self._unconfirmed.drop() + self._ready + self._confirmed_now
        waiting += b"".join(encode_capture(batch.reply, reply=batch.reply) for batch in self._batches)
        self._batches.clear()
        self._of_client.clear()
        self._ready = self._confirmed_now = b""
        self._turn_away(waiting)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_requests(self, batch: bytes) -> None:
        """The requests of a turn, which the leader answers behind the publishes that it took before them."""
        if self._taken is None:
            self._begin_requests(batch)
        else:  # when all that the turn captured was taken: a publish may have come before, and be handled after
            self._site.outbox.later(partial(self._wait_behind_publishes, self._taken, batch))

    def _wait_behind_publishes(self, taken: Taken, batch: bytes) -> None:
        if taken.is_settled:
            self._begin_requests(batch)
        elif self._behind_bytes + len(batch) > BEHIND_BYTES_MAX:
            answers = [encode_capture(refused.reply, hdr=BUSY) for refused in captures(batch) if refused.reply]
            self._site.outbox.send_batch(b"".join(answers))
        else:
            self._behind_bytes += len(batch)
            taken.settle(partial(self._settled, batch))

    def _settled(self, batch: bytes, _outcome: Outcome, _result: object) -> None:
        """Called within a group, which stops when something goes wrong here: the rest is for later in this turn."""
        self._behind_bytes -= len(batch)
        self._site.outbox.later(partial(self._begin_requests, batch))

    def _begin_requests(self, batch: bytes) -> None:
        if not self._sinks:  # it was ended meanwhile
            self._turn_away(batch)
            return
        if not self._mandate.may_read(self._site.clock.mono_ns()):
            self._turn_away(batch)
            self._mandate.lapsed()
            return
        self._take(batch)
        self._unconfirmed.ask()
        self._serve()

    def _turn_away(self, batch: bytes) -> None:
        """Answer these requests as where there is no subscriber."""
        answers = [encode_capture(asked.reply, hdr=NO_RESPONDERS) for asked in captures(batch) if asked.reply]
        if answers:
            self._site.outbox.send_batch(b"".join(answers))

    def _take(self, batch: bytes, *, is_confirmed: bool = False) -> None:
        """Answer requests for a part of this turn; those that are left have their turns (cluster/turn_work.py)."""
        answers: list[bytes] = []
        until_ns = self._site.clock.mono_ns() + TAKE_NS
        is_late = False
        for asked in captures(batch):
            if not asked.reply:
                continue
            is_late = is_late or self._site.clock.mono_ns() > until_ns
            if not is_late:
                self._take_one(answers, asked, is_confirmed=is_confirmed)
            elif not self._site.work.add(asked.origin, partial(self._take_late, asked.record, is_confirmed)):
                answers.append(encode_capture(asked.reply, hdr=BUSY))
        if answers:
            self._site.outbox.send_batch(b"".join(answers))

    def _take_late(self, record: bytes, is_confirmed: bool, _until_ns: int) -> bool:  # noqa: FBT001  (a job's arguments)
        if self._sinks:
            answers: list[bytes] = []
            for asked in captures(record):
                self._take_one(answers, asked, is_confirmed=is_confirmed)
            self._send_late(answers)
        return False

    def _take_one(self, answers: list[bytes], asked: Capture, *, is_confirmed: bool) -> None:
        reply, hdr = asked.reply, asked.hdr
        try:
            if not self._has_to_wait(asked, is_confirmed=is_confirmed):
                self._go_on(answers, asked.origin, self._answer(asked))
        except RefusedError as refused:
            answers.append(encode_capture(reply, hdr=self._refusal(refused, hdr)))
        except StoreCorrupt:
            answers.append(encode_capture(reply, hdr=DAMAGED))

    def _go_on(self, answers: list[bytes], client: int, made: bytes | BatchGet | Sought) -> None:
        """Do with what has come of a request what remains to be done. Raises RefusedError."""
        if isinstance(made, bytes):
            answers.append(made)
        elif isinstance(made, BatchGet):
            made.client = client
            self._begin(made)
        elif not made.search.step(VISITS_AT_ONCE):
            made.search.close()
            self._go_on(answers, client, made.finish())
        elif not self._site.work.add(client, partial(self._search, made, client)):
            made.search.close()
            raise RefusedError(BUSY)

    def _search(self, sought: Sought, client: int, until_ns: int) -> bool:
        """A slice of a search; True when there is more to do."""
        if not self._sinks:
            sought.search.close()
            return False
        while sought.search.step(VISITS):
            if self._site.clock.mono_ns() > until_ns:
                return True
        sought.search.close()
        answers: list[bytes] = []
        try:
            self._go_on(answers, client, sought.finish())
        except RefusedError as refused:
            answers.append(encode_capture(sought.reply, hdr=self._refusal(refused, sought.hdr)))
        except StoreCorrupt:
            answers.append(encode_capture(sought.reply, hdr=DAMAGED))
        self._send_late(answers)
        return False

    def _send_late(self, answers: list[bytes]) -> None:
        if answers:
            self._site.outbox.send_batch(b"".join(answers))
        self._unconfirmed.ask()
        if self._batches:
            self._wake()

    def _has_to_wait(self, asked: Capture, *, is_confirmed: bool) -> bool:
        """Whether a request is kept until this replica has what it needs. Raises RefusedError."""
        wish = wish_of(asked.hdr, asked.payload)
        if wish.min_seq > self._store.last_seq:
            if not self._held.hold(asked.record, asked.origin, wish.min_seq):
                raise RefusedError(behind(self._store.last_seq))
            return True
        wants_all = self._is_linearizable if wish.linearizable is None else wish.linearizable
        if not wants_all or is_confirmed:
            return False
        if not self._unconfirmed.hold(asked.record, asked.origin):
            raise RefusedError(BUSY)
        return True

    def applied(self) -> None:
        """The replica has come further: answer those who wait for that, in the next turn.

        Not at once, for this is called while entries are applied, and what goes wrong there stops the group.
        """
        if self._held:
            self._ready += self._held.reached(self._store.last_seq)
            if self._ready:
                self._wake()

    def _confirmed(self, batch: bytes) -> None:
        """This replica has what these requests need: answer them in the next turn."""
        self._confirmed_now += batch
        self._wake()

    def _refuse_unconfirmed(self, batch: bytes) -> None:
        answers = [encode_capture(refused.reply, hdr=UNCONFIRMED) for refused in captures(batch)]
        self._site.outbox.send_batch(b"".join(answers))

    # --- requests

    def _refuse(self, batch: bytes) -> None:
        """Tell the senders of these requests that this replica is behind."""
        status = behind(self._store.last_seq)
        answers = [encode_capture(refused.reply, hdr=status) for refused in captures(batch)]
        self._site.outbox.send_batch(b"".join(answers))

    def _answer(self, asked: Capture) -> bytes | BatchGet | Sought:
        """The answer to one question, or the batch that is to be served, or what has to be searched for."""
        subject, hdr, payload = asked.subject, asked.hdr, asked.payload
        if subject != self._prefix:
            check_level(hdr)
            if payload:
                parse_direct_request(payload, hdr)
                raise RefusedError(BAD)  # the subject has said it all
            return self._one(asked, DirectRequest(last_by_subj=subject[len(self._prefix) + 1 :]))
        request = parse_direct_request(payload, hdr)
        if request.multi_last:
            return self._many_last(asked, request)
        if request.batch:
            return self._batch(asked.reply, request)
        return self._one(asked, request)

    def _refusal(self, refused: RefusedError, hdr: bytes) -> bytes:
        """The status; a client that minds the replica's position also learns it when there is nothing to read."""
        if refused.hdr == NOT_FOUND and MIN_LAST_SEQ in hdr:
            return message.append(NOT_FOUND, LAST_SEQ, b"%d" % self._store.last_seq)
        return refused.hdr

    def _one(self, asked: Capture, request: DirectRequest) -> bytes | Sought:
        store, reply = self._store, asked.reply
        if request.last_by_subj:
            if is_literal(request.last_by_subj):
                return self._message(reply, request, store.last_for(request.last_by_subj))
            last = store.search_last((request.last_by_subj,))
            return Sought(reply, asked.hdr, last, lambda: self._message(reply, request, last.found))
        if request.next_by_subj:
            following = store.search_next((request.next_by_subj,), self._first_seq(request))
            return Sought(reply, asked.hdr, following, lambda: self._message(reply, request, following.found))
        if request.start_time_ns is not None:
            return self._message(reply, request, store.next_match(store.visible(()), self._first_seq(request)))
        return self._message(reply, request, request.seq)

    def _message(self, reply: bytes, request: DirectRequest, seq: int | None) -> bytes:
        """The answer with one message. Raises RefusedError when there is none."""
        found = self._store.load(seq) if seq else None
        if found is None:
            raise RefusedError(NOT_FOUND)
        if request.no_hdr:
            return encode_capture(reply, payload=found.payload)
        return self._encode(reply, found, NO_PLACE, 0)

    def _batch(self, reply: bytes, request: DirectRequest) -> BatchGet:
        columns = request.columns if self._created_ns else None
        filters = (columns.filters if columns is not None else ()) or self._store.visible(_filters(request))
        first_seq = self._first_seq(request)
        pending = self._store.num_pending(filters, first_seq)
        if not pending:
            raise RefusedError(NOT_FOUND)
        is_bounded = columns is not None and columns.up_to_seq > 0
        return BatchGet(
            reply=reply,
            filters=filters,
            next_seq=first_seq,
            left=NO_LIMIT if is_bounded else max(0, request.batch),
            bytes_left=NO_LIMIT if is_bounded else request.max_bytes or NO_LIMIT,
            num_pending=pending,
            columns=columns,
        )

    def _many_last(self, asked: Capture, request: DirectRequest) -> Sought:
        store = self._store
        up_to_seq = request.up_to_seq or store.last_seq
        if request.up_to_time_ns is not None:
            up_to_seq = store.seq_at_time(request.up_to_time_ns) - 1
        search = store.search_last_of_each(request.multi_last, max(up_to_seq, 0), count_max=MULTI_LAST_MAX + 1)
        return Sought(
            asked.reply, asked.hdr, search, lambda: _batch_of(asked.reply, request, search.found(), up_to_seq)
        )

    def _first_seq(self, request: DirectRequest) -> int:
        if request.start_time_ns is not None:
            return self._store.seq_at_time(request.start_time_ns)
        return max(request.seq, 1)

    def _begin(self, batch: BatchGet) -> None:
        of_client = self._of_client.get(batch.client, 0)
        if self._must_wait() or len(self._batches) >= BATCHES_MAX or (batch.client and of_client >= CLIENT_BATCHES_MAX):
            raise RefusedError(BUSY)
        self._of_client[batch.client] = of_client + 1
        self._batches.append(batch)

    # --- serving

    def _serve(self) -> None:
        """Serve slices of the next batches; come back for the rest in the next turn, or when readers may have read."""
        slices, until_ns = 0, self._site.clock.mono_ns() + TURN_NS
        for _ in range(0 if self._must_wait() else min(len(self._batches), LOOKS_PER_TURN)):
            batch = self._batches.popleft()
            if self._site.outbox.waiting_bytes(batch.reply) > UNREAD_BYTES_MAX:
                self._batches.append(batch)
                continue
            slices += 1
            if self._serve_slice(batch):
                self._batches.append(batch)
            else:
                self._of_client[batch.client] -= 1
                if not self._of_client[batch.client]:  # the table has clients with batches only
                    del self._of_client[batch.client]
            if slices == SLICES_PER_TURN or self._site.clock.mono_ns() > until_ns:
                break
        if self._batches:
            self._wake(1 if slices else PAUSE_NS)

    def _must_wait(self) -> bool:
        """Whether memory is too short for batches."""
        memory = self._site.memory
        return memory is not None and memory.shortage(self._site.clock.mono_ns()) >= Shortage.BATCHES

    def _wake(self, after_ns: int = 1) -> None:
        if self._timer is not None and after_ns < PAUSE_NS:
            self._timer.cancel()  # it may be the one of a pause
            self._timer = None
        if self._timer is None:
            self._timer = self._site.timers.call_at(self._site.clock.mono_ns() + after_ns, self._woken)

    def _woken(self) -> None:
        self._timer = None
        confirmed, self._confirmed_now = self._confirmed_now, b""
        ready, self._ready = self._ready, b""
        if confirmed and self._mandate.may_read(self._site.clock.mono_ns()):
            self._take(confirmed, is_confirmed=True)
        else:
            ready += confirmed
        self.on_requests(ready)

    def _serve_slice(self, batch: BatchGet) -> bool:
        """Send the next messages of a batch; True when there are more to come."""
        if not self._site.outbox.has_interest(batch.reply):
            return False
        return self._serve_rows(batch, SLICE_MESSAGES) if batch.columns is None else self._serve_columns(batch)

    def _serve_columns(self, batch: BatchGet) -> bool:
        made = column_slice(self._store, batch, self._created_ns)
        end = encode_capture(batch.reply, hdr=self._end_of(batch)) if made.is_over else b""
        if made.record or end:
            self._site.outbox.send_batch(made.record + end)
        return self._serve_rows(batch, 1) if made.is_row_next else not made.is_over

    def _serve_rows(self, batch: BatchGet, count_max: int) -> bool:
        records: list[bytes] = []
        slice_bytes, asked, is_over = SLICE_BYTES, min(batch.left, count_max), False
        seqs = self._next_seqs(batch, asked)
        for seq in seqs:
            batch.next_seq = seq + 1
            try:
                found = self._store.load(seq)
            except StoreCorrupt:
                records.append(encode_capture(batch.reply, hdr=DAMAGED))
                self._site.outbox.send_batch(b"".join(records))
                return False
            if found is None:
                continue
            records.append(self._record(batch, found))
            cost = len(found.subject) + len(found.hdr) + len(found.payload)
            slice_bytes -= cost
            batch.bytes_left -= cost
            batch.left -= 1
            is_over = not batch.left or batch.bytes_left <= 0
            if is_over or slice_bytes <= 0:
                break
        else:
            is_over = is_over or len(seqs) < asked or not asked
        if is_over:
            records.append(encode_capture(batch.reply, hdr=self._end_of(batch)))
        self._site.outbox.send_batch(b"".join(records))
        return not is_over

    def _next_seqs(self, batch: BatchGet, count: int) -> Sequence[int]:
        if batch.seqs is None:
            return self._store.next_matches(batch.filters, batch.next_seq, count)
        start = bisect_left(batch.seqs, batch.next_seq)
        return batch.seqs[start : start + count]

    def _record(self, batch: BatchGet, found: StoredMessage) -> bytes:
        """One message of a batch, on its way."""
        batch.num_pending = max(0, batch.num_pending - 1)
        record = self._encode(batch.reply, found, batch.num_pending, batch.last_seq)
        batch.last_seq = found.seq
        return record

    def _encode(self, reply: bytes, found: StoredMessage, num_pending: int, last_seq: int) -> bytes:
        return self._encoder.record(
            reply, found.seq, found.ts_ns, found.subject, found.hdr, found.payload, num_pending, last_seq
        )

    def _end_of(self, batch: BatchGet) -> bytes:
        fields = {
            message.NUM_PENDING: b"%d" % batch.num_pending,
            message.LAST_SEQUENCE: b"%d" % batch.last_seq,
        }
        if batch.up_to_seq:
            fields[message.UP_TO_SEQUENCE] = b"%d" % batch.up_to_seq
        fields[LAST_SEQ] = b"%d" % self._store.last_seq
        if batch.columns is not None:
            fields |= column_facts(self._store, self._created_ns)
        return message.status(204, b"EOB", fields)

    @property
    def _store(self) -> StreamStore:
        return self._machine.store


def _batch_of(reply: bytes, request: DirectRequest, seqs: Sequence[int], up_to_seq: int) -> BatchGet:
    """The last messages to be served. Raises RefusedError when there are too many, or none."""
    if len(seqs) > MULTI_LAST_MAX:
        raise RefusedError(TOO_MANY)
    if not seqs:
        raise RefusedError(NO_RESULTS)
    return BatchGet(
        reply=reply,
        filters=(),
        next_seq=0,
        left=request.batch or len(seqs),
        bytes_left=request.max_bytes or NO_LIMIT,
        num_pending=len(seqs),
        seqs=seqs,
        up_to_seq=up_to_seq,
    )


def _never(told: Callable[[bool], None]) -> None:
    told(False)  # noqa: FBT003  (a callback's one word)


def _filters(request: DirectRequest) -> tuple[bytes, ...]:
    return (request.next_by_subj,) if request.next_by_subj else ()
