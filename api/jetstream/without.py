"""A node of a cluster that has no JetStream itself: the requests of its clients go to the nodes that have it.

It captures requests as the others do and asks a node with JetStream, which answers or names the owner. Publishes, pulls
and acknowledgements need nothing: the sinks of the streams' leaders are interest on the other nodes. While no node with
JetStream is linked, clients are told that there are no responders, as on a server that stands alone.
"""

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from random import Random

import attrs
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.jetstream.gateway import ApiGateway
from jetraft.api.sessions.client_info import ClientDirectory
from jetraft.api.turns.outbox import PlaneOutboxes
from jetraft.api.turns.reactor import Reactor
from jetraft.cluster.advisories import NodeAdvisories
from jetraft.cluster.calls.forward import Forwarder, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest
from jetraft.cluster.meta.members.bootstrap import has_jetstream
from jetraft.cluster.requests.usage import ApiCounts
from jetraft.raft.mesh.peers import Mesh
from jetraft.store.model.clock import Clock
from jetraft.store.model.ids import NodeId


@attrs.define
class Counts:
    """API requests that this node has answered, by account."""

    api: defaultdict[str, ApiCounts] = attrs.field(factory=partial(defaultdict, ApiCounts))


@attrs.frozen(eq=False)
class OthersService:
    """A node for the gateway, where others have JetStream."""

    forwarder: Forwarder
    usages: Counts
    advisories: NodeAdvisories

    def identity_of(self, _account: str, _stream: str) -> str:
        """The table of streams is not here."""
        return ""


def serving(mesh: Mesh) -> list[NodeId]:
    """The nodes with JetStream that are linked, the same order at each call."""
    return sorted(node for node, peer in mesh.peers.items() if peer.up and has_jetstream(peer))


def locate(mesh: Mesh, _request: ForwardedRequest, asked: AbstractSet[NodeId]) -> NodeId | None:
    """A node with JetStream that was not just asked: it knows the owner if it is not the owner."""
    return next((node for node in serving(mesh) if node not in asked), None)


async def refuse(_request: ForwardedRequest) -> bytes:
    """Nothing is carried out here."""
    raise Moved


@attrs.define(eq=False)
class JetStreamOfOthers:
    """See the module."""

    mesh: Mesh
    gateway: ApiGateway
    kick: Callable[[], None]

    @classmethod
    def make(
        cls, mesh: Mesh, reactor: Reactor, accounts: LiveAccounts, clients: ClientDirectory, clock: Clock
    ) -> "JetStreamOfOthers":
        """The parts; requests are taken once `run` runs."""
        outboxes = PlaneOutboxes(reactor.plane, reactor)
        rng = Random()  # noqa: S311  names of advisories: nothing secret
        service = OthersService(
            forwarder=Forwarder(node_id=mesh.node_id, mesh=mesh, locate=partial(locate, mesh), execute=refuse),
            usages=Counts(),
            advisories=NodeAdvisories(outboxes=outboxes, clock=clock, rng=rng),
        )
        gateway = ApiGateway(
            service=service,
            outboxes=outboxes,
            kick=reactor.kick_outside,
            accounts=accounts,
            server_name=clients.identity.server_name,
            describe=clients.describe,
            may_write=reactor.plane.may_write,
        )
        gateway.shut()
        return cls(mesh=mesh, gateway=gateway, kick=reactor.kick_outside)

    async def run(self) -> None:
        """Serve until cancelled."""
        for signal in (self.mesh.on_peer_up, self.mesh.on_peer_down, self.mesh.on_peer_changed):
            signal.connect(lambda _node: self._follow())
        async with trio.open_nursery() as nursery:
            await nursery.start(self.gateway.run)
            self._follow()

    def _follow(self) -> None:
        """Take requests while a node is there that can carry them out."""
        (self.gateway.open if serving(self.mesh) else self.gateway.shut)()
        self.kick()
