"""Operations of nats-server that are not served yet: each is refused with an error of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def evacuate_peer(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.PEER.EVACUATE.*: use STREAM.PEER.REMOVE or another placement to move a replica."""
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
    service.owners.leading(call.account, call.stream)
    raise errors.CLUSTER_UNSUPPORTED_FEATURE.with_values()


async def consumer_peer(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.PEER.REMOVE.*.* and .EVACUATE.*.*: a consumer has the replicas of its stream."""
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
    if service.owners.leading(call.account, call.stream).consumer_info(call.consumer) is None:
        raise errors.CONSUMER_NOT_FOUND.with_values()
    raise errors.CLUSTER_UNSUPPORTED_FEATURE.with_values()


async def move(service: ClusterService, _call: Call) -> Mapping[str, object]:
    """ACCOUNT.STREAM.MOVE.*.*: use STREAM.PEER.REMOVE or another placement to move a replica."""
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
    raise errors.CLUSTER_UNSUPPORTED_FEATURE.with_values()


async def no_account_move(service: ClusterService, _call: Call) -> Mapping[str, object]:
    """ACCOUNT.STREAM.CANCEL_MOVE.*.*: there is never a move to cancel."""
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
    raise errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS.with_values()


async def no_move(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.CANCEL_MOVE.*: there is never a move to cancel."""
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
    service.owners.leading(call.account, call.stream)
    raise errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS.with_values()
