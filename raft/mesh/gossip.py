"""Reports of nodes about themselves and others: the frames of the control channel. Pure.

An empty frame is a keepalive. The others are msgpack: what the server says of itself, where it listens for peers, and
where the nodes listen that it is linked with; and which those are, for what takes a detour (raft/mesh/detours.py).
A node with a store says how far that is, and how far others' were (raft/mesh/store_ages.py).
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgpack

from jetraft.raft.mesh.addresses import Address, parse_address
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model.files.store_age import KnownAge, StoreAge, unpack_age, unpack_known
from jetraft.store.model.ids import NODE_ID_CHARS, NodeId

ADDRESSES_MAX: Final = 256  # bounds what peers can make a node dial
ITEMS_MAX: Final = 4096  # bounds the arrays and maps that a few bytes announce, 1024 of which may be in each other


@attrs.frozen(kw_only=True, slots=True)
class About:
    """One node's word. `address` is None when it does not listen, `links` when it does not say whom it is linked to."""

    metadata: Mapping[str, Any]
    address: Address | None
    peers: Mapping[NodeId, Address]
    links: tuple[NodeId, ...] | None = None
    age: StoreAge | None = None  # of its store; None when it has none, or does not say
    known_ages: Mapping[NodeId, KnownAge] = attrs.field(factory=dict)

    def encode(self) -> bytes:
        """The payload of a control frame."""
        peers = {node: str(address) for node, address in self.peers.items()}
        own = "" if self.address is None else str(self.address)
        more: dict[str, Any] = {} if self.links is None else {"links": list(self.links)}
        if self.age is not None:
            more["age"] = self.age.pack()
        if self.known_ages:
            more["known_ages"] = {node: age.pack() for node, age in self.known_ages.items()}
        return bytes(msgpack.packb({"metadata": dict(self.metadata), "address": own, "peers": peers, **more}))

    @classmethod
    def decode(cls, payload: bytes | memoryview, host: str) -> "About":
        """The reverse; `host` is where the connection came from. Raises RemoteProtocolError."""
        try:
            about = msgpack.unpackb(payload, max_array_len=ITEMS_MAX, max_map_len=ITEMS_MAX, max_ext_len=0)
            metadata, text, peers = about["metadata"], about["address"], about["peers"]
            if not isinstance(metadata, dict) or not isinstance(peers, dict) or len(peers) > ADDRESSES_MAX:
                raise RemoteProtocolError("a control frame with fields of the wrong type")
            links = about.get("links")
            if links is not None and (not isinstance(links, list) or len(links) > ADDRESSES_MAX):
                raise RemoteProtocolError("a control frame with links that are no list of nodes")
            age, known_ages = about.get("age"), about.get("known_ages", {})
            if not isinstance(known_ages, dict) or len(known_ages) > ADDRESSES_MAX:
                raise RemoteProtocolError("a control frame with ages that are not by node")
            nodes = (*peers, *(links or ()), *known_ages)
            if any(not isinstance(node, str) or len(node) != NODE_ID_CHARS for node in nodes):
                raise RemoteProtocolError("a control frame with a node that has no id")
            address = _reachable(parse_address(text), host) if text else None
            others = {NodeId(node): parse_address(where) for node, where in peers.items()}
            ages = {NodeId(node): unpack_known(fields) for node, fields in known_ages.items()}
            own_age = None if age is None else unpack_age(age)
        except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"a control frame that does not parse: {error}") from error
        linked = None if links is None else tuple(NodeId(node) for node in links)
        return cls(metadata=metadata, address=address, peers=others, links=linked, age=own_age, known_ages=ages)


def _reachable(address: Address, host: str) -> Address:
    """A node that listens on all interfaces is reached where its connection came from."""
    return Address(host, address.port) if address.host in {"0.0.0.0", "::", ""} else address  # noqa: S104  (compared)
