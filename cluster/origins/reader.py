"""Reads one origin, for one term of leadership: asks for a consumer, takes what it delivers, asks again when it breaks.

The shell around `Deliveries`. Each attempt has subjects of its own, so nothing of an earlier consumer is taken for
this one's. A failure is followed by another try after a wait that grows: there is always a timer. The error is shown in
the stream's info meanwhile, and named in the log.

A durable consumer (of an origin that removes what is acknowledged, or one that the configuration names) stays when the
reader ends, and is deleted only when nothing is to be read any more. What is applied is acknowledged to it by the
answers to its flow control requests. The subject of one that is named is listened to when it was reset, not before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.cluster.calls.unfinished import Unfinished
from jetraft.cluster.capture._capture import capture_at, captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.origins import asking
from jetraft.cluster.origins.deliveries import Arrived, Deliveries, FlowControl
from jetraft.store.model import errors
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import ALPHABET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamSource

log = logging.getLogger(__name__)

ANSWER_WAIT_NS: Final = 5 * NS_PER_S
SILENCE_NS: Final = 5 * asking.HEARTBEAT_NS
RETRY_NS: Final = NS_PER_S
RETRY_NS_MAX: Final = 10 * NS_PER_S
PATIENCE_NS: Final = 2 * NS_PER_S  # the leader of an origin may be moving
TOKEN_CHARS: Final = 8
WRONG_POLICY: Final = {"M": errors.MIRROR_CONSUMER_REQUIRES_ACK_FC, "S": errors.SOURCE_CONSUMER_REQUIRES_ACK_FC}
EARLY_BATCHES_MAX: Final = 1024  # that come before the answer: at most the consumer's first window


class Intake(Protocol):
    """The way of an origin's messages: into the log of the stream that this replica leads."""

    @property
    def position(self) -> int:
        """The origin's sequence up to which everything is proposed, or passed over."""

    @property
    def proposed_seq(self) -> int:
        """The stream's own last sequence, with what is proposed."""

    @property
    def applied_seq(self) -> int:
        """The stream's own last sequence, of what is applied."""

    def begins(self, answer: asking.Answer) -> bool:
        """The origin has a consumer for what follows the position; False: it is another origin, ask again."""

    def take_plain(self, batch: bytes, start: int, deliveries: Deliveries) -> int:
        """Propose those of a batch, from an offset on, that need no judging; returns the offset of the first left."""

    def take(self, messages: Sequence[Arrived]) -> ApiError | None:
        """Propose messages in this turn; an error: not all of them fit now, those above `position` come again."""


@attrs.frozen(kw_only=True, slots=True)
class OriginStatus:
    """The part of stream info about an origin. `active_ns` is the time since it was last heard of, -1 for never."""

    lag: int
    active_ns: int
    error: ApiError | None


class OriginReader:
    """One origin, one term."""

    def __init__(  # noqa: PLR0913  (what it works with)
        self,
        site: Site,
        source: StreamSource,
        intake: Intake,
        *,
        stream: str,
        letter: str,
        metadata: dict[str, str],
        caught_up: Callable[[], None] | None = None,
    ) -> None:
        """`letter` is M for a mirror, S for a source; `metadata` says to the origin's server who reads.

        `caught_up` is called once, when everything that the origin has is applied.
        """
        self.source = source
        self.intake = intake
        self._site = site
        self._stream = stream
        self._letter = letter
        self._metadata = metadata
        self._sinks: list[int] = []
        self._consumer = asking.consumer_name(site.account, stream, source, letter=letter)
        self._acks_by_flow = source.consumer is not None
        self._made = ""  # the consumer that the origin's server has made; empty before its answer
        self._deliveries: Deliveries | None = None  # None until the request is answered
        self._early: list[bytes] = []
        self._unanswered: Fifo[tuple[int, bytes, bytes]] = Fifo()  # (own sequence to be applied, reply, its headers)
        self._timer: TimerHandle | None = None
        self._heard_ns: int | None = None
        self._retry_ns = RETRY_NS
        self._lag = 0
        self._error: ApiError | None = None
        kind = "mirror" if letter == "M" else "source"
        self._unfinished = Unfinished(f"stream {site.account} > {stream}", patience_ns=PATIENCE_NS)
        self._named = f"its {kind} {source.name}"
        self._ended = False
        self._caught_up: Callable[[], None] | None = caught_up

    def start(self) -> None:
        """Ask for a consumer of what follows the position."""
        self._stop()
        outbox, named = self._site.outbox, self.source.consumer
        reply = b"$JSC.R." + self._token().encode()
        self._sinks = [outbox.add_sink(reply, self._on_answer, kind=SinkKind.REPLY)]
        self._arm(ANSWER_WAIT_NS)
        if named is not None:
            outbox.send(
                asking.reset_subject(self.source, named.name),
                reply=reply,
                hdr=asking.ASKING,
                origin=MessageOrigin.SERVER,
            )
            return
        deliver = asking.deliver_subject(self.source, self._stream, self._token(), letter=self._letter)
        self._sinks.append(outbox.capture_deliveries(deliver, self._on_batch))
        body = asking.create_body(
            self.source, self._consumer, deliver, last_seq=self.intake.position, metadata=self._metadata
        )
        outbox.send(
            asking.create_subject(self.source, self._consumer),
            reply=reply,
            hdr=asking.ASKING,
            payload=body,
            origin=MessageOrigin.SERVER,
        )

    def end(self, *, for_good: bool) -> None:
        """The term is over, or this origin is read no more, `for_good`."""
        self._ended = True
        self._stop()
        if for_good and self.source.consumer is None:  # there may be a durable one of an earlier term
            self._site.outbox.send(asking.delete_subject(self.source, self._consumer), origin=MessageOrigin.SERVER)

    def applied(self, last_seq: int) -> None:
        """The stream has come this far: answer what waits for that, so that the consumer goes on."""
        while self._unanswered and self._unanswered[0][0] <= last_seq:
            _, reply, hdr = self._unanswered.popleft()
            self._site.outbox.send(reply, hdr=hdr, origin=MessageOrigin.SERVER)
        has_all = self._deliveries is not None and not self._lag and last_seq >= self.intake.proposed_seq
        if has_all and self._caught_up is not None:
            caught_up, self._caught_up = self._caught_up, None
            caught_up()

    def status(self) -> OriginStatus:
        """For stream info."""
        heard_ns = self._heard_ns
        active_ns = -1 if heard_ns is None else max(0, self._site.clock.mono_ns() - heard_ns)
        return OriginStatus(lag=self._lag, active_ns=active_ns, error=self._error)

    # --- what arrives

    def _on_answer(self, batch: bytes) -> None:
        captured = next(captures(batch))
        if self._deliveries is not None:
            return
        answer = asking.read_answer(captured.hdr, captured.payload)
        named, error = self.source.consumer, answer.error
        if error is None and named is not None and not answer.acks_by_flow:
            error = WRONG_POLICY[self._letter].with_values()
        if error is not None:
            self._fail(error)
            return
        self._made, self._acks_by_flow = answer.consumer, answer.acks_by_flow
        if not self.intake.begins(answer):
            self.start()
            return
        self._error, self._retry_ns = None, RETRY_NS
        self._tell({})
        if named is not None:
            self._sinks.append(self._site.outbox.capture_deliveries(named.deliver_subject.encode(), self._on_batch))
        self._lag = answer.num_pending
        self._deliveries = Deliveries(self.intake.position)
        early, self._early = self._early, []
        self._hear()
        self._arm(SILENCE_NS)
        for one in early:
            self._on_batch(one)
        self.applied(self.intake.applied_seq)

    def _on_batch(self, batch: bytes) -> None:
        if self._ended:
            return
        if self._deliveries is None:
            if len(self._early) < EARLY_BATCHES_MAX:  # what is left out is missed, and asked for again
                self._early.append(batch)
            return
        self._hear()
        if not self._take(batch, self._deliveries):
            return
        self._lag = self._deliveries.num_pending
        if self._deliveries.is_broken:
            self.start()
        else:
            self.applied(self.intake.applied_seq)

    def _take(self, batch: bytes, deliveries: Deliveries) -> bool:
        """Hand the messages of a batch on, in order; False when not all of them fit."""
        arrived: list[Arrived] = []
        position = 0
        while position < len(batch):
            if not arrived:
                position = self.intake.take_plain(batch, position, deliveries)
                if position == len(batch):
                    break
            captured = capture_at(batch, position)
            position = captured.end
            found = deliveries.take(captured)
            if isinstance(found, FlowControl):
                if not self._store(arrived):
                    return False
                arrived = []
                hdr = deliveries.stored_hdr() if self._acks_by_flow else b""
                self._unanswered.append((self.intake.proposed_seq, found.reply, hdr))
            elif found is not None:
                arrived.append(found)
        return self._store(arrived)

    def _store(self, arrived: Sequence[Arrived]) -> bool:
        error = self.intake.take(arrived) if arrived else None
        if error is not None:
            self._fail(error)
        return error is None

    # --- inside

    def _hear(self) -> None:
        self._heard_ns = self._site.clock.mono_ns()

    def _fail(self, error: ApiError) -> None:
        """Try again after a while."""
        self._stop()
        self._error = error
        self._tell({self._named: error.description})
        self._arm(self._retry_ns)
        self._retry_ns = min(self._retry_ns * 2, RETRY_NS_MAX)

    def _tell(self, stuck: Mapping[str, str]) -> None:
        _, line = self._unfinished.looked(stuck, self._site.clock.mono_ns())
        if line is not None:
            log.info("%s", line)

    def _arm(self, after_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._site.timers.call_at(self._site.clock.mono_ns() + after_ns, self._due)

    def _due(self) -> None:
        """The wait is over: go on waiting when something was heard in it, else ask again."""
        self._timer = None
        silent_ns = self._site.clock.mono_ns() - (self._heard_ns or 0)
        if self._deliveries is not None and silent_ns < SILENCE_NS:
            self._arm(SILENCE_NS - silent_ns)
            return
        if self._error is None:
            self._tell({self._named: "it does not answer"})
        self.start()

    def _stop(self) -> None:
        """End the consumer, if there is one that is not durable, and forget what it was asked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sinks, self._sinks = self._sinks, []
        for handle in sinks:
            self._site.outbox.remove_sink(handle)
        made, self._made = self._made, ""
        if made and not self._acks_by_flow:
            self._site.outbox.send(asking.delete_subject(self.source, made), origin=MessageOrigin.SERVER)
        self._deliveries, self._early = None, []
        self._unanswered.clear()

    def _token(self) -> str:
        return "".join(self._site.rng.choice(ALPHABET) for _ in range(TOKEN_CHARS))
