"""The faults, one function each: mark the moment, do it, hold it, take it back. Those of membership: `members`."""

import signal
import time
from collections.abc import Callable

import attrs

from tests.faults.floods import Flood, create_streams, varied
from tests.faults.members import amnesia, peer_remove, replace, scale
from tests.faults.netns import both_ways
from tests.faults.nodes import Node
from tests.faults.stage import Stage
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient

FLOOD_STREAMS = 30
FLOOD_RATE = 8_000.0  # requests a second: several times what three servers on two cores answer
FLOOD_BYTES_MAX = 64 << 20  # 10,000 requests wait at most, of half a kilobyte each; answers that were not read yet


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


def trusting_restart(stage: Stage) -> None:
    """The same, each as soon as the one before says ok by itself: nobody looks at the other nodes, or at the stream."""
    for node in stage.nodes:
        stage.begin(node)
        node.running.signal(signal.SIGTERM)
        node.running.wait()
        node.start()
        node.running.wait_until(node.healthy, what=f"{node.name} said ok")


def rolling_restart_five(stage: Stage) -> None:
    """The same on five nodes."""
    rolling_restart(stage)


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


# --- clients ----------------------------------------------------------------------------------------------------------
def api_flood(stage: Stage) -> None:
    """One client asks any node for more than it can answer, each time something else; everybody is answered."""
    node = stage.other()
    with RawClient(node.client_address) as client:
        create_streams(client, FLOOD_STREAMS)
    held_bytes = node.rss_bytes()
    stage.begin()
    with Flood(node.client_address, varied, rate=FLOOD_RATE) as flood:
        flood.read()
        stage.hold()
        answered = flood.finish()
    grown_bytes = node.rss_bytes() - held_bytes
    if stage.nodes.kind == "reference":  # it drops what it has no room for, and takes what memory it needs
        return
    if answered.missing or set(answered.answers) - {"ok", "429"}:
        raise ServerFailed(f"{answered.sent} requests, answers {dict(answered.answers)}")
    if grown_bytes > FLOOD_BYTES_MAX:
        raise ServerFailed(f"{node.name} has grown by {grown_bytes >> 20} MiB")


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


@attrs.frozen(kw_only=True)
class Scenario:
    """A fault, on how many nodes, of how many replicas (0: one on each node), how often it is repeated in one run.

    `membership`: it needs members that can be exchanged, which one of the engines cannot do.
    """

    act: Callable[[Stage], None]
    size: int = 3
    repeats: int = 3
    storage: str = "file"
    replicas: int = 0
    membership: bool = False

    @property
    def name(self) -> str:
        """The name on the command line and in the table."""
        suffix = "" if self.storage == "file" else f"-{self.storage}"
        return self.act.__name__.replace("_", "-") + suffix


SCENARIOS = [
    Scenario(act=kill_leader),
    Scenario(act=kill_random),
    Scenario(act=kill_leader, storage="memory", membership=True),  # a member without its log is admitted again
    Scenario(act=kill_all),
    Scenario(act=stop_leader, repeats=2),
    Scenario(act=rolling_restart, repeats=1),
    Scenario(act=rolling_restart_five, size=5, repeats=1),
    Scenario(act=trusting_restart, repeats=2),
    Scenario(act=trusting_restart, repeats=2, storage="memory", membership=True),
    Scenario(act=minority_leader),
    Scenario(act=leader_cannot_send),
    Scenario(act=leader_cannot_receive),
    Scenario(act=flapping),
    Scenario(act=kill_two, size=5),
    Scenario(act=bridge, size=5),
    Scenario(act=ring, size=5),
    Scenario(act=api_flood, repeats=2),
    Scenario(act=mixed, repeats=2),
    Scenario(act=mixed_five, size=5, repeats=2),
    Scenario(act=scale, size=5, repeats=1, membership=True),
    Scenario(act=peer_remove, size=4, replicas=3, membership=True),
    Scenario(act=replace, size=4, replicas=3, repeats=2, membership=True),
    Scenario(act=amnesia, repeats=1, membership=True),
    Scenario(act=amnesia, repeats=1, storage="memory", membership=True),
]
