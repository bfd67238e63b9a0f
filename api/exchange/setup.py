"""Tells a plane what its accounts export, import, map and allow, before the first client comes."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from jetraft.api.exchange.rules import export_for, exports_of
from jetraft.api.exchange.transforms import choices_of, names_of
from jetraft.api.exchange.values import ClientLimits, Export, Import, ServiceResponseType, Sharing, SharingKind

if TYPE_CHECKING:
    from jetraft.api.plane._accounts import Account
    from jetraft.api.plane._plane import Plane

Exported = dict[tuple[str, SharingKind, str], int]  # by account, kind and subject: the plane's numbers


def set_up(plane: "Plane", accounts: Mapping[str, Sharing], cluster: str) -> "tuple[Account, ...]":
    """Set all accounts up, which were found to be right; returns handles that the caller keeps as long as the plane."""
    held = {name: plane.account(name) for name in accounts}
    exported: Exported = {}
    for name, sharing in accounts.items():
        for mapping in sharing.mappings:
            plane.map_subject(held[name], mapping.source.encode(), choices_of(mapping, cluster))
        if sharing.limits != ClientLimits():
            limits = sharing.limits
            plane.limit(
                held[name],
                max_connections=limits.max_connections,
                max_subscriptions=limits.max_subscriptions,
                max_payload=limits.max_payload,
            )
        for one in sharing.imports:
            found = export_for(exports_of(accounts[one.account]), name, one)
            assert found is not None
            if one.kind is SharingKind.STREAM:
                _import_stream(plane, held.__getitem__, name, one)
            else:
                number = _number_of(plane, exported, one.account, found)
                _import_service(plane, held.__getitem__, name, one, number)
    return tuple(held.values())


def _number_of(plane: "Plane", exported: Exported, account: str, one: Export) -> int:
    """The number of a service, which the plane gives when the first account imports it."""
    key = (account, one.kind, one.subject)
    if key not in exported:
        many = one.response_type is not ServiceResponseType.SINGLE
        exported[key] = plane.export_service(many=many, threshold_ns=one.threshold_ns)
    return exported[key]


def _import_service(plane: "Plane", held: "Callable[[str], Account]", name: str, one: Import, number: int) -> None:
    names = names_of(one)
    plane.import_service(held(name), names.local, held(one.account), number, to=names.there, share=one.share)


def _import_stream(plane: "Plane", held: "Callable[[str], Account]", name: str, one: Import) -> None:
    names = names_of(one)
    plane.import_stream(
        held(name), names.local, held(one.account), one.subject.encode(), shown=names.here, back=names.there
    )
