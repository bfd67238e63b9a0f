"""Which imports there may be: exported, to this account, once, and without a cycle. Texts of errors are nats-server's.

An import that is named later may be wrong because of one before it, so they are added one after the other.

Pure.
"""

from collections.abc import Mapping

import attrs

from jetraft.api.exchange.transforms import local_of, names_of
from jetraft.api.exchange.values import Activation, Export, Import, ServiceResponseType, Sharing, SharingKind
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.mapping.transforms import TransformError
from jetraft.store.model.subject import is_literal, is_subset, overlaps, tokens, valid_publish_subject, valid_subject

EVERYBODY = "*"  # of revocations
CYCLE_DEPTH_MAX = 1024  # nats-server: MaxAccountCycleSearchDepth


class SharingError(ValueError):
    """An export or an import that cannot be; the text is nats-server's."""


@attrs.define
class SharedByAccount:
    """Exports and imports of one account, of what was found to be right."""

    exports: dict[tuple[SharingKind, str], Export] = attrs.field(factory=dict)
    imports: list[Import] = attrs.field(factory=list)
    signers: frozenset[str] = frozenset()


@attrs.define
class Added:
    """The rules that were found to be right so far, by account, at a time."""

    accounts: dict[str, SharedByAccount] = attrs.field(factory=dict)
    now_s: float = 0.0

    def export(self, name: str, one: Export) -> None:
        """Add an export. Raises SharingError."""
        for importer in one.accounts or ():
            if importer not in self.accounts:
                raise SharingError(f"{go_quote(importer)} account not defined for {one.kind} export")
        parts = one.subject.split(".")
        if one.token_position and (len(parts) < one.token_position or parts[one.token_position - 1] != "*"):
            raise SharingError(f"Error adding {one.kind} export {go_quote(one.subject)}: sublist: invalid subject")
        check_latency(one)
        self.accounts[name].exports[one.kind, one.subject] = one

    def add_import(self, name: str, one: Import) -> None:
        """Add an import. Raises SharingError."""
        if one.account not in self.accounts:
            raise SharingError(f"{go_quote(one.account)} account not defined for {one.kind} import")
        try:
            self._check(name, one)
        except TransformError as error:
            raise SharingError(f"Error adding {one.kind} import {go_quote(one.subject)}: {error}") from error
        self.accounts[name].imports.append(one)

    def _check(self, name: str, one: Import) -> None:
        local = local_of(one).encode()
        is_service = one.kind is SharingKind.SERVICE
        if is_service and not (valid_subject(local) and valid_subject(one.subject.encode())):
            raise TransformError("sublist: invalid subject")
        if not is_authorized(self.accounts[one.account], name, one, self.now_s):
            raise TransformError(f"{one.kind} import not authorized")
        if not is_literal(one.prefix.encode()):
            raise TransformError("stream import prefix can not contain wildcard tokens")
        self._check_cycle(one.account, one.kind, local, {name})
        names_of(one)
        if not is_service and any(
            (other.kind, other.account, other.subject) == (one.kind, one.account, one.subject)
            for other in self.accounts[name].imports
        ):
            raise TransformError("stream import already exists")

    def _check_cycle(self, name: str, kind: SharingKind, subject: bytes, visited: set[str]) -> None:
        """Raise TransformError when what an account imports leads back to one that was visited."""
        if len(visited) >= CYCLE_DEPTH_MAX:
            raise TransformError("search cycle depth exhausted")
        account = self.accounts[name]
        if kind is SharingKind.STREAM and not any(
            found is kind and is_subset(subject, exported.encode()) for found, exported in account.exports
        ):
            return
        for one in account.imports:
            theirs = (one.subject if kind is SharingKind.SERVICE else local_of(one)).encode()
            if one.kind is not kind or not overlaps(subject, theirs):
                continue
            if one.account in visited:
                raise TransformError("import forms a cycle")
            visited.add(name)
            local = local_of(one).encode()
            narrowed = local if is_subset(local, subject) else subject
            self._check_cycle(one.account, kind, narrowed, visited)


def check_latency(export: Export) -> None:
    """Raise SharingError for latencies that cannot be told."""
    found = export.latency
    if found is None:
        return
    where = f"Error adding service latency sampling for {go_quote(export.subject)} on subject {go_quote(found.subject)}"
    if not valid_publish_subject(found.subject.encode()):
        raise SharingError(f"{where}: invalid publish subject")
    if export.response_type is not ServiceResponseType.SINGLE:
        raise SharingError(f"{where}: bad service response type")


def is_authorized(exporter: SharedByAccount, importer: str, one: Import, now_s: float) -> bool:
    """Whether an account exports what another imports, to it."""
    found = export_of(exporter.exports, one)
    if found is None:
        return False
    if found.token_position:
        named = tokens(one.subject.encode())[found.token_position - 1]
        return found.subject != one.subject and named == importer.encode()
    if found.needs_activation:
        return one.activation is not None and activates(one.activation, found, exporter.signers, now_s)
    return found.accounts is None or importer in found.accounts


def activates(activation: Activation, export: Export, signers: frozenset[str], now_s: float) -> bool:
    """Whether an activation holds at a time: by a key of the exporter, and not revoked."""
    if activation.is_by_signing_key and activation.signer not in signers:
        return False
    if not activation.holds_at(now_s):
        return False
    until_s = max((at for key, at in export.revoked if key in (activation.importer, EVERYBODY)), default=-1)
    return activation.issued_at_s > until_s


def export_of(exports: Mapping[tuple[SharingKind, str], Export], one: Import) -> Export | None:
    """The export that an import is of: the one of its own subject, else the first that covers it."""
    subject = one.subject.encode()
    if not valid_subject(subject):
        return None
    found = exports.get((one.kind, one.subject))
    if found is None:
        covering = (
            export
            for (kind, exported), export in exports.items()
            if kind is one.kind and is_subset(subject, exported.encode())
        )
        found = next(covering, None)
    return found


def check_sharing(accounts: Mapping[str, Sharing]) -> None:
    """Raise SharingError for the first export or import of all accounts that cannot be, in nats-server's order."""
    added = Added({name: SharedByAccount() for name in accounts})
    for kind in SharingKind:
        for name, sharing in accounts.items():
            for one in sharing.exports:
                if one.kind is kind:
                    added.export(name, one)
    for kind in SharingKind:
        for name, sharing in accounts.items():
            for imported in sharing.imports:
                if imported.kind is kind:
                    added.add_import(name, imported)


def exports_of(sharing: Sharing) -> dict[tuple[SharingKind, str], Export]:
    """The exports of an account by kind and subject; of two the later one counts."""
    return {(one.kind, one.subject): one for one in sharing.exports}
