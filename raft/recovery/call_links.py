"""The mesh as recovery needs it: calls to other nodes, and answers to theirs."""

from typing import Protocol

from jetraft.raft.mesh.rpc import Handler
from jetraft.store.model.ids import NodeId


class CallLinks(Protocol):
    """See the module."""

    def serve(self, method: str, handler: Handler) -> None:
        """Answer calls of `method`."""
        ...

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        """Ask another node."""
        ...
