"""The filters of a stream's consumers in one tree, so that neither a message nor a new filter meets them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model._patterns import PatternTree
from jetraft.store.model.subject import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.store.model.config import ConsumerConfig

WIDTH_MAX: Final = 4_096  # branches that a subject may lead to, of all consumers together: 0.1 ms of each message


class ConsumerFilters:
    """Which consumers admit a subject, by name. One without filters admits everything."""

    def __init__(self) -> None:
        self.tree: PatternTree[str] = PatternTree()
        self._of: dict[str, tuple[bytes, ...]] = {}

    def put(self, name: str, config: ConsumerConfig) -> None:
        """Add a consumer, or replace its filters."""
        self.forget(name)
        filters = config.filters or (EVERYTHING,)
        for one in filters:
            self.tree.add(one, name)
        self._of[name] = filters

    def forget(self, name: str) -> None:
        """Remove a consumer, if it is there."""
        for one in self._of.pop(name, ()):
            self.tree.remove(one, name)

    def __len__(self) -> int:
        """How many consumers there are."""
        return len(self._of)

    def __contains__(self, name: object) -> bool:
        """Whether a consumer of this name is there."""
        return name in self._of


def rivals_in(consumers: Mapping[str, ConsumerConfig]) -> ConsumerFilters:
    """Those consumers of a work queue that take messages out of it: not those through which servers read the stream."""
    found = ConsumerFilters()
    for name, config in consumers.items():
        if takes_messages(config):
            found.put(name, config)
    return found


def takes_messages(config: ConsumerConfig) -> bool:
    """Whether what this consumer is given leaves a work queue."""
    return not (config.direct or config.sourcing)
