"""Founds the meta group as `founding` decides: asks peers, writes the record, gives the founders of the group.

A server that is no cluster founds a group of itself at once. The record is on disk before this node says what is in it:
a vouch before it is answered, the founding before the group may vote.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from jetraft.cluster.calls.messages.founding import METHOD, FoundersView
from jetraft.cluster.meta.members.founding import (
    SETTLE_NS,
    Founders,
    FoundingStep,
    Record,
    View,
    decide,
    founders_of,
    may_vouch,
    pack_record,
    unpack_record,
)
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import CLUSTER_FOUNDED

if TYPE_CHECKING:
    from jetraft.cluster.calls.forward import MeshLike, PeerLike
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

ROUND_S: Final = 0.05  # between two rounds of asking while the cluster comes up
ASK_TIMEOUT_S: Final = 1.0
JETSTREAM_KEY: Final = "jetstream"  # of a node's metadata: whether it has it; older nodes do, and say nothing
EXPECTED_MIN: Final = 2  # a clustered node alone founds nothing


class RecordFile(Protocol):
    """A small record that is replaced as a whole."""

    def load(self) -> bytes | None:
        """Return its content, None when there is none."""

    async def save(self, content: bytes) -> None:
        """Replace it; durable when this returns. Raises OSError."""


@attrs.frozen(kw_only=True, slots=True)
class BootstrapStatistics:
    """The stage of this node, for monitoring and for the log."""

    founded: bool
    outside: bool
    members: tuple[NodeId, ...]
    waiting_for: int


def has_jetstream(peer: PeerLike) -> bool:
    """Whether a node takes part in JetStream. One that does not routes messages and forwards requests."""
    return peer.metadata.get(JETSTREAM_KEY) is not False


def expected_nodes(routes: int) -> int:
    """How many nodes must be seen before a group is founded: as many as are configured, and this one.

    Routes that lead back to this node are counted here and taken off when the mesh has found out (`own_routes`): only a
    dial can tell, since every node of a cluster may be given the same list of names. So are routes to nodes that have
    no JetStream (`routes_to`), and only these: another one that is there does not stand for one that is missing.
    """
    return 1 + routes


class Bootstrap:
    """Finds out who founds the meta group and whether this node is one of them."""

    def __init__(self, *, record: Record, mesh: MeshLike | None, expected: int, file: RecordFile) -> None:
        """`record` is what the file says (`load_record`)."""
        self._node_id = record.node_id
        self._cluster = record.cluster
        self._mesh = mesh
        self._expected = expected
        self._file = file
        self._outside = False
        self.elsewhere: Founders | None = None  # the founders of the group that exists without this node
        self._record = record
        self._settled_at_ns = 0
        self._seen: tuple[NodeId, ...] = ()
        self._vouches: tuple[NodeId, ...] = ()  # the set vouched for in this process, while it is what is seen
        if mesh is not None:
            mesh.serve(METHOD, self._serve_view)

    @property
    def founded(self) -> Founders | None:
        """The group that this node belongs to; None until it is founded."""
        return self._record.founded

    @property
    def joined_index(self) -> int:
        """Groups up to this index of the meta log may know a self of this node that its store has forgotten.

        The index when the store joined with an empty memory; 0 for a founder's, 1 when it was admitted again with all
        that it had of other groups (no stream begins at the first index).
        """
        return self._record.joined_index

    async def joined(self, founders: Founders, index: int) -> None:
        """This node was admitted to the group of these founders. Durable when it returns.

        `index` is that of the meta log, up to which groups may know a forgotten self of this node; 0 for none.
        """
        joined_index = max(1, index, self._record.joined_index)
        await self._write(attrs.evolve(self._record, founded=founders, joined_index=joined_index))
        self._outside = False

    async def run(self) -> Founders | None:
        """Return the founders when this node may start the group, None when it has to be admitted: see `elsewhere`."""
        if self._record.founded is None and self._mesh is None:
            await self._found(founders_of(self._cluster, [self._node_id]))
        while self._record.founded is None:
            sees = self._see()
            views = await self._ask(sees)
            settled = trio.current_time() * NS_PER_S >= self._settled_at_ns
            expected = self._expected_now()
            decision = decide(record=self._record, sees=sees, expected=expected, settled=settled, views=views)
            if decision.step is FoundingStep.STAY_OUTSIDE:
                self._stay_outside(decision.founders)
                return None
            if decision.step is FoundingStep.FOUND and decision.founders is not None:
                await self._found(decision.founders)
                break
            if may_vouch(record=self._record, sees=sees, expected=expected, views=views):
                await self._vouch(sees)
            await trio.sleep(ROUND_S)
        return self._record.founded

    def statistics(self) -> BootstrapStatistics:
        """Return where this node stands."""
        founded = self._record.founded
        return BootstrapStatistics(
            founded=founded is not None,
            outside=self._outside,
            members=founded.members if founded else (),
            waiting_for=0 if founded else max(0, self._expected_now() - len(self._seen)),
        )

    def _expected_now(self) -> int:
        mesh = self._mesh
        if mesh is None:
            return max(EXPECTED_MIN, self._expected)
        others = {node_id for node_id, peer in mesh.peers.items() if peer.up and not has_jetstream(peer)}
        return max(EXPECTED_MIN, self._expected - mesh.own_routes - mesh.routes_to(others))

    def _see(self) -> Founders:
        """Note the nodes that are visible now; a vouch for others is over."""
        assert self._mesh is not None
        up = [node_id for node_id, peer in self._mesh.peers.items() if peer.up and has_jetstream(peer)]
        sees = founders_of(self._cluster, [self._node_id, *up])
        if sees.members != self._seen:
            self._seen = sees.members
            self._vouches = ()
            self._settled_at_ns = int(trio.current_time() * NS_PER_S) + SETTLE_NS
        return sees

    async def _ask(self, sees: Founders) -> dict[NodeId, View]:
        views: dict[NodeId, View] = {}

        async def ask(peer: NodeId) -> None:
            assert self._mesh is not None
            try:
                answer = await self._mesh.call(peer, METHOD, b"", timeout_s=ASK_TIMEOUT_S)
                views[peer] = view_of(FoundersView.unpack(answer), cluster=self._cluster)
            except (PeerUnavailableError, CallTimeoutError, RemoteCallError, RemoteProtocolError) as error:
                log.debug("asking %s for its view: %s", peer, error)

        async with trio.open_nursery() as nursery:
            for peer in sees.members:
                if peer != self._node_id:
                    nursery.start_soon(ask, peer)
        return views

    async def _serve_view(self, _sender: NodeId, _payload: bytes) -> bytes:
        # An answer must not vouch for a set of nodes that is no longer the visible one.
        if self._record.founded is None and not self._outside:
            self._see()
        return view_message(View(founders=self._record.founded, vouches=self._vouches)).pack()

    async def _vouch(self, sees: Founders) -> None:
        await self._write(self._record.vouching_for(sees))
        if self._seen == sees.members:  # what is seen may have changed meanwhile
            self._vouches = sees.members

    async def _found(self, founders: Founders) -> None:
        await self._write(attrs.evolve(self._record, founded=founders))
        if self._mesh is not None:
            CLUSTER_FOUNDED.log(cluster=self._cluster, members=", ".join(founders.members))

    def _stay_outside(self, founders: Founders | None) -> None:
        self._outside = True
        self.elsewhere = founders
        counted = founders is not None and self._node_id in founders.members
        reason = "counts on this node, but its store is empty" if counted else "was founded without this node"
        log.warning("JetStream: the meta group %s; this node asks to be admitted, without a vote at first", reason)

    async def _write(self, record: Record) -> None:
        if record != self._record:
            await self._file.save(pack_record(record))
            self._record = record


def load_record(file: RecordFile, *, node_id: NodeId, cluster: str) -> Record:
    """Return what the file says, or an empty record. Raises BadRecordError when it is another node's or cluster's."""
    stored = file.load()
    if stored is None:
        return Record(node_id=node_id, cluster=cluster)
    return unpack_record(stored, node_id=node_id, cluster=cluster)


def view_message(view: View) -> FoundersView:
    """Return a view as it travels."""
    return FoundersView(founders=view.founders.members if view.founders else None, vouches=view.vouches)


def view_of(message: FoundersView, *, cluster: str) -> View:
    """Return the view of `view_message`."""
    founders = None if message.founders is None else founders_of(cluster, message.founders)
    return View(founders=founders, vouches=message.vouches)
