"""Exports, imports and mappings in the token of an account. Pure.

Names and rules are those of github.com/nats-io/jwt (v2). Activations are verified here; whether they hold now, and
whether their signer is one of the exporter's, is asked when the import is (api/exchange).
"""

from collections.abc import Mapping
from typing import Any, Final

from jetraft.api.credentials.claim_fields import TokenError, flag, integer, string, table, tables
from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.credentials.tokens import Token, decode_token
from jetraft.api.exchange.transforms import choices_of
from jetraft.api.exchange.values import (
    RESPONSE_THRESHOLD_NS,
    Activation,
    ClientLimits,
    Destination,
    Export,
    Import,
    LatencySampling,
    ServiceResponseType,
    Sharing,
    SharingKind,
)
from jetraft.api.exchange.values import Mapping as SubjectMapping
from jetraft.store.model.mapping.transforms import TransformError
from jetraft.store.model.subject import is_literal, is_subset, overlaps, valid_publish_subject, valid_subject

SHARED_MAX: Final = 10_000  # exports, imports and mappings of one token, each
TO_THE_SIGNED: Final = "*"  # the token of an export's position
WHOLE: Final = 100  # percent


def sharing_of(token: Token) -> Sharing:
    """The sharing of an account. Raises TokenError."""
    nats = token.nats
    limits, signers = table(nats, "limits"), frozenset(_signers(nats))
    exports = tuple(map(export_of, listed(nats, "exports")))
    imports = tuple(import_of(block, token.subject) for block in listed(nats, "imports"))
    check_counts(limits, exports, imports)
    check_services(exports)
    check_locals(imports)
    return Sharing(
        exports=exports,
        imports=imports,
        mappings=mappings_of(table(nats, "mappings")),
        limits=ClientLimits(max_connections=integer(limits, "conn"), max_leafnodes=integer(limits, "leaf")),
        signers=signers,
    )


def listed(nats: Mapping[str, Any], key: str) -> tuple[Mapping[str, Any], ...]:
    """A list of objects, with a bound. Raises TokenError."""
    found = tables(nats, key)
    if len(found) > SHARED_MAX:
        raise TokenError(f"the token has too many {key}")
    return found


def _signers(nats: Mapping[str, Any]) -> list[str]:
    found = nats.get("signing_keys") or []
    return [one if isinstance(one, str) else str(one.get("key", "")) for one in found if isinstance(one, str | dict)]


def kind_of(block: Mapping[str, Any], key: str) -> SharingKind:
    """`stream` or `service`. Raises TokenError."""
    try:
        return SharingKind(string(block, key))
    except ValueError:
        raise TokenError("an export or import is neither a stream nor a service") from None


def subject_of(block: Mapping[str, Any], key: str) -> str:
    """A valid subject. Raises TokenError."""
    subject = string(block, key)
    if not valid_subject(subject.encode()):
        raise TokenError("an export or import has no valid subject")
    return subject


def export_of(block: Mapping[str, Any]) -> Export:
    """One export. Raises TokenError."""
    kind, subject, position = (
        kind_of(block, "type"),
        subject_of(block, "subject"),
        integer(block, "account_token_position"),
    )
    response = string(block, "response_type") or ServiceResponseType.SINGLE
    if response not in tuple(ServiceResponseType):
        raise TokenError("an export has an unknown response type")
    parts = subject.split(".")
    if position and not (0 < position <= len(parts) and parts[position - 1] == TO_THE_SIGNED):
        raise TokenError("the account token position of an export is no wildcard of its subject")
    revoked = table(block, "revocations")
    return Export(
        kind=kind,
        subject=subject,
        token_position=position,
        response_type=ServiceResponseType(response),
        allow_trace=flag(block, "allow_trace"),
        latency=latency_of(block, kind, ServiceResponseType(response)),
        threshold_ns=integer(block, "response_threshold") or RESPONSE_THRESHOLD_NS,
        needs_activation=flag(block, "token_req"),
        revoked=tuple((key, integer(revoked, key)) for key in sorted(revoked)),
    )


def latency_of(block: Mapping[str, Any], kind: SharingKind, response: ServiceResponseType) -> LatencySampling | None:
    """The subject of an export's latencies; None: nowhere, as for a service with many answers. Raises TokenError."""
    if not block.get("service_latency"):
        return None
    found = table(block, "service_latency")
    subject, percent = string(found, "results"), 0
    if found.get("sampling") != "headers":
        percent = integer(found, "sampling")
        if percent and not 1 <= percent <= WHOLE:
            raise TokenError("the sampling percentage of a latency needs to be between 1-100")
    if kind is not SharingKind.SERVICE:
        raise TokenError("latency tracking is only permitted for services")
    if not valid_publish_subject(subject.encode()):
        raise TokenError("the results subject of a latency is not valid")
    return LatencySampling(subject=subject, percent=percent) if response is ServiceResponseType.SINGLE else None


def import_of(block: Mapping[str, Any], importer: str) -> Import:
    """One import; `subject` is the publisher's: of a stream the exporter's, of a service the importer's."""
    kind, subject, account = kind_of(block, "type"), subject_of(block, "subject"), string(block, "account")
    to, local = string(block, "to"), string(block, "local_subject")
    if not is_account_key(account):
        raise TokenError("the account of an import is not an account public key")
    if to and local:
        raise TokenError("an import has both a local subject and one that it goes to")
    is_service, prefix = kind is SharingKind.SERVICE, ""
    if is_service and to:
        subject, local = to, subject
    elif to:
        prefix = to
    return Import(
        kind=kind,
        account=account,
        subject=subject,
        local=local,
        prefix=prefix,
        share=flag(block, "share"),
        allow_trace=flag(block, "allow_trace"),
        activation=activation_of(string(block, "token"), kind, subject, account, importer),
    )


def activation_of(text: str, kind: SharingKind, subject: str, account: str, importer: str) -> Activation | None:
    """The activation of an import, when it is one for it; None without a token. Raises TokenError."""
    if not text:
        return None
    token = decode_token(text)
    owner, covered = string(token.nats, "issuer_account"), string(token.nats, "subject")
    if token.kind != "activation":
        raise TokenError("the token of an import is no activation")
    if account not in (token.issuer, owner) or (owner and owner != account):
        raise TokenError("an activation token doesn't match the account of its import")
    if token.subject != importer:
        raise TokenError("an activation token doesn't match the account it is being included in")
    if kind_of(token.nats, "kind") is not kind:
        raise TokenError("mismatch between the type of an activation token and the type of its import")
    if not is_subset(subject.encode(), covered.encode()):
        raise TokenError("the subject of an activation token doesn't match its import")
    return Activation(
        signer=token.issuer,
        importer=token.subject,
        is_by_signing_key=token.issuer != account,
        issued_at_s=token.issued_at_s,
        not_before_s=token.not_before_s,
        expires_s=token.expires_s,
    )


def check_counts(limits: Mapping[str, Any], exports: tuple[Export, ...], imports: tuple[Import, ...]) -> None:
    """Raise TokenError for more than the operator lets the account have; one without limits has none."""
    if not any(limits.values()):
        return
    for key, found in (("imports", imports), ("exports", exports)):
        if 0 <= integer(limits, key) < len(found):
            raise TokenError(f"the account contains more {key} than allowed by the operator")
    if not flag(limits, "wildcards") and not all(is_literal(one.subject.encode()) for one in exports):
        raise TokenError("the account contains wildcard exports that are not allowed by the operator")


def check_services(exports: tuple[Export, ...]) -> None:
    """Raise TokenError for exports of one kind of which one contains the other."""
    seen: set[tuple[SharingKind, str]] = set()
    wild = [one for one in exports if not is_literal(one.subject.encode())]
    for one in exports:
        key = (one.kind, one.subject)
        if key in seen:
            raise TokenError("two exports of one type have the same subject")
        seen.add(key)
    for one in wild:
        for other in exports:
            both = one.kind is other.kind is SharingKind.SERVICE and one is not other
            if both and is_subset(other.subject.encode(), one.subject.encode()):
                raise TokenError("a service export contains another")


def check_locals(imports: tuple[Import, ...]) -> None:
    """Raise TokenError for services of one name."""
    named = [(one.local or one.subject).encode() for one in imports if one.kind is SharingKind.SERVICE]
    wild = [name for name in named if not is_literal(name)]
    if len(set(named)) != len(named) or any(
        overlaps(one, other) for one in wild for other in named if one is not other
    ):
        raise TokenError("overlapping subject namespace for imported services")


def mappings_of(block: Mapping[str, Any]) -> tuple[SubjectMapping, ...]:
    """The mappings of an account, in the order of their subjects: a token has none. Raises TokenError."""
    if len(block) > SHARED_MAX:
        raise TokenError("the token has too many mappings")
    return tuple(mapping_of(source, tables(block, source)) for source in sorted(block))


def mapping_of(source: str, blocks: tuple[Mapping[str, Any], ...]) -> SubjectMapping:
    """One mapping; a destination without a weight has all of it. Raises TokenError."""
    found = SubjectMapping(
        source=source,
        destinations=tuple(
            Destination(
                subject=string(one, "subject"), weight=integer(one, "weight") or WHOLE, cluster=string(one, "cluster")
            )
            for one in blocks
        ),
    )
    weights = [one.weight for one in found.destinations]
    if not valid_subject(source.encode()) or any(not 0 < weight <= WHOLE for weight in weights):
        raise TokenError("a mapping has no valid subject or weight")
    try:
        for cluster in {one.cluster for one in found.destinations}:
            choices_of(found, cluster)
    except TransformError as error:
        raise TokenError(f"a mapping is not valid: {error}") from error
    return found
