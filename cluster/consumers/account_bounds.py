"""Pure: what the limits of an account and of the server leave of those of a stream and of its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.store.model.limits import NO_LIMITS

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.limits import ServerLimits
    from jetraft.store.model.state import AccountLimits


def within(stream: StreamConfig, limits: AccountLimits, of_server: ServerLimits = NO_LIMITS) -> StreamConfig:
    """The stream with the account's limit of consumers where it has none, or a wider one; or with the server's."""
    most = limits.max_consumers
    if most <= 0 and stream.max_consumers <= 0:
        most = of_server.default_max_consumers
    if most <= 0 or 0 < stream.max_consumers <= most:
        return stream
    return attrs.evolve(stream, max_consumers=most)


def server_limits_of(limits: AccountLimits, of_server: ServerLimits) -> ServerLimits:
    """The server's limits, with what an account bounds that a server may bound as well."""
    if limits.max_ack_pending <= 0:
        return of_server
    return attrs.evolve(of_server, max_ack_pending=limits.max_ack_pending)
