"""Handlers that remove replicas or servers from the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors
from jetraft.store.model.requests import JSApiMetaServerRemoveRequest, JSApiStreamRemovePeerRequest
from jetraft.store.model.responses import success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def remove_stream_peer(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.PEER.REMOVE.*: moves the replica to another server; refused when no server can take it."""
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
    request = call.required_body(JSApiStreamRemovePeerRequest)
    if not request.peer:
        raise errors.BAD_REQUEST.with_values()
    await service.remove_stream_peer(call.account, call.stream, request.peer)
    return success()


async def remove_server(service: ClusterService, call: Call) -> Mapping[str, object] | None:
    """SERVER.REMOVE: ends the server's membership and moves its replicas. Not answered without a cluster."""
    if not service.cluster.clustered:
        return None
    request = call.required_body(JSApiMetaServerRemoveRequest)
    if not (request.peer or request.peer_id):
        raise errors.BAD_REQUEST.with_values()
    await service.remove_server(request.peer or request.peer_id)
    return success()
