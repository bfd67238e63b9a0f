"""Meshes on loopback, and what tests ask of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypedDict

import trio
import trio.testing

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.bulk import BYTES_PER_S
from jetraft.raft.mesh.connection import Tls
from jetraft.raft.mesh.framing import CHANNEL_ROUTE
from jetraft.raft.mesh.peers import Mesh, MeshSetting
from jetraft.store.model.ids import NodeId
from tests.doubles.real_clock import RealClock
from tests.harness.patience import PATIENCE_S

LOOPBACK = Address("127.0.0.1", 0)

SETTLED_S = 0.01  # nobody has anything to do: what a socket brought has been taken


async def assert_frames_arrive_whole_and_in_order(one: "Node", other: "Node", count: int) -> None:
    """Send frames of many sizes from one to the other, and a large one at the end."""
    received: list[bytes] = []
    finished = trio.Event()

    def handle(_sender: NodeId, payload: memoryview) -> None:
        received.append(bytes(payload))
        if received[-1] == b"end":
            finished.set()

    other.mesh.on_frame(CHANNEL_ROUTE, handle)
    sent = [b"%d" % number * (number * 37 % 5000) for number in range(count)] + [b"z" * 3_000_000, b"end"]
    for payload in sent:
        assert one.mesh.send(other.mesh.node_id, CHANNEL_ROUTE, payload)
    one.mesh.flush()
    with trio.fail_after(PATIENCE_S):
        await finished.wait()
    assert received == sent


class NodeOptions(TypedDict, total=False):
    """What a test says to a node by name."""

    cluster: str
    secret: bytes
    tls: Tls
    bulk_bytes_per_s: int


class Node:
    """A mesh and what it was told."""

    def __init__(  # noqa: PLR0913  (what distinguishes nodes, by name)
        self,
        name: str,
        routes: tuple[Address, ...] = (),
        *,
        cluster: str = "c",
        secret: bytes = b"s",
        old_secrets: tuple[bytes, ...] = (),
        tls: Tls | None = None,
        bulk_bytes_per_s: int = BYTES_PER_S,
        after_frames: Callable[[], None] = lambda: None,
    ) -> None:
        setting = MeshSetting(
            cluster=cluster,
            server_name=name,
            listen=LOOPBACK,
            routes=routes,
            secrets=(secret, *old_secrets),
            tls=tls,
            bulk_bytes_per_s=bulk_bytes_per_s,
        )
        self.clock = RealClock()
        metadata = {"client_url": f"nats://{name}"}
        self.mesh = Mesh(setting, clock=self.clock, metadata=metadata, after_frames=after_frames)
        self.mesh.on_peer_up.connect(lambda node: self._note("up", node))
        self.mesh.on_peer_down.connect(lambda node: self._note("down", node))
        self.events: list[tuple[str, NodeId]] = []
        self._changed = trio.Event()

    def _note(self, what: str, node: NodeId) -> None:
        self.events.append((what, node))
        self._changed.set()
        self._changed = trio.Event()

    @property
    def up(self) -> set[NodeId]:
        return {node for node, peer in self.mesh.peers.items() if peer.up}

    async def wait_up(self, *others: "Node") -> None:
        with trio.fail_after(PATIENCE_S):
            while self.up != {other.mesh.node_id for other in others}:
                await self._changed.wait()

    async def wait_shaken(self, attempts: int) -> None:
        """So many connections were dialled and accepted, and their handshakes are over."""
        connector = self.mesh._connector
        with trio.fail_after(PATIENCE_S):
            while connector._attempts < attempts or connector._strangers:
                await trio.testing.wait_all_tasks_blocked(SETTLED_S)

    @property
    def address(self) -> Address:
        assert self.mesh.listen_address is not None
        return self.mesh.listen_address


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        for node in nodes:
            await nursery.start(node.mesh.run)
        yield nursery
        nursery.cancel_scope.cancel()
