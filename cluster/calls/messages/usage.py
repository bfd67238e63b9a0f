"""js.usage: the account's name -> what a node's replicas of its streams use."""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, number, protocol
from jetraft.store.model.limits import NAME_BYTES_MAX

METHOD: Final = "js.usage"


@attrs.frozen(slots=True)
class UsageQuestion:
    """What does this account use? It travels as the bare name."""

    account: str

    def pack(self) -> bytes:
        """The bytes in which it travels."""
        return self.account.encode()

    @classmethod
    def unpack(cls, packed: bytes) -> UsageQuestion:
        """The question of `pack`. Raises RemoteProtocolError."""
        if len(packed) > NAME_BYTES_MAX:
            raise RemoteProtocolError(f"a question for usage: an account of {len(packed)} bytes")
        try:
            return cls(packed.decode())
        except ValueError as error:
            raise RemoteProtocolError(f"a question for usage: {error}") from error


@protocol("a node's usage", bytes_max=64)
@attrs.frozen(kw_only=True, slots=True)
class NodeUsage(Message):
    """What a node's replicas hold in bytes, the consumers of streams it leads, the API requests it answered."""

    memory: int = attrs.field(default=0, metadata=number())
    storage: int = attrs.field(default=0, metadata=number())
    consumers: int = attrs.field(default=0, metadata=number())
    api_requests: int = attrs.field(default=0, metadata=number())
    api_errors: int = attrs.field(default=0, metadata=number())
