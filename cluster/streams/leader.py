"""What only the leader of a stream does, for one term: admits publishes, answers them, expires by age.

A `Leadership` is made when a replica becomes leader, from replicated state alone, and thrown away when it stops being
one. So nothing that belongs to a term survives it: no in-flight sequence, no timer, no subscription. (store-rules,
rows 10 and 17: leader-local caches that outlived a term.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from jetraft.cluster.consumers.desk import ConsumerDesk
from jetraft.cluster.consumers.frontend import ConsumerFrontend
from jetraft.cluster.streams import commands
from jetraft.cluster.streams.admit import Admission, Publish
from jetraft.raft.engine import Proposal
from jetraft.raft.group import Outcome
from jetraft.store.format import Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.retention import age_cutoff_ts_ns, age_deadline_ts_ns

if TYPE_CHECKING:
    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.streams.machine import StreamMachine
    from jetraft.cluster.streams.site import Site
    from jetraft.raft.group import Group
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig

AGE_CHECK_NS_MIN: Final = NS_PER_S // 4  # ages are checked in batches, at most so often


class Leadership:
    """One term of leading one stream."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine) -> None:
        assert machine.config is not None, "the first entry of a stream is its configuration"
        self._site = site
        self._group = group
        self._machine = machine
        self._config: StreamConfig = machine.config
        self._sinks: dict[str, int] = {}
        self._age_timer: TimerHandle | None = None
        self._ended = False
        self.refuse_with: ApiError | None = None  # set while the node cannot store (disk full, say)
        self.admission = Admission(machine.config, machine)
        self.desk = ConsumerDesk(site, group, machine)
        self.consumers = ConsumerFrontend(site, group, machine, self.desk)
        self._listen()
        self._arm_age_timer()

    # --- publishes

    def on_publishes(self, batch: bytes) -> None:
        """Admit a turn's captured messages and propose what passed."""
        admitted = self.admission.admit(batch, self._site.clock.unix_ns(), refuse_with=self.refuse_with)
        for publish in admitted.publishes:
            records = publish.records
            proposal = Proposal(
                kind=Kind.MESSAGES, first_seq=records.first_seq, count=records.count, body=records.body()
            )
            self._group.propose(proposal, partial(self._published, publish))
        if admitted.answers:
            self._site.outbox.send_batch(b"".join(admitted.answers))

    def _published(self, publish: Publish, outcome: Outcome, _result: object) -> None:
        """Acknowledge what is committed. Of anything else the publisher hears nothing, and tries again."""
        if outcome is not Outcome.OK or self._ended:
            return
        self.admission.settled(publish)
        acks = publish.acks(self._config.name.encode())
        if acks:
            self._site.outbox.send_batch(acks)

    # --- events from applying

    def config_changed(self, config: StreamConfig) -> None:
        """Follow the configuration that took effect."""
        self._config = config
        self.admission.config = config
        self._listen()
        self._arm_age_timer()

    def applied(self, *, messages_added: bool) -> None:
        """Entries have been applied: consumers may have something to deliver."""
        if messages_added:
            self.desk.pump()
            if self._age_timer is None:
                self._arm_age_timer()

    def end(self) -> None:
        """Leadership is over: stop listening, drop everything that was in flight."""
        self._ended = True
        for handle in self._sinks.values():
            self._site.outbox.remove_sink(handle)
        self._sinks.clear()
        self.desk.end()
        if self._age_timer is not None:
            self._age_timer.cancel()

    def _listen(self) -> None:
        """Capture the stream's subjects."""
        wanted = dict.fromkeys(self._config.subjects)
        if list(wanted) == list(self._sinks):
            return
        outbox = self._site.outbox
        for subject in [subject for subject in self._sinks if subject not in wanted]:
            outbox.remove_sink(self._sinks.pop(subject))
        for subject in wanted:
            if subject not in self._sinks:
                self._sinks[subject] = outbox.add_sink(subject.encode(), self.on_publishes)

    # --- age

    def _arm_age_timer(self) -> None:
        """Wake up when the oldest message will be too old."""
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None
        deadline = age_deadline_ts_ns(oldest_ts_ns=self._machine.store.oldest_ts_ns(), max_age_ns=self._config.max_age)
        if deadline is not None:
            clock = self._site.clock
            wait_ns = max(deadline - clock.unix_ns(), AGE_CHECK_NS_MIN)
            self._age_timer = self._site.timers.call_at(clock.mono_ns() + wait_ns, self._expire)

    def _expire(self) -> None:
        """Propose the removal of everything that is too old."""
        self._age_timer = None
        cutoff = age_cutoff_ts_ns(now_ts_ns=self._site.clock.unix_ns(), max_age_ns=self._config.max_age)
        if cutoff is None:
            return
        seq = self._machine.store.seq_at_time(cutoff)
        if seq > self._machine.store.first_seq:
            body = commands.encode_stream_command(commands.RemoveBelow(seq))
            self._group.propose(Proposal(kind=Kind.STREAM_OP, body=body), self._expired)
        else:
            self._arm_age_timer()

    def _expired(self, outcome: Outcome, _result: object) -> None:
        if outcome is Outcome.OK and not self._ended:
            self._arm_age_timer()
