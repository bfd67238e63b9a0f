"""The faults, one function each: mark the moment, do it, hold it, take it back.

A scenario acts on a `Stage`: the cluster under load, a seeded source of choices, and the clock of the run.
"""

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable
from random import Random
from types import TracebackType
from typing import Self

import attrs

from tests.faults.netns import both_ways
from tests.faults.nodes import Node, Nodes
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient

POLL_S = 0.02
RECOVERY_S = 30.0


class LeaderWatch:
    """When another node than the faulty ones first says that it leads the stream, seen from outside by polling."""

    def __init__(self, nodes: Nodes, stream: str, without: Iterable[Node]) -> None:
        self.found_ns: int | None = None
        self._asked = [node for node in nodes if node not in list(without)]
        self._nodes, self._stream = nodes, stream
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="leader-watch", daemon=True)

    def _poll(self) -> None:
        while not self._over.is_set():
            if self._nodes.leader(self._stream, among=self._asked) is not None:
                self.found_ns = time.monotonic_ns()
                return
            self._over.wait(POLL_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


@attrs.define(kw_only=True)
class Episode:
    """One fault: when it began, when it was taken back and, if it hit the leader, when the next one was there."""

    began_ns: int
    ended_ns: int = 0
    watch: LeaderWatch | None = None

    @property
    def found_ns(self) -> int | None:
        """When the next leader was there."""
        return self.watch.found_ns if self.watch else None


@attrs.define(kw_only=True)
class Stage:
    """What a scenario acts on."""

    nodes: Nodes
    stream: str
    storage: str
    random: Random
    hold_s: float
    episodes: list[Episode] = attrs.field(factory=list)

    def leader(self) -> Node:
        """The node that leads now; waits for one."""
        deadline = time.monotonic() + RECOVERY_S
        while (found := self.nodes.leader(self.stream)) is None:
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.stream} has no leader for {RECOVERY_S:.0f} s")
            time.sleep(POLL_S)
        return found

    def other(self, *than: Node) -> Node:
        """Any node but these."""
        return self.random.choice([node for node in self.nodes if node not in than])

    def begin(self, *lost: Node, leader: Node | None = None) -> None:
        """The fault happens now to these nodes; when the leader is among them, another node as leader is waited for.

        What a hit node says of itself does not count: a stopped, cut off or just restarted one may be out of date.
        """
        self.end()
        episode = Episode(began_ns=time.monotonic_ns())
        if leader is not None and leader in lost:
            episode.watch = LeaderWatch(self.nodes, self.stream, lost)
        self.episodes.append(episode)

    def watch(self) -> None:
        """Start to look for the next leader, once the fault is made."""
        if (watch := self.episodes[-1].watch) is not None:
            watch.__enter__()

    def hold(self, seconds: float | None = None) -> None:
        """Let the fault last."""
        self.watch()
        time.sleep(self.random.uniform(0.7, 1.3) * self.hold_s if seconds is None else seconds)

    def end(self) -> None:
        """The fault was taken back; stop looking for a leader."""
        if self.episodes and not self.episodes[-1].ended_ns:
            episode = self.episodes[-1]
            episode.ended_ns = time.monotonic_ns()

    def recover(self) -> None:
        """Wait until every node is healthy again and somebody leads; in memory, until every replica is refilled."""
        self.end()
        deadline = time.monotonic() + RECOVERY_S
        while not self._recovered():
            if time.monotonic() > deadline:
                sick = [node.name for node in self.nodes if not (node.alive and node.healthy())]
                raise ServerFailed(f"not recovered after {RECOVERY_S:.0f} s: {sick or 'no leader'}")
            time.sleep(0.05)
        for episode in self.episodes:
            if episode.watch is not None and episode.watch.found_ns is None:
                episode.watch.__exit__(None, None, None)

    def _recovered(self) -> bool:
        if not all(node.alive and node.healthy() for node in self.nodes):
            return False
        leader = self.nodes.leader(self.stream)
        if leader is None or self.storage == "file":
            return leader is not None
        replicas = (leader.view(self.stream).get("cluster") or {}).get("replicas") or []
        return len(replicas) == len(self.nodes.all) - 1 and all(replica["current"] for replica in replicas)

    def update(self, replicas: int) -> None:
        """Give the stream another number of replicas."""
        config = stream_config(self.stream, replicas, self.storage)
        deadline = time.monotonic() + RECOVERY_S
        while True:
            with RawClient(self.other().client_address) as client:
                answer = client.api(f"STREAM.UPDATE.{self.stream}", config)
            if "error" not in answer:
                return
            if time.monotonic() > deadline:
                raise ServerFailed(f"update to {replicas} replicas: {answer['error']}")
            time.sleep(0.2)


def stream_config(name: str, replicas: int, storage: str) -> dict[str, object]:
    """The stream of a run."""
    config = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True, "storage": storage}
    return {**config, "num_replicas": replicas}


# --- processes --------------------------------------------------------------------------------------------------------
def kill_leader(stage: Stage) -> None:
    """SIGKILL of the leader, started again after a while."""
    _kill(stage, [stage.leader()])


def kill_random(stage: Stage) -> None:
    """SIGKILL of any node."""
    _kill(stage, [stage.other()])


def kill_two(stage: Stage) -> None:
    """SIGKILL of the leader and another node of five."""
    leader = stage.leader()
    _kill(stage, [leader, stage.other(leader)])


def kill_all(stage: Stage) -> None:
    """SIGKILL of all nodes at once; they come back in any order, within half a second."""
    nodes = list(stage.nodes)
    stage.leader()
    stage.begin(*nodes)  # a leader's name right after a start says little: the gap is what counts
    for node in nodes:
        node.running.signal(signal.SIGKILL)
    for node in nodes:
        node.running.wait()
    stage.random.shuffle(nodes)
    for node in nodes:
        node.start()
        time.sleep(stage.random.uniform(0, 0.17))


def _kill(stage: Stage, victims: list[Node]) -> None:
    stage.begin(*victims, leader=stage.leader())
    for victim in victims:
        victim.running.kill()
    stage.hold()
    for victim in victims:
        victim.start()


def stop_leader(stage: Stage) -> None:
    """SIGSTOP of the leader for 1 to 10 seconds: it keeps its connections and then goes on as if nothing had been."""
    leader = stage.leader()
    stage.begin(leader, leader=leader)
    leader.running.signal(signal.SIGSTOP)
    stage.hold(stage.random.choice((1.0, 2.0, 3.0, 5.0, 10.0)))
    leader.running.signal(signal.SIGCONT)


def rolling_restart(stage: Stage) -> None:
    """SIGTERM and start of one node after the other, each when the one before is healthy."""
    for node in stage.nodes:
        stage.recover()
        stage.begin(node, leader=stage.leader())
        node.running.signal(signal.SIGTERM)
        stage.watch()
        node.running.wait()
        node.start()
        node.running.wait_for_line("Server is ready")


# --- the network ------------------------------------------------------------------------------------------------------
def minority_leader(stage: Stage) -> None:
    """The leader is cut from all other nodes, in both directions; clients reach every node."""
    leader = stage.leader()
    _cut(stage, both_ways([leader.place], stage.nodes.places), leader)


def leader_cannot_send(stage: Stage) -> None:
    """No packet of the leader reaches the others; theirs reach it."""
    leader = stage.leader()
    _cut(stage, [(leader.place, place) for place in stage.nodes.places if place != leader.place], leader)


def leader_cannot_receive(stage: Stage) -> None:
    """No packet of the others reaches the leader; its packets reach them."""
    leader = stage.leader()
    _cut(stage, [(place, leader.place) for place in stage.nodes.places if place != leader.place], leader)


def bridge(stage: Stage) -> None:
    """Two halves that cannot talk, and one node that talks to both."""
    places = stage.nodes.places
    stage.random.shuffle(places)
    half = len(places) // 2
    _cut(stage, both_ways(places[:half], places[half + 1 :]), None)


def ring(stage: Stage) -> None:
    """Five nodes, each of which sees only its two neighbours: everyone sees a majority, no two the same one."""
    places = stage.nodes.places
    stage.random.shuffle(places)
    apart = [(one, two) for at, one in enumerate(places) for two in (places[at - 2], places[at - 3])]
    _cut(stage, [*apart, *((two, one) for one, two in apart)], None)


def flapping(stage: Stage) -> None:
    """The leader's links go away and come back, several times a second to once in a second."""
    leader = stage.leader()
    pairs = both_ways([leader.place], stage.nodes.places)
    stage.begin(leader)
    over = time.monotonic() + stage.hold_s
    while time.monotonic() < over:
        stage.nodes.network.cut(pairs)
        stage.hold(stage.random.uniform(0.1, 0.9))
        stage.nodes.network.heal(pairs)
        stage.hold(stage.random.uniform(0.1, 0.6))


def _cut(stage: Stage, pairs: list[tuple[int, int]], leader: Node | None) -> None:
    stage.begin(*([leader] if leader else []), leader=leader)
    stage.nodes.network.cut(pairs)
    stage.hold()
    stage.nodes.network.heal(pairs)


# --- all of it --------------------------------------------------------------------------------------------------------
def mixed(stage: Stage) -> None:
    """Kills, pauses and cuts of any nodes, one upon the other, several a second; then all is taken back."""
    stage.begin()
    over = time.monotonic() + 3 * stage.hold_s
    while time.monotonic() < over:
        stage.random.choice((_kill_or_start, _kill_or_start, _stop_or_continue, _cut_some, _cut_some, _heal))(stage)
        stage.hold(stage.random.uniform(0.05, 0.9))
    stage.nodes.network.heal()
    for node in stage.nodes:
        if node.alive:
            node.running.signal(signal.SIGCONT)
        else:
            node.start()


def mixed_five(stage: Stage) -> None:
    """The same on five nodes."""
    mixed(stage)


def _kill_or_start(stage: Stage) -> None:
    node = stage.random.choice(stage.nodes.all)
    if node.alive:
        node.running.kill()
    else:
        node.start()


def _stop_or_continue(stage: Stage) -> None:
    node = stage.random.choice(stage.nodes.all)
    if node.alive:
        node.running.signal(stage.random.choice((signal.SIGSTOP, signal.SIGCONT)))


def _cut_some(stage: Stage) -> None:
    one = stage.random.choice(stage.nodes.places)
    others = stage.random.sample(stage.nodes.places, stage.random.randint(1, len(stage.nodes.all) - 1))
    pairs = both_ways([one], others)
    stage.nodes.network.cut(pairs[:: stage.random.choice((1, 2))])


def _heal(stage: Stage) -> None:
    stage.nodes.network.heal()


# --- membership -------------------------------------------------------------------------------------------------------
def scale(stage: Stage) -> None:
    """The stream's replicas go from 5 to 3, 1, 3 and back to 5."""
    for replicas in (3, 1, 3, 5):
        stage.begin()
        stage.update(replicas)
        stage.hold()
        stage.end()


def amnesia(stage: Stage) -> None:
    """A member comes back without what it had acknowledged, and only it and one that was cut off can elect.

    While B is cut off, L and A commit. A loses its memory (in a file stream, its disk) and returns; then L is cut off
    and B is heard again. A vote of A for B would undo what L and A have acknowledged (rule 30).
    """
    leader = stage.leader()
    forgetful, behind = stage.random.sample([node for node in stage.nodes if node is not leader], 2)
    network = stage.nodes.network
    stage.begin()
    network.cut(both_ways([behind.place], stage.nodes.places))
    stage.hold()
    forgetful.running.kill()
    if stage.storage == "file":
        shutil.rmtree(forgetful.directory / "store")
    forgetful.start()
    forgetful.running.wait_for_line("Server is ready")
    network.cut(both_ways([leader.place], stage.nodes.places))
    network.heal(both_ways([behind.place], [forgetful.place]))
    stage.hold()
    network.heal()


@attrs.frozen(kw_only=True)
class Scenario:
    """A fault, on how many nodes, and how often it is repeated in one run; some are made only when they are named."""

    act: Callable[[Stage], None]
    size: int = 3
    repeats: int = 3
    storage: str = "file"
    by_default: bool = True

    @property
    def name(self) -> str:
        """The name on the command line and in the table."""
        suffix = "" if self.storage == "file" else f"-{self.storage}"
        return self.act.__name__.replace("_", "-") + suffix


SCENARIOS = [
    Scenario(act=kill_leader),
    Scenario(act=kill_random),
    Scenario(act=kill_leader, storage="memory"),
    Scenario(act=kill_all),
    Scenario(act=stop_leader, repeats=2),
    Scenario(act=rolling_restart, repeats=1),
    Scenario(act=minority_leader),
    Scenario(act=leader_cannot_send),
    Scenario(act=leader_cannot_receive),
    Scenario(act=flapping),
    Scenario(act=kill_two, size=5),
    Scenario(act=bridge, size=5),
    Scenario(act=ring, size=5),
    Scenario(act=mixed, repeats=2),
    Scenario(act=mixed_five, size=5, repeats=2),
    # TODO(membership): by default as soon as num_replicas can be changed and a member without memory does not vote.
    Scenario(act=scale, size=5, repeats=1, by_default=False),
    Scenario(act=amnesia, repeats=1, by_default=False),
    Scenario(act=amnesia, repeats=1, storage="memory", by_default=False),
]
