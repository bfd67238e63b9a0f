"""What an account exports, imports and maps, as /accountz shows it. Field names and order are nats-server's. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from jetraft.api.exchange.values import Export, Import, Mapping, ServiceResponseType, Sharing, SharingKind

WHOLE: Final = 100  # percent
RESPONSES: Final = {
    ServiceResponseType.SINGLE: "Singleton",
    ServiceResponseType.STREAM: "Streamed",
    ServiceResponseType.CHUNKED: "Chunked",
}


def shared_fields(sharing: Sharing | None) -> dict[str, Any]:
    """`mappings`, `exports` and `imports`; those without an entry are missing. Those of the system are left out."""
    if sharing is None:
        return {}
    found: dict[str, Any] = {
        "mappings": {mapping.source: list(destinations(mapping)) for mapping in sharing.mappings},
        "exports": [exported(one) for one in sharing.exports],
        "imports": [imported(one) for one in sorted(sharing.imports, key=lambda one: one.kind is SharingKind.SERVICE)],
    }
    return {key: rows for key, rows in found.items() if rows}


def destinations(mapping: Mapping) -> Iterable[dict[str, Any]]:
    """Where a mapping leads. Each weight has those before it added; what is left goes to the subject itself."""
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
        **({"token_required": True} if export.needs_activation else {}),
    }


def imported(one: Import) -> dict[str, Any]:
    """A stream or service of another account."""
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
    }
