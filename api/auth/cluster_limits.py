"""Limits of connections and leaf nodes that an account has in the whole cluster.

Each node says to each node that it is linked with how many clients and leaf nodes it has of the accounts that have such
a limit: all of them when a link begins, then what has changed, in calls that follow each other. An account's limit here
is what the others leave of it, so a client that is one too many is refused where it comes. The figures of a node end
with its link. A node without a link, be it reached by a detour, is not counted.

Where nodes let clients in at the same moment, or meet again, there may be too many. All nodes then see the same numbers
and find out the same: those that came within the last YOUNG_S go first, each time those of the node with the greatest
id, and there the youngest.

A loop per node compares what was said with what is, and events wake it. A node without accounts with limits says
nothing. Nodes before 0.2.0 do not know the call: they count for themselves, and are not counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final, Protocol

import attrs
import trio

from jetraft.api.auth.login import ACCOUNT_CONNECTIONS
from jetraft.api.exchange.setup import SharedAccounts
from jetraft.api.exchange.values import NO_LIMIT
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import Closed, Session, Sessions
from jetraft.api.turns.reactor import Reactor
from jetraft.cluster.calls.messages.account_places import ACCOUNTS_MAX, BYTES_MAX, METHOD, AccountPlaces, PlacesTaken
from jetraft.raft.mesh.peers import Mesh
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from jetraft.store.model.signal import Signal

AGAIN_S: Final = 0.2
LOOK_S: Final = 5.0  # what no event has told is found by then
ANSWER_S: Final = 5.0
UNKNOWN_S: Final = 60.0  # a node that does not know the call is asked again: it may only have failed
YOUNG_S: Final = 5.0  # much more than a node takes to be heard
KNOWN_MAX: Final = 100_000  # accounts of one node

Counts = tuple[int, int]  # clients, leaf nodes
NOBODY: Final = (0, 0)
CLIENTS, LEAFS = 0, 1


@attrs.frozen
class _Said:
    """The share of another node in an account, and how many of these were new when."""

    counts: Counts = NOBODY
    new: Counts = NOBODY
    since_s: float = 0.0

    def young(self, now_s: float) -> Counts:
        """How many came just now."""
        return self.new if now_s - self.since_s < YOUNG_S else NOBODY

    def followed_by(self, counts: Counts, now_s: float) -> "_Said":
        """There are so many now; those that are more than before are new."""
        came = [max(0, now - then) for now, then in zip(counts, self.counts, strict=True)]
        before = self.young(now_s)
        new = tuple(min(now, old + more) for now, old, more in zip(counts, before, came, strict=True))
        return _Said(counts, (new[0], new[1]), now_s if any(came) else self.since_s)


class LeafPlaces(Protocol):
    """Leaf nodes of accounts. Implemented by api/leafnodes/leafnodes.py."""

    counted: Signal[[str]]  # an account has one more, or one less

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """How many connections to leaf nodes and hubs accounts have, and how many of them came from the other end."""

    def count_since(self, account: str, unix_ns: int) -> int:
        """How many of those that came have come since then."""

    def close_youngest(self, account: str, count: int) -> None:
        """Close so many of those that came."""


@attrs.define(eq=False)
class _Listener:
    """A linked node, and what it has been told."""

    is_greeted: bool = False  # it has heard of those that were there when the link began, be it none
    told: dict[str, Counts] = attrs.field(factory=dict)
    news: dict[str, None] = attrs.field(factory=dict)  # accounts to look at, the oldest news first
    woken: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def wake(self, names: Iterable[str]) -> None:
        """Look at these."""
        self.news.update(dict.fromkeys(names))
        self.woken.set()


@attrs.define(kw_only=True, eq=False)
class ClusterLimits:
    """See the module. `start` before the mesh runs, then `run`."""

    mesh: Mesh
    plane: Plane
    reactor: Reactor
    sessions: Sessions
    shared: SharedAccounts
    leafs: LeafPlaces | None
    are_leafs_limited: bool  # by tokens; what a configuration says of them has no effect, as in nats-server
    _limited: set[str] = attrs.field(factory=set, init=False)
    _said: dict[NodeId, dict[str, _Said]] = attrs.field(factory=dict, init=False)  # by the others
    _listeners: dict[NodeId, _Listener] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        """Listen to the mesh, and to who comes and goes."""
        self.mesh.calls.serve_at_once(METHOD, self._on_said, request_bytes_max=BYTES_MAX)
        self.mesh.on_peer_up.connect(self._up)
        self.mesh.on_peer_down.connect(self._down)
        self.sessions.on_admitted.connect(self._on_admitted)
        self.sessions.on_ended.connect(self._on_ended)
        self.shared.count_elsewhere(lambda account: self.elsewhere(account)[CLIENTS])
        self.shared.changed.connect(self._on_changed)
        if self.leafs is not None:
            self.leafs.counted.connect(self._on_counted)
        for account in self.shared.sharing:
            self._on_changed(account)

    async def run(self) -> None:
        """Tell the others until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for node, listener in self._listeners.items():
                nursery.start_soon(self._tell, node, listener)
            while True:
                await trio.sleep(LOOK_S)
                accounts = [*self._limited]
                for first in range(0, len(accounts), ACCOUNTS_MAX):
                    self._make_room(accounts[first : first + ACCOUNTS_MAX])
                    await trio.lowlevel.checkpoint()

    def elsewhere(self, account: str) -> Counts:
        """The shares of the other nodes in an account."""
        found = [said[account].counts for said in self._said.values() if account in said]
        return sum(clients for clients, _ in found), sum(leafs for _, leafs in found)

    def leafs_elsewhere(self, account: str) -> int:
        """How many leaf nodes of an account the other nodes have."""
        return self.elsewhere(account)[LEAFS]

    # --- what is here

    def _here(self, accounts: Iterable[str]) -> dict[str, Counts]:
        leafs, accepted = (Counter[str](), Counter[str]()) if self.leafs is None else self.leafs.counts()
        connections = {name: self.plane.account(name).statistics()["connections"] for name in accounts}
        return {name: (max(0, count - leafs[name]), accepted[name]) for name, count in connections.items()}

    def _most(self, account: str) -> Counts:
        """The limits of an account. Negative: none."""
        limits = self.shared.of(account).limits
        return limits.max_connections, limits.max_leafnodes if self.are_leafs_limited else NO_LIMIT

    def _on_admitted(self, session: Session) -> None:
        self._on_counted(session.account)

    def _on_ended(self, closed: Closed) -> None:
        if closed.session.verdict is not None:
            self._on_counted(closed.session.account)

    def _on_counted(self, account: str) -> None:
        if account in self._limited:
            for listener in self._listeners.values():
                listener.wake((account,))

    def _on_changed(self, account: str) -> None:
        """An account has other limits, or none."""
        if max(self._most(account)) >= 0:
            self._limited.add(account)
            self._on_counted(account)
            self._make_room((account,))
        elif account in self._limited:
            self._on_counted(account)  # zero is told from now on
            self._limited.remove(account)

    # --- what the others are told

    def _up(self, node: NodeId) -> None:
        listener = self._listeners[node] = _Listener()
        if self._nursery is not None:
            self._nursery.start_soon(self._tell, node, listener)

    def _down(self, node: NodeId) -> None:
        listener = self._listeners.pop(node, None)
        if listener is not None:
            listener.scope.cancel()
        for account in self._said.pop(node, {}):
            if account in self._limited:
                self.shared.limit(account)

    async def _tell(self, node: NodeId, listener: _Listener) -> None:
        """Say what is new, and look at everything now and then, as long as the link is there."""
        with listener.scope:
            while True:
                listener.wake([*self._limited, *listener.told])
                until_s = trio.current_time() + LOOK_S
                while trio.current_time() < until_s:
                    pause_s = await self._tell_news(node, listener)
                    await trio.sleep(pause_s)
                    with trio.move_on_at(until_s):
                        await listener.woken.wait()

    async def _tell_news(self, node: NodeId, listener: _Listener) -> float:
        """Say what is new; for how long nothing more should be said."""
        listener.woken = trio.Event()
        while listener.news:
            names = list(islice(listener.news, ACCOUNTS_MAX))
            for name in names:
                del listener.news[name]
            here = dict.fromkeys(names, NOBODY) | self._here(name for name in names if name in self._limited)
            new = {name: now for name, now in here.items() if now != listener.told.get(name, NOBODY)}
            pause_s = await self._say(node, new) if new or not listener.is_greeted else 0.0
            if pause_s:
                listener.wake(names)
                return pause_s
            listener.is_greeted = True
            for name, now in new.items():
                if now == NOBODY:
                    del listener.told[name]
                else:
                    listener.told[name] = now
            await trio.lowlevel.checkpoint()
        return 0.0

    async def _say(self, node: NodeId, new: dict[str, Counts]) -> float:
        """Zero when the node has heard it, otherwise when to say it again."""
        rows = tuple(PlacesTaken(account=name, clients=clients, leafs=leafs) for name, (clients, leafs) in new.items())
        try:
            await self.mesh.call(node, METHOD, AccountPlaces(accounts=rows).pack(), timeout_s=ANSWER_S)
        except RemoteCallError:
            return UNKNOWN_S
        except (CallTimeoutError, PeerUnavailableError):
            return AGAIN_S
        return 0.0

    # --- what the others say

    def _on_said(self, node: NodeId, payload: bytes, answer: Callable[[bytes], None]) -> None:
        is_first, now_s = node not in self._said, trio.current_time()  # of the link: those were there before
        said = self._said.setdefault(node, {})
        rows = AccountPlaces.unpack(payload).accounts
        for row in rows:
            counts, before = (row.clients, row.leafs), said.get(row.account, _Said())
            if counts == NOBODY:
                said.pop(row.account, None)
            elif row.account in said or len(said) < KNOWN_MAX:
                said[row.account] = _Said(counts) if is_first else before.followed_by(counts, now_s)
        accounts = [row.account for row in rows if row.account in self._limited]  # others may be limited here later
        for account in accounts:
            self.shared.limit(account)
        answer(b"")
        self._make_room(accounts)

    def _make_room(self, accounts: Iterable[str]) -> None:
        """Close those of this node that are too many of these accounts."""
        over = {}
        for account, here in self._here(accounts).items():
            there, most = self.elsewhere(account), self._most(account)
            surplus = [
                mine + others - limit if limit >= 0 and mine and others else 0
                for mine, others, limit in zip(here, there, most, strict=True)
            ]
            if max(surplus) > 0:
                over[account] = surplus[CLIENTS], surplus[LEAFS]
        if over:
            self.reactor.later(partial(self._close, over))

    def _close(self, over: dict[str, Counts]) -> None:
        came_ns = self.reactor.clock.unix_ns() - int(YOUNG_S * NS_PER_S)
        clients: dict[str, list[Session]] = {account: [] for account in over}
        for session in self.sessions.by_cid.values():
            if session.verdict is not None and session.account in clients:
                clients[session.account].append(session)
        for account, surplus in over.items():
            mine = clients[account]
            young = sum(session.start_unix_ns > came_ns for session in mine)
            for session in mine[len(mine) - self._share(account, CLIENTS, surplus[CLIENTS], young, len(mine)) :]:
                self.plane.close(session.cid, Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_CONNECTIONS)
            if self.leafs is not None and surplus[LEAFS] > 0:
                count, young = self.leafs.counts()[1][account], self.leafs.count_since(account, came_ns)
                self.leafs.close_youngest(account, self._share(account, LEAFS, surplus[LEAFS], young, count))

    def _share(self, account: str, kind: int, surplus: int, young: int, count: int) -> int:
        """How many of a surplus this node closes, which has so many, some of them young."""
        now_s, own = trio.current_time(), self.mesh.node_id
        at_nodes = {own: (young, count - young)}
        for node, said in self._said.items():
            if (found := said.get(account)) is not None:
                new = found.young(now_s)[kind]
                at_nodes[node] = new, found.counts[kind] - new
        return share_of(own, surplus, at_nodes)


def share_of(own: NodeId, surplus: int, at_nodes: Mapping[NodeId, Counts]) -> int:
    """How many of a surplus a node closes, when each node has so many young ones and so many others."""
    closed, left = 0, surplus
    for age in (0, 1):
        for node in sorted(at_nodes, reverse=True):
            taken = min(max(0, left), at_nodes[node][age])
            left -= taken
            closed += taken if node == own else 0
    return closed
