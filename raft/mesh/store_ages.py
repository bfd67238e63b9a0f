"""How far the stores of nodes are, as they tell one another; one with an older copy of its own is kept out (rule 30).

Each node says in its control frames how far its store is, and how far it has heard that others' are. A session begins
only if neither end knows of the other what the other has forgotten: an older copy of a store has forgotten votes and
entries that it acknowledged, so its node could elect a leader that lacks what was acknowledged to clients. A node that
is told so of its own store links with no other any more. With an empty store it comes back as any node whose disk was
lost (raft/recovery/joining.py).

The others' knowledge of a third node counts too: where two servers run on copies of one store, each linked with some of
the others, no node keeps a link with either as soon as those others have heard of each other.

Ages that were heard are kept in the node's own ledger: at once when another node has started, and now and then.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Final, Protocol

import attrs
import msgpack

from jetraft.raft.mesh.gossip import ADDRESSES_MAX, About
from jetraft.raft.mesh.handshake import HandshakeRefusedError, Hello
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.files.store_age import NO_LEDGER, KnownAge, LedgerPlace, StoreAge, unpack_known
from jetraft.store.model.ids import NODE_ID_CHARS, NodeId

KEEP_NS: Final = 10 * NS_PER_S  # between two records of what was heard of nodes that were known to have started
TELL_NS: Final = NS_PER_S
NODES_MAX: Final = 1024  # that are remembered: the mesh links with no more in a process
OLDER_COPY: Final = "had or met an older copy of a store"

log = logging.getLogger(__name__)


class AgeKeeper(Protocol):
    """The source of a node's own age, and the place of those of others (store/ledger/kept_ages.py)."""

    def own(self) -> StoreAge | None:
        """How far the node's store is, durably; None when this start of the server is not written down."""
        ...

    def load(self) -> bytes | None:
        """The ages that were kept last."""
        ...

    def keep(self, content: bytes, *, at_once: bool) -> None:
        """Replace it, at once or when something else is written. A failure is of no consequence."""
        ...


class StoreAges:
    """See the module. Until `begin`, and on a node without a store, it says nothing and objects to nothing."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self._keeper: AgeKeeper | None = None
        self._known: dict[NodeId, KnownAge] = {}
        self._said: dict[NodeId, StoreAge] = {}  # by each node of itself, last
        self._known_to: dict[NodeId, Mapping[NodeId, KnownAge]] = {}  # what others know
        self._refused: dict[NodeId, int] = {}  # known nodes that are kept out: the start with which they came last
        self._kept_ns: int | None = None
        self._told: tuple[int, LedgerPlace] | None = None  # when, and what
        self.is_own_old = False  # another node has met a later state of this node's store

    def begin(self, keeper: AgeKeeper) -> None:
        """Take the store of this node; before there are links."""
        self._keeper = keeper
        self._known = _unpacked(keeper.load())

    def _own(self) -> StoreAge | None:
        return None if self._keeper is None else self._keeper.own()

    def check(self) -> None:
        """Raises HandshakeRefusedError when this node may link with no other."""
        if self.is_own_old:
            raise HandshakeRefusedError("this server runs on an older copy of its store")

    def added_to(self, about: About) -> About:
        """This node's report of itself, with the ages."""
        # A server that an operator took for lost is not told: it may be that it serves with others, as it did before.
        told = [(node, known) for node, known in self._known.items() if known.ledger != NO_LEDGER]
        return attrs.evolve(about, age=self._own(), known_ages=dict(told[-ADDRESSES_MAX:]))

    def fit(self, hello: Hello, about: About, now_ns: int) -> bool:
        """Whether a session with the node may begin, or go on; then how far its store is was noted."""
        node, own = hello.node_id, self._own()
        told, known = about.known_ages.get(self._node_id), self._known.get(node)
        if told is not None and own is not None and told.is_after(own):
            if not self.is_own_old:
                log.error(
                    "%s has met a later state of this server's store: it is an older copy, and has forgotten what it "
                    "promised since; this server links with no other any more: start it with an empty store",
                    hello.name,
                )
            self.is_own_old = True
        elif about.age is not None and (
            (known is not None and known.is_after(about.age)) or self._is_contradicted(node, about.age)
        ):
            start = about.age.starts[-1].number
            if self._refused.get(node) != start:  # it dials again every few seconds, and may never hear why
                log.error("%s has started with an older copy of its store; it is not linked with that", hello.name)
            self._refused[node] = start
            return False
        elif about.age is not None:
            self._said[node], self._known_to[node] = about.age, about.known_ages
            self._learn(node, about.age, now_ns)
        return not self.is_own_old

    def _is_contradicted(self, node: NodeId, age: StoreAge) -> bool:
        told = [known[node] for teller, known in self._known_to.items() if teller != node and node in known]
        return any(each.contradicts(age) for each in told)

    def contradicted_by(self, about: About) -> list[NodeId]:
        """Nodes that have said what a later word of another one contradicts: their links end.

        It may be that such a node was started again, and that its link here is that of the process before.
        """
        return [
            node for node, known in about.known_ages.items() if (age := self._said.get(node)) and known.contradicts(age)
        ]

    def _learn(self, node: NodeId, age: StoreAge, now_ns: int) -> None:
        before = self._known.get(node)
        known = self._known[node] = KnownAge.first(age) if before is None else before.with_heard(age)
        while len(self._known) > NODES_MAX:
            del self._known[next(iter(self._known))]
        has_started = before is None or (before.ledger, before.start) != (known.ledger, known.start)
        is_due = self._kept_ns is None or now_ns - self._kept_ns >= KEEP_NS
        if self._keeper is not None and (has_started or (known != before and is_due)):
            self._kept_ns = now_ns
            self._keeper.keep(_packed(self._known), at_once=has_started)

    def has_news(self, now_ns: int) -> bool:
        """Whether this node's store has gone on since the others were told, which is to be done now."""
        own = self._own()
        if own is None or (self._told is not None and (now_ns - self._told[0] < TELL_NS or own.place == self._told[1])):
            return False
        self._told = now_ns, own.place
        return True


def without_lost(content: bytes | None, left: Collection[NodeId]) -> bytes:
    """The ages to keep in place of these when an operator says that no other nodes are left than these."""
    known = _unpacked(content)
    return _packed({node: age if node in left else age.disowned() for node, age in known.items()})


def _packed(known: Mapping[NodeId, KnownAge]) -> bytes:
    return bytes(msgpack.packb({node: age.pack() for node, age in sorted(known.items())}))


def _unpacked(content: bytes | None) -> dict[NodeId, KnownAge]:
    """The ages that were kept; none when they are unreadable."""
    if content is None:
        return {}
    try:
        fields = msgpack.unpackb(content)
        return {NodeId(node): unpack_known(age) for node, age in fields.items() if len(node) == NODE_ID_CHARS}
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        log.error("how far the stores of other nodes were is unreadable and will be learned again: %s", error)  # noqa: TRY400
        return {}
