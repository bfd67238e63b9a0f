"""Tells that a stream's leader has lost contact with a majority, and with it its consumers; not each time.

Such a replica stops leading in its own term, and knows of no other leader. nats-server looks every
10 s and tells then; here the leader stops after a second, and tells at once.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from jetraft.cluster.peer_views import unled_replicas
from jetraft.cluster.streams.replica.group_views import CONSUMERS_TOLD_MAX
from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.site import Site
    from jetraft.raft.group import Group
    from jetraft.store.stream.consumer_state import ConsumerState

TOLD_NS: Final = 10 * NS_PER_S  # lostQuorumAdvInterval: once in this time at most


class LossNews:
    """News that one replica of a stream has told."""

    __slots__ = ("_told_ns",)

    def __init__(self) -> None:
        self._told_ns: int | None = None  # mono

    def tell(self, site: Site, group: Group, stream: str, consumers: Iterable[ConsumerState]) -> None:
        """Publish it, unless it was told a moment ago."""
        now_ns = site.clock.mono_ns()
        if self._told_ns is not None and now_ns - self._told_ns < TOLD_NS:
            return
        self._told_ns = now_ns
        replicas = unled_replicas(group, name_of=site.name_of, link_heard_ns=site.link_heard_ns, now_ns=now_ns)
        site.advisories.stream_quorum_lost(stream, replicas)
        for consumer in islice(consumers, CONSUMERS_TOLD_MAX):
            if not consumer.config.direct:
                site.advisories.consumer_quorum_lost(stream, consumer.name, replicas)
