"""Exports, imports and mappings of an account, as /accountz shows it. Field names and order are nats-server's. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping as Table
from typing import Any, Final

from jetraft.api.exchange.rules import export_of, exports_of
from jetraft.api.exchange.values import Export, Import, Mapping, ServiceResponseType, Sharing, SharingKind

WHOLE: Final = 100  # percent
RESPONSES: Final = {
    ServiceResponseType.SINGLE: "Singleton",
    ServiceResponseType.STREAM: "Streamed",
    ServiceResponseType.CHUNKED: "Chunked",
}


def shared_fields(account: str, accounts: Table[str, Sharing]) -> dict[str, Any]:
    """`mappings`, `exports` and `imports` of an account, without empty ones and without those of the system."""
    sharing = accounts.get(account)
    if sharing is None:
        return {}
    streams_first = sorted(sharing.imports, key=lambda one: one.kind is SharingKind.SERVICE)
    found: dict[str, Any] = {
        "mappings": {mapping.source: list(destinations(mapping)) for mapping in sharing.mappings},
        "exports": [exported(one) for one in sharing.exports],
        "imports": [imported(one, accounts.get(one.account)) for one in streams_first],
    }
    return {key: rows for key, rows in found.items() if rows}


def destinations(mapping: Mapping) -> Iterable[dict[str, Any]]:
    """The destinations of a mapping. Each weight has those before it added; what is left goes to the subject itself."""
    sums: dict[str, int] = {}
    for one in mapping.destinations:
        sums[one.cluster] = sums.get(one.cluster, 0) + one.weight
        cluster = {"cluster": one.cluster} if one.cluster else {}
        yield {"subject": one.subject, "weight": sums[one.cluster], **cluster}
    if sums.get("", 0) < WHOLE:
        yield {"subject": mapping.source, "weight": WHOLE}


def exported(export: Export) -> dict[str, Any]:
    """A stream or service for others."""
    is_service = export.kind is SharingKind.SERVICE
    return {
        "subject": export.subject,
        "type": export.kind.value,
        **({"response_type": RESPONSES[export.response_type]} if is_service else {}),
        **({"approved_accounts": sorted(export.accounts)} if export.accounts else {}),
        **({"token_req": True} if export.needs_activation else {}),
        **latency("service_latency", export),
    }


def latency(name: str, export: Export | None) -> dict[str, Any]:
    """How many latencies of a service are told, and where; nothing of a service without."""
    found = None if export is None else export.latency
    return {} if found is None else {name: {"sampling": found.percent or "headers", "results": found.subject}}


def imported(one: Import, exporter: Sharing | None) -> dict[str, Any]:
    """A stream or service of another account."""
    export = None if exporter is None else export_of(exports_of(exporter), one)
    is_service = one.kind is SharingKind.SERVICE
    local = one.local or (f"{one.prefix}.{one.subject}" if one.prefix else one.subject)
    return {
        "subject": one.subject,
        "account": one.account,
        **({"to": local} if is_service else {}),
        "local_subject": local,
        "type": one.kind.value,
        "invalid": False,
        "share": one.share,
        "tracking": False,
        **latency("latency", export),
    }
