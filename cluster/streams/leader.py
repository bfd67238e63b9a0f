"""What only the leader of a stream does, for one term: admits publishes, answers them, expires by age.

A `StreamLeadership` is made when a replica becomes leader, from replicated state alone, and thrown away when it stops
being one. So nothing that belongs to a term survives it: no in-flight sequence, no timer, no subscription.
Caches of a leader that outlive its term are a known cause of stalled consumers and stale sequences.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from jetraft.cluster.consumers.dispatcher import ConsumerDispatcher
from jetraft.cluster.consumers.frontend import ConsumerFrontend
from jetraft.cluster.consumers.runner import STATUS_LEADER
from jetraft.cluster.streams.admit import PublishAdmission
from jetraft.cluster.streams.batch_timer import BatchTimer
from jetraft.cluster.streams.expiry import Expiry
from jetraft.cluster.streams.mapping import SubjectMapping
from jetraft.cluster.streams.republish import Republisher
from jetraft.cluster.streams.scheduler import Scheduler
from jetraft.cluster.streams.stamps import StampClock
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.cluster.streams.publish import Abandoned, Admitted, Publish, TraceOutcome
    from jetraft.raft.group import Group
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig


class StreamLeadership:
    """One term of leading one stream."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine) -> None:
        assert machine.config is not None, "the first entry of a stream is its configuration"
        self._site = site
        self._group = group
        self._machine = machine
        self._config: StreamConfig = machine.config
        self._stream = machine.config.name.encode()
        self._is_in_files = machine.config.storage is StorageType.FILE
        self._sink: int | None = None
        self._subjects: tuple[str, ...] = ()
        self._ended = False
        self._mapping = SubjectMapping.of(machine.config, site.rng.randrange)
        self._republisher = Republisher.of(machine.config, machine, site.rng.randrange)
        self._stamps = StampClock(site.clock, machine.last_ts_ns, stream=machine.config.name)
        self.admission = PublishAdmission(machine.config, machine, domain=site.domain, room=site.batches)
        self._batch_timer = BatchTimer(site, self._stamps, self.admission.batching, abandon=self._batch_abandoned)
        self.dispatcher = ConsumerDispatcher(site, group, machine)
        self.consumers = ConsumerFrontend(site, group, machine, self.dispatcher)
        self._scheduler: Scheduler | None = None
        self._expiry = Expiry(site, group, machine, stamps=self._stamps, place_markers=self._place_markers)

    @classmethod
    def start(cls, site: Site, group: Group, machine: StreamMachine) -> Self:
        """Lead: consumers first, then publishes, then what expires."""
        leadership = cls(site, group, machine)
        leadership.dispatcher.start()
        leadership._listen()
        leadership._expiry.arm()
        leadership._look_after_schedules()
        return leadership

    # --- publishes

    def on_publishes(self, batch: bytes) -> None:
        """Admit a turn's captured messages and propose what passed."""
        if self._mapping is not None:
            batch = self._mapping.mapped(batch)
        self._propose(self.admission.admit(batch, self._stamps.now_ns(), refuse_with=self._refusal()))

    def _place_markers(self, expiring: Sequence[tuple[bytes, int]]) -> None:
        """Put markers in the place of messages that are the last of their subject and expire."""
        self._propose(self.admission.admit_markers(expiring, self._stamps.now_ns()))

    def _look_after_schedules(self) -> None:
        """Begin to, in a stream that may have them."""
        if self._config.allow_msg_schedules and self._scheduler is None:
            self._scheduler = Scheduler(
                self._site,
                self._machine,
                stamps=self._stamps,
                produce=self._publish_scheduled,
                is_last=self.admission.is_last,
            )
            self._scheduler.start()

    def _publish_scheduled(self, batch: bytes) -> int | None:
        """Publish what schedules have produced; how many were taken, None when nothing is taken now."""
        if self.admission.is_overloaded or self._refusal() is not None:
            return None
        if self._mapping is not None:
            batch = self._mapping.mapped(batch)
        admitted = self.admission.admit_scheduled(batch, self._stamps.now_ns())
        self._propose(admitted)
        return sum(publish.records.count for publish in admitted.publishes)

    def _propose(self, admitted: Admitted) -> None:
        for publish in admitted.publishes:
            records = publish.records
            proposal = Proposal(
                kind=Kind.MESSAGES, first_seq=records.first_seq, count=records.count, body=[memoryview(records)]
            )
            self._group.propose(
                proposal, partial(self._published, publish), committed=partial(self._acknowledge, publish)
            )
        for outcome in admitted.traced:
            self._settle_trace(outcome)
        for abandoned in admitted.abandoned:
            self._batch_abandoned(abandoned)
        if admitted.has_batches:
            self._batch_timer.arm()
        if admitted.answers:
            self._site.outbox.send_batch(b"".join(admitted.answers))

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

    def _refusal(self) -> ApiError | None:
        """Why nothing can be stored now.

        Account or server hold what they may hold at most; or memory or the disk is nearly full, and what is left is
        for making room again.
        """
        quota, space, kind = self._site.quota, self._site.space, self._config.storage
        now_ns = self._site.clock.mono_ns()
        if self._site.account_quota is not None and self._site.account_quota.is_full(kind, now_ns):
            return errors.ACCOUNT_RESOURCES_EXCEEDED.with_values()
        if quota is not None and quota.is_full(kind, now_ns):
            return errors.INSUFFICIENT_RESOURCES.with_values()
        memory = self._site.memory
        if memory is not None and (memory.is_exhausted(now_ns) if self._is_in_files else memory.is_low(now_ns)):
            return errors.INSUFFICIENT_RESOURCES.with_values()
        if space is not None and self._is_in_files and space.is_low(now_ns):
            return errors.STORAGE_RESOURCES_EXCEEDED.with_values()
        return None

    def _acknowledge(self, publish: Publish) -> None:
        """Tell the publishers of what is committed. Of anything else they hear nothing, and try again."""
        if not self._ended:
            acks = publish.acks(self._stream, self._site.domain)
            if publish.in_fast:
                acks += self.admission.batching.committed(publish)
            if acks:
                self._site.outbox.send_batch(acks)
            if self._republisher is not None:
                copies = self._republisher.copies(publish.records)
                if copies:
                    self._site.outbox.send_batch(copies)

    def _published(self, publish: Publish, outcome: Outcome, _result: object) -> None:
        """Count what is applied no longer among what is in flight."""
        if outcome is Outcome.OK and not self._ended:
            self.admission.settled(publish)

    # --- events from applying

    def config_changed(self, config: StreamConfig) -> None:
        """Follow the configuration that took effect."""
        self._config = config
        self._mapping = SubjectMapping.of(config, self._site.rng.randrange)
        self._republisher = Republisher.of(config, self._machine, self._site.rng.randrange)
        self.admission.follow(config)
        self._listen()
        self._expiry.arm()
        self._look_after_schedules()

    def applied(self, *, messages_added: bool) -> None:
        """Entries have been applied: consumers may have something to deliver."""
        if self._republisher is not None:
            self._republisher.applied()
        if self._scheduler is not None:
            self._scheduler.applied()
        if messages_added:
            self.dispatcher.pump()
            self._expiry.messages_added()

    def end(self, reason: bytes = STATUS_LEADER) -> None:
        """Leadership is over: stop listening, drop everything that was in flight; who waits for messages hears why."""
        self._ended = True
        if self._sink is not None:
            self._site.outbox.remove_sink(self._sink)
            self._sink = None
        self.dispatcher.end(reason)
        self._expiry.end()
        if self._scheduler is not None:
            self._scheduler.end()
        self._batch_timer.end()

    def _listen(self) -> None:
        """Capture the stream's subjects into one sink, so that messages of different subjects keep their order."""
        subjects = tuple(dict.fromkeys(self._config.subjects))
        if subjects == self._subjects:
            return
        outbox, old = self._site.outbox, self._sink
        self._subjects, self._sink = subjects, None
        for subject in subjects:
            if self._sink is None:
                self._sink = outbox.add_sink(subject.encode(), self.on_publishes)
            else:
                outbox.extend_sink(self._sink, subject.encode())
        if self._sink is not None and self._site.traces is not None:
            self._site.traces.trace_sink(self._sink, self._config.name)
        # The new sink listens before the old one goes, so interest in what stays never ends.
        if old is not None:
            outbox.remove_sink(old)
