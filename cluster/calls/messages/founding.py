"""meta.view: nothing -> what a node knows of the founding of the meta group (cluster/meta/members/bootstrap.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.raft.mesh.messages import Message, list_of, optional, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

if TYPE_CHECKING:
    from jetraft.store.model.ids import NodeId

METHOD: Final = "meta.view"
NODES_MAX: Final = 1024
VIEW_BYTES_MAX: Final = 64 << 10


@protocol("a view of the meta group's founding", bytes_max=VIEW_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class FoundersView(Message):
    """The first members of the group that it belongs to, if any, and the set that it vouches for, empty for none."""

    founders: tuple[NodeId, ...] | None = attrs.field(
        metadata=optional(list_of(text(NAME_BYTES_MAX, chars_min=1), NODES_MAX))
    )
    vouches: tuple[NodeId, ...] = attrs.field(metadata=list_of(text(NAME_BYTES_MAX, chars_min=1), NODES_MAX))
