"""One simulated node: the real manager, group, log and stream replica over the simulated disk, clock and network.

Real are: the engine and its group (raft/), the log and its recovery, repair and snapshots (store/), and the whole
stream replica (cluster/streams/replica): admission, state machine, consumers, reshaping of members. Simulated are
time and luck, the disk under the log, the links, the clients; and the calls of catching up, joining and repair, whose
real parts are driven by messages instead of tasks.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.batch_room import BatchRoom
from jetraft.cluster.site import Site
from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Role
from jetraft.raft.engine.port import EngineFactory, Limits
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSetting
from jetraft.raft.manager import Manager
from jetraft.raft.recovery.joining import MemberAdmission
from jetraft.raft.turns import GroupStoppedError
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Identity
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.preallocate import PieceSizes
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.scrub import verify
from jetraft.store.log.snapshot import PartDamagedError, covers
from jetraft.store.log.start import LogOptions
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.model.limits import BatchLimits
from jetraft.store.model.steady import ClockReading, SteadyClock
from jetraft.store.port import HardStateLost, StoreCorrupt, StoreError, StoreRefused
from tests.simulator.catchup import SimCatchup
from tests.simulator.checkers import Checker
from tests.simulator.disk import SimDisk
from tests.simulator.features.exchange import Exchange, Way
from tests.simulator.joining import RETRY_NS, SimJoining
from tests.simulator.network import Network
from tests.simulator.outbox import SimOutbox
from tests.simulator.process import Process
from tests.simulator.repairing import SimRepairs
from tests.simulator.timers import SimTimers
from tests.simulator.waiting import when_durable, when_ledger_complete
from tests.simulator.world import MS, US, HostClock, ViolationError, World

if TYPE_CHECKING:
    from jetraft.raft.recovery.snapshot import SnapshotFetch
    from jetraft.store.port import Entry
    from tests.simulator.client import Client

GROUP = GroupId("S-R3F-simulate")
INCARNATION = 7
ROOT = Path("/node")
PATH = ROOT / "groups" / "simulate"
SMALL_BLOCKS = LogOptions(block_bytes_first=900, block_bytes_max=1200, mode=RecoveryMode.SALVAGE)  # much to be trimmed
LARGE_BLOCKS = LogOptions(  # room for zeros ahead of the frames (store/log/preallocate.py)
    block_bytes_first=4000,
    block_bytes_max=8000,
    pieces=PieceSizes(after_batches=2, piece_bytes=400, piece_batches_min=1, step_bytes=150, aligned_bytes=50),
    mode=RecoveryMode.SALVAGE,
)
CLOCKS_NS = NS_PER_S  # between two looks at the clocks of the others
FLOORS_NS = 200 * MS
CLOCK_ERROR_NS = 20 * MS  # of what is heard of them
LIMITS = Limits(append_bytes_max=600, window_bytes=3000)


@attrs.frozen(kw_only=True)
class HostSetting:
    """What the nodes of a run share."""

    assignment: StreamAssignment
    engine: EngineFactory
    policy: CheckpointPolicy
    options: LogOptions
    rots: bool = False
    judges_ages: bool = False
    notes_floors: bool = False  # as a node does, five times a second (docs/storage.md)
    exchange: Exchange | None = None  # with nodes of another group
    batch_limits: BatchLimits = attrs.Factory(BatchLimits)


class Host(Process):
    """One node. It has no `group` before its log is whole and it has been admitted."""

    disk: SimDisk

    def __init__(  # noqa: PLR0913  (what a node is made of)
        self,
        world: World,
        network: Network,
        checker: Checker,
        client: "Client",
        *,
        node_id: NodeId,
        members: tuple[NodeId, ...],
        setting: HostSetting,
    ) -> None:
        super().__init__(world, network, node_id=node_id, members=members)
        self.disk = SimDisk(world)
        self.clock = HostClock(world)
        self.assignment = setting.assignment
        self.forgetful = False  # its memory is lost, and it has not been admitted again
        self.replica: StreamReplica | None = None
        self._setting = setting
        self._checker = checker
        self._client = client
        self._turn_scheduled = False
        self._wake_ns: int | None = None
        self._led_term = self._commit_seen = self._began_at = 0
        self.steady = SteadyClock(self.clock)  # of the process

    @property
    def is_in_time(self) -> bool:
        """Whether it runs, and its clock is set."""
        return self.alive and self.steady.is_set

    @property
    def group(self) -> Group | None:
        """The replica's group, while there is one."""
        return None if self.replica is None else self.replica.group

    @property
    def leads(self) -> bool:
        return self.alive and self.replica is not None and self.replica.is_leader

    @property
    def is_elected(self) -> bool:
        """Whether it has won an election, though it may not lead before its no-op is committed."""
        return self.alive and self.group is not None and self.group.core.role is Role.LEADER

    @property
    def has_failed(self) -> bool:
        return self.group is not None and self.group.failed is not None

    # Life.

    def start(self) -> None:
        self.steady = self._new_clock()
        self.begin_process()
        self.replica = None
        self._turn_scheduled, self._wake_ns = False, None
        setting = GroupSetting(
            node_id=self.node_id,
            seal=seal,
            rng=random.Random(self._world.rng.getrandbits(32)),
            limits=LIMITS,
            checkpoints=self._setting.policy,
            engine=self._setting.engine,
        )
        self.manager = Manager(setting, links=self, clock=self.clock, on_dirty=self.schedule_turn)
        self.timers = SimTimers(self.schedule_turn)
        self.on_peer_up.connect(lambda _node: self.compare_clocks())
        self._look_at_clocks()
        if self._setting.notes_floors:
            self.later(FLOORS_NS, self._note_floors)
        self.outbox = SimOutbox(
            self._client.on_message,
            lambda: None,  # `do` schedules the turn for what a client does
            deliver=lambda run, source: self._client.on_deliveries(self, run, source),
            elsewhere=None if self._setting.exchange is None else Way(self._setting.exchange, self),
        )
        self.site = Site(
            manager=self.manager,
            outbox=self.outbox,
            timers=self.timers,
            clock=self.steady,
            rng=random.Random(self._world.rng.getrandbits(32)),
            batches=BatchRoom(self._setting.batch_limits),
        )
        self.catchup = SimCatchup(self._world, self)
        self.joining = SimJoining(self._world, self)
        self.repairs = SimRepairs(self._world, self)
        self.ledger = self._open_ledger()
        self.open()

    def open(self) -> None:
        """Take part with what the disk has, repaired if need be."""
        log = self._open_log()
        if log.damaged_blocks:
            self._world.note(f"{self.node_id}: entries {log.damaged_entries} are damaged")
            self._world.counts["repairs"] += 1
            self.repairs.start(log, self._take_part)
        else:
            self._take_part(log)

    @property
    def has_damaged_end(self) -> bool:
        """Whether the log's damaged end is still its end on disk: it would be found, and the others asked, again."""
        return bool(self.log.damaged_blocks) and self.log.last_index <= self._began_at

    def open_later(self) -> None:
        """Open again after a while, and, as raft/recovery/repair.py does, not before the ledger is complete."""
        self.later(RETRY_NS, lambda: when_ledger_complete(self, self.open))

    def _mend(self) -> None:
        """Damage was found while the replica ran: what cluster/upkeep/restarter.py has done about it."""
        assert self.replica is not None
        self._world.note(f"{self.node_id}: {self.replica.group.failed}")
        self._world.counts["found running"] += 1
        self.replica.stop()
        self.replica = None
        old = self.log

        def reopen() -> None:
            old.close()
            self.open()

        when_durable(self, old, reopen)

    def scrub(self) -> None:
        """Read every block that no longer grows, as cluster/upkeep/scrubber.py does in the course of a week."""
        if self.alive and self.group is not None and self.group.failed is None:
            try:
                for target in self.log.upkeep.scrub_targets():
                    verify(self.disk, target)
            except StoreCorrupt as error:
                self.group.distrust(error)

    def _open_ledger(self) -> Ledger:
        """As store/ledger/node_dir.py does: what has a directory is known, whatever the ledger says."""
        known = [(GROUP, INCARNATION)] if self.disk.list_directory(PATH) else []
        return Ledger.open(self.disk, ROOT, known)

    def _open_log(self) -> FileLog:
        """What the disk has kept. Without term and vote, or without a start, it is as good as nothing (rule 30)."""
        identity = Identity(node_id=self.node_id, group_id=GROUP, incarnation=INCARNATION)
        cache = BlockCache(1 << 20)
        try:
            return open_log(self.ledger, PATH, identity, cache, self._setting.options)
        except (HardStateLost, StoreCorrupt, StoreRefused) as error:
            if not self.forgetful and not self._checker.may_lose(self.node_id):
                raise ViolationError(f"{self.node_id} cannot open its log: {error}") from error
            self._give_up(error)
            return open_log(self.ledger, PATH, identity, cache, self._setting.options)

    def _give_up(self, error: StoreError) -> None:
        self._world.note(f"{self.node_id} gives up its log: {error}")
        self._world.counts["lost memories"] += 1
        self._forget()

    def give_up_log(self, error: StoreError) -> None:
        """The log cannot be repaired: begin without one, as cluster/streams/replica/host.py does."""
        self._give_up(error)
        self._take_part(self._open_log())

    def _take_part(self, log: FileLog) -> None:
        self.log = log
        self._checker.on_given_up(log)
        if self.forgetful:
            self._ask_to_join()
        else:
            self.begin(log)

    def begin(self, log: FileLog) -> None:
        """Start the replica over its log; the checkers look at this log from now on."""
        assert log.failed is None
        self.log = log
        self._led_term = self._commit_seen = 0
        self._began_at = log.last_index
        self._checker.watch_log(log)
        try:
            self.replica = StreamReplica.start(assignment=self.assignment, log=log, site=self.site)
        except StoreCorrupt:
            if not self._setting.rots:
                raise
            log.close()  # since it was opened; the owner of a replica that does not start opens it again
            self.open_later()
            return
        self._checker.watch_machine(self.node_id, self.replica.machine, log)
        self.schedule_turn()

    def crash(self, *, power: bool) -> None:
        super().crash(power=power)
        self.replica = None

    def lose_disk(self) -> None:
        """The process ends, and comes back without anything that it had promised."""
        self.crash(power=True)
        self._world.counts["lost disks"] += 1
        self._forget()

    def _forget(self) -> None:
        self.disk.wipe()
        self.ledger = self._open_ledger()
        self._network.forget(self.node_id)
        self.forgetful = True

    def _ask_to_join(self) -> None:
        if self.forgetful and self.replica is None and not self.joining.has_answer:
            self.joining.ask()
            self.later(RETRY_NS, self._ask_to_join)

    def admitted(self, admission: MemberAdmission) -> None:
        """Begin the new log, and take part when its beginning is durable."""
        admission.begin(self.log)

        def finish() -> None:
            self.forgetful = False
            self._world.counts["admissions"] += 1
            self._world.note(f"{self.node_id} is admitted in term {admission.term}")
            self.begin(self.log)

        when_durable(self, self.log, finish)

    def replace_log(self, fetch: "SnapshotFetch", done: Callable[[PartDamagedError | None], None]) -> None:
        """The owner's part of catching up: end the replica, replace the log, start again (raft/recovery/catchup.py)."""
        assert self.replica is not None
        committed = self.replica.group.commit_index
        self.replica.stop()
        self.replica = None
        old, staging = self.log, fetch.staging
        assert staging is not None

        def finish() -> None:
            if covers(old, fetch.offer.index, fetch.offer.index_term):
                self._world.counts["snapshots refused"] += 1
                staging.abandon()
                done(None)
                self.begin(old)
                return
            old.close()
            try:
                log = staging.finish()
            except PartDamagedError as error:
                if not self._setting.rots:  # files are damaged while nobody has them open: a sender knows what it lacks
                    raise ViolationError(f"{self.node_id} cannot install a snapshot: {error}") from error
                self._world.counts["spoilt snapshots"] += 1
                self.open()
                done(error)
                return
            assert isinstance(log, FileLog)
            if log.last_index < committed:
                raise ViolationError(f"{self.node_id} goes back from {committed} to {log.last_index}")
            self._world.counts["snapshots"] += 1
            self._world.note(f"{self.node_id} has installed a snapshot up to {log.boundary[0]}")
            done(None)
            when_durable(self, log, lambda: self.begin(log))

        self.later(self._world.between(0, 20 * MS), lambda: when_durable(self, old, finish))

    def reconfigure(self, assignment: StreamAssignment) -> None:
        """The stream's row has changed."""
        self.assignment = assignment
        if self.replica is not None:
            self.do(lambda: None if self.replica is None else self.replica.reconfigure(assignment))

    # Turns.

    def schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            number = self.number
            self._world.after(
                self._world.between(5 * US, 200 * US), lambda: self._turn() if self.number == number else None
            )

    def _turn(self) -> None:
        self._turn_scheduled = False
        if not self.alive:
            return
        if self._paused is not None:
            self._paused.append(lambda: None)  # `do` schedules a turn
            return
        now_ns = self.clock.mono_ns()
        self.manager.tick(now_ns)
        self.timers.run_due(now_ns)
        self.outbox.hand_over()
        self.manager.flush()
        while self.outbox.hand_over():
            self.manager.flush()
        self.observe()
        self._sleep()

    def _sleep(self) -> None:
        """Wake up at the next deadline of a group or a timer."""
        due = [at for at in (self.manager.next_deadline_ns, self.timers.next_ns) if at is not None]
        if not due:
            return
        wake_ns = self.clock.world_ns(min(due))
        if self._wake_ns is None or wake_ns < self._wake_ns:
            self._wake_ns = wake_ns
            number = self.number

            def wake() -> None:
                if self.number == number and self._wake_ns == wake_ns:
                    self._wake_ns = None
                    self.schedule_turn()

            self._world.at(wake_ns, wake)

    def clock_jumped(self) -> None:
        """Deadlines may have passed meanwhile."""
        self._wake_ns = None
        if self.alive:
            self.schedule_turn()

    def _new_clock(self) -> SteadyClock:
        """The clock of a new process. Where all start at once, wall clocks are all there is: then they are right."""
        hosts = self._client.hosts.values()
        if self._setting.judges_ages and not any(host.is_in_time for host in hosts):
            for host in hosts:
                host.clock.unix_offset_ns = 0
        return SteadyClock(self.clock)

    def _note_floors(self) -> None:
        self.manager.note_floors()
        self.later(FLOORS_NS, self._note_floors)

    def _look_at_clocks(self) -> None:
        self.compare_clocks()
        self.later(CLOCKS_NS, self._look_at_clocks)

    def compare_clocks(self) -> None:
        """What cluster/clocks.py does: ask those that are linked, and follow them. The network makes it inexact."""
        readings = []
        for node in self.others:
            host = self._client.hosts[node]
            if self.is_up(node) and host.answers:
                wall_ns, steady_ns = host.steady.reading()
                own_ns = self.steady.elapsed_ns() + self._world.between(-CLOCK_ERROR_NS, CLOCK_ERROR_NS)
                steady_offset = None if steady_ns is None else steady_ns - own_ns
                readings.append(ClockReading(wall_ns=wall_ns - own_ns, steady_ns=steady_offset))
        self.steady.adjust(readings, nodes=len(self.others) + 1)

    # What the checkers look at.

    def observe(self) -> None:
        group = self.group
        if group is None:
            return
        core = group.core
        if isinstance(group.failed, StoreCorrupt) and self._setting.rots:
            self._mend()
            return
        if group.failed is not None and not isinstance(group.failed, OSError | GroupStoppedError):
            raise ViolationError(f"{self.node_id} stopped: {group.failed!r}")
        if core.role is Role.LEADER and core.term != self._led_term:
            self._led_term = core.term
            self._checker.on_leader(core.term, self.node_id, self.number, self.log)
            self._world.note(f"{self.node_id} leads term {core.term}")
            self._checker.on_time_of_leader(is_known=self.steady.is_set)
        top = core.applicable_index
        if top != self._commit_seen:
            if core.commit_index < self._commit_seen:
                raise ViolationError(f"{self.node_id}: commit index goes back to {core.commit_index}")
            low = max(self._commit_seen + 1, self.log.first_index)
            try:
                entries = self.log.entries(low, top, 1 << 30) if low <= top else ()
            except StoreCorrupt:
                if not self._setting.rots:
                    raise
                return  # rotted since it was committed: looked at when it has come back (seed rot 8057)
            self._note_committed(entries, core.term)
            self._commit_seen = max(self._commit_seen, top)

    def _note_committed(self, entries: "Sequence[Entry]", term: int) -> None:
        for entry in entries:
            self._checker.on_commit(self.node_id, term, entry)

    # What clients and operators do.

    def publish(self, subject: bytes, *, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b"") -> None:
        """A client's message enters at this node."""
        self.do(lambda: self.outbox.publish(subject, reply=reply, hdr=hdr, payload=payload))

    def change_members(self, configuration: Configuration) -> None:
        """An operator's wish at this node; the rules may not allow it now."""

        def change() -> None:
            try:
                assert self.group is not None
                self.group.change_members(configuration)
            except MembershipChangeRefusedError:
                return
            self._world.counts["member changes"] += 1

        self.do(change)
