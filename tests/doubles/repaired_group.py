"""Stands for the groups of a node, and their manager, in tests of repairs: a log, and a promise of a term."""

from collections.abc import Callable
from typing import Any

import attrs

from jetraft.raft.engine.membership import Configuration
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import HardState

MEMBERS = tuple(NodeId(letter * 8) for letter in "ABC")


@attrs.define(eq=False)
class GroupWithLog:
    """What repairs read of a `Group` that runs over a log."""

    log: Any
    commit_index: int
    incarnation: int = 7
    is_voter: bool = True
    failed: Exception | None = None
    configuration: Configuration = attrs.Factory(lambda: Configuration(voters=MEMBERS))

    @property
    def term(self) -> int:
        return int(self.log.hard_state.term)

    def distrust(self, error: Exception) -> None:
        self.failed = error

    def promise(self, term: int) -> int:
        if term > self.log.hard_state.term:
            self.log.set_hard_state(HardState(term=term, vote=None))
            self.log.submit()
        return self.log.hard_state.term if self.log.durable_token >= self.log.hard_state_token else 0


@attrs.define(eq=False)
class Groups:
    """What repairs ask of a `Manager`."""

    groups: dict[GroupId, GroupWithLog] = attrs.Factory(dict)
    take_stray: Callable[[NodeId, GroupId, int], None] | None = None

    def serve_strays(self, handler: Callable[[NodeId, GroupId, int], None]) -> None:
        self.take_stray = handler
