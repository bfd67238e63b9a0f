"""Handlers for chained streams: heads and proofs, from the stream's leader (docs/extensions.md).

All of them are linearizable: a majority confirms that this replica leads, so a head has everything acknowledged before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.streams.gets.chain_reading import ChainReading, read_chain
from jetraft.store.model.requests import (
    JetraftChainConsistencyRequest,
    JetraftChainHeadRequest,
    JetraftChainProofRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def head(service: ClusterService, call: Call) -> Mapping[str, object]:
    """JETRAFT.CHAIN.HEAD.*: how many leaves the chain has, and their hash; now, or when it had a given size."""
    request = call.optional_body(JetraftChainHeadRequest)
    reading = await _reading(service, call, request.size)
    state, gaps = reading.state, reading.gaps
    found = await reading.head()
    return {
        "stream": call.stream,
        "algorithm": "sha256",
        "size": reading.size,
        "head": found.hex(),
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "gaps": gaps,
        "lost": 0 if state.lost is None else len(state.lost.msgs),
    }


async def proof(service: ClusterService, call: Call) -> Mapping[str, object]:
    """JETRAFT.CHAIN.PROOF.*: the leaf of a message, and the hashes beside its way to the head."""
    request = call.required_body(JetraftChainProofRequest)
    reading = await _reading(service, call, request.size)
    found = await reading.proof(request.seq)
    return {
        "stream": call.stream,
        "seq": request.seq,
        "leaf_index": found.leaf_index,
        "leaf": found.leaf.hex(),
        "size": reading.size,
        "head": found.head.hex(),
        "path": _texts(found.path),
    }


async def consistency(service: ClusterService, call: Call) -> Mapping[str, object]:
    """JETRAFT.CHAIN.CONSISTENCY.*: the hashes from which both heads follow."""
    request = call.required_body(JetraftChainConsistencyRequest)
    reading = await _reading(service, call, request.newer)
    found = await reading.consistency(request.older)
    return {
        "stream": call.stream,
        "from": request.older,
        "to": reading.size,
        "from_head": found.older_head.hex(),
        "to_head": found.head.hex(),
        "path": _texts(found.path),
    }


async def _reading(service: ClusterService, call: Call, size: int) -> ChainReading:
    replica = service.owners.leading(call.account, call.stream)
    await replica.group.confirm_leadership()
    return read_chain(replica.machine, size)


def _texts(hashes: Sequence[bytes]) -> list[str]:
    return [one.hex() for one in hashes]
