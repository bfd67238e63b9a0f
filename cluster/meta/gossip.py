"""Keeps what this node says of itself (`profile`) true: here at once, at the others when it has changed enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self

import attrs
import trio

from jetraft.cluster.meta.profile import KEY, NodeProfile, lower
from jetraft.store.disk.io import memory_bytes
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jetraft.cluster.meta.view import ClusterView
    from jetraft.store.ledger.node_dir import NodeDir

TELL_S: Final = 5.0  # nats-server sends such figures every ten seconds


class Describable(Protocol):
    """The part of the mesh that is told."""

    def describe(self, key: str, value: object) -> None:
        """Say this of the node to every peer, now and later."""


class ProfileGossip:
    """See the module. One task (`run`); `tell` says that something may have changed."""

    def __init__(
        self,
        profile: NodeProfile,
        *,
        view: ClusterView,
        mesh: Describable | None,
        held: Callable[[], Mapping[StorageType, int]],
        is_short: Callable[[], bool],
    ) -> None:
        self._view = view
        self._mesh = mesh
        self._held = held
        self._is_short = is_short
        self._told = profile
        self._lost: frozenset[str] = frozenset()
        self._drained = False

    @classmethod
    def start(
        cls,
        profile: NodeProfile,
        *,
        view: ClusterView,
        mesh: Describable | None,
        held: Callable[[], Mapping[StorageType, int]],
        is_short: Callable[[], bool],
    ) -> Self:
        """Say the first profile at once: made before the mesh runs, so every peer hears it with the first frame."""
        view.own_profile = profile
        if mesh is not None:
            mesh.describe(KEY, profile.pack())
        return cls(profile, view=view, mesh=mesh, held=held, is_short=is_short)

    def tell(self) -> None:
        """Say what is true of this node now, if the others should hear of it."""
        told = self._told
        self._view.own_profile = now = attrs.evolve(
            told, held=self._held(), is_short=self._is_short(), lost=self._lost, drained=self._drained
        )
        if self._mesh is not None and now.differs_from(told):
            self._mesh.describe(KEY, now.pack())
            self._told = now

    def lose(self, accounts: frozenset[str]) -> None:
        """Say that other nodes should lead the streams of these accounts, and of no others."""
        if accounts != self._lost:
            self._lost = accounts
            self.tell()

    def drain(self, *, drained: bool) -> None:
        """Say that other nodes should lead everything, or that this one may lead as ever."""
        if drained is not self._drained:
            self._drained = drained
            self.tell()

    def follow(self, tags: Iterable[str], limits: Mapping[StorageType, int]) -> None:
        """Say other tags and limits (bytes) from now on; a kind without a new limit keeps what it has."""
        capacity = {**self._told.capacity, **limits}
        self._told = self._view.own_profile = attrs.evolve(self._told, tags=lower(tags), capacity=capacity)
        if self._mesh is not None:
            self._mesh.describe(KEY, self._told.pack())

    async def run(self) -> None:
        """Keep what is said of this node nearly true, until cancelled."""
        while True:
            self.tell()
            await trio.sleep(TELL_S)


def first_profile(
    node_dir: NodeDir, tags: Iterable[str], limits: Mapping[StorageType, int], *, level: int, server_id: str
) -> NodeProfile:
    """A node's report of itself before it holds anything; `level` is the feature level that it takes part in.

    A limit (bytes) that is not configured is three quarters of what there is, as in nats-server.
    """
    there = {
        StorageType.FILE: node_dir.disk.space(node_dir.root).free + node_dir.stored_bytes(),
        StorageType.MEMORY: memory_bytes(),
    }
    capacity = {kind: count * 3 // 4 for kind, count in there.items()}
    return NodeProfile(tags=lower(tags), capacity={**capacity, **limits}, level=level, server_id=server_id)
