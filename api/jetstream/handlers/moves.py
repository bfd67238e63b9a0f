"""Handlers that move replicas of a stream to other servers, and take that back while it is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.api.jetstream.handlers.views import single_stream
from jetraft.store.model import errors
from jetraft.store.model.config import Placement
from jetraft.store.model.requests import (
    JSApiConsumerEvacuatePeerRequest,
    JSApiConsumerRemovePeerRequest,
    JSApiMetaServerStreamMoveRequest,
    JSApiStreamEvacuatePeerRequest,
)
from jetraft.store.model.responses import success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def evacuate_stream_peer(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.PEER.EVACUATE.*: moves the replica to another server, which has everything before this one gives it up.

    STREAM.PEER.REMOVE does the same here.
    """
    _require_cluster(service)
    request = call.required_body(JSApiStreamEvacuatePeerRequest)
    _require_peer(request.peer)
    await service.remove_stream_peer(call.account, call.stream, request.peer)
    return success()


async def remove_consumer_peer(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.PEER.REMOVE.*.*: refused, as a consumer has the replicas of its stream."""
    _require_cluster(service)
    return _refuse_consumer_peer(service, call, call.required_body(JSApiConsumerRemovePeerRequest).peer)


async def evacuate_consumer_peer(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.PEER.EVACUATE.*.*: refused, as a consumer has the replicas of its stream."""
    _require_cluster(service)
    return _refuse_consumer_peer(service, call, call.required_body(JSApiConsumerEvacuatePeerRequest).peer)


async def move(service: ClusterService, call: Call) -> Mapping[str, object]:
    """ACCOUNT.STREAM.MOVE.*.*: leaves a server, or any, for such as have tags. An account may move its own streams."""
    _require_cluster(service)
    request = call.decode(JSApiMetaServerStreamMoveRequest) if call.body else JSApiMetaServerStreamMoveRequest()
    account, stream = _named(service, call)
    is_elsewhere = request.domain not in ("", service.advisories.domain) or request.cluster not in (
        "",
        service.cluster.name,
    )
    if request.server and is_elsewhere:
        raise errors.CLUSTER_SERVER_NOT_MEMBER.with_values()
    is_placed = bool(request.cluster or request.tags)
    placement = Placement(cluster=request.cluster, tags=request.tags) if is_placed else None
    moved = await service.move_stream(account, stream, placement, server=request.server)
    service.advisories.of(account).stream_action(stream, "modify")
    return single_stream(service, moved)


async def cancel(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.CANCEL_MOVE.*: the replicas go back to where they were. A body is passed over."""
    _require_cluster(service)
    return await _cancel(service, call.account, call.stream)


async def cancel_of_account(service: ClusterService, call: Call) -> Mapping[str, object]:
    """ACCOUNT.STREAM.CANCEL_MOVE.*.*: the same, asked by the system account too."""
    _require_cluster(service)
    return await _cancel(service, *_named(service, call))


async def _cancel(service: ClusterService, account: str, stream: str) -> Mapping[str, object]:
    found = await service.cancel_move(account, stream)
    service.advisories.of(account).stream_action(stream, "modify")
    return single_stream(service, found)


def _named(service: ClusterService, call: Call) -> tuple[str, str]:
    account, stream = call.names
    if not service.is_account_known(account):
        raise errors.NO_ACCOUNT.with_values()
    return account, stream


def _refuse_consumer_peer(service: ClusterService, call: Call, peer: str) -> Mapping[str, object]:
    _require_peer(peer)
    replica = service.owners.leading(call.account, call.stream)
    if replica.consumer_info(call.consumer) is None:
        raise errors.CONSUMER_NOT_FOUND.with_values()
    if service.cluster.id_of(peer) not in replica.assignment.peers:
        raise errors.CLUSTER_PEER_NOT_MEMBER.with_values()
    raise errors.PEER_REMAP_FAILED.with_values()


def _require_peer(peer: str) -> None:
    if not peer:
        raise errors.BAD_REQUEST.with_values()


def _require_cluster(service: ClusterService) -> None:
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
