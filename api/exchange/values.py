"""Exports, imports, mappings and limits of accounts, as a configuration names them.

Pure.
"""

from enum import StrEnum
from typing import Final

import attrs

from jetraft.store.model.clock import NS_PER_S

RESPONSE_THRESHOLD_NS: Final = 120 * NS_PER_S  # nats-server: DEFAULT_SERVICE_EXPORT_RESPONSE_THRESHOLD
NO_LIMIT: Final = -1


class ServiceResponseType(StrEnum):
    """How many answers a request to a service has: one, or many until an empty one."""

    SINGLE = "Singleton"
    STREAM = "Stream"
    CHUNKED = "Chunked"


class SharingKind(StrEnum):
    """What an account exports or imports."""

    STREAM = "stream"
    SERVICE = "service"


@attrs.frozen(kw_only=True, slots=True)
class Export:
    """A stream or service for other accounts. `accounts` None: for all of them."""

    kind: SharingKind
    subject: str
    accounts: tuple[str, ...] | None = None
    token_position: int = 0  # of the token that has to be the importer's name, counted from 1; 0: none
    response_type: ServiceResponseType = ServiceResponseType.SINGLE
    threshold_ns: int = RESPONSE_THRESHOLD_NS


@attrs.frozen(kw_only=True, slots=True)
class Import:
    """A stream or service of another account, which is called `local` here (empty: as there)."""

    kind: SharingKind
    account: str
    subject: str
    local: str = ""
    prefix: str = ""  # of a stream, before its own subject
    share: bool = False


@attrs.frozen(kw_only=True, slots=True)
class Destination:
    """One of the subjects to which a mapping leads, with its weight in percent; `cluster` empty: in every cluster."""

    subject: str
    weight: int = 100
    cluster: str = ""


@attrs.frozen(kw_only=True, slots=True)
class Mapping:
    """What is published on a subject goes to one of these."""

    source: str
    destinations: tuple[Destination, ...]


@attrs.frozen(kw_only=True, slots=True)
class ClientLimits:
    """Of an account at one node; subscriptions and payload of each connection. NO_LIMIT: none but the node's."""

    max_connections: int = NO_LIMIT
    max_subscriptions: int = NO_LIMIT
    max_payload: int = NO_LIMIT
    max_leafnodes: int = NO_LIMIT


@attrs.frozen(kw_only=True, slots=True)
class Sharing:
    """All of it, of one account."""

    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    limits: ClientLimits = attrs.Factory(ClientLimits)
