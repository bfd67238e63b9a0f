"""One consumer on the leader: performs what its core wants, in order, when it may.

A replicated consumer's sends wait in a queue for the commit of their step's commands; a step without commands waits
behind the steps before it, so a status never overtakes a message. A consumer with one replica sends at once: losing
the record of a delivery can only lead to another delivery.

A message may be gone from the stream when its commit comes (limits, age, a delete). What the core spent on it is given
back in the same turn, and spent on the next one. Where that happens once it happens again, and a reader at the tail of
a full stream would never get a message that stays long enough: so as long as messages go on their way, those that are
chosen are copied, and the copies are sent, as nats-server does with all.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.consumers.dead_letters import DeadLetters
from jetraft.cluster.consumers.effects import Now, StatusMessage
from jetraft.cluster.consumers.priorities import new_pin_id
from jetraft.cluster.consumers.pull import STATUS_SHUTDOWN, PullConsumer
from jetraft.cluster.consumers.push import PushConsumer
from jetraft.cluster.consumers.rate_limiter import BURST_BYTES
from jetraft.cluster.consumers.samples import publish_samples
from jetraft.cluster.consumers.selector import Selector
from jetraft.cluster.state.commands import Dropped, GaveUp
from jetraft.store.model.config import AckPolicy
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.dead_letter import MAX_DELIVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.consumers.core import ConsumerCore
    from jetraft.cluster.consumers.effects import ConsumerEffects, CoreStatistics
    from jetraft.cluster.consumers.runner_port import RunnerPort
    from jetraft.cluster.ports import DeliveryRun, MessageSource, StoredLike, TimerHandle
    from jetraft.store.stream._runs import Runs
    from jetraft.store.stream.consumer_state import ConsumerState

DELETED = "Unacknowledged message was deleted"  # consumer.go, ackTermUnackedLimitsReason
STEPS_COPIED: Final = 16  # after one that lost messages: retention removes a few at a time
NO_COPIES: Final[Mapping[int, StoredLike]] = {}
STATUS_DELETED = b"Consumer Deleted"
STATUS_LEADER = b"Leadership Change"


@attrs.define(eq=False)
class _Outgoing:
    """The sends of one step, and whether they may leave."""

    sends: list[DeliveryRun | StatusMessage]
    is_committed: bool
    copies: dict[int, StoredLike] = attrs.Factory(dict)
    copied_bytes: int = 0


@attrs.frozen(slots=True)
class _Copies:
    """Messages to be sent, whether the stream has them still or not. Implements MessageSource."""

    copies: dict[int, StoredLike]
    source: MessageSource

    def load(self, seq: int) -> StoredLike | None:
        return self.copies.get(seq) or self.source.load(seq)


class ConsumerRunner:
    """See the module."""

    def __init__(self, dispatcher: RunnerPort, state: ConsumerState) -> None:
        self._dispatcher = dispatcher
        self.state = state
        self._outgoing: deque[_Outgoing] = deque()
        self._timer: TimerHandle | None = None
        self._timer_ns = 0
        self._ended = False
        self._is_leaving = False  # its deletion is proposed: no client uses it
        self._steps_to_copy = 0  # because messages have gone from the stream between their choice and their commit
        self._is_short = False  # what was spent on such ones was given back: the next step spends it
        self._holds = 0  # resets on their way: what would be decided now would be written behind them
        self.core = make_core(dispatcher, state)
        self.initial: CoreStatistics | None = None  # before a first delivery that this leader decides
        self._watched = b""  # the deliver subject whose listeners are watched
        self._watch = 0
        self._dead_letters: DeadLetters | None = None  # None: it has not given up anything in this term

    def start(self) -> None:
        """Watch who listens; the caller steps it."""
        self._watch_listeners()
        self._hand_on()

    @property
    def takes_acks(self) -> bool:
        """False where nothing is acknowledged in this way: as in nats-server an ack finds no responder there."""
        return self.core.config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL)

    @property
    def sends_at_once(self) -> bool:
        """True when a send need not wait for the commit of its delivery."""
        return sends_at_once(self._dispatcher, self.core)

    @property
    def is_held(self) -> bool:
        """True while a reset is on its way: nothing is delivered, and no ack is heard."""
        return self._holds > 0

    def hold(self) -> None:
        """A reset is proposed; `release` follows when its outcome is known."""
        self._holds += 1

    def release(self) -> None:
        """The outcome of a reset is known; the last of several that cross each other lets the consumer go on."""
        self._holds -= 1
        self.step(self._dispatcher.now())

    def step(self, now: Now) -> None:
        """Let the core deliver what it can, and perform what it wants.

        A step that meets damage is given up half done: nothing of it is in the log, and leadership ends with the turn.
        """
        if self._ended or self.is_held:
            return
        try:
            effects = self.core.step(now)
        except StoreCorrupt as error:
            self._dispatcher.damaged(error)
            return
        self.perform(effects)
        self._dispatcher.set_hungry(self.state.name, is_hungry=self.core.is_hungry)

    def perform(self, effects: ConsumerEffects) -> None:
        """Hand commands to the log and sends to the outbox."""
        gives_up = self._tell(effects)
        must_wait = bool(effects.commands and effects.sends) and not self.sends_at_once
        outgoing = None
        if must_wait or (self._outgoing and effects.sends):
            outgoing = _Outgoing(effects.sends, is_committed=not must_wait)
            self._outgoing.append(outgoing)
            if self._steps_to_copy:
                self._copy(outgoing)
        else:
            self._send(effects.sends, self._dispatcher.source, NO_COPIES)
        if not effects.commands:
            self._confirm(effects.confirmations)
        elif effects.confirmations or must_wait or gives_up:
            self._dispatcher.propose(effects.commands, partial(self._committed, outgoing, effects.confirmations))
        else:
            self._dispatcher.note(effects.commands)
        if effects.has_resumed:
            stream, until_ns = self._dispatcher.stream, self.state.config.pause_until
            self._dispatcher.site.advisories.paused(stream, self.state.name, until_ns, is_paused=False)
        self._go_on(effects)

    def _go_on(self, effects: ConsumerEffects) -> None:
        """Step again when the core wants it; or delete the consumer, once: members may be away for long."""
        if self._is_leaving:
            return
        if effects.is_abandoned:
            self._is_leaving = True
            self._dispatcher.abandon(self.state.name)
        elif self._is_short and not self._outgoing:
            self._is_short = False  # what was chosen cannot be read: no commit comes, the next turn goes on
            self._set_timer(0)
        else:
            self._set_timer(effects.wake_ns)

    def _tell(self, effects: ConsumerEffects) -> bool:
        """Say what the step has led to beside deliveries; True when something is to be handed on."""
        site, stream, gives_up = self._dispatcher.site, self._dispatcher.stream, False
        for command in effects.commands:
            if type(command) is GaveUp:
                gives_up = True
            if type(command) is Dropped or (type(command) is GaveUp and command.cause == MAX_DELIVER):
                self._tell_given_up(command)
        for seq, consumer_seq, count in effects.missing:
            places = {"consumer_seq": consumer_seq, "stream_seq": seq, "deliveries": count}
            site.advisories.terminated(stream, self.state.name, **places, reason=DELETED)
        for reply, hdr in effects.refusals:
            site.outbox.send(reply, hdr=hdr)
        if effects.samples:
            publish_samples(site, stream, self.core, effects.samples)
        for event in effects.pins:
            site.advisories.pin_changed(stream, self.state.name, event.group, pin_id=event.pin_id, reason=event.reason)
        return gives_up

    def _tell_given_up(self, command: Dropped | GaveUp) -> None:
        """Advise that messages were delivered as often as allowed."""
        advisories, deliveries = self._dispatcher.site.advisories, self.state.config.max_deliver
        for seq in command.seqs:
            advisories.given_up(self._dispatcher.stream, self.state.name, seq, deliveries)

    def _hand_on(self) -> None:
        """Send what was given up to the stream for that."""
        if self.state.dead:
            if self._dead_letters is None:
                self._dead_letters = DeadLetters(self._dispatcher, self.state, self.handed_on)
            self._dead_letters.look()

    def handed_on(self, seqs: Runs) -> None:
        """Another stream has the dead letters of these: there is room for as many deliveries."""
        self.core.handed_on(seqs)
        self.step(self._dispatcher.now())

    def figures(self) -> CoreStatistics:
        """The position of the consumer."""
        now = self._dispatcher.now()
        if self.core.forget_missing(now) or self.core.is_looking:
            self.step(now)
        return self.core.statistics()

    def updated(self) -> None:
        """The configuration has changed, or the consumer was reset."""
        self.core.configure(self.state.config, Selector(self.state, self._dispatcher.messages))
        self._watch_listeners()
        self._hand_on()
        self.step(self._dispatcher.now())

    def reset(self) -> None:
        """The consumer starts again, and those who wait go on waiting. Acks of deliveries of before count no more."""
        before, self.core = self.core, make_core(self._dispatcher, self.state)
        self.core.begin_again(before)
        self.initial = self.core.statistics()
        self.step(self._dispatcher.now())

    def end(self, reason: bytes) -> None:
        """Leadership is over or the consumer is gone: tell who waits, drop the rest."""
        if self._ended:
            return
        self._ended = True
        self._cancel_timer()
        self._unwatch()
        if self._dead_letters is not None:
            self._dead_letters.end()
        while self._outgoing:
            outgoing = self._outgoing.popleft()
            self._dispatcher.copies_room_bytes += outgoing.copied_bytes
            self.core.recalled(outgoing.sends)
        self._send(self.core.close(reason).sends, self._dispatcher.source, NO_COPIES)

    def _committed(self, outgoing: _Outgoing | None, confirmations: list[bytes]) -> None:
        """A step's commands are applied: its sends may leave, behind those of the steps before it."""
        if self._ended:
            return
        if outgoing is not None:
            outgoing.is_committed = True
        while self._outgoing and self._outgoing[0].is_committed:
            self._leave(self._outgoing.popleft())
        self._confirm(confirmations)
        self._hand_on()
        if self._is_short:
            self._is_short = False
            self.step(self._dispatcher.now())

    def _leave(self, outgoing: _Outgoing) -> None:
        """Send what has waited."""
        source = self._dispatcher.source
        if not outgoing.copies:
            self._send(outgoing.sends, source, NO_COPIES)
            return
        exists = self._dispatcher.messages.is_live
        is_needed = not all(exists(seq) for seq in outgoing.copies)
        self._steps_to_copy = STEPS_COPIED if is_needed else max(0, self._steps_to_copy - 1)
        self._send(outgoing.sends, _Copies(outgoing.copies, source), outgoing.copies)
        self._dispatcher.copies_room_bytes += outgoing.copied_bytes

    def _copy(self, outgoing: _Outgoing) -> None:
        """Copy messages that are to be sent, the next ones first, as far as there is room."""
        try:
            for run in outgoing.sends:
                for seq in () if isinstance(run, StatusMessage) else run.stream_seqs:
                    found = self._dispatcher.messages.load(seq)
                    if found is None:
                        continue
                    size = len(found.subject) + len(found.hdr) + len(found.payload)
                    if size > self._dispatcher.copies_room_bytes:
                        return
                    outgoing.copies[seq] = found
                    outgoing.copied_bytes += size
                    self._dispatcher.copies_room_bytes -= size
        except StoreCorrupt as error:
            self._dispatcher.damaged(error)

    def _send(
        self, sends: list[DeliveryRun | StatusMessage], source: MessageSource, copies: Mapping[int, StoredLike]
    ) -> None:
        outbox = self._dispatcher.site.outbox
        for send in sends:
            if not isinstance(send, StatusMessage):
                self._deliver(send, source, copies)
            elif (status := self.core.last_word(send)) is not None:
                outbox.send(status.to, reply=status.reply, hdr=status.hdr)
            else:
                self._is_short = True

    def _deliver(self, run: DeliveryRun, source: MessageSource, copies: Mapping[int, StoredLike]) -> None:
        """A message that cannot be read is not sent; it counts as delivered, and is delivered again like all else."""
        try:
            found = self._dispatcher.site.outbox.deliver(run, source)
        except StoreCorrupt as error:
            self._dispatcher.damaged(error)
            return
        if found < len(run.stream_seqs):
            self.core.unsent(run, copies)
            self._steps_to_copy, self._is_short = STEPS_COPIED, True

    def _confirm(self, replies: list[bytes]) -> None:
        for reply in replies:
            self._dispatcher.site.outbox.send(reply)

    def _set_timer(self, wake_ns: int | None) -> None:
        """Keep one timer, not later than the core asks.

        An earlier one stays and leads to a step for nothing: cheaper than a new timer for every step.
        """
        if wake_ns is None or (self._timer is not None and self._timer_ns <= wake_ns):
            return
        self._cancel_timer()
        self._timer_ns = wake_ns
        self._timer = self._dispatcher.site.timers.call_at(wake_ns, self._woken)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_listeners(self) -> None:
        """Step a push consumer when its deliver subject gains or loses its subscribers."""
        subject = self.state.config.deliver_subject.encode()
        if subject == self._watched:
            return
        self._unwatch()
        if subject:
            self._watch = self._dispatcher.site.outbox.watch_interest(subject, self._listeners_changed)
            self._watched = subject

    def _unwatch(self) -> None:
        if self._watched:
            self._dispatcher.site.outbox.unwatch_interest(self._watch)
            self._watched = b""

    def _listeners_changed(self) -> None:
        self.step(self._dispatcher.now())

    def _woken(self) -> None:
        self._timer = None
        self.step(self._dispatcher.now())


def sends_at_once(dispatcher: RunnerPort, core: ConsumerCore) -> bool:
    """True when what a consumer delivers need not be in the log before it leaves."""
    config, extensions = core.config, core.extensions
    if extensions.strict_acks or extensions.key_order is not None:
        return False  # the next leader, or this one after a crash, has to know which delivery is the newest
    if config.ack_policy is AckPolicy.NONE and (config.direct or dispatcher.messages.retains_by_acks):
        # Another stream reads by it, and keeps its own position; or the delivery acknowledges, and the stream has the
        # message no longer when that is committed.
        return True
    return config.mem_storage or (config.num_replicas or dispatcher.stream_replicas) == 1


def make_core(dispatcher: RunnerPort, state: ConsumerState) -> PullConsumer | PushConsumer:
    """The leader's working copy of a consumer.

    Where deliveries are in the log before they leave, an ack of one that the state does not know is of before a reset.
    """
    site = dispatcher.site
    make = PushConsumer if state.config.deliver_subject else partial(PullConsumer, new_id=partial(new_pin_id, site.rng))
    core = make(
        state,
        Selector(state, dispatcher.messages),
        stream=dispatcher.stream,
        has_interest=site.outbox.has_interest,
        now=dispatcher.now(),
        burst_bytes=dispatcher.message_bytes_max or BURST_BYTES,
    )
    if not sends_at_once(dispatcher, core):
        core.takes_acks_ahead = False
    return core


def needs_runner(state: ConsumerState) -> bool:
    """True when something may happen to a consumer before a client asks for it: the others get a runner then."""
    config = state.config
    by_itself = config.deliver_subject or config.inactive_threshold or config.pause_until
    return bool(by_itself or len(state.pending) or state.dead)


__all__ = ["STATUS_DELETED", "STATUS_LEADER", "STATUS_SHUTDOWN", "ConsumerRunner", "Now", "make_core", "needs_runner"]
