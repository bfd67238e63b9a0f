"""Links as the mesh gives them: ordered sessions per node pair, both ends learning of the end in their own time.

A blocked direction delivers nothing. Its receiver notices the silence after 1.0 to 1.5 s and closes its end; the other
end hears of that, or notices the silence itself. A new session begins when both ends have closed and nothing is
blocked. In `chaos` what was in flight in an old session may arrive in a later one, twice or late, and single frames are
held back for seconds while others pass: more than the real mesh allows (rule 23), to show that safety does not rest on
it. Calls of a node that asks to be admitted are excepted: a request that was granted, and comes again when the node
votes, would make a learner of a member that remembers everything (seed forget 1011).
"""

from collections import Counter
from collections.abc import Callable

import attrs

from jetraft.store.model.ids import NodeId
from tests.simulator.world import MS, US, World

Pair = tuple[NodeId, NodeId]
HELD_BACK = 0.01  # of all frames, in chaos: they arrive alone, after others and after elections
HELD_BACK_NS = 4000 * MS


@attrs.define
class End:
    """One node's end of a session with another."""

    up: bool = False
    session: int = 0
    last_delivery_ns: int = 0


@attrs.define
class Ports:
    """How the network reaches a host."""

    is_alive: Callable[[], bool]
    deliver: Callable[[NodeId, int, bytes], None]
    peer_up: Callable[[NodeId], None]
    peer_down: Callable[[NodeId], None]


class Network:
    """All links of the world."""

    def __init__(
        self, world: World, nodes: list[NodeId], *, chaos: bool, ordered: frozenset[int] = frozenset()
    ) -> None:
        """`ordered`: channels whose frames end with their session in chaos, too."""
        self._world = world
        self._nodes = nodes
        self._chaos = chaos
        self._ordered = ordered
        self.ports: dict[NodeId, Ports] = {}
        self.blocked: set[Pair] = set()  # (from, to)
        self._ends: dict[Pair, End] = {(a, b): End() for a in nodes for b in nodes if a != b}
        self._sessions = 0
        self._lives: Counter[NodeId] = Counter()  # disks lost
        self._recent: dict[Pair, list[tuple[int, bytes]]] = {}
        self._stalled: dict[Pair, list[Callable[[], None]]] = {}  # what a block holds back, as TCP would

    def latency_ns(self) -> int:
        usual = self._world.chance(0.97)
        return self._world.between(200 * US, 3 * MS) if usual else self._world.between(3 * MS, 300 * MS)

    def is_up(self, here: NodeId, there: NodeId) -> bool:
        return self._ends[here, there].up

    def send(self, here: NodeId, there: NodeId, channel: int, payload: bytes) -> bool:
        end = self._ends[here, there]
        if not end.up:
            return False
        self._world.counts["frames"] += 1
        session = end.session
        receiver = self._ends[there, here]
        arrives_ns = max(receiver.last_delivery_ns + 1, self._world.now_ns + self.latency_ns())
        receiver.last_delivery_ns = arrives_ns
        may_be_late = self._chaos and channel not in self._ordered
        if may_be_late and self._world.chance(HELD_BACK):
            self._world.counts["held back"] += 1
            self._late(here, there, channel, payload, self._world.between(300 * MS, HELD_BACK_NS))
            return True
        if may_be_late:
            recent = self._recent.setdefault((here, there), [])
            recent.append((channel, payload))
            del recent[:-6]
        life = self._lives[here]
        self._world.at(arrives_ns, lambda: self._arrive(here, there, (session, life), channel, payload))
        return True

    def forget(self, node: NodeId) -> None:
        """The node has lost its disk: what it said before is never heard again, as in the real mesh (rule 23).

        Safety of an admission rests on that: acknowledgements of the node's earlier life, in the term in which it is
        admitted, would count as those of its empty log.
        """
        self._lives[node] += 1
        self._recent = {pair: recent for pair, recent in self._recent.items() if pair[0] != node}

    def _arrive(self, here: NodeId, there: NodeId, sent: tuple[int, int], channel: int, payload: bytes) -> None:
        session, life = sent
        receiver = self._ends[there, here]
        ports = self.ports[there]
        if not ports.is_alive():
            return
        if (here, there) in self.blocked:
            stalled = self._stalled.setdefault((here, there), [])
            stalled.append(lambda: self._arrive(here, there, sent, channel, payload))
            return
        if receiver.up and receiver.session == session:
            ports.deliver(here, channel, payload)
        elif self._chaos and channel not in self._ordered and self._world.chance(0.5) and self._lives[here] == life:
            self._late(here, there, channel, payload, self._world.between(0, 2000 * MS))

    def _late(self, here: NodeId, there: NodeId, channel: int, payload: bytes, delay_ns: int) -> None:
        life = self._lives[here]

        def arrive() -> None:
            if self.ports[there].is_alive() and self._lives[here] == life:
                self._world.counts["late"] += 1
                self.ports[there].deliver(here, channel, payload)

        self._world.after(delay_ns, arrive)

    # Sessions.

    def connect_all(self) -> None:
        for index, a in enumerate(self._nodes):
            for b in self._nodes[index + 1 :]:
                self._try_connect(a, b)

    def _try_connect(self, a: NodeId, b: NodeId) -> None:
        one, other = self._ends[a, b], self._ends[b, a]
        if one.up or other.up:
            return
        open_now = self.ports[a].is_alive() and self.ports[b].is_alive()
        if not open_now or self.blocked & {(a, b), (b, a)}:
            self._world.after(self._world.between(20 * MS, 150 * MS), lambda: self._try_connect(a, b))
            return
        self._sessions += 1
        for here, there in ((a, b), (b, a)):
            end = self._ends[here, there]
            end.up, end.session, end.last_delivery_ns = True, self._sessions, self._world.now_ns
            self.ports[here].peer_up(there)
        if self._chaos:
            self._repeat_old(a, b)

    def _repeat_old(self, a: NodeId, b: NodeId) -> None:
        for here, there in ((a, b), (b, a)):
            for channel, payload in self._recent.get((here, there), []):
                if self._world.chance(0.3):
                    self._late(here, there, channel, payload, self._world.between(0, 500 * MS))

    def close(self, here: NodeId, there: NodeId) -> None:
        """One end closes; the other hears of it, or notices the silence."""
        end, other = self._ends[here, there], self._ends[there, here]
        if not end.up:
            return
        end.up = False
        if self.ports[here].is_alive():
            self.ports[here].peer_down(there)
        if other.up and other.session == end.session:
            session = other.session
            silent = (here, there) in self.blocked
            delay_ns = self._world.between(1000 * MS, 1500 * MS) if silent else self.latency_ns()
            self._world.after(delay_ns, lambda: self._close_session(there, here, session))
        else:
            self._world.after(self._world.between(0, 300 * MS), lambda: self._try_connect(here, there))

    def _close_session(self, here: NodeId, there: NodeId, session: int) -> None:
        end = self._ends[here, there]
        if end.up and end.session == session:
            self.close(here, there)

    def crashed(self, node: NodeId) -> None:
        """The node's process ended: its connections end with it."""
        for other in self._nodes:
            if other != node:
                self.close(node, other)

    # Faults.

    def block(self, pairs: list[Pair], duration_ns: int) -> None:
        """Let directions deliver nothing for a while."""
        for pair in pairs:
            self.blocked.add(pair)
            self._watch_silence(*pair)

        self._world.after(duration_ns, lambda: self.heal(pairs))

    def heal(self, pairs: list[Pair]) -> None:
        """Directions work again: what was held back arrives, where the session still exists."""
        self.blocked.difference_update(pairs)
        for pair in pairs:
            for arrive in self._stalled.pop(pair, []):
                arrive()

    def calm_down(self) -> None:
        """Everything works from now on."""
        self.heal(sorted(self.blocked))
        self._chaos = False

    def _watch_silence(self, sender: NodeId, receiver: NodeId) -> None:
        session = self._ends[receiver, sender].session

        def notice() -> None:
            if (sender, receiver) in self.blocked and self.ports[receiver].is_alive():
                self._close_session(receiver, sender, session)

        self._world.after(self._world.between(1000 * MS, 1500 * MS), notice)
