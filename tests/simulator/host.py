"""One simulated node: the real manager and group over the simulated disk and network."""

import random
from collections.abc import Callable, Sequence

import msgpack

from jetraft.cluster.streams.reshape import Change, next_step
from jetraft.cluster.streams.reshaper import contact_of
from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine import Limits, Proposal, Role
from jetraft.raft.group import Group, GroupSetting, GroupSpec, GroupStoppedError, Outcome
from jetraft.raft.joining import Admission
from jetraft.raft.leadership import MembershipChangeRefusedError
from jetraft.raft.machine import NO_LIVE_MESSAGES
from jetraft.raft.manager import Manager
from jetraft.raft.membership import Configuration
from jetraft.store._frame import parse_header, seal
from jetraft.store.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, GroupLog
from jetraft.store.snapshot import Staging
from tests.simulator.catchup import SimCatchup
from tests.simulator.checkers import Checker
from tests.simulator.disk import SimDisk, SimLog
from tests.simulator.joining import RETRY_NS, SimJoining
from tests.simulator.network import Network, Ports
from tests.simulator.world import MS, US, ViolationError, World

GROUP = GroupId("S-R3F-simulate")
INCARNATION = 7
LIVE_MESSAGES = 15


class HistoryMachine:
    """The list of everything applied; its result is the index.

    Commands are messages to the log, and the newest `LIVE_MESSAGES` count as live, so that trimming leaves holes and
    snapshots carry blocks.
    """

    def __init__(self, node: NodeId, checker: Checker, log: GroupLog) -> None:
        self._node = node
        self._checker = checker
        self._log = log
        self.bodies: list[bytes] = []
        self.applied_index = 0
        self._last_seq = 0

    @property
    def first_live_seq(self) -> int:
        return max(1, self._last_seq - LIVE_MESSAGES) if self._last_seq else NO_LIVE_MESSAGES

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        self._checker.on_apply(self._node, entries, self._log)
        for entry in entries:
            if entry.index <= self.applied_index:
                raise ViolationError(f"{self._node} applies {entry.index} again")
            self.applied_index = entry.index
            self._last_seq = max(self._last_seq, parse_header(entry.frame).first_stream_seq)
            self.bodies.append(entry.frame[FRAME_HEADER_BYTES:])
        return [entry.index for entry in entries]

    def snapshot(self) -> bytes:
        return bytes(msgpack.packb([self.applied_index, self._last_seq, self.bodies]))

    def restore(self, state: bytes) -> None:
        self.applied_index, self._last_seq, self.bodies = msgpack.unpackb(state)

    def became_leader(self, term: int) -> None:
        pass

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        pass


class Host:
    """A node that can crash, be paused and start again. Implements the manager's Links as well."""

    def __init__(  # noqa: PLR0913  (what a node is made of)
        self,
        world: World,
        network: Network,
        checker: Checker,
        *,
        node_id: NodeId,
        members: tuple[NodeId, ...],
        policy: CheckpointPolicy,
        tends_members: bool = False,
    ) -> None:
        self.tends_members = tends_members
        self.node_id = node_id
        self.disk = SimDisk(world)
        self.alive = False
        self._beginning = False  # it was admitted, and writes that down
        self.forgetful = False  # its disk was lost, and it has not been admitted again
        self.others = tuple(node for node in members if node != node_id)
        self.process = 0
        self.on_peer_up: list[Callable[[NodeId], None]] = []
        self.on_peer_down: list[Callable[[NodeId], None]] = []
        self._world = world
        self._network = network
        self._checker = checker
        self._members = members
        self._policy = policy
        self._paused: list[Callable[[], None]] | None = None
        self._turn_scheduled = False
        self._tick_at_ns: int | None = None
        self._handlers: dict[int, Callable[[NodeId, memoryview], None]] = {}
        self._led_term = 0
        self._commit_seen = 0
        network.ports[node_id] = Ports(
            is_alive=lambda: self.alive,
            deliver=lambda sender, channel, payload: self._do(
                lambda: self._handlers[channel](sender, memoryview(payload))
            ),
            peer_up=lambda node: self._do(lambda: [callback(node) for callback in self.on_peer_up]),
            peer_down=lambda node: self._do(lambda: [callback(node) for callback in self.on_peer_down]),
        )

    # The manager's Links.

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        return self._network.send(self.node_id, to, channel, payload)

    def on_frame(self, channel: int, handler: Callable[[NodeId, memoryview], None]) -> None:
        self._handlers[channel] = handler

    def is_up(self, node: NodeId) -> bool:
        return self._network.is_up(self.node_id, node)

    # Life.

    def start(self) -> None:
        """A new process over what the disk kept."""
        assert not self.alive
        self.alive = True
        self.process += 1
        process = self.process
        self.on_peer_up.clear()
        self.on_peer_down.clear()
        self._paused, self._turn_scheduled, self._tick_at_ns = None, False, None
        self._led_term = self._commit_seen = 0
        log = SimLog(self._world, self.disk, lambda: self.alive and self.process == process, self._checker.on_append)
        setting = GroupSetting(
            node_id=self.node_id,
            seal=seal,
            rng=random.Random(self._world.rng.getrandbits(32)),
            limits=Limits(append_bytes_max=400, window_bytes=2000),
            checkpoints=self._policy,
        )
        self.manager = Manager(setting, links=self, clock=self._world.clock)
        self.manager.on_dirty = self._schedule_turn
        self.catchup = SimCatchup(self._world, self)
        self.joining = SimJoining(self._world, self)
        if self.forgetful:
            self.log = log
            self._ask_to_join()
        else:
            self.begin(log)
        if self.tends_members:
            self._tend_members()

    def begin(self, log: SimLog) -> None:
        """Start the replica over its log; the checkers look at this log from now on."""
        self.log = log
        self.machine = HistoryMachine(self.node_id, self._checker, log)
        preferred = self._members[0] if self._world.chance(0.5) else None
        spec = GroupSpec(group_id=GROUP, incarnation=INCARNATION, members=self._members, preferred_leader=preferred)
        self.group: Group = self.manager.create(spec, log, self.machine)

    @property
    def leads(self) -> bool:
        return self.alive and not self.forgetful and self.group.is_leader

    def lose_disk(self) -> None:
        """The process ends, and comes back without anything that it had promised."""
        self.crash(power=True)
        self.disk.wipe()
        self._network.forget(self.node_id)
        self.forgetful = True
        self._world.counts["lost disks"] += 1

    def _ask_to_join(self) -> None:
        process = self.process

        def again() -> None:
            if self.process == process and self.alive and self.forgetful and not self._beginning:
                self._ask_to_join()

        self._beginning = False
        self.joining.ask()
        self._world.after(RETRY_NS, again)

    def admitted(self, admission: Admission) -> None:
        """Begin the new log, and take part when its beginning is durable."""
        process = self.process
        log = self.log
        self._beginning = True
        admission.begin(log)

        def finish() -> None:
            if self.process != process or not self.alive:
                return
            if log.durable_token < log.token():
                log.submit()
                self._world.after(5 * MS, finish)
                return
            self.forgetful = False
            self._world.counts["admissions"] += 1
            self._world.note(f"{self.node_id} is admitted in term {admission.term}")
            self.begin(log)
            self._observe()
            self._schedule_turn()

        finish()

    def _tend_members(self) -> None:
        """What a leader does so that all members vote (cluster/streams/reshaper.py)."""
        process = self.process

        def again() -> None:
            if self.process == process and self.alive:
                self._tend_members()

        if self.leads and self._paused is None:
            step = next_step(self.node_id, self._members, self.group.configuration, contact_of(self.group))
            if isinstance(step, Change):
                self.change_members(Configuration(voters=step.voters, learners=step.learners))
        self._world.after(100 * MS, again)

    def replace_log(self, staging: Staging) -> None:
        """The owner's part of catching up: end the replica, replace the log, start again (raft/catchup.py)."""
        process = self.process
        self.manager.remove(GROUP)

        def finish() -> None:
            if self.process != process or not self.alive:
                return
            if self.log.durable_token < self.log.token():
                self.log.submit()
                self._world.after(5 * MS, finish)
                return
            log = staging.finish()
            assert isinstance(log, SimLog)
            self._world.counts["snapshots"] += 1
            self._world.note(f"{self.node_id} has installed a snapshot up to {log.boundary[0]}")
            self.begin(log)
            self._observe()
            self._schedule_turn()

        self._world.after(self._world.between(0, 20 * MS), finish)

    def crash(self, *, power: bool) -> None:
        """The process ends; `power` also takes what was not fsynced."""
        if self.alive:
            self.alive = False
            self.disk.crash(power=power)
            self._network.crashed(self.node_id)

    def restart(self) -> None:
        if not self.alive:
            self.start()

    def pause(self) -> None:
        """SIGSTOP: nothing happens here until `resume`; peers will notice the silence."""
        if self.alive and self._paused is None:
            self._paused = []

    def resume(self) -> None:
        events, self._paused = self._paused or [], None
        for event in events:
            self._do(event)

    def _do(self, event: Callable[[], object]) -> None:
        """One event of the node's loop, and what must hold after it."""
        if not self.alive:
            return
        if self._paused is not None:
            self._paused.append(lambda: event())  # noqa: PLW0108  (typed as returning nothing)
            return
        event()
        self._observe()
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if self._turn_scheduled:
            return
        self._turn_scheduled = True
        process = self.process

        def turn() -> None:
            if self.process == process:
                self._turn_scheduled = False
                self._do_turn()

        self._world.after(self._world.between(5 * US, 200 * US), turn)

    def _do_turn(self) -> None:
        if not self.alive:
            return
        if self._paused is not None:
            self._paused.append(self._do_turn)
            return
        self.manager.tick(self._world.now_ns)
        self.manager.flush()
        self._observe()
        due_ns = self.manager.next_deadline_ns
        if due_ns is not None and (self._tick_at_ns is None or due_ns < self._tick_at_ns):
            self._tick_at_ns = due_ns
            process = self.process

            def tick() -> None:
                if self.process == process:
                    self._tick_at_ns = None
                    self._schedule_turn()

            self._world.at(due_ns, tick)

    # What the checkers look at.

    def _observe(self) -> None:
        if self.forgetful:
            return
        group = self.group
        core = group.core
        if group.failed is not None and not isinstance(group.failed, OSError | GroupStoppedError):
            raise ViolationError(f"{self.node_id} stopped: {group.failed!r}")
        if core.role is Role.LEADER and core.term != self._led_term:
            self._led_term = core.term
            self._checker.on_leader(core.term, self.node_id, self.process, self.log)
            self._world.note(f"{self.node_id} leads term {core.term}")
        if core.commit_index < self._commit_seen:
            raise ViolationError(f"{self.node_id}: commit index goes back to {core.commit_index}")
        top = core.applicable_index
        low = max(self._commit_seen + 1, self.log.first_index)
        if low <= top:
            for entry in self.log.entries(low, top, 1 << 30):
                self._checker.on_commit(self.node_id, core.term, entry)
        self._commit_seen = max(self._commit_seen, top)

    def propose(self, number: int, body: bytes) -> None:
        """A client's command at this node, if it takes itself for the leader."""

        proposal = Proposal(kind=Kind.MESSAGES, first_seq=number, count=1, body=body)

        def done(outcome: Outcome, result: object) -> None:
            self._world.counts[outcome.value] += 1
            if outcome is Outcome.OK:
                assert isinstance(result, int)
                self._checker.on_acknowledged(body, result)

        self._do(lambda: self.group.propose(proposal, done))

    def change_members(self, configuration: Configuration) -> None:
        """An operator's wish at this node; the rules may not allow it now."""

        def change() -> None:
            try:
                self.group.change_members(configuration)
            except MembershipChangeRefusedError:
                return
            self._world.counts["member changes"] += 1

        self._do(change)
