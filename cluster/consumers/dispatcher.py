"""The consumers of a stream that this node leads: routes pulls and acks to them, and their commands to the log.

One dispatcher per term of leadership. It captures three families of subjects, and steps a consumer when something
happened to it: a pull, an ack, a timer, or new messages for one that waits for them. Commands of all consumers stepped
in one call become one entry. Commands whose commit no client waits for (plain acks, deliveries that have left already)
wait while an entry of the dispatcher is in flight, and where no message hangs on them for NOTED_REST_NS after the last
one, and go together: a hundred entries a second, not one a turn. (nats-server keeps them in memory longer before it
writes them.)

A consumer has a runner from the moment in which something can happen to it: a client asks for it, an ack is awaited, a
listener or a threshold is watched. The others are their replicated state and nothing else, so a stream may have a
hundred thousand, and a new leader of it begins at once.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.capture._capture import capture_at, captures
from jetraft.cluster.capture.reach import SinkKind
from jetraft.cluster.consumers._acks import sort_acks
from jetraft.cluster.consumers.ack_batching import AckBatch
from jetraft.cluster.consumers.ack_publish import asked_by, note_outcome
from jetraft.cluster.consumers.acknowledging import NONE_NAMED
from jetraft.cluster.consumers.acks import AckKind, named_in, parse_ack_body, parse_ack_subject, tell_refused
from jetraft.cluster.consumers.consumer_infos import figures_at_rest
from jetraft.cluster.consumers.crowd import HUNGRY_AT_ONCE_MAX, Crowd
from jetraft.cluster.consumers.effects import Now
from jetraft.cluster.consumers.pending import NEVER_NS
from jetraft.cluster.consumers.pull import PullConsumer
from jetraft.cluster.consumers.push import PushConsumer
from jetraft.cluster.consumers.runner import (
    STATUS_DELETED,
    STATUS_LEADER,
    STATUS_SHUTDOWN,
    ConsumerRunner,
    make_core,
    needs_runner,
)
from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_deletion import deletion_of_consumer
from jetraft.cluster.state.headers import parse_seq
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.model import message
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.config import RetentionPolicy
from jetraft.store.model.events import CONSUMER_EXPIRED
from jetraft.store.model.extensions import consumer_extensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jetraft.cluster.capture._capture import Capture
    from jetraft.cluster.consumers.ack_publish import AckPublisher
    from jetraft.cluster.consumers.effects import CoreStatistics
    from jetraft.cluster.ports import MessageSource, TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.port import StoreCorrupt
    from jetraft.store.stream._runs import Runs
    from jetraft.store.stream.consumer_state import ConsumerState

COMMANDS_NOTED_MAX: Final = 1000  # more of them are proposed without waiting
STARTED_AT_ONCE_MAX: Final = 16  # consumers of a new leader, 90 us each and more; the others in slices of turns
COPIES_BYTES_MAX: Final = 8 << 20  # of one stream's messages, copied because they are about to be removed
NOTED_REST_NS: Final = 10 * NS_PER_MS  # between entries that no client waits for: a crash redelivers that much more


@attrs.frozen(kw_only=True, slots=True)
class DispatcherStatistics:
    """A frozen look at a dispatcher."""

    consumers: int
    running: int  # those with a runner: used in this term, or with something to wait for
    hungry: int  # those that a new message would be delivered to at once
    commands_noted: int
    entries_in_flight: int
    stale_acks: int  # refused in this term


class ConsumerDispatcher:
    """See the module."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine, publisher: AckPublisher) -> None:
        """`publisher` is for acks that publish."""
        assert machine.config is not None
        self.site = site
        self.stream = machine.config.name
        self.messages = machine
        self.source: MessageSource = machine.store
        self._group = group
        self._publisher = publisher
        self._machine = machine
        self._notes = AckBatch()
        self._committed: list[Callable[[], None]] = []
        self._put_off: list[tuple[dict[bytes, Runs], Now, bytes]] = []  # plain acks of this turn, not noted yet
        self._is_urgent = False  # a client waits for the commit of these commands
        self._in_flight = 0  # entries proposed, not yet applied
        self._awaited_in_flight = 0  # of those, the ones for whose commit a client waits
        self._is_pump_put_off = False  # until one of these is applied
        self.copies_room_bytes = COPIES_BYTES_MAX  # what runners may still copy of messages on their way
        self.crowd = Crowd()
        self._rest_ends_ns = 0
        self._rest: TimerHandle | None = None
        self._depth = 0
        self._hungry: dict[str, ConsumerRunner] = {}
        self._runners: dict[str, ConsumerRunner] = {}
        self._unstarted: Iterator[ConsumerState] = iter(())  # which may need a runner, of a leader that has just begun
        self._is_ended = False
        self._sinks: list[int] = []
        self._strict: set[bytes] = set()  # consumers whose plain acks are looked at one by one

    def start(self) -> None:
        """Serve the consumers that there are, and those to come."""
        states = list(self._machine.consumers.values())
        for state in states:
            if state.config.metadata:
                self._note_strictness(state)
        name, outbox = self.stream, self.site.outbox
        self._sinks = [
            outbox.add_sink(f"$JS.API.CONSUMER.MSG.NEXT.{name}.*".encode(), self.on_pulls, kind=SinkKind.API),
            outbox.add_sink(f"$JS.ACK.{name}.>".encode(), self.on_acks, kind=SinkKind.ACK),
            outbox.add_sink(f"$JS.FC.{name}.>".encode(), self.on_flow, kind=SinkKind.ACK),
        ]
        self._unstarted = iter(states)
        for state in islice(self._unstarted, STARTED_AT_ONCE_MAX):
            self._start_one(state)
        self._step(list(self._runners.values()), self.now())
        if len(states) > STARTED_AT_ONCE_MAX and not self.site.work.add(self, self._start_more):
            self._start_more(NEVER_NS)

    def _start_one(self, state: ConsumerState) -> ConsumerRunner | None:
        """Give a consumer a runner that needs one, unless it is gone or a client was earlier."""
        is_known = self._machine.consumers.get(state.name) is state and state.name not in self._runners
        return self._run(state) if is_known and needs_runner(state) else None

    def _start_more(self, until_ns: int) -> bool:
        """Start the others, in slices of turns: a client that asks for one of them earlier finds it."""
        for state in self._unstarted:
            if self._is_ended:
                return False
            runner = self._start_one(state)
            if runner is not None:
                self._step([runner], self.now())
                if self.site.clock.mono_ns() >= until_ns:
                    return True
        return False

    def _note_strictness(self, state: ConsumerState) -> None:
        if consumer_extensions(state.config).strict_acks:
            self._strict.add(state.name.encode())
        else:
            self._strict.discard(state.name.encode())

    def _run(self, state: ConsumerState) -> ConsumerRunner:
        runner = self._runners[state.name] = ConsumerRunner(self, state)
        runner.start()
        return runner

    @property
    def stream_replicas(self) -> int:
        """The stream's number of replicas: what a consumer inherits."""
        assert self._machine.config is not None
        return self._machine.config.num_replicas

    @property
    def message_bytes_max(self) -> int:
        """The stream's limit for the size of a message, 0 for none."""
        assert self._machine.config is not None
        return max(0, self._machine.config.max_msg_size)

    def now(self) -> Now:
        """This moment."""
        return Now(self.site.clock.mono_ns(), self.site.clock.unix_ns())

    def runner(self, name: str) -> ConsumerRunner | None:
        """The runner of the consumer of that name, made on first use."""
        found = self._runners.get(name)
        if found is None and (state := self._machine.consumers.get(name)) is not None:
            found = self._run(state)
        return found

    def figures(self, state: ConsumerState, *, initial: bool) -> CoreStatistics:
        """The state of a consumer, with `initial` as it was when this leader made it; it needs no runner for that."""
        runner = self._runners.get(state.name)
        if runner is None:
            return make_core(self, state).statistics() if needs_runner(state) else figures_at_rest(state, self.messages)
        return runner.initial if initial and runner.initial is not None else runner.figures()

    def statistics(self) -> DispatcherStatistics:
        """A frozen look."""
        return DispatcherStatistics(
            consumers=len(self._machine.consumers),
            running=len(self._runners),
            hungry=len(self._hungry),
            commands_noted=len(self._notes),
            entries_in_flight=self._in_flight,
            stale_acks=sum(runner.core.stale_acks for runner in self._runners.values()),
        )

    # --- what clients send

    def on_pulls(self, batch: bytes) -> None:
        """Pull requests of a turn."""
        now, touched = self.now(), {}
        taken_seq = self._machine.store.last_seq + max(0, self._publisher.messages_coming)
        for asked in captures(batch):
            name = asked.subject.rpartition(b".")[2].decode(errors="replace")
            runner = self.runner(name)
            if runner is None:
                self._nobody(asked.subject, asked.reply)
            elif isinstance(runner.core, PullConsumer):
                runner.core.pull(asked.payload, asked.reply, now, taken_seq=taken_seq)
                touched[name] = runner
                if self._put_off and runner.core.needs_acks(now):
                    self._settle()
            elif asked.reply:
                self.site.outbox.send(asked.reply, hdr=message.status(409, b"Consumer is push based"))
        self._step(touched.values(), now)

    def on_acks(self, batch: bytes) -> None:
        """Acks of a turn: plain ones in bulk, then the others one by one.

        Plain ones are put off until the turn's pulls are served, because who sends them waits for the next messages.
        """
        now, touched = self.now(), {}
        plain, others = sort_acks(batch, self._strict)
        if not self._put_off:
            self.site.outbox.later(self._settle)
        self._put_off.append((plain, now, batch))
        if not others:
            return
        self._settle()
        for start in others:
            name = self._answer(capture_at(batch, start), now)
            if name:
                touched[name] = self._runners[name]
        self._step(touched.values(), now)

    def on_flow(self, batch: bytes) -> None:
        """Answers to flow control requests: `$JS.FC.<stream>.<consumer>.<token>`."""
        now, touched = self.now(), {}
        for answered in captures(batch):
            name = answered.subject.split(b".")[3].decode(errors="replace")
            runner = self.runner(name)
            if runner is None or not runner.core.config.flow_control:
                self._nobody(answered.subject, answered.reply)
            elif isinstance(runner.core, PushConsumer):
                if not runner.is_held:  # an answer to what was asked before a reset
                    stored = message.get(answered.hdr, message.LAST_STREAM) or b""
                    runner.core.flow_answered(answered.subject, now, stored_seq=parse_seq(stored))
                touched[name] = runner
        self._step(touched.values(), now)

    def _settle(self) -> None:
        """Note the acks that were put off."""
        put_off, self._put_off = self._put_off, []
        for plain, now, batch in put_off:
            touched = []
            for consumer, seqs in plain.items():
                runner = self.runner(consumer.decode(errors="replace"))
                if runner is None or runner.is_held or not runner.takes_acks:
                    continue
                named = named_in(batch, consumer) if runner.core.names_count else NONE_NAMED
                runner.core.acknowledge(seqs, now, named=named)
                if runner.core.is_hungry or runner.core.has_samples:
                    touched.append(runner)
                else:
                    self.note(runner.core.take_commands())
            if touched:
                self._step(touched, now)

    def _answer(self, captured: Capture, now: Now) -> str:
        """One ack that is more than plain; returns its consumer, empty when there is none."""
        reply, body = captured.reply, captured.payload
        parsed = parse_ack_subject(captured.subject)
        name = "" if parsed is None else parsed.consumer.decode(errors="replace")
        runner = self.runner(name)
        if parsed is None or runner is None or not runner.takes_acks:
            self._nobody(captured.subject, reply)
            return ""
        if runner.is_held:
            return ""
        core = runner.core
        newest, allowed = core.is_newest(parsed), core.extensions.ack_publish
        asked = asked_by(captured, parsed, is_newest=newest, allowed=allowed) if captured.hdr else None
        if asked is not None:
            self.propose_noted()  # what acknowledges is a message: it comes behind what is noted
            note_outcome(core, parsed, self._publisher.publish_with_ack(asked), reply, now)
            return name
        ack, is_pending = parse_ack_body(body), parsed.stream_seq in runner.core.pending
        if not runner.core.answer(parsed, ack, reply, now):
            return name
        if ack.kind in (AckKind.NAK, AckKind.TERM) and is_pending:
            tell_refused(self.site.advisories, self.stream, name, parsed, ack)
        if ack.kind is AckKind.NEXT and isinstance(runner.core, PullConsumer):
            runner.core.pull(ack.body, reply, now)
        return name

    def _nobody(self, subject: bytes, reply: bytes) -> None:
        """There is no such consumer: answer as core NATS does without responders."""
        if reply:
            self.site.outbox.send(reply, hdr=message.status(503, b"", {b"Nats-Subject": subject}))

    # --- events from applying

    def pump(self) -> None:
        """The stream has changed: step the consumers that wait for messages.

        Many of them are stepped when their last deliveries are committed, however often the stream changes until then,
        or a little later (crowd.py). Of many, those for whom nothing is new are left alone.
        """
        if len(self._hungry) > HUNGRY_AT_ONCE_MAX:
            self._is_pump_put_off = self._awaited_in_flight > 0
            if not self._is_pump_put_off and self._is_crowd_due():
                self._step([runner for runner in self._hungry.values() if runner.core.has_news], self.now())
        elif self._hungry:
            self._step(list(self._hungry.values()), self.now())
        elif self._notes:
            self._flush()

    def _is_crowd_due(self) -> bool:
        coming = self._publisher.messages_coming if self.stream_replicas > 1 or self._strict else 0
        return self.crowd.is_due(len(self._hungry), last_seq=self._machine.store.last_seq, coming=coming)

    def created(self, state: ConsumerState) -> None:
        """A consumer exists: it may have messages at once."""
        self._note_strictness(state)
        if needs_runner(state):
            runner = self._run(state)
            runner.initial = runner.core.statistics()
            self._step([runner], self.now())

    def updated(self, state: ConsumerState, *, is_reset: bool) -> None:
        """A consumer has changed, or starts again."""
        self._note_strictness(state)
        runner = self._runners.get(state.name)
        if runner is not None:
            (runner.reset if is_reset else runner.updated)()
        elif needs_runner(state):
            runner = self._run(state)
            self._step([runner], self.now())

    def deleted(self, state: ConsumerState) -> None:
        """A consumer is gone: its requests end, and what waits to be said about it is not about its namesake."""
        self._notes.forget(state.name)
        self._hungry.pop(state.name, None)
        self._strict.discard(state.name.encode())
        runner = self._runners.pop(state.name, None)
        if runner is not None:
            runner.end(STATUS_DELETED)

    def purged(self, first_seq: int) -> None:
        """Nothing is left below a sequence: consumers need not wait for acks there."""
        now = self.now()
        for runner in self._runners.values():
            runner.core.purged_below(first_seq, now)

    def damaged(self, error: StoreCorrupt) -> None:
        """A message cannot be read: this replica stops at the end of the turn, and is repaired."""
        self._group.distrust(error)

    def end(self, reason: bytes = STATUS_LEADER) -> None:
        """Leadership is over. When the server stops, what waits to be written down is proposed as the last thing."""
        self._is_ended = True
        if reason == STATUS_SHUTDOWN:
            self.propose_noted()
        for handle in self._sinks:
            self.site.outbox.remove_sink(handle)
        self._sinks.clear()
        for runner in self._runners.values():
            runner.end(reason)
        self._runners.clear()
        self._hungry.clear()
        self._notes.take()
        self._committed.clear()
        self._put_off.clear()
        if self._rest is not None:
            self._rest.cancel()

    # --- for runners (runner_port.py)

    def propose(self, batch: Sequence[commands.ConsumerCommand], committed: Callable[[], None]) -> None:
        """Add commands to this call's entry; `committed` is called when they are applied."""
        self._notes.add(batch)
        self._committed.append(committed)
        self._is_urgent = True
        self._flush()

    def note(self, batch: Sequence[commands.ConsumerCommand]) -> None:
        """Add commands whose commit no client waits for: to this call's entry, or to one a little later."""
        self._notes.add(batch)
        self._flush()

    def propose_noted(self) -> None:
        """Propose what waits, so that a command which is proposed next comes behind it."""
        self._is_urgent = True
        self._flush()

    def set_hungry(self, name: str, *, is_hungry: bool) -> None:
        """Note whether a consumer waits for new messages, so that `pump` need not look at the others."""
        if is_hungry:
            self._hungry[name] = self._runners[name]
        else:
            self._hungry.pop(name, None)

    def abandon(self, name: str) -> None:
        """The consumer was not used for its inactive_threshold: delete it."""
        self.propose(deletion_of_consumer(self._machine, name), partial(self._log_expired, name))

    def _log_expired(self, name: str) -> None:
        CONSUMER_EXPIRED.log(account=self.site.account, stream=self.stream, consumer=name)

    def _step(self, runners: Iterable[ConsumerRunner], now: Now) -> None:
        self._depth += 1
        for runner in runners:
            runner.step(now)
        self._depth -= 1
        self._flush()

    def _flush(self) -> None:
        if self._depth or not (self._notes or self._is_urgent) or (not self._is_urgent and self._may_wait()):
            return
        is_awaited, self._is_urgent = self._is_urgent, False
        if not self._notes:
            return
        level = self.messages.level(self.site.level_in_use())
        body = commands.encode_consumer_commands(self._notes.take(), level)
        committed, self._committed = self._committed, []

        def done(outcome: Outcome, _result: object) -> None:
            self._in_flight -= 1
            self._awaited_in_flight -= is_awaited
            if outcome is Outcome.OK:
                self._depth += 1  # what they lead to goes together
                for callback in committed:
                    callback()
                self._depth -= 1
                self._flush()
                if self._is_pump_put_off:
                    self.pump()

        self._in_flight += 1
        self._awaited_in_flight += is_awaited
        self._rest_ends_ns = self.site.clock.mono_ns() + NOTED_REST_NS
        self._group.propose(Proposal(kind=Kind.CONSUMER_OP, body=body, is_awaited=is_awaited), done)

    def _may_wait(self) -> bool:
        """True when commands that no client waits for stay here for now; something will flush them soon."""
        if len(self._notes) >= COMMANDS_NOTED_MAX:
            return False
        if self._in_flight:
            return True
        config = self._machine.config
        if config is None or config.retention is not RetentionPolicy.LIMITS:
            return False  # an ack removes its message, and publishers and readers see that
        if self.site.clock.mono_ns() >= self._rest_ends_ns:
            return False
        if self._rest is None:
            self._rest = self.site.timers.call_at(self._rest_ends_ns, self._rested)
        return True

    def _rested(self) -> None:
        self._rest = None
        self._flush()
