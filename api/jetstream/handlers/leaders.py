"""Handlers that move leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors
from jetraft.store.model.requests import JSApiLeaderStepdownRequest
from jetraft.store.model.responses import success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def stream_stepdown(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.LEADER.STEPDOWN.*: another replica leads, the preferred one if a name is given."""
    _require_cluster(service)
    request = call.optional_body(JSApiLeaderStepdownRequest)
    replica = service.owners.leading(call.account, call.stream)
    service.step_down(replica.group, request.placement)
    return success()


async def consumer_stepdown(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.LEADER.STEPDOWN.*.*: the leader of the stream leads its consumers, so the stream's leader changes."""
    _require_cluster(service)
    request = call.optional_body(JSApiLeaderStepdownRequest)
    replica = service.owners.leading(call.account, call.stream)
    if replica.consumer_info(call.consumer) is None:
        raise errors.CONSUMER_NOT_FOUND.with_values()
    service.step_down(replica.group, request.placement)
    return success()


async def meta_stepdown(service: ClusterService, call: Call) -> Mapping[str, object] | None:
    """META.LEADER.STEPDOWN: another node leads the meta group. A server without a cluster does not answer."""
    if not service.cluster.clustered:
        return None
    request = call.optional_body(JSApiLeaderStepdownRequest)
    service.meta_step_down(request.placement)
    return success()


def _require_cluster(service: ClusterService) -> None:
    if not service.cluster.clustered:
        raise errors.CLUSTER_REQUIRED.with_values()
