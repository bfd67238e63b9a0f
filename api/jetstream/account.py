"""The handler for the account's own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.store.model.state import ApiStats
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.service import ClusterService


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """INFO: what the account uses on all nodes. `api` counts what this node has answered before this request."""
    account = await service.account_info(call.account)
    total, failed = service.api_counts()
    counted = ApiStats(level=API_LEVEL, total=total, errors=failed)
    return attrs.evolve(account, api=counted).to_json_dict()
