"""The handler for the account's own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """INFO: the usage of the account on all nodes. `api` counts the requests answered before this one."""
    return (await service.usages.account_info(call.account)).to_json_dict()
