"""Exports, imports, mappings and limits of accounts, as a configuration names them.

Pure.
"""

from enum import StrEnum
from typing import Final

import attrs

from jetraft.store.model.clock import NS_PER_S

RESPONSE_THRESHOLD_NS: Final = 120 * NS_PER_S  # nats-server: DEFAULT_SERVICE_EXPORT_RESPONSE_THRESHOLD
NO_LIMIT: Final = -1
PERCENT: Final = 100


class ServiceResponseType(StrEnum):
    """How many answers a request to a service has: one, or many until an empty one."""

    SINGLE = "Singleton"
    STREAM = "Stream"
    CHUNKED = "Chunked"


class SharingKind(StrEnum):
    """An export or an import of an account."""

    STREAM = "stream"
    SERVICE = "service"


@attrs.frozen(kw_only=True, slots=True)
class Activation:
    """Lets an account import what it would not be given otherwise; its token was verified before this exists.

    The exporter has signed it, or, with `is_by_signing_key`, a key that should be one of the exporter's.
    """

    signer: str
    importer: str
    is_by_signing_key: bool = False
    issued_at_s: int = 0
    not_before_s: int = 0
    expires_s: int = 0  # 0: never

    def holds_at(self, now_s: float) -> bool:
        """Whether its time has come and is not over."""
        return self.not_before_s <= int(now_s) and not 0 < self.expires_s <= int(now_s)


@attrs.frozen(kw_only=True, slots=True)
class LatencySampling:
    """The latencies of how many requests of a hundred are told, and where; 0: of those whose headers ask for it."""

    subject: str
    percent: int = PERCENT


@attrs.frozen(kw_only=True, slots=True)
class TraceDestination:
    """The subject to which an account has messages traced that carry `traceparent`, and how many of a hundred."""

    dest: bytes
    sampling: int = PERCENT


@attrs.frozen(kw_only=True, slots=True)
class Export:
    """A stream or service for other accounts. `accounts` None: for all of them."""

    kind: SharingKind
    subject: str
    accounts: tuple[str, ...] | None = None
    token_position: int = 0  # of the token that has to be the importer's name, counted from 1; 0: none
    response_type: ServiceResponseType = ServiceResponseType.SINGLE
    threshold_ns: int = RESPONSE_THRESHOLD_NS
    allow_trace: bool = False  # of a service: traces go on into its account
    latency: LatencySampling | None = None  # of a service with one answer
    needs_activation: bool = False  # of accounts that operators have signed
    revoked: tuple[tuple[str, int], ...] = ()  # account or `*`, and the second up to which activations do not count


@attrs.frozen(kw_only=True, slots=True)
class Import:
    """A stream or service of another account, which is called `local` here (empty: as there)."""

    kind: SharingKind
    account: str
    subject: str
    local: str = ""
    prefix: str = ""  # of a stream, before its own subject
    share: bool = False
    allow_trace: bool = False  # of a stream: traces tell of its receivers
    activation: Activation | None = None


@attrs.frozen(kw_only=True, slots=True)
class Destination:
    """One of the subjects to which a mapping leads, with its weight in percent; `cluster` empty: in every cluster."""

    subject: str
    weight: int = 100
    cluster: str = ""


@attrs.frozen(kw_only=True, slots=True)
class Mapping:
    """The destinations of a subject: each message goes to one of them."""

    source: str
    destinations: tuple[Destination, ...]


@attrs.frozen(kw_only=True, slots=True)
class ClientLimits:
    """Of an account in the cluster; subscriptions and payload of each connection. NO_LIMIT: none but the node's."""

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
    signers: frozenset[str] = frozenset()  # keys that sign activations for the account, beside its own
