"""A directed generator for repair: members with logs that differ, damage in any of them, and the real repair.

A run of the simulator seldom damages an entry just where two histories part. Here a short random history is played
with a model of Raft (elections with up-to-date votes, appends that reach some followers, commits by majority), so that
logs have ends that no leader has any more. Each log is written by the real store, entries of any members are damaged,
and the members open and repair their logs in any order, some of them away at first; appends of the history that were
still on their way come in between. Looked at is what repair promises:

- an entry has the bytes of its index and term, or what stands for it has, the same on all members; so has the one
  before it;
- every log is its own one, or has what was committed in its place; a boundary is an entry that was there;
- whoever can be elected by members that take part has every committed entry;
- a committed entry is not given up while a member has it sound.

With `loses_end` the newest block of one member is zeroed instead, whatever its ledger has noted. Its acknowledgements
still count: the leader goes on, and commits what a late append brings to one more member.
"""

import random
from collections.abc import Coroutine, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import attrs

from jetraft.raft.engine.acceptor import LogDivergedError
from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Append, AppendAccepted, TermNotice
from jetraft.raft.engine.port import CoreSetup, Engine
from jetraft.raft.mesh.rpc import PeerUnavailableError
from jetraft.raft.recovery.repair import OvertakenError, RepairPendingError, Repairs
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, BLOCK_SUFFIX, FRAME_HEADER_BYTES, Identity, Kind, serial_of
from jetraft.store.frames.placeholder import is_placeholder_frame
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from tests.doubles.lossy_disk import LossyDisk
from tests.simulator.disk import proven_places
from tests.simulator.repairing import file_work_at_once

GROUP: Final = GroupId("S-R3F-mendings")
ROOT: Final = Path("/node")
PATH: Final = ROOT / "groups" / "mendings"
LOG: Final = PATH / "log-00000001"
INCARNATION: Final = 7
ROUNDS: Final = 8
LIVE_SEQ: Final = 1 << 60  # no entry holds a message that must stay


@attrs.define
class Member:
    """One member in the model."""

    entries: list[Entry] = attrs.Factory(list)
    term: int = 0  # promised
    commit_index: int = 0

    @property
    def end(self) -> tuple[int, int]:
        """What votes compare."""
        return (self.entries[-1].term if self.entries else 0), len(self.entries)


@attrs.frozen
class Late:
    """An append that is still on its way."""

    sender: NodeId
    to: NodeId
    message: Append


class History:
    """A short life of a group. Everything in it was allowed."""

    def __init__(self, rng: random.Random, nodes: Sequence[NodeId]) -> None:
        self._rng = rng
        self.members = {node: Member() for node in nodes}
        self.frames: dict[tuple[int, int], bytes] = {}
        self.before: dict[tuple[int, int], int] = {}
        self.committed: list[int] = []  # the terms of the committed entries, from index 1 on
        self.late: list[Late] = []
        self.leader: NodeId | None = None
        self.lead_term = 0
        for _ in range(rng.randrange(8, 30)):
            self._step()
        if rng.random() < 0.6:
            self._part()

    def _part(self) -> None:
        """The leader writes what nobody gets; the others elect one of them, who commits something in that place."""
        if self.leader is None:
            return
        if self.members[self.leader].term == self.lead_term:
            self._append(self._rng.choice((1, 2)))
        others = [node for node in self.members if node != self.leader]
        self._elect(self._rng.sample(others, len(self.members) // 2 + 1))
        for _ in range(self._rng.choice((1, 2, 4))):
            self._replicate()

    def _step(self) -> None:
        leads = self.leader is not None and self.members[self.leader].term == self.lead_term
        if not leads or self._rng.random() < 0.15:
            self._elect()
        elif self._rng.random() < 0.4:
            self._append(self._rng.choice((1, 1, 2, 3)))
        else:
            self._replicate()

    def _elect(self, voters: Sequence[NodeId] = ()) -> None:
        voters = voters or self._rng.sample(list(self.members), len(self.members) // 2 + 1)
        best = max(voters, key=lambda node: self.members[node].end)
        self.lead_term = max(self.members[node].term for node in voters) + 1
        self.leader = best
        for node in voters:
            self.members[node].term = self.lead_term
        self._append(1)

    def _append(self, count: int) -> None:
        assert self.leader is not None
        entries = self.members[self.leader].entries
        for _ in range(count):
            index, term = len(entries) + 1, self.lead_term
            body = b"%d of %d" % (index, term) + b"." * self._rng.choice((20, 60))
            frame = _frame.seal(Kind.META, index=index, term=term, incarnation=INCARNATION, body=body)
            self.frames[index, term] = frame
            self.before[index, term] = entries[-1].term if entries else 0
            entries.append(Entry(index=index, term=term, kind=Kind.META, frame=frame))

    def _replicate(self) -> None:
        assert self.leader is not None
        leader = self.members[self.leader]
        to = self._rng.choice([node for node in self.members if node != self.leader])
        follower = self.members[to]
        if follower.term > self.lead_term:
            return
        same = 0
        for own, other in zip(follower.entries, leader.entries, strict=False):
            if own.term != other.term:
                break
            same = own.index
        end = self._rng.randrange(same, len(leader.entries) + 1)
        message = Append(
            term=self.lead_term,
            prev_index=same,
            prev_term=leader.entries[same - 1].term if same else 0,
            commit_index=leader.commit_index,
            entries=leader.entries[same:end],
        )
        if self._rng.random() < 0.3:
            self.late.append(Late(self.leader, to, message))
            return
        follower.term = self.lead_term
        if end > same:
            follower.entries[same:] = leader.entries[same:end]
        follower.commit_index = max(follower.commit_index, min(leader.commit_index, end))
        self._commit()

    def _commit(self) -> None:
        assert self.leader is not None
        leader = self.members[self.leader]
        for entry in leader.entries[leader.commit_index :]:
            holders = [member for member in self.members.values() if _has(member, entry)]
            if entry.term == self.lead_term and 2 * len(holders) > len(self.members):
                leader.commit_index = entry.index
        self.committed += [entry.term for entry in leader.entries[len(self.committed) : leader.commit_index]]


def _has(member: Member, entry: Entry) -> bool:
    return len(member.entries) >= entry.index and member.entries[entry.index - 1].term == entry.term


@attrs.define(eq=False)
class Running:
    """A group that runs over a mended log: what repairs read and ask of it."""

    core: Engine
    node_id: NodeId
    log: FileLog
    disk: LossyDisk
    configuration: Configuration
    incarnation: int = INCARNATION
    is_voter: bool = True
    failed: Exception | None = None

    @property
    def commit_index(self) -> int:
        return self.core.commit_index

    @property
    def term(self) -> int:
        return self.core.term

    def distrust(self, error: Exception) -> None:
        self.failed = error

    def promise(self, term: int) -> int:
        if term > self.core.term:
            self.core.step(self.node_id, TermNotice(term=term), 1)
        durable_term = self.log.hard_state.term if self.log.durable_token >= self.log.hard_state_token else 0
        self.log.submit()
        self.disk.finish()  # too late for this answer
        return durable_term


@attrs.define(eq=False)
class Manager:
    """What repairs need of one."""

    groups: dict[GroupId, Running] = attrs.Factory(dict)

    def serve_strays(self, handler: Any) -> None:
        """Everybody in this play is asked in turn: nothing is waited for."""


@attrs.define(eq=False)
class Node:
    """One member with its disk."""

    play: "Mending"
    node_id: NodeId
    disk: LossyDisk = attrs.Factory(LossyDisk)
    manager: Manager = attrs.Factory(Manager)
    is_up: bool = True
    is_gone: bool = False  # it has given its log up, and takes no part before it is admitted again
    waiting: FileLog | None = None
    repairs: Repairs = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        manager: Any = self.manager
        self.repairs = Repairs(manager, self)

    def serve(self, method: str, handler: Any) -> None:
        """See CallLinks."""

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        """See CallLinks."""
        del method, timeout_s, bulk
        node = self.play.nodes[to]
        if not node.is_up or node.is_gone:
            raise PeerUnavailableError(to)
        try:
            return node.repairs.answer(self.node_id, payload)
        finally:
            node.disk.finish()

    @property
    def running(self) -> Running | None:
        return self.manager.groups.get(GROUP)

    @property
    def identity(self) -> Identity:
        return Identity(node_id=self.node_id, group_id=GROUP, incarnation=INCARNATION)

    def opened(self) -> FileLog:
        ledger = Ledger.open(self.disk, ROOT)
        return open_log(ledger, PATH, self.identity, BlockCache(), self.play.options)

    def open(self) -> None:
        """One attempt."""
        log = self.waiting or self.opened()
        self.waiting = None
        self.play.check_knowledge(self.node_id, log)
        if log.damaged_blocks:
            try:
                log = finished(self.repairs.repair(log, [node for node in self.play.nodes if node != self.node_id]))
            except RepairPendingError:
                self.waiting = next(iter(self.repairs._pending.waiting.values()), None)
                return
            except OvertakenError:
                self.is_gone = True
                return
        self.play.run_over(self, log)


def finished(work: Coroutine[Any, Any, FileLog]) -> FileLog:
    """The result of a coroutine that waits for nothing here."""
    try:
        work.send(None)
    except StopIteration as end:
        found: FileLog = end.value
        return found
    raise AssertionError("a repair waits for something that is not there")


class WrongError(Exception):
    """A promise is broken."""


class Mending:
    """One seed. `run` returns what was wrong, None when nothing was."""

    def __init__(self, seed: int, *, loses_end: bool = False) -> None:
        self._rng = rng = random.Random(seed)
        self._loses_end = loses_end
        self._victim: NodeId | None = None  # has lost its end
        size = 5 if rng.random() < (0.6 if loses_end else 0.2) else 3
        self.options = LogOptions(
            block_bytes_first=rng.choice((BLOCK_HEAD_BYTES + 300, 600, 4000)),
            block_bytes_max=600,
            mode=RecoveryMode.SALVAGE,
        )
        self.nodes = {node: Node(self, node) for node in (NodeId(f"node000{number}") for number in range(1, size + 1))}
        self.history = History(rng, list(self.nodes))
        self._configuration = Configuration(voters=tuple(self.nodes))
        self._seen = dict(self.history.frames)
        self._hurt: dict[NodeId, set[int]] = {node: set() for node in self.nodes}
        self._late = list(self.history.late)
        rng.shuffle(self._late)
        self.counts = {"damaged": 0, "opened": 0, "gone": 0, "placeholders": 0, "waiting": 0, "committed late": 0}

    def run(self) -> str | None:
        """Play it."""
        with file_work_at_once():
            for node in self.nodes.values():
                self._write(node)
            if self._loses_end:
                self._lose_end()
            else:
                self._damage_any()
            try:
                self._play()
            except WrongError as error:
                return f"violation: {error}"
            except LogDivergedError as error:
                return f"violation: {error}"
        return None

    def _play(self) -> None:
        away = self._rng.sample(list(self.nodes.values()), self._rng.choice((0, 0, 1, 1)))
        if self._loses_end and self.history.leader is not None and self._rng.random() < 0.5:
            away = [self.nodes[self.history.leader]]
        for number in range(ROUNDS):
            for node in away:
                node.is_up = number >= ROUNDS // 2
            for node in self._rng.sample(list(self.nodes.values()), len(self.nodes)):
                if node.is_up and not node.is_gone and node.running is None:
                    node.open()
                if self._late and self._rng.random() < 0.3:
                    self._deliver(self._late.pop())
        for late in self._late:
            self._deliver(late)
        for node in self.nodes.values():
            self.counts["gone"] += node.is_gone
            if node.running is not None:
                self._check(node.node_id, node.running.log)
        self.counts["opened"] = sum(node.running is not None for node in self.nodes.values())
        self.counts["waiting"] = len(self.nodes) - self.counts["opened"] - self.counts["gone"]
        self._check_elections()

    # What was on the disks.

    def _write(self, node: Node) -> None:
        member, rng = self.history.members[node.node_id], self._rng
        log = node.opened()
        rest = list(member.entries)
        checkpoint = rng.randrange(0, member.commit_index + 1) if rng.random() < 0.5 else 0
        while rest:
            some, rest = rest[:1], rest[1:]
            while rest and rest[0].term == some[0].term and rng.random() < 0.5:
                some.append(rest.pop(0))
            if some[0].term > log.hard_state.term:
                log.set_hard_state(HardState(term=some[0].term, vote=None))
            log.append(some)
            log.submit()
            node.disk.finish()
            if rng.random() < 0.2:
                log.note_floor()
        if member.term > log.hard_state.term:
            log.set_hard_state(HardState(term=member.term, vote=None))
        if checkpoint:
            log.save_checkpoint(checkpoint, member.entries[checkpoint - 1].term, self._configuration.encode(), b"")
        log.submit()
        node.disk.finish()
        if checkpoint and rng.random() < 0.5:
            log.trim(LIVE_SEQ, checkpoint)
            log.submit()
            node.disk.finish()
        log.close()

    def _lose_end(self) -> None:
        """Often of one that has acknowledged what is not committed yet."""
        found = [node for node in self.nodes if node != self.history.leader and self._is_ahead(node)]
        node = self.nodes[self._rng.choice(found or list(self.nodes))]
        names = [name for name in node.disk.list_directory(LOG) if name.endswith(BLOCK_SUFFIX)]
        self._victim = node.node_id
        if names:
            node.disk.zero(LOG / max(names, key=serial_of), 1 << 20)
            self.counts["damaged"] += 1

    def _is_ahead(self, node: NodeId) -> bool:
        history = self.history
        if history.leader is None:
            return False
        return any(_has(history.members[node], entry) for entry in history.members[history.leader].entries[-1:])

    def _damage_any(self) -> None:
        for node in self._rng.sample(list(self.nodes.values()), self._rng.choice((1, 1, 2, 2, len(self.nodes)))):
            self._damage(node)
        if self._late and self._rng.random() < 0.4:
            self._damage_all(self._rng.choice(self._late).message)

    def _damage(self, node: Node) -> None:
        rng = self._rng
        places = self._places(node)
        near_end = places[-rng.choice((1, 2, 4)) :] if rng.random() < 0.7 else places
        for index, path, at in rng.sample(near_end, min(len(near_end), rng.choice((1, 1, 2, 3)))):
            self._flip(node, index, path, at)

    def _damage_all(self, message: Append) -> None:
        """An entry that is still on its way to somebody is damaged on all that have it."""
        wanted = {(entry.index, entry.term) for entry in message.entries[:1]}
        for node in self.nodes.values():
            entries = self.history.members[node.node_id].entries
            for index, path, at in self._places(node):
                if (index, entries[index - 1].term) in wanted:
                    self._flip(node, index, path, at)

    def _places(self, node: Node) -> list[tuple[int, Path, int]]:
        found = proven_places(node.disk, LOG, node.identity)
        return [place for place in found if place[0] not in self._hurt[node.node_id]]

    def _flip(self, node: Node, index: int, path: Path, at: int) -> None:
        node.disk.flip_bit(path, at + self._rng.randrange(FRAME_HEADER_BYTES))
        self._hurt[node.node_id].add(index)
        self.counts["damaged"] += 1

    # The members begin.

    def run_over(self, node: Node, log: FileLog) -> None:
        """A log is whole: its group runs."""
        self._check(node.node_id, log)
        setup = CoreSetup(node_id=node.node_id, incarnation=INCARNATION, seal=_frame.seal, rng=random.Random(1))
        checkpoint = log.load_checkpoint()
        known = self.history.members[node.node_id].commit_index if self._rng.random() < 0.5 else 0
        commit_index = max(min(known, log.last_index), 0 if checkpoint is None else checkpoint.index)
        core = create_engine(
            setup,
            log=log,
            configurations=ConfigurationHistory(self._configuration),
            commit_index=commit_index,
            snapshot_offer=lambda _term: None,
        )
        core.start(1)
        node.manager.groups[GROUP] = Running(core, node.node_id, log, node.disk, self._configuration)

    def _deliver(self, late: Late) -> None:
        running = self.nodes[late.to].running
        if running is not None:
            running.core.step(late.sender, late.message, 1)
            running.log.submit()
            running.disk.finish()
            running.core.persisted(1)
            answers = [message for _, _, message in running.core.take_ready().send_when_durable]  # and it is, by now
            accepted = any(isinstance(message, AppendAccepted) for message in answers)
            if accepted and self._loses_end:
                self._count(late)

    def _count(self, late: Late) -> None:
        """Whoever sent an append hears that it has arrived: what most members have acknowledged by now is committed."""
        history, sender = self.history, self.nodes[late.sender]
        leader = history.members[late.sender]
        leads = late.sender == history.leader and late.message.term == leader.term == history.lead_term
        if not leads or self._victim == late.sender or (sender.running and sender.running.core.term > leader.term):
            return
        for entry in leader.entries[len(history.committed) :]:
            holders = [node for node in self.nodes if self._has_acknowledged(node, entry)]
            if entry.term == leader.term and 2 * len(holders) > len(self.nodes):
                history.committed += [known.term for known in leader.entries[len(history.committed) : entry.index]]
                self.counts["committed late"] += 1

    def _has_acknowledged(self, node: NodeId, entry: Entry) -> bool:
        running = self.nodes[node].running
        if node == self._victim or running is None:
            return _has(self.history.members[node], entry)
        return running.log.term_at(entry.index) == entry.term

    # What must hold.

    def check_knowledge(self, node: NodeId, log: FileLog) -> None:
        """What a damaged log says of its terms is true."""
        own = self.history.members[node].entries
        for first, last in log.damaged_entries:
            for index in range(first, last + 1):
                bounds = log.term_bounds(index)
                if index > len(own):
                    break  # it may have been there, as others say
                if bounds is not None and not bounds[0] <= own[index - 1].term <= bounds[1]:
                    raise WrongError(f"{node} says of ({index}, {own[index - 1].term}) that it is of {bounds}")

    def _check(self, node: NodeId, log: FileLog) -> None:
        committed = self.history.committed
        index, term = log.boundary
        if index and (index > len(committed) or committed[index - 1] != term):
            raise WrongError(f"{node} begins behind {index, term}, which was not there")
        for entry in log.entries(log.first_index, log.last_index, 1 << 30) if log.last_index >= log.first_index else ():
            key = entry.index, entry.term
            if log.term_at(entry.index) != entry.term:
                raise WrongError(f"{node} takes {key} for one of term {log.term_at(entry.index)}")
            if is_placeholder_frame(entry.frame):
                self.counts["placeholders"] += 1
                self._check_placeholder(node, *key)
                self._seen[key] = entry.frame
            elif self._seen.get(key) != entry.frame:
                raise WrongError(f"{node} has something else at {key} than others")
            elif not (
                log.term_at(entry.index - 1) in {None, self.history.before[key]} or self._is_free(entry.index - 1)
            ):
                raise WrongError(f"{node} has something else before {key} than others")

    def _is_free(self, index: int) -> bool:
        """Whether what stands for an entry may have another term: a later entry names it, and nobody knew its own."""
        return any(is_placeholder_frame(frame) for (known, _), frame in self._seen.items() if known == index)

    def _check_placeholder(self, node: NodeId, index: int, term: int) -> None:
        committed = self.history.committed
        if index > len(committed):
            return
        for other, member in self.history.members.items():
            is_there = len(member.entries) >= index and member.entries[index - 1].term == committed[index - 1]
            if is_there and index not in self._hurt[other] and not self.nodes[other].is_gone:
                raise WrongError(f"{node} gives up {index, term}, which {other} has")

    def _check_elections(self) -> None:
        """Leader completeness, over all majorities of those who take part."""
        logs = {node: found.running.log for node, found in self.nodes.items() if found.running is not None}
        committed = self.history.committed
        for voters in combinations(logs, len(self.nodes) // 2 + 1):
            for node in voters:
                log = logs[node]
                if any(_end(logs[other]) > _end(log) for other in voters):
                    continue
                for index in range(log.boundary[0] + 1, len(committed) + 1):
                    if log.term_at(index) != committed[index - 1] and not self._is_free(index):
                        raise WrongError(f"{voters} elect {node} without {index, committed[index - 1]}")


def _end(log: FileLog) -> tuple[int, int]:
    return log.term_at(log.last_index) or 0, log.last_index
