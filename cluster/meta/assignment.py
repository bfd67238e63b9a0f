"""One stream's assignment: what it is, on which nodes, and under which identity.

The incarnation is the meta log index of the creation, so a stream that was deleted and created again under its old
name is told from its namesake by number (the idea of redpanda's revision). The group id names the Raft group and its
directory; its eight random characters are drawn by the meta leader and are a fact of the log entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import attrs

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.ids import GroupId, NodeId


class StreamKey(NamedTuple):
    """The name of a stream inside its account."""

    account: str
    name: str


@attrs.frozen(kw_only=True, slots=True)
class StreamAssignment:
    """A stream as the meta group knows it. `revision` is the meta log index of the last change of the config."""

    account: str
    config: StreamConfig
    group_id: GroupId
    incarnation: int
    revision: int
    peers: tuple[NodeId, ...]
    preferred: NodeId
    created_ns: int

    @property
    def key(self) -> StreamKey:
        """Account and name."""
        return StreamKey(self.account, self.config.name)
