"""A stage for the real engine: members whose messages, fsyncs and timers come when a script says so.

    > time out A             its election timer is due; of a leader, whatever it waits for next
    > deliver A to B         the next message from A arrives at B (`deliver A to B 3`: three; `deliver`: everything)
    > hold A to B            the next message is held back; `release` delivers it, whatever has happened since
    > drop A to B            everything under way from A to B is lost
    > elect A by B C         A times out, and talks with B and C until it leads (it must not lead, nor hear a leader)
    > exchange A B           everything under way between A and B, until they have nothing more to say
    > propose A x y          two commands, given to A as a leader
    > cut A                  its links end; `join A` begins new ones
    > crash A                it restarts with what was durable; with `disk by hand`, `sync A` ends its fsync
    > transfer A to B        A is asked to hand over
    > change A voters A B learners C

`members A B C` (and `learners D`) comes first. Without `disk by hand` everything is durable when a step ends.
"""

import random
from collections import deque
from typing import TYPE_CHECKING

import attrs

from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.member import Member
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Append, Message, Role
from jetraft.raft.engine.port import CoreSetup, Limits, Proposal
from jetraft.raft.outbox import RaftOutbox
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry
from tests.simulator.checkers import Checker
from tests.simulator.kept import Kept, synced
from tests.simulator.world import ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY_BYTES = 1  # an append carries one entry: a script can lose each
INCARNATION = 7
ATTEMPTS = 3


@attrs.define(eq=False)
class Actor:
    """One member."""

    node: NodeId
    log: MemLog
    core: Member
    process: int
    kept: Kept
    outbox: RaftOutbox = attrs.Factory(RaftOutbox)
    shown: tuple[str, ...] = ()
    led_term: int = 0
    committed: int = 0


class Stage:
    """See the module."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000
        self._checker = Checker(World(0))
        self._actors: dict[NodeId, Actor] = {}
        self._under_way: dict[tuple[NodeId, NodeId], deque[Message]] = {}
        self._held: deque[tuple[NodeId, NodeId, Message]] = deque()
        self._cut: set[NodeId] = set()
        self._syncs_by_hand = False
        self._lines: list[str] = []
        self._steps: dict[str, Callable[[list[str]], None]] = {
            "members": self._on_members,
            "disk": self._on_disk,
            "time": self._on_time_out,
            "deliver": self._on_deliver,
            "hold": self._on_hold,
            "release": self._on_release,
            "drop": self._on_drop,
            "elect": self._on_elect,
            "exchange": self._on_exchange,
            "propose": self._on_propose,
            "cut": self._on_cut,
            "join": self._on_join,
            "crash": self._on_crash,
            "sync": self._on_sync,
            "transfer": self._on_transfer,
            "change": self._on_change,
        }

    def step(self, text: str) -> list[str]:
        """Play one step; the lines that say what came of it."""
        self._lines = []
        words = text.split()
        try:
            self._steps[words[0]](words[1:])
        except ViolationError as violation:
            self._say(f"VIOLATION: {violation}")
        return self._lines

    def _say(self, line: str) -> None:
        self._lines.append(f"    {line}")

    # Steps.

    def _on_members(self, words: list[str]) -> None:
        voters, learners = _members(words)
        self._configuration = Configuration(voters=voters, learners=learners)
        nodes = [*voters, *learners]
        self._under_way = {(one, other): deque() for one in nodes for other in nodes if one != other}
        for node in nodes:
            self._start(node, 1, Kept())

    def _on_disk(self, _words: list[str]) -> None:
        self._syncs_by_hand = True

    def _on_time_out(self, words: list[str]) -> None:
        actor = self._actors[NodeId(words[1])]
        core = actor.core
        deadline_ns = core.deadline_ns if core.leadership is not None else core.timer.deadline_ns
        if deadline_ns is None:
            self._say(f"{actor.node} waits for nothing")
            return
        self._now_ns = max(self._now_ns, deadline_ns)
        actor.core.tick(self._now_ns)
        self._turn(actor)

    def _on_deliver(self, words: list[str]) -> None:
        if not words:
            while pair := next((pair for pair, waiting in sorted(self._under_way.items()) if waiting), None):
                self._arrive(*pair, self._under_way[pair].popleft())
            return
        sender, to = NodeId(words[0]), NodeId(words[2])
        for _ in range(int(words[3]) if len(words) > 3 else 1):
            self._arrive(sender, to, self._under_way[sender, to].popleft())

    def _on_hold(self, words: list[str]) -> None:
        sender, to = NodeId(words[0]), NodeId(words[2])
        message = self._under_way[sender, to].popleft()
        self._held.append((sender, to, message))
        self._say(f"held back: {_described(message)}")

    def _on_release(self, _words: list[str]) -> None:
        self._arrive(*self._held.popleft())

    def _on_drop(self, words: list[str]) -> None:
        waiting = self._under_way[NodeId(words[0]), NodeId(words[2])]
        for message in waiting:
            self._say(f"lost: {_described(message)}")
        waiting.clear()

    def _on_elect(self, words: list[str]) -> None:
        candidate, voters = NodeId(words[0]), [NodeId(word) for word in words[2:]]
        pairs = [pair for voter in voters for pair in ((candidate, voter), (voter, candidate))]
        for _ in range(ATTEMPTS):  # one that hears of a higher term asks again
            self._on_time_out(["out", candidate])
            while pair := next((pair for pair in pairs if self._under_way[pair]), None):
                self._arrive(*pair, self._under_way[pair].popleft())
                if self._actors[candidate].core.leadership is not None:
                    return
        self._say(f"{candidate} does not win")

    def _on_exchange(self, words: list[str]) -> None:
        one, other = NodeId(words[0]), NodeId(words[1])
        while pair := next((pair for pair in ((one, other), (other, one)) if self._under_way[pair]), None):
            self._arrive(*pair, self._under_way[pair].popleft())

    def _on_propose(self, words: list[str]) -> None:
        actor = self._actors[NodeId(words[0])]
        actor.core.propose([Proposal(kind=Kind.META, body=word.encode()) for word in words[1:]])
        self._turn(actor)

    def _on_cut(self, words: list[str]) -> None:
        node = NodeId(words[0])
        self._cut.add(node)
        for pair, waiting in self._under_way.items():
            if node in pair:
                waiting.clear()
        for other in self._others(node):
            self._actors[other].core.peer_down(node, self._now_ns)
            self._actors[node].core.peer_down(other, self._now_ns)
        for actor in list(self._actors.values()):
            self._turn(actor)

    def _on_join(self, words: list[str]) -> None:
        node = NodeId(words[0])
        self._cut.discard(node)
        for other in self._others(node):
            if other not in self._cut:
                self._actors[other].core.peer_up(node, self._now_ns)
                self._actors[node].core.peer_up(other, self._now_ns)
        for actor in list(self._actors.values()):
            self._turn(actor)

    def _on_crash(self, words: list[str]) -> None:
        node = NodeId(words[0])
        old = self._actors[node]
        self._on_cut(words)
        self._start(node, old.process + 1, old.kept)
        self._on_join(words)

    def _on_sync(self, words: list[str]) -> None:
        actor = self._actors[NodeId(words[0])]
        self._sync(actor)
        self._turn(actor)

    def _on_transfer(self, words: list[str]) -> None:
        actor = self._actors[NodeId(words[0])]
        if not actor.core.transfer(NodeId(words[2]), self._now_ns):
            self._say(f"{words[2]} cannot take over now")
        self._turn(actor)

    def _on_change(self, words: list[str]) -> None:
        actor = self._actors[NodeId(words[0])]
        voters, learners = _members(words[2:])
        for node in (*voters, *learners):
            if node not in self._actors:
                self._add(node)
        try:
            actor.core.change_members(Configuration(voters=voters, learners=learners), self._now_ns)
        except MembershipChangeRefusedError as error:
            self._say(f"refused: {error}")
        self._turn(actor)

    # The actors.

    def _others(self, node: NodeId) -> list[NodeId]:
        return [other for other in self._actors if other != node]

    def _add(self, node: NodeId) -> None:
        """A node that was no member so far."""
        for other in list(self._actors):
            self._under_way[node, other], self._under_way[other, node] = deque(), deque()
        self._start(node, 1, Kept())
        self._on_join([node])

    def _start(self, node: NodeId, process: int, kept: Kept) -> None:
        log = kept.opened()
        self._checker.watch_log(log)
        setup = CoreSetup(
            node_id=node,
            incarnation=INCARNATION,
            seal=seal,
            rng=random.Random(process),
            limits=Limits(append_bytes_max=ENTRY_BYTES),
        )
        core = create_engine(
            setup,
            log=log,
            configurations=ConfigurationHistory(self._configuration),
            commit_index=0,
            snapshot_offer=lambda _term: None,
        )
        actor = self._actors[node] = Actor(node=node, log=log, core=core, process=process, kept=kept)
        core.start(self._now_ns)
        for other in self._configuration.members:
            if other != node and other not in self._cut:
                core.peer_up(other, self._now_ns)
        actor.shown = _state(actor)

    def _arrive(self, sender: NodeId, to: NodeId, message: Message) -> None:
        self._say(f"{sender} -> {to}: {_described(message)}")
        actor = self._actors[to]
        actor.core.step(sender, message, self._now_ns)
        self._turn(actor)

    def _sync(self, actor: Actor) -> None:
        actor.kept = synced(actor.log)
        actor.outbox.put(actor.core.take_ready())
        actor.outbox.release(actor.log.durable_token)
        actor.core.persisted(self._now_ns)

    def _turn(self, actor: Actor) -> None:
        """What ends every turn: send, fsync, and tell what has changed."""
        core = actor.core
        core.flush(self._now_ns)
        while not self._syncs_by_hand and actor.log.durable_token < actor.log.token():
            self._sync(actor)
            core.flush(self._now_ns)
        actor.outbox.put(core.take_ready())
        for to, message in actor.outbox.take_sends():
            if actor.node not in self._cut and to not in self._cut:
                self._under_way[actor.node, to].append(message)
        state = _state(actor)
        for line in (line for line in state if line not in actor.shown):
            self._say(f"{actor.node} {line}")
        actor.shown = state
        self._check(actor)

    def _check(self, actor: Actor) -> None:
        core = actor.core
        if core.role is Role.LEADER and core.term != actor.led_term:
            actor.led_term = core.term
            self._checker.on_leader(core.term, actor.node, actor.process, actor.log)
        if core.applicable_index > actor.committed:
            for entry in actor.log.entries(actor.committed + 1, core.applicable_index, 1 << 30):
                self._checker.on_commit(actor.node, core.term, entry)
            actor.committed = core.applicable_index


def _members(words: list[str]) -> tuple[list[NodeId], list[NodeId]]:
    """`[voters] A B [learners C]`."""
    found: dict[str, list[NodeId]] = {"voters": [], "learners": []}
    kind = "voters"
    for word in words:
        if word in found:
            kind = word
        else:
            found[kind].append(NodeId(word))
    return found["voters"], found["learners"]


def _state(actor: Actor) -> tuple[str, ...]:
    """What a reader wants to know of a member, one line each."""
    core, log = actor.core, actor.log
    entries = log.entries(1, log.last_index, 1 << 30) if log.last_index else []
    role = {
        Role.LEADER: f"leads term {core.term}",
        Role.CANDIDATE: f"stands in term {core.term}",
        Role.FOLLOWER: f"follows {core.leader or 'nobody'} in term {core.term}",
    }[core.role]
    asks = ("asks whether it could win",) if core.pre_ballot is not None else ()
    configuration = core.configuration
    members = f"voters {' '.join(configuration.voters)}, learners {' '.join(configuration.learners) or 'none'}"
    return (
        role,
        *asks,
        f"holds {' '.join(map(_entry, entries)) or 'nothing'}",
        f"has committed up to {core.commit_index}",
        f"knows {members}",
    )


def _entry(entry: Entry) -> str:
    body = entry.frame[FRAME_HEADER_BYTES:].decode() if entry.kind == Kind.META else ""
    return f"{entry.index}@{entry.term}{':' if body else ''}{body}"


def _described(message: Message) -> str:
    """A message in one line: its name and its fields, entries as index@term."""
    fields = {name: getattr(message, name) for name in attrs.fields_dict(type(message))}
    if isinstance(message, Append):
        fields["entries"] = " ".join(map(_entry, message.entries)) or "none"
    return f"{type(message).__name__} {', '.join(f'{name} {value}' for name, value in fields.items())}"
