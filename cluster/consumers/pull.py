"""A pull consumer: clients ask for messages, and each request has its own terms. Pure; see core.py.

    waiting --all delivered--> done                      waiting --expires--> 408 Request Timeout
    waiting --nothing left, no_wait--> 404 No Messages   waiting --next one too large--> 409 Message Size ...
    waiting --no subscriber--> dropped without a status  arriving --queue full--> 409 Exceeded MaxWaiting

A no_wait request that `max_ack_pending` holds up waits for acks, but not for long: when the next timer of any request
in the queue fires (its end, or its sign of life), what is no_wait and is partly filled, or has no end, is over.

Source: consumer.go (processNextMsgRequest, processWaiting, nextWaiting); the texts are compared by clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.cluster.consumers._plain_step import plain_step
from jetraft.cluster.consumers.core import DELIVERIES_PER_STEP_MAX, ConsumerCore
from jetraft.cluster.consumers.delivery import Run
from jetraft.cluster.consumers.effects import Now, StatusMessage
from jetraft.cluster.consumers.pending import NEVER_NS
from jetraft.cluster.consumers.priorities import (
    PIN_MISMATCH,
    UNPINNED_BY_ADMIN,
    WRONG_PIN,
    Pinning,
    RequestChoice,
    group_refusal,
)
from jetraft.cluster.consumers.requests import (
    BadRequestError,
    PullRequest,
    Waiting,
    WaitingQueue,
    heartbeat_status,
    parse_pull_request,
    pending_status,
)
from jetraft.store.model import message
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.config import PriorityPolicy
from jetraft.store.model.gotime import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jetraft.cluster.consumers.effects import ConsumerEffects, CoreStatistics
    from jetraft.cluster.consumers.selector import Selector
    from jetraft.cluster.ports import DeliveryRun, StoredLike
    from jetraft.store.model.config import ConsumerConfig

WAITING_MAX: Final = (
    5_000  # requests of one consumer, whatever its max_waiting: to end them takes 2 us each, in one step
)
TIMEOUT: Final = b"Request Timeout"
BEHIND_LOOK_NS: Final = 2 * NS_PER_MS  # about one commit: is what came before a request that does not wait stored?
NO_MESSAGES: Final = b"No Messages"
TOO_LARGE: Final = b"Message Size Exceeds MaxBytes"
STATUS_SHUTDOWN: Final = b"Server Shutdown"


def end_of(waiting: Waiting, code: int, text: bytes) -> StatusMessage:
    """The status that ends a request, behind what it got."""
    waiting.ended_with = (code, text)
    hdr = message.status(code, text) if text == NO_MESSAGES else pending_status(code, text, waiting)
    return StatusMessage(waiting.reply, hdr, ends=waiting)


class PullConsumer(ConsumerCore):
    """The leader's working copy of a pull consumer."""

    def __init__(self, *args: Any, new_id: Callable[[], str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = WaitingQueue()
        self._pinning = Pinning(new_id)
        self._choice = RequestChoice(self._pinning, self._has_interest)
        self._is_drained = False  # the stream has no new message for the request served last; valid within a step
        self._follow_policy()

    # --- events

    def pull(self, payload: bytes, reply: bytes, now: Now, *, taken_seq: int = 0) -> None:
        """A request for messages: queued, or refused with a status.

        `taken_seq` is the last sequence that the stream has taken before it, and may still be about to store.
        """
        if not reply:
            return
        self._last_active_ns = now.mono_ns
        try:
            request = parse_pull_request(payload)
        except BadRequestError as error:
            self._refuse(reply, 400, f"Bad Request - {error}")
            return
        refusal = self._limit_broken(request)
        if refusal:
            self._refuse(reply, 409, refusal)
        elif unsuitable := group_refusal(self.config, request):
            self._refuse(reply, *unsuitable)
        elif not self._pinning.arrives(self.config, request, now):
            self._refuse(reply, *PIN_MISMATCH)
        elif len(self._waiting) >= self._waiting_max and not self._make_room(now):
            if not request.heartbeat_ns:  # a client with heartbeats notices by itself, and would only ask again
                self._refuse(reply, 409, "Exceeded MaxWaiting")
        elif request.no_wait and self._is_spoken_for():
            self._refuse(reply, 408, "Requests Pending")
        else:
            waiting = Waiting.begin(reply, request, now.mono_ns)
            if request.no_wait:
                waiting.behind_seq = taken_seq
            self._waiting.add(waiting)

    def begin_again(self, before: ConsumerCore) -> None:
        """Take the place of the core of before a reset, and its queue."""
        super().begin_again(before)
        assert isinstance(before, PullConsumer)
        self._waiting = before._waiting  # noqa: SLF001  (its own class)
        self._pinning = before._pinning  # noqa: SLF001
        self._choice = RequestChoice(self._pinning, self._has_interest)

    def configure(self, config: ConsumerConfig, selector: Selector) -> None:
        """A new configuration took effect: the policy of its priority group may be another."""
        super().configure(config, selector)
        self._follow_policy()

    def unpin(self, group: str) -> None:
        """The pinned client is so no longer."""
        self._pinning.take(group, UNPINNED_BY_ADMIN)

    def step(self, now: Now) -> ConsumerEffects:
        """Deliver, and hand over everything that has collected."""
        plain = plain_step(self, now)
        if plain is not None:
            return plain
        out = super().step(now)
        if self._pinning.events:
            out.pins, self._pinning.events = self._pinning.events, []
        return out

    def statistics(self) -> CoreStatistics:
        """A frozen look, with the pin."""
        found, pin = super().statistics(), self._pinning.pin
        return found if pin is None else attrs.evolve(found, pin_id=pin.id, pinned_ns=pin.since_ns)

    def needs_acks(self, now: Now) -> bool:
        """True when acks that have come make a difference to the next step: to what is repeated, or to the limit."""
        pending, limit = self.pending, self.config.max_ack_pending
        if pending.queued or pending.wake_ns <= now.mono_ns:
            return True
        return 0 < limit < len(pending) + self._waiting.requested

    def close(self, reason: bytes) -> ConsumerEffects:
        """End every request with a 409: the consumer is deleted here, or led elsewhere, or the server stops."""
        while self._waiting:
            waiting = self._waiting.drop_head()
            tells_rest = reason == STATUS_SHUTDOWN  # only this one says what is left of the request, as in nats-server
            hdr = pending_status(409, reason, waiting) if tells_rest else message.status(409, reason)
            self._out.sends.append(StatusMessage(waiting.reply, hdr))
        out, self._out = self._out, type(self._out)()
        return out

    def recalled(self, sends: Iterable[DeliveryRun | StatusMessage]) -> None:
        """None of these leave: requests that were served or over with them wait again, to be ended by `close`."""
        sends = tuple(sends)
        super().recalled(sends)
        for send in sends:
            if isinstance(send, StatusMessage) and send.ends is not None:
                self._waiting.put_back(send.ends)

    def last_word(self, status: StatusMessage) -> StatusMessage | None:
        """A request that got less than it was counted ends as it is now, or goes on: there may be more for it.

        That nothing is left, or that the next message is too large, is judged again; time and a lost pin stay what
        they are.
        """
        waiting = status.ends
        if waiting is None or waiting.ended_with is None or not waiting.lacks_some:
            return status
        (code, text), waiting.ended_with, waiting.lacks_some = waiting.ended_with, None, False
        if text in {NO_MESSAGES, TOO_LARGE}:
            self._waiting.put_back(waiting)
            return None
        return end_of(waiting, code, text)

    @property
    def num_waiting(self) -> int:
        """Requests whose reply subject has a subscriber; the others leave the queue at their turn."""
        return sum(self._has_interest(waiting.reply) for waiting in self._waiting)

    # --- what the base class asks

    def _give_back(self, run: DeliveryRun, gone: Sequence[int], copies: Mapping[int, StoredLike]) -> None:
        super()._give_back(run, gone, copies)
        if len(run.requests) == 1:
            self._give_back_to(run.requests[0], len(gone), self._counted_for(run, gone, copies))
            return
        for place in gone:
            self._give_back_to(run.requests[place], 1, run.sizes[place])

    def _give_back_to(self, waiting: object, count: int, size: int) -> None:
        """A request did not get so many; one that had left the queue because it had all is the next one again."""
        assert isinstance(waiting, Waiting)
        if not count:
            return
        had_all = not waiting.remaining
        waiting.give_back(count, size)
        if waiting.ended_with is not None:
            waiting.lacks_some = True
        elif had_all:
            self._waiting.put_back(waiting)

    def _wants_messages(self) -> bool:
        return bool(self._waiting)

    def _sweep(self, now: Now) -> None:
        self._pinning.look(self.config, now)
        if self._waiting.wake_ns > now.mono_ns:
            return
        is_due = any(waiting.deadline_ns <= now.mono_ns for waiting in self._waiting)
        for waiting in self._waiting.remove_if(lambda waiting: waiting.expires_at_ns <= now.mono_ns):
            self._last_active_ns = now.mono_ns
            self._out.sends.append(end_of(waiting, 408, TIMEOUT))
        if is_due:
            self._end_no_wait()
        for waiting in self._waiting:
            if waiting.heartbeat_at_ns <= now.mono_ns:
                waiting.heartbeat_at_ns = now.mono_ns + waiting.request.heartbeat_ns
                alive = heartbeat_status(self.delivered_consumer, self.delivered_stream)
                self._out.sends.append(StatusMessage(waiting.reply, alive))
        self._waiting.rest()

    def _rest(self, _now: Now) -> bool:
        self._end_no_wait()
        return False

    def _deliver(self, now: Now) -> bool:
        if not self._waiting:
            return False
        if self.config.priority_policy is not PriorityPolicy.NONE:
            return self._deliver_by_policy(now)
        runs: dict[bytes, Run] = {}
        listening: set[bytes] = set()
        self._is_drained = False
        if self.extensions.key_order is None:
            budget = self._deliver_in_one_go(listening, now)
        else:
            budget = DELIVERIES_PER_STEP_MAX
            self._take_ahead(min(self._waiting.requested, budget), now)
        if not self._waiting:
            return False
        if self._is_drained:  # the common case, and the fast one: what follows would find nothing
            self._end_no_wait()
            return False
        exhausted = False
        while budget and (waiting := self._next_waiting(listening)) is not None:
            found = self._next_seq(now)
            if found is None:
                exhausted = not self._is_at_ack_limit() and self._held_until_ns == NEVER_NS
                break
            budget -= self._serve_head(runs, waiting, found, now)
        for run in runs.values():
            self._send(run)
        if exhausted:
            self._end_no_wait()
        return not budget and bool(self._waiting)

    def _deliver_by_policy(self, now: Now) -> bool:
        """Deliver to the requests that the priority group's policy names, one message at a time.

        The message is known before the request is chosen: no client is pinned while there is nothing to deliver.
        """
        runs: dict[bytes, Run] = {}
        budget = DELIVERIES_PER_STEP_MAX
        exhausted = False
        while budget and self._waiting:
            found = self._next_seq(now)
            if found is None:
                exhausted = not self._is_at_ack_limit() and self._held_until_ns == NEVER_NS
                break
            waiting = self._choice.next(
                self.config,
                self._waiting,
                available=self._left + found[1],
                unacked=len(self.pending),
                refuse=lambda refused: self._end(runs, refused, 423, WRONG_PIN),
                now=now,
            )
            if waiting is None:
                exhausted = True
                break
            budget -= self._serve_head(runs, waiting, found, now)
        for run in runs.values():
            self._send(run)
        if exhausted:
            self._end_no_wait()
        return not budget and bool(self._waiting)

    def _serve_head(self, runs: dict[bytes, Run], waiting: Waiting, found: tuple[int, bool], now: Now) -> int:
        """Give the message found to the request at the head; returns 0 when it is too large for that, which ends it."""
        seq, redelivery = found
        size = self._size_for(waiting, seq, redelivery=redelivery)
        if not waiting.admits(size):
            self._waiting.drop_head()
            self._end(runs, waiting, 409, TOO_LARGE)
            return 0
        run = runs.setdefault(waiting.reply, Run(waiting.reply, self._pin_id()))
        self._take(run, seq, now, redelivery=redelivery, size=size, request=waiting)
        waiting.take(1, size, now.mono_ns)
        self._waiting.advance()
        return 1

    def _deliver_in_one_go(self, listening: set[bytes], now: Now) -> int:
        """Serve requests from new messages without looking at each; returns what is left of the step's budget.

        What needs a look at single messages is left to the caller: redeliveries, the rest that does not go round, and a
        message that is too large for a request.
        """
        budget = DELIVERIES_PER_STEP_MAX
        while budget and self._pace.is_free and (waiting := self._next_waiting(listening)) is not None:
            if self._next_redelivery() is not None:
                break
            count = self._serve_one(waiting, budget, now) if len(self._waiting) == 1 else self._serve_all(budget, now)
            if not count:
                break
            budget -= count
            if self._is_drained or not self._waiting:
                break
        return budget

    def _serve_one(self, waiting: Waiting, budget: int, now: Now) -> int:
        """Deliver to the only request what it may get; returns how many messages."""
        wanted = min(waiting.remaining, budget)
        seqs, size = self._choose_many(wanted), 0
        if not seqs:
            return 0
        if waiting.request.max_bytes:
            count, size, last_size = self._measure(seqs, waiting.bytes_left + 1)
            if size > waiting.bytes_left:
                count, size = count - 1, size - last_size
            seqs = seqs.part(0, count)
            if not seqs:
                return 0
        self._send_new((waiting.reply,), seqs, now, requests=(waiting,), size=size)
        self._is_drained = len(seqs) < wanted and not size and not self._is_at_ack_limit()
        waiting.take(len(seqs), size, now.mono_ns)
        if not waiting.remaining:
            self._waiting.drop_head()
        return len(seqs)

    def _serve_all(self, budget: int, now: Now) -> int:
        """Deliver to all requests in turn, as far as every one gets as many; returns how many messages."""
        everyone = list(self._waiting)
        rounds = min(budget // len(everyone), *(waiting.remaining for waiting in everyone))
        if not rounds or any(
            waiting.request.max_bytes or not self._has_interest(waiting.reply) for waiting in everyone
        ):
            return 0
        seqs = self._choose_many(rounds * len(everyone))
        rounds = len(seqs) // len(everyone)
        if not rounds:
            return 0
        seqs = seqs.part(0, rounds * len(everyone))
        self._send_new([waiting.reply for waiting in everyone], seqs, now, requests=everyone)
        for waiting in everyone:
            waiting.take(rounds, 0, now.mono_ns)
        self._waiting.remove_if(lambda waiting: not waiting.remaining)
        return len(seqs)

    def _is_idle(self) -> bool:
        self._waiting.remove_if(lambda waiting: not self._has_interest(waiting.reply))
        return not self._waiting and not self.pending.is_awaiting

    def _wake_ns(self, now: Now) -> int | None:
        wake_ns = super()._wake_ns(now)
        wake_ns = min(NEVER_NS if wake_ns is None else wake_ns, self._waiting.wake_ns, self._pinning.ends_ns)
        stored_seq = self._selector.last_seq
        if any(waiting.behind_seq > stored_seq for waiting in self._waiting):
            wake_ns = min(wake_ns, now.mono_ns + BEHIND_LOOK_NS)
        return None if wake_ns == NEVER_NS else wake_ns

    # --- inside

    def _follow_policy(self) -> None:
        policy = self.config.priority_policy
        self._waiting.order(is_sorted=policy is PriorityPolicy.PRIORITIZED)
        if policy is not PriorityPolicy.PINNED_CLIENT:
            self._pinning.end()

    def _pin_id(self) -> str | None:
        """The pin that deliveries name; None where none can be."""
        return self._pinning.id if self.config.priority_policy is PriorityPolicy.PINNED_CLIENT else None

    def _limit_broken(self, request: PullRequest) -> str:
        """The excess of a request, as the text of its refusal; empty when it is within the limits."""
        config = self.config
        if 0 < config.max_batch < request.batch:
            return f"Exceeded MaxRequestBatch of {config.max_batch}"
        if 0 < config.max_expires < request.expires_ns:
            return f"Exceeded MaxRequestExpires of {format_duration(config.max_expires)}"
        if 0 < config.max_bytes < request.max_bytes:
            return f"Exceeded MaxRequestMaxBytes of {config.max_bytes}"
        return ""

    def _make_room(self, now: Now) -> bool:
        """Drop requests that have expired or lost their subscriber; True when that made room."""
        self._waiting.remove_if(
            lambda waiting: waiting.expires_at_ns <= now.mono_ns or not self._has_interest(waiting.reply)
        )
        return len(self._waiting) < self._waiting_max

    @property
    def _waiting_max(self) -> int:
        asked = self.config.max_waiting
        return min(asked, WAITING_MAX) if asked > 0 else WAITING_MAX

    def _is_spoken_for(self) -> bool:
        """True when the requests in the queue that have a subscriber want more than there is."""
        if not self._waiting:
            return False
        available = self._selector.num_pending(self.delivered_stream) + self.pending.queued
        if not 0 < available < self._waiting.requested:
            return False
        self._waiting.remove_if(lambda waiting: not self._has_interest(waiting.reply))
        return available < self._waiting.requested

    def _next_waiting(self, listening: set[bytes]) -> Waiting | None:
        """The request to serve, with a subscriber; interest is checked once per request and step."""
        while (waiting := self._waiting.head()) is not None:
            if waiting.reply in listening or self._has_interest(waiting.reply):
                listening.add(waiting.reply)
                return waiting
            self._waiting.drop_head()
        return None

    def _size_for(self, waiting: Waiting, seq: int, *, redelivery: bool) -> int:
        """The size of a message against the request's max_bytes; not worked out when there is no such limit."""
        if not waiting.request.max_bytes:
            return 0
        return self._size_of(seq, redelivery=redelivery)

    def _end(self, runs: dict[bytes, Run], waiting: Waiting, code: int, text: bytes) -> None:
        """Tell the client that its request is over, behind what it got from it."""
        if waiting.reply in runs:
            self._send(runs.pop(waiting.reply))
        self._out.sends.append(end_of(waiting, code, text))

    def _end_no_wait(self) -> None:
        """There is nothing left: requests that do not wait are over."""
        if not any(waiting.request.no_wait for waiting in self._waiting):
            return
        stored_seq = self._selector.last_seq  # what a client has published before it asks is not "nothing"
        over = self._waiting.remove_if(
            lambda waiting: (
                waiting.request.no_wait
                and (waiting.delivered > 0 or not waiting.request.expires_ns)
                and waiting.behind_seq <= stored_seq
            )
        )
        for waiting in over:
            self._out.sends.append(end_of(waiting, 404, NO_MESSAGES))

    def _refuse(self, reply: bytes, code: int, text: str) -> None:
        self._out.sends.append(StatusMessage(reply, message.status(code, text.replace("\n", " ").encode())))
