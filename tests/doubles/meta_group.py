"""A meta group of which only how far it is applied matters."""

from __future__ import annotations

from typing import cast

from jetraft.cluster.meta.meta_group import MetaGroup, MetaGroupRef
from jetraft.raft.changes import Change


class AppliedMetaGroup:
    """The part of MetaGroup that `MetaGroupRef.wait_applied` asks."""

    def __init__(self, applied_index: int = 0) -> None:
        self._applied_index = applied_index
        self._progress = Change()
        self.failed: Exception | None = None

    @property
    def applied_index(self) -> int:
        return self._applied_index

    def apply_to(self, index: int) -> None:
        """Everything up to this index is applied now."""
        self._applied_index = index
        self._progress.notify()

    def stop(self) -> None:
        """The group has ended."""
        self.failed = RuntimeError("stopped")
        self._progress.notify()

    async def wait_applied(self, index: int) -> None:
        await self._progress.until(lambda: self._applied_index >= index or self.failed is not None)

    def ref(self) -> MetaGroupRef:
        """This group as the node's."""
        return MetaGroupRef(self.as_meta_group())

    def as_meta_group(self) -> MetaGroup:
        """The same, for the type checker."""
        return cast("MetaGroup", self)
