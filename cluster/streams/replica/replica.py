"""One replica of one stream on this node: its log, its group, its state machine, and the duties of its role.

A follower applies and answers direct gets. A leader has a `StreamLeadership` besides (leader.py), made when the group
says that the state is complete and dropped when leadership ends. On what evidence both serve is in mandate.py; `weigh`
is the one place where serving begins and ends with it. The methods that ask for a change propose an entry and
wait until it is applied; they raise NotLeaderError or OutcomeUnknownError of raft/group.py when this replica cannot.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import attrs

from jetraft.cluster.backup.mark import is_marked
from jetraft.cluster.backup.restoration import Restoration
from jetraft.cluster.consumers.consumer_infos import applied_figures, info_of
from jetraft.cluster.consumers.runner import STATUS_DELETED, STATUS_LEADER, STATUS_SHUTDOWN
from jetraft.cluster.membership.reshaper import Reshaper
from jetraft.cluster.state import commands
from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.state.snapshot import encode_config
from jetraft.cluster.streams.gets.asked import message_asked_for
from jetraft.cluster.streams.gets.direct import DirectGets
from jetraft.cluster.streams.mandate import Evidence, Mandate
from jetraft.cluster.streams.replica.desired import with_desired
from jetraft.cluster.streams.replica.forgotten import ForgottenMessages
from jetraft.cluster.streams.replica.group_views import (
    CONSUMERS_TOLD_MAX,
    announce_consumers,
    announce_leader,
    cluster_info,
)
from jetraft.cluster.streams.replica.leader import StreamLeadership
from jetraft.cluster.streams.replica.loss_news import LossNews
from jetraft.cluster.streams.replica.removals import deletion_of, purge_of
from jetraft.cluster.streams.replica.stream_infos import stream_info
from jetraft.cluster.streams.replica.surplus import Surplus
from jetraft.cluster.streams.replica.term_fence import TermFence
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.port import Proposal
from jetraft.raft.freshness import ENDLESS_NS, Freshness
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.proposals import NotLeaderError, Outcome
from jetraft.raft.replay import Replayed, recover
from jetraft.store.disk.io import check_wanted, run_blocking
from jetraft.store.frames.format import Kind
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType
from jetraft.store.model.events import STREAM_LEADER, STREAM_LEADER_ENDED, STREAM_LEADER_LOST, EventKind
from jetraft.store.stream.retention import SizeModel, limits_of
from jetraft.store.stream.stream_store import StreamStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jetraft.cluster.consumers.effects import CoreStatistics
    from jetraft.cluster.consumers.frontend import ConsumerFrontend
    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.mandate import MandateStatistics
    from jetraft.raft.group import Group
    from jetraft.raft.group_spec import GroupStatistics
    from jetraft.raft.proposals import Done
    from jetraft.store.model.config import ConsumerAction, ConsumerConfig, StreamConfig
    from jetraft.store.model.ids import NodeId
    from jetraft.store.model.requests import JSApiMsgGetRequest, JSApiStreamPurgeRequest
    from jetraft.store.model.state import ClusterInfo, ConsumerInfo, StreamInfo
    from jetraft.store.port import GroupLog, StoreError
    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.stream_store import StoredMessage, StoreStatistics

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE: Final = 1_000  # replayed in the turn in which a replica starts, some 10 us each
BYTES_AT_ONCE: Final = 1 << 20


@attrs.frozen(kw_only=True, slots=True)
class ReplicaStatistics:
    """A frozen look at a replica."""

    stream: str
    leads: bool
    in_flight_messages: int
    consumers: int
    mandate: MandateStatistics
    group: GroupStatistics
    store: StoreStatistics


class StreamReplica:
    """See the module. Made when the meta group assigns a replica to this node; `stop` ends it."""

    def __init__(self, *, assignment: StreamAssignment, log: GroupLog, site: Site) -> None:
        """Make the parts; `start` recovers the state and takes part in the group."""
        self.assignment = assignment
        self._site = site
        config = assignment.config
        size_model = SizeModel.FILE if config.storage is StorageType.FILE else SizeModel.MEMORY
        store = StreamStore(
            log,
            limits_of(config),
            size_model=size_model,
            first_seq=config.first_seq,
            on_damage=self._damaged,
        )
        self.machine = StreamMachine(store, self)
        self._leadership: StreamLeadership | None = None
        self.restoration: Restoration | None = None  # while it leads and is being restored
        self._reshaper: Reshaper | None = None
        self._retired = False
        self._forgotten = ForgottenMessages(site, self.machine)
        self._proposed_revision = 0  # of the configuration that is on its way
        self._surplus: Surplus | None = None  # what goes before it, in this term of leadership
        self._remains: TimerHandle | None = None  # frees memory that a removal has left, a part in each turn
        self._loss_news = LossNews()
        self._changed_ns = site.clock.unix_ns()  # since when this assignment is known here
        self._group: Group | None = None  # while the state is being recovered
        self._log = log
        self._freshness = Freshness(self.weigh)
        self._mandate = Mandate(self._freshness, lapsed=self.weigh)
        self._direct = DirectGets(site, self.machine, config.name, mandate=self._mandate, row=assignment, taken=self)
        self._lapse: TimerHandle | None = None  # looks again when reads may be over
        self._fence = TermFence(passed=self._lead)

    @classmethod
    def start(cls, *, assignment: StreamAssignment, log: GroupLog, site: Site) -> Self:
        """Start a replica over its log: the state is recovered before this returns. Raises StoreError or OSError."""
        replica = cls(assignment=assignment, log=log, site=site)
        replica._recover()
        return replica

    @classmethod
    async def open(cls, *, assignment: StreamAssignment, log: GroupLog, site: Site) -> Self:
        """As `start`; a long log is read in a thread, and the node serves its other streams meanwhile.

        The thread has the log and the machine to itself: neither is known to a group before it ends. When the caller is
        cancelled it ends after the piece that it reads, before this raises.
        """
        replica = cls(assignment=assignment, log=log, site=site)
        figures = log.statistics()
        is_long = log.last_index - figures.first_index >= ENTRIES_AT_ONCE or figures.bytes_used > BYTES_AT_ONCE
        replica._recover(await run_blocking(replica._replay) if is_long else None)
        return replica

    def _replay(self) -> Replayed:
        with self.machine.store.pausing(check_wanted):
            return recover(self._log, self.machine, Configuration(voters=self.assignment.founding), check_wanted)

    def _recover(self, replayed: Replayed | None = None) -> None:
        spec = GroupSpec(
            group_id=self.assignment.group_id,
            incarnation=self.assignment.incarnation,
            members=self.assignment.founding,
            preferred_leader=self.assignment.preferred,
        )
        self._group = self._site.manager.create(spec, self._log, self.machine, self._freshness, replayed)
        self._share_config()
        self.weigh()

    # --- what the service reads

    @property
    def group(self) -> Group:
        """The replica's Raft group."""
        assert self._group is not None
        return self._group

    @property
    def config(self) -> StreamConfig:
        """The configuration in force; before the first entry, the one that was assigned."""
        return self.machine.config or self.assignment.config

    @property
    def incarnation(self) -> int:
        """Tells this stream from an earlier one of the same name."""
        return self.assignment.incarnation

    @property
    def is_leader(self) -> bool:
        """True when this replica leads and takes publishes."""
        return self._leadership is not None

    @property
    def leader(self) -> NodeId | None:
        """The leader that this replica knows."""
        return self.group.leader

    @property
    def stored_bytes(self) -> int:
        """The bytes that the live messages count."""
        return self.machine.stored_bytes

    @property
    def consumer_count(self) -> int:
        """How many consumers the stream has, without those through which other streams read it."""
        return len(self.machine.consumers) - self.machine.hidden_consumers

    def has_config(self, config: StreamConfig) -> bool:
        """True when this configuration is in force here."""
        return self.machine.config == config

    def info(self) -> StreamInfo:
        """The stream as this replica knows it; exact on the leader."""
        origins = None if self._leadership is None else self._leadership.origins
        cluster = with_desired(self.cluster(), self._site, self.group, self.assignment, self._changed_ns)
        return stream_info(self._site, self.assignment, self.machine, cluster, origins)

    def cluster(self) -> ClusterInfo:
        """Leader and other replicas, by server name."""
        return cluster_info(self._site, self.group)

    async def get_message(self, request: JSApiMsgGetRequest) -> StoredMessage:
        """The message of a STREAM.MSG.GET; raises ApiError 10037 when there is none, 10051 when it is damaged.

        Everything acknowledged before the call is seen: a majority confirms that this replica still leads. Raises
        NotLeaderError when it does not.
        """
        await self.group.confirm_leadership()
        return await message_asked_for(self._site, self.machine.store, request)

    async def settled(self) -> None:
        """Return when what this replica has taken as the leader is applied: an info then has what its client sent."""
        await self.group.settled()

    @property
    def is_whole(self) -> bool:
        """Whether its log is undamaged and it has what is committed, as far as it knows now."""
        return not self._log.damaged_entries and self.statistics().mandate.may_read

    @property
    def is_settled(self) -> bool:
        """Whether nothing that it has taken is on its way."""
        return self.group.is_settled

    def settle(self, done: Done) -> None:
        """Call `done` when what it has taken is applied, or it leads no more."""
        self.group.settle(done)

    # --- what the service changes

    def reconfigure(self, assignment: StreamAssignment) -> None:
        """Take over a newer assignment; the leader proposes its configuration."""
        self.assignment, self._changed_ns = assignment, self._site.clock.unix_ns()
        self._share_config()
        self._propose_config()
        self.look_after_members()

    def weigh(self) -> None:
        """Some of the evidence for serving may have changed: begin and end what rests on it (mandate.py)."""
        if self._group is None:
            return  # recovery: nothing is served
        had = self._mandate.may_lead
        self._mandate.weigh(
            Evidence(
                is_row_current=self._site.is_row_current(self.assignment),
                is_sound=self._group.failed is None and self._log.failed is None,
            )
        )
        if not self._mandate.may_lead:
            self._lose_leadership()
        elif not had:
            self._propose_config()
            self._lead()
        self._weigh_reads()

    @property
    def duties(self) -> tuple[Callable[[], None], ...]:
        """The duties of a replica. Each compares what should be with what is, and may be called at any time.

        Events call them when they are due; `reconcile` calls all of them, so that nothing rests on an event.
        """
        return self.weigh, self._propose_config, self._tell_forgotten, self._lead, self.look_after_members

    def reconcile(self) -> str | None:
        """Do what is due; return what is left undone, for the log, or None."""
        for duty in self.duties:
            duty()
        if not self.group.is_leader or self._retired:
            return None
        if self._leadership is None and self.restoration is None:
            why_not = self.statistics().mandate.why_not or "what was proposed before is not applied yet"
            return f"this replica leads its group and does not serve: {why_not}"
        if self._config_command() is not None:
            return f"revision {self.assignment.revision} of its configuration is not in force"
        members, peers = set(self.group.members), set(self.assignment.peers)
        if self._reshaper is not None and members != peers:
            return f"its members are {self._named(members)}, and should be {self._named(peers)}"
        return None

    def look_after_members(self) -> None:
        """The group's members have changed: bring them in line with the assignment, if this replica leads."""
        if self._reshaper is not None:
            self._reshaper.look()

    async def purge(self, request: JSApiStreamPurgeRequest) -> int:
        """Remove messages by subject, sequence or count; returns how many. Committed when this returns."""
        purge, total = purge_of(self.config, request), 0
        while (part := self._leading().part_of_purge(purge)) is not None:
            removed = await self._change(part)
            assert isinstance(removed, int)
            total += removed
        removed = await self._change(self._leading().accept_purge(purge))
        assert isinstance(removed, int)
        self.group.checkpoint()
        return total + removed

    async def delete_message(self, seq: int, *, erase: bool) -> bool:
        """Remove one message, overwriting its bytes with `erase`; False when it was not there."""
        self._leading()
        command = deletion_of(self.config, seq, erase=erase)
        return command is not None and bool(await self._change(command))

    # --- consumers

    async def create_consumer(
        self,
        config: ConsumerConfig,
        *,
        action: ConsumerAction,
        pedantic: bool,
        changed: Callable[[EventKind, str], None] | None = None,
    ) -> ConsumerInfo:
        """Create or update a consumer, as its action allows; committed when this returns. Raises ApiError.

        `changed` is called with the name, and with what has happened to it, if anything has.
        """
        created = await self._leading().consumers.create(config, action=action, pedantic=pedantic)
        if changed is not None and created.change is not None:
            changed(created.change, created.name)
        info = self._leading().consumers.info(
            created.name, self.cluster().of_consumer(created.name), initial=created.begins
        )
        if info is None:
            raise errors.CONSUMER_NOT_FOUND.with_values()  # deleted meanwhile
        return info

    @property
    def consumers(self) -> ConsumerFrontend:
        """The leader's answers about consumers. Raises ApiError on other replicas."""
        return self._leading().consumers

    async def reset_consumer(self, name: str, seq: int) -> tuple[ConsumerInfo, int] | None:
        """Deliver again from a sequence, 0: from the ack floor; the consumer then, and that sequence. Committed."""
        return await self._leading().consumers.reset(name, seq, self.cluster().of_consumer(name))

    def consumer_info(self, name: str) -> ConsumerInfo | None:
        """The consumer as its leader sees it; None when there is none."""
        return self._leading().consumers.info(name, self.cluster().of_consumer(name))

    def consumer_figures(self, state: ConsumerState) -> CoreStatistics:
        """The figures of a consumer as its leader sees them, for less than an info. Raises NotLeaderError."""
        return self._leading().consumers.figures(state)

    def consumer_view(self, name: str) -> ConsumerInfo | None:
        """The consumer as this replica knows it, which need not lead: what waits for messages only the leader knows."""
        if self._leadership is not None:
            return self._leadership.consumers.info(name, self.cluster().of_consumer(name))
        state = self.machine.consumers.get(name)
        if state is None:
            return None
        cluster = self.cluster().of_consumer(name)
        return info_of(self.config.name, state, applied_figures(state), cluster, self._site.clock.unix_ns())

    async def settle_consumers(self) -> None:
        """Return when the consumers' states in the machine are what clients have seen of them by now."""
        await self._leading().consumers.settle()

    def consumer_names(self) -> list[str]:
        """The consumers of the stream, without those through which other streams read it."""
        return [name for name, state in self.machine.consumers.items() if not state.config.direct]

    def direct_consumer_names(self) -> list[str]:
        """Those through which other streams read it."""
        return [name for name, state in self.machine.consumers.items() if state.config.direct]

    def take_publishes(self, batch: bytes) -> bool:
        """Admit captured messages that were brought here; False when this replica does not lead, or hands over."""
        if self._leadership is None or not self._leadership.is_admitting:
            return False
        self._leadership.on_publishes(batch)
        return True

    def transfer_leadership(self, to: NodeId | None) -> bool:
        """Hand leadership over; True when that has begun."""
        return self.group.transfer_leadership(to)

    def note_forgotten(self, *, by_all: bool = False) -> None:
        """Members have forgotten messages that this one may not have: write that into the log, when it leads."""
        self._forgotten.note(by_all=by_all)
        self._tell_forgotten()

    def retire(self) -> None:
        """The server is about to stop: serve no more, and tell those who wait for messages."""
        self._retired = True
        self._end_leadership(STATUS_SHUTDOWN)

    def stop(self) -> None:
        """End the replica on this node; the log stays as it is, for its owner to close or erase."""
        self._end_leadership(is_removed=self._site.has_no_row(self.assignment))
        self._direct.end()
        if self._lapse is not None:
            self._lapse.cancel()
        self._site.manager.remove(self.group.group_id)

    def statistics(self) -> ReplicaStatistics:
        """A frozen look."""
        leadership = self._leadership
        return ReplicaStatistics(
            stream=self.config.name,
            leads=leadership is not None,
            in_flight_messages=0 if leadership is None else leadership.admission.in_flight_messages,
            consumers=self.consumer_count,
            mandate=self._mandate.statistics(self._site.clock.mono_ns()),
            group=self.group.statistics(),
            store=self.machine.store.statistics(),
        )

    # --- events of the machine (cluster/state/events.py)

    def became_leader(self, _term: int) -> None:
        """Make sure that the configuration is in the log, then lead."""
        if self.machine.config is None and self._site.has_begun_empty(self.group.group_id):
            self._forgotten.note(by_all=True)
        self._propose_config()
        self._tell_forgotten()
        self._lead()

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        """Drop everything that belonged to the term."""
        term_led = None if self._leadership is None else self._leadership.term
        self._end_leadership()
        if term_led == term and leader is None and self.group.failed is None:
            self._loss_news.tell(self._site, self.group, self.config.name, self.machine.consumers.values())
            self._log_ended(STREAM_LEADER_LOST, "it has no contact with a majority of the replicas")
        elif term_led is not None and self.group.failed is None:
            follows = f"{self._site.name_of(leader)} leads" if leader is not None else "an election began"
            self._log_ended(STREAM_LEADER_ENDED, f"{follows} in term {term}", term_led)
        self.weigh()
        self._changed()

    def config_changed(self, config: StreamConfig) -> None:
        """Follow a configuration that took effect."""
        self._share_config()
        if self._group is None:
            return  # recovery: roles come later
        config = self.config  # the object that is shared
        self._weigh_reads()
        self._lead()
        if self._leadership is not None:
            self._leadership.config_changed(config)
            self._leadership.leftovers.look()
        self._changed()

    def consumer_created(self, state: ConsumerState) -> None:
        """A consumer exists."""
        if self._leadership is not None:
            self._site.advisories.consumer_action(self.config.name, state.name, "create")
            announce_consumers(self._site, self.group, self.config.name, [state])
            self._leadership.dispatcher.created(state)

    def consumer_updated(self, state: ConsumerState, *, is_reset: bool) -> None:
        """A consumer has changed."""
        if self._leadership is not None:
            self._leadership.dispatcher.updated(state, is_reset=is_reset)
            self._leadership.leftovers.look()

    def consumer_deleted(self, state: ConsumerState) -> None:
        """A consumer is gone."""
        if self._leadership is not None:
            self._site.advisories.consumer_action(self.config.name, state.name, "delete")
            self._leadership.dispatcher.deleted(state)
            self._leadership.leftovers.look_after_deletion()

    def purged(self, first_seq: int) -> None:
        """Messages were purged or expired."""
        if self._leadership is not None:
            self._leadership.dispatcher.purged(first_seq)

    def applied(self, *, messages_added: bool) -> None:
        """Entries have been applied."""
        if self.machine.acked:
            now_ns = self._site.clock.unix_ns()
            for state in self.machine.acked:
                state.acked_ns = now_ns
        if self._leadership is not None:
            self._leadership.applied(messages_added=messages_added)
        if messages_added:
            self._direct.applied()
        if self._group is not None and self._remains is None and self.machine.store.has_remains:
            self._free_remains()

    # --- inside

    def _free_remains(self) -> None:
        self._remains = None
        if self.machine.store.free_remains() and not self._retired:
            self._remains = self._site.timers.call_at(self._site.clock.mono_ns() + 1, self._free_remains)

    def _lead(self) -> None:
        """Begin to lead, once the group leads, the stream has its configuration, and the assignment is current."""
        if self._retired or self._leadership is not None or not self._mandate.may_lead:
            return
        if self.machine.config is None or not self.group.is_leader:
            return
        if self._fence.is_closed(self.group.term):
            self._fence.wait(self.group)
            return
        self._end_restoration()
        if is_marked(self.machine.config):
            self.restoration = Restoration.start(
                self._site, self.group, self.machine, abandoned=lambda: self._site.on_abandoned(self.assignment)
            )
        else:
            self._leadership = StreamLeadership.start(self._site, self.group, self.machine, self._mandate)
            self._reshaper = Reshaper(
                self.group,
                timers=self._site.timers,
                clock=self._site.clock,
                wanted=lambda: self.assignment.peers,
                settled=self._report_settled,
            )
            self._reshaper.look()
            announce_leader(self._site, self.group, self.config.name, self.machine.consumers.values())
            if len(self.group.members) > 1:
                account, stream = self._site.account, self.config.name
                STREAM_LEADER.log(account=account, stream=stream, node=self._own_name, term=self.group.term)
        self._changed()

    def _named(self, nodes: Iterable[NodeId]) -> str:
        return ", ".join(sorted(map(self._site.name_of, nodes)))

    def _log_ended(self, kind: EventKind, reason: str, term: int | None = None) -> None:
        """This replica led its stream until now, in this term or the present one."""
        kind.log(
            account=self._site.account,
            stream=self.config.name,
            node=self._own_name,
            term=self.group.term if term is None else term,
            reason=reason,
        )

    @property
    def _own_name(self) -> str:
        return self._site.name_of(self.group.node_id)

    def _lose_leadership(self) -> None:
        """The right to lead is over, though this member may lead its group still: of the stream it leads nothing."""
        if self._leadership is None and self.restoration is None:
            return
        is_removed = self._site.has_no_row(self.assignment)
        if is_removed:
            self._log_ended(STREAM_LEADER_ENDED, "it was deleted")
        else:
            self._log_ended(STREAM_LEADER_LOST, str(self.statistics().mandate.why_not))
        self._fence.close(self.group.term)
        self._end_leadership(is_removed=is_removed)
        self._changed()

    def _weigh_reads(self) -> None:
        """Be in the queue group of direct gets while they may be answered; look again when that may be over."""
        now_ns, until_ns = self._site.clock.mono_ns(), self._freshness.until_ns
        if is_marked(self.config) or not self._mandate.may_read(now_ns):
            self._direct.end()
            return
        self._direct.follow(self.config)
        if until_ns != ENDLESS_NS and self._lapse is None:
            self._lapse = self._site.timers.call_at(until_ns + 1, self._look_at_lapse)

    def _look_at_lapse(self) -> None:
        self._lapse = None
        self.weigh()

    def _changed(self) -> None:
        """The role or the configuration is another one: wake those who wait for this stream."""
        self._site.changes.notify(self.assignment.key)

    def _end_restoration(self) -> None:
        if self.restoration is not None:
            self.restoration.end()
            self.restoration = None

    def _end_leadership(self, reason: bytes = STATUS_LEADER, *, is_removed: bool = False) -> None:
        self._end_restoration()
        leadership, self._leadership = self._leadership, None
        if self._surplus is not None:
            self._surplus.end()
            self._surplus, self._proposed_revision = None, 0
        if leadership is not None:
            for consumer in self.consumer_names()[:CONSUMERS_TOLD_MAX] if is_removed else ():
                self._site.advisories.consumer_action(self.config.name, consumer, "delete")
            leadership.end(STATUS_DELETED if is_removed else reason, is_removed=is_removed)
        reshaper, self._reshaper = self._reshaper, None
        if reshaper is not None:
            reshaper.end()

    def _damaged(self, error: StoreError | OSError) -> None:
        """Bytes could not be read or overwritten: have this replica repaired now, not when the scrub comes by."""
        if self._group is not None:
            self._group.distrust(error)

    def _report_settled(self) -> bool:
        """Tell the meta group that the members are the peers; say whether that has to be looked after."""
        is_changing = self.assignment.is_changing
        if is_changing and self.group.configuration_is_committed:
            self._site.on_settled(self.assignment)
        return is_changing

    def _share_config(self) -> None:
        """Keep one object where the configuration in force equals the assigned one: a node has many streams."""
        if self.machine.config == self.assignment.config:
            self.machine.config = self.assignment.config

    def _propose_config(self) -> None:
        """Bring the assigned configuration into the log when that of an earlier revision is in force."""
        revision = self.assignment.revision
        if self._proposed_revision >= revision or not self._mandate.may_lead or not self.group.is_leader:
            return
        command = self._config_command()
        if command is None:
            return
        self._proposed_revision = revision
        if self._leadership is not None and self._make_room(revision):
            return
        self.group.propose(_proposal(command), partial(self._config_ended, revision))

    def _make_room(self, revision: int) -> bool:
        """Remove what is above the limits of the assigned configuration, if it is much, and propose that afterwards."""
        if self._surplus is not None:
            self._surplus.end()
        limits = limits_of(self.assignment.config)
        self._surplus = Surplus(self._site, self.group, self.machine, limits, partial(self._made_room, revision))
        return self._surplus.begin()

    def _made_room(self, revision: int, outcome: Outcome) -> None:
        command = self._config_command()
        if outcome is Outcome.OK and command is not None and self._proposed_revision == revision:
            self.group.propose(_proposal(command), partial(self._config_ended, revision))
        else:
            self._config_ended(revision, outcome, None)

    def _config_ended(self, revision: int, _outcome: Outcome, _result: object) -> None:
        """It is in force, or is proposed again: by the next leader, or here when this is looked at."""
        if self._proposed_revision == revision:
            self._proposed_revision = 0

    def _config_command(self) -> commands.StreamCommand | None:
        """The command for the assigned configuration; None when it is in force, or as far as other members know."""
        row, machine = self.assignment, self.machine
        if (machine.config_revision, machine.config == row.config) >= (row.revision, True):
            return None
        level = machine.level(self._site.level_in_use())
        command = commands.at_level(commands.SetConfig(encode_config(row.config), row.revision), level)
        return command if isinstance(command, commands.SetConfig) or machine.config != row.config else None

    def _tell_forgotten(self) -> None:
        self._forgotten.tell(self.group)

    def _leading(self) -> StreamLeadership:
        if self._leadership is None:
            raise NotLeaderError(f"this node does not lead {self.config.name}")
        return self._leadership

    async def _change(self, command: commands.StreamCommand) -> object:
        return await self.group.propose_and_wait(_proposal(command))


def _proposal(command: commands.StreamCommand) -> Proposal:
    return Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(command))
