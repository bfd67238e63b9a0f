"""The work of the leader of a stream, for one term: admits publishes, answers them, expires by age.

A `StreamLeadership` is made when a replica becomes leader, from replicated state alone, and thrown away when it stops
being one. So nothing that belongs to a term survives it: no in-flight sequence, no timer, no subscription.
Caches of a leader that outlive its term are a known cause of stalled consumers and stale sequences.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from jetraft.cluster.calls.handing_over import ExpectedHeld, HeldPublishes, LeftSink, newest_before
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.consumers.ack_publish import AckOutcome
from jetraft.cluster.consumers.dispatcher import ConsumerDispatcher
from jetraft.cluster.consumers.frontend import ConsumerFrontend
from jetraft.cluster.consumers.runner import STATUS_LEADER
from jetraft.cluster.meta.templates import captured_subjects
from jetraft.cluster.origins.origins import Origins
from jetraft.cluster.streams.admission.ack_publish import admit_with_ack
from jetraft.cluster.streams.admission.admit import PublishAdmission
from jetraft.cluster.streams.admission.copies import admit_copies, admit_plain_copies
from jetraft.cluster.streams.batches.batch_timer import BatchTimer
from jetraft.cluster.streams.gets.direct import DirectGets
from jetraft.cluster.streams.publishing.ack_sending import AckSending
from jetraft.cluster.streams.publishing.refusals import why_full
from jetraft.cluster.streams.replica.expiry import Expiry
from jetraft.cluster.streams.replica.leftovers import Leftovers
from jetraft.cluster.streams.replica.removals import accepted, part_of
from jetraft.cluster.streams.replica.republish import Republisher
from jetraft.cluster.streams.rules.mapping import SubjectMapping
from jetraft.cluster.streams.rules.publish_rate import PublishRate, too_fast
from jetraft.cluster.streams.schedules.scheduler import Scheduler
from jetraft.cluster.streams.stamps import StampClock
from jetraft.raft.proposals import Outcome
from jetraft.store.model import errors
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.extensions import keeps_schedules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.consumers.ack_publish import AckPublish
    from jetraft.cluster.origins._plain import SourceRun
    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state import commands
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.cluster.streams.mandate import Mandate
    from jetraft.cluster.streams.publishing._admission import RecordBatch
    from jetraft.cluster.streams.publishing.publish import Abandoned, Admitted, Publish, TraceOutcome
    from jetraft.raft.group import Group
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig


TRANSFER_LOOK_NS = 20 * NS_PER_MS  # while publishes are held: has the transfer led nowhere?


class StreamLeadership:
    """One term of leading one stream."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine, mandate: Mandate) -> None:
        assert machine.config is not None, "the first entry of a stream is its configuration"
        self._site = site
        self._group = group
        self.term = group.term
        self._machine = machine
        self._mandate = mandate
        self._config: StreamConfig = machine.config
        self._stream = machine.config.name.encode()
        self._sink: int | None = None
        self._subjects: tuple[str, ...] = ()
        self._ended = False
        self._held = HeldPublishes()  # while leadership is handed over, and after it
        self._transfer_timer: TimerHandle | None = None
        self._is_expectant = False  # the leader before has yet to give what it holds
        self._expected: ExpectedHeld | None = None  # that, when this one has handed over meanwhile
        self._vanished = machine.vanished
        self._promoted_at: int | None = None  # a mirror no more: takes publishes when this sequence is applied
        self.origins: Origins | None = None  # of a mirror, or of a stream with sources
        self._direct_of_origin: DirectGets | None = None  # of a mirror that answers what its origin is asked
        self._mapping = SubjectMapping.of(machine.config, site.rng.randrange)
        self._republisher = Republisher.of(machine.config, machine, site.rng.randrange)
        self._rate = PublishRate.of(machine.config)
        self._acks = AckSending(site.outbox, machine.config)
        self._acks_behind_copies: list[bytes] = []  # of this turn, where other streams copy this one
        self._stamps = StampClock(site.clock, machine.last_ts_ns, stream=machine.config.name)
        self._begin_admission()
        self.dispatcher = ConsumerDispatcher(site, group, machine, self)
        self.consumers = ConsumerFrontend(site, group, machine, self.dispatcher)
        self._scheduler: Scheduler | None = None
        self.leftovers = Leftovers(site, group, machine)
        self._expiry = Expiry(site, group, machine, stamps=self._stamps, place_markers=self._place_markers)

    @classmethod
    def start(cls, site: Site, group: Group, machine: StreamMachine, mandate: Mandate) -> Self:
        """Lead by this mandate: consumers first, then publishes, then what expires. `end` comes when that is over."""
        leadership = cls(site, group, machine, mandate)
        leadership.dispatcher.start()
        leadership._begin_to_listen()
        leadership._expiry.arm()
        leadership.leftovers.look_after_deletion()
        leadership._follow_origins(leadership._config)
        leadership._look_after_schedules()
        return leadership

    def _begin_admission(self) -> None:
        """Admit publishes behind what is applied. A mirror has an admission that admits nothing."""
        config, site, machine = self._config, self._site, self._machine
        self.admission = PublishAdmission(config, machine, domain=site.domain, room=site.batches, limits=site.queues)
        self._batch_timer = BatchTimer(site, self._stamps, self.admission.batching, abandon=self._batch_abandoned)

    # --- publishes

    def on_publishes(self, batch: bytes) -> None:
        """Admit a turn's captured messages and propose what passed; hold them while leadership is handed over."""
        if self._ended or not self._group.core.accepts_proposals:
            self._hold(batch)
            return
        if self._held.batches:
            batch = self._held.take() + batch
        if self._mapping is not None:
            batch = self._mapping.mapped(batch)
        if self._rate is not None:
            batch = self._within_rate(self._rate, batch)
        self._propose(self.admission.admit(batch, self._stamps.now_ns(), refuse_with=self.refusal()))

    def _within_rate(self, rate: PublishRate, batch: bytes) -> bytes:
        """The part that the stream takes at its rate; the rest is told how long to wait."""
        end, wait_ns = rate.take(batch, self._site.clock.mono_ns())
        if end < len(batch):
            self._propose(self.admission.admit(batch[end:], self._stamps.now_ns(), refuse_with=too_fast(wait_ns)))
        return batch[:end]

    def _hold(self, batch: bytes) -> None:
        self._held.add(batch)
        if self._transfer_timer is None and not self._ended:
            look_ns = self._site.clock.mono_ns() + TRANSFER_LOOK_NS
            self._transfer_timer = self._site.timers.call_at(look_ns, self._look_at_transfer)

    def _look_at_transfer(self) -> None:
        """Go on where a transfer has led nowhere."""
        self._transfer_timer = None
        if self._held and not self._ended:
            self.on_publishes(b"")

    def _place_markers(self, expiring: Sequence[tuple[bytes, int]]) -> None:
        """Put markers in the place of messages that are the last of their subject and expire."""
        if self._promoted_at is None:
            self._propose(self.admission.admit_markers(expiring, self._stamps.now_ns()))

    def _look_after_schedules(self) -> None:
        """Begin to, in a stream that may have them."""
        if keeps_schedules(self._config) and self._scheduler is None:
            self._scheduler = Scheduler(
                self._site,
                self._machine,
                stamps=self._stamps,
                produce=self._publish_scheduled,
                is_last=self.admission.is_last,
            )
            self._scheduler.start()

    def _mapped(self, batch: bytes) -> bytes:
        return batch if self._mapping is None else self._mapping.mapped(batch)

    def _publish_scheduled(self, batch: bytes) -> int | None:
        """Publish what schedules have produced; how many were taken, None when nothing is taken now."""
        if self.admission.is_overloaded or self.refusal() is not None:
            return None
        admitted = self.admission.admit_scheduled(self._mapped(batch), self._stamps.now_ns())
        self._propose(admitted)
        return sum(publish.records.count for publish in admitted.publishes)

    def _propose(self, admitted: Admitted) -> None:
        now_ns = self._site.clock.mono_ns() if admitted.publishes else 0
        for publish in admitted.publishes:
            publish.admitted_ns = now_ns
            acknowledge = partial(self._acknowledge, publish)
            self._group.propose(publish.proposal(), partial(self._published, publish), committed=acknowledge)
        for outcome in admitted.traced:
            self._settle_trace(outcome)
        for abandoned in admitted.abandoned:
            self._batch_abandoned(abandoned)
        if admitted.has_batches:
            self._batch_timer.arm()
        if admitted.answers:
            self._acks.send(b"".join(admitted.answers))

    def _batch_abandoned(self, abandoned: Abandoned) -> None:
        batch_id = abandoned.batch_id.decode(errors="replace")
        self._site.advisories.batch_abandoned(self._config.name, batch_id, abandoned.reason)

    def _settle_trace(self, outcome: TraceOutcome) -> None:
        assert self._site.traces is not None, "only a sink that was announced gets traced messages"
        self._site.traces.settle_trace(
            outcome.number,
            self._config.name,
            subject=outcome.subject,
            no_interest=outcome.no_interest,
            error=outcome.error,
        )

    def refusal(self) -> ApiError | None:
        """Why nothing can be stored now."""
        if not self._site.is_table_held() and len(self._group.members) == 1:
            # A process that stood still finds out here, before the task that ends this leadership (decision 130).
            return errors.CLUSTER_NOT_AVAILABLE.with_values()
        return why_full(self._site, self._config)

    @property
    def messages_coming(self) -> int:
        """How many messages are on their way into the stream: taken, and not applied yet."""
        return self.admission.next_seq - 1 - self._machine.store.last_seq

    def publish_with_ack(self, asked: AckPublish) -> AckOutcome:
        """Store a message in one entry with an ack, or answer why not."""
        if self._ended or not self._group.core.accepts_proposals:
            return AckOutcome.UNHEARD
        error, site = self.refusal(), self._site
        if error is None and self._rate is not None:
            _, wait_ns = self._rate.take(asked.record, site.clock.mono_ns())
            error = too_fast(wait_ns) if wait_ns else None
        found = admit_with_ack(self.admission, asked, self._stamps.now_ns(), domain=site.domain, refuse_with=error)
        self._propose(found.admitted)
        return found.outcome

    def _acknowledge(self, publish: Publish) -> None:
        """Tell the publishers of what is committed. Of anything else they hear nothing, and try again."""
        if not self._ended:
            self._site.ack_times.note(self._site.clock.mono_ns() - publish.admitted_ns, publish.records.count)
            acks = publish.acks(self._stream, self._site.domain)
            if publish.in_fast:
                acks += self.admission.batching.committed(publish)
            if acks and self._machine.hidden_consumers:
                self._acks_behind_copies.append(acks)
            elif acks:
                self._acks.send(acks)
            if self._republisher is not None:
                self._republish(publish.records.first_seq, publish.records)

    def mirrored(self, first_seq: int, records: bytes) -> None:
        """Records of a mirror are committed, and not applied yet."""
        if not self._ended:
            self._republish(first_seq, records)

    def _republish(self, first_seq: int, records: RecordBatch | bytes) -> None:
        if self._republisher is not None and (copies := self._republisher.copies(first_seq, records)):
            self._site.outbox.send_batch(copies, origin=MessageOrigin.REPUBLISH)

    def _published(self, publish: Publish, outcome: Outcome, _result: object) -> None:
        """Count what is applied no longer among what is in flight."""
        if outcome is Outcome.OK and not self._ended:
            self.admission.settled(publish)

    def part_of_purge(self, purge: commands.Purge) -> commands.Purge | None:
        """The proposals that precede a purge of very many messages (removals.py)."""
        return part_of(purge, self._machine.store)

    def accept_purge(self, purge: commands.Purge) -> commands.Purge:
        """The purge that is to be proposed in this turn (removals.py). Raises NotLeaderError."""
        may_propose = not self._ended and self._promoted_at is None and self._group.core.accepts_proposals
        return accepted(purge, self.admission, self._machine, may_propose=may_propose)

    # --- copies of other streams' messages

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""
        return self.admission.next_seq

    def admit_copies(self, batch: bytes) -> tuple[int, ApiError | None]:
        """Judge and propose copies in this turn: how many at the end are passed over, or not judged with an error."""
        if (refused := self.refusal()) is not None:
            return sum(1 for _ in captures(batch)), refused
        copies = admit_copies(self.admission, self._mapped(batch), self._stamps.now_ns())
        self._propose(copies.admitted)
        return copies.left, copies.full

    def admit_plain_copies(self, batch: bytes, start: int, run: SourceRun) -> int:
        """Propose deliveries of a source from an offset on; returns that of the first one that has to be judged."""
        if self._mapping is not None or self.refusal() is not None:
            return start
        admitted, end = admit_plain_copies(self.admission, batch, start, run, self._stamps.now_ns())
        self._propose(admitted)
        return end

    def mirror_caught_up(self) -> None:
        """Answer direct gets of the origin too, where the configuration says so."""
        mirror = self._config.mirror
        if self._config.mirror_direct and mirror is not None and mirror.external is None and not self._ended:
            self._direct_of_origin = DirectGets(
                self._site, self._machine, self._config.name, mandate=self._mandate, origin=mirror.name
            )
            self._direct_of_origin.listen()

    def _end_direct_of_origin(self) -> None:
        if self._direct_of_origin is not None:
            self._direct_of_origin.end()
            self._direct_of_origin = None

    def _follow_origins(self, config: StreamConfig) -> None:
        if self.origins is None and (config.mirror is not None or config.sources):
            self.origins = Origins(self._site, self._group, self._machine, self)
        if self.origins is not None:
            self.origins.follow(config)

    def _take_publishes(self) -> None:
        """Begin to take publishes when everything that was proposed as a mirror is applied: they come behind it."""
        assert self._promoted_at is not None
        if self._machine.last_seq < self._promoted_at:
            return
        self._promoted_at = None
        self._stamps.no_earlier_than(self._machine.last_ts_ns)
        self._begin_admission()
        self._listen()
        self._expiry.arm()
        self._look_after_schedules()

    # --- events from applying

    def config_changed(self, config: StreamConfig) -> None:
        """Follow the configuration that took effect."""
        if self._config.mirror is not None and config.mirror is None and self.origins is not None:
            self._promoted_at = self.origins.proposed_seq
        self._config = config
        self._mapping = SubjectMapping.of(config, self._site.rng.randrange)
        self._republisher = Republisher.of(config, self._machine, self._site.rng.randrange)
        self._rate = PublishRate.of(config, self._rate)
        self._acks.follow(config)
        self.admission.follow(config)
        self._follow_origins(config)
        if not config.mirror_direct:
            self._end_direct_of_origin()
        if self._promoted_at is None:
            self._listen()
            self._expiry.arm()
            self._look_after_schedules()
        else:
            self._take_publishes()

    def applied(self, *, messages_added: bool) -> None:
        """Entries have been applied: consumers may have something to deliver."""
        if self._republisher is not None:
            self._republisher.applied()
        if self._scheduler is not None:
            self._scheduler.applied()
        if messages_added or self._vanished != self._machine.vanished or self.dispatcher.crowd.is_put_off:
            self._vanished = self._machine.vanished
            self.dispatcher.pump()
            self._expiry.messages_added()
        if self._acks_behind_copies:
            # On each way to a mirror's server the copy goes before the ack: who has the ack finds the message there.
            acks, self._acks_behind_copies = self._acks_behind_copies, []
            self._acks.send(b"".join(acks))
        if self.origins is not None:
            self.origins.applied()
        if messages_added and self._direct_of_origin is not None:
            self._direct_of_origin.applied()
        if self._promoted_at is not None:
            self._take_publishes()

    def end(self, reason: bytes = STATUS_LEADER, *, is_removed: bool = False) -> None:
        """Leadership is over: stop listening, drop everything that was in flight; who waits for messages hears why.

        `is_removed`: the stream is.
        """
        self._ended = True
        self._leave_sink()
        if self._transfer_timer is not None:
            self._transfer_timer.cancel()
        self._end_direct_of_origin()
        if self.origins is not None:
            self.origins.end(is_removed=is_removed)
        self.dispatcher.end(reason)
        self._expiry.end()
        self.leftovers.end()
        if self._scheduler is not None:
            self._scheduler.end()
        self._batch_timer.end()

    def _leave_sink(self) -> None:
        """Let the next leader fetch what is captured until it captures itself, if this one has asked it to lead."""
        sink, self._sink = self._sink, None
        handovers, outbox = self._site.handovers, self._site.outbox
        if self._is_expectant and handovers is not None and self._group.core.has_handed_over:
            self._expected = ExpectedHeld(term=self.term)
            handovers.leave(self._group, self._expected)
        if sink is None:
            return
        if handovers is not None and self._group.core.has_handed_over:
            left = LeftSink(outbox=outbox, handle=sink, subjects=self._subjects, held=self._held, term=self.term)
            handovers.leave(self._group, left)
        else:
            outbox.remove_sink(sink)

    def _begin_to_listen(self) -> None:
        """Capture at once, or when the leader before, which has asked this one to lead, captures no more."""
        handovers = self._site.handovers
        if handovers is not None and self._group.core.handed_by is not None and captured_subjects(self._config):
            self._is_expectant = True
            handovers.fetch(self._group, self._take_over)
            return
        held = b"" if handovers is None else handovers.take_back(self._group, newest_before=newest_before(self._group))
        self._listen()
        if held:
            self.on_publishes(held)

    @property
    def is_admitting(self) -> bool:
        """Whether publishes are taken now, and not held for another leader."""
        return not self._ended and not self._is_expectant and self._group.core.accepts_proposals

    def _take_over(self, held: bytes) -> None:
        self._is_expectant = False
        if self._expected is not None:
            self._expected.arrive(held)
        if not self._ended:
            self._listen()
            if held:
                self.on_publishes(held)

    def _listen(self) -> None:
        """Capture the stream's subjects into one sink, so that messages of different subjects keep their order."""
        subjects = tuple(dict.fromkeys(captured_subjects(self._config)))
        if subjects == self._subjects or self._is_expectant:
            return
        outbox, old = self._site.outbox, self._sink
        self._subjects, self._sink = subjects, None
        for subject in subjects:
            if self._sink is None:
                self._sink = outbox.add_sink(subject.encode(), self.on_publishes, kind=SinkKind.STREAM)
            else:
                outbox.extend_sink(self._sink, subject.encode())
        if self._sink is not None and self._site.traces is not None:
            self._site.traces.trace_sink(self._sink, self._config.name)
        # The new sink listens before the old one goes, so interest in what stays never ends.
        if old is not None:
            outbox.remove_sink(old)
