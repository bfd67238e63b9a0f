"""js.usage: the account's name -> what a node's replicas of its streams use. js.usage.tiers: the same by replicas."""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, list_of, message_of, number, protocol
from jetraft.store.model.limits import NAME_BYTES_MAX

METHOD: Final = "js.usage"
TIERS_METHOD: Final = "js.usage.tiers"  # asked for accounts with limits by tier only
REPLICAS_MAX: Final = 255  # more than a stream can have


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
    """The bytes that a node's replicas hold, the consumers of streams it leads, the API requests it answered."""

    memory: int = attrs.field(default=0, metadata=number())
    storage: int = attrs.field(default=0, metadata=number())
    consumers: int = attrs.field(default=0, metadata=number())
    api_requests: int = attrs.field(default=0, metadata=number())
    api_errors: int = attrs.field(default=0, metadata=number())


@protocol("what a node holds of streams of so many replicas", bytes_max=64)
@attrs.frozen(kw_only=True, slots=True)
class TierShare(Message):
    """The bytes that replicas of streams with `replicas` hold, and the consumers with as many of streams it leads."""

    replicas: int = attrs.field(metadata=number(1, REPLICAS_MAX))
    memory: int = attrs.field(default=0, metadata=number())
    storage: int = attrs.field(default=0, metadata=number())
    consumers: int = attrs.field(default=0, metadata=number())


@protocol("a node's usage by tier", bytes_max=REPLICAS_MAX * 64)
@attrs.frozen(kw_only=True, slots=True)
class NodeTiers(Message):
    """The holdings of a node's replicas, by the number of replicas of their streams."""

    shares: tuple[TierShare, ...] = attrs.field(metadata=list_of(message_of(TierShare), REPLICAS_MAX))
