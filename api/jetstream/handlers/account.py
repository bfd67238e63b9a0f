"""Handlers for an account as a whole: its figures, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """INFO: the usage of the account on all nodes. `api` counts the requests answered before this one."""
    return (await service.usages.account_info(call.account)).to_json_dict()


async def purge(service: ClusterService, call: Call) -> Mapping[str, object]:
    """ACCOUNT.PURGE.*: deletes the streams of an account, which may be one that is not known any more.

    The system account may ask so, and no other account is answered (gateway.py). A body is passed over.
    """
    name = call.names[0]
    async for stream in service.delete_streams_of(name):
        service.advisories.of(name).stream_action(stream, "delete")
    return {"initiated": True}
