"""Which imports there may be: exported, to this account, once, and without a cycle. Texts of errors are nats-server's.

An import that is named later may be wrong because of one before it, so they are added one after the other.

Pure.
"""

from collections.abc import Mapping

import attrs

from jetraft.api.exchange.transforms import local_of, names_of
from jetraft.api.exchange.values import Export, Import, Sharing, SharingKind
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.subject import is_literal, is_subset, overlaps, tokens, valid_subject
from jetraft.store.model.transforms import TransformError

CYCLE_DEPTH_MAX = 1024  # nats-server: MaxAccountCycleSearchDepth


class SharingError(ValueError):
    """An export or an import that cannot be; the text is nats-server's."""


@attrs.define
class _Account:
    exports: dict[tuple[SharingKind, str], Export] = attrs.field(factory=dict)
    imports: list[Import] = attrs.field(factory=list)


@attrs.define
class _Added:
    """What was found to be right so far, by account."""

    accounts: dict[str, _Account]

    def export(self, name: str, one: Export) -> None:
        for importer in one.accounts or ():
            if importer not in self.accounts:
                raise SharingError(f"{go_quote(importer)} account not defined for {one.kind} export")
        parts = one.subject.split(".")
        if one.token_position and (len(parts) < one.token_position or parts[one.token_position - 1] != "*"):
            raise SharingError(f"Error adding {one.kind} export {go_quote(one.subject)}: sublist: invalid subject")
        self.accounts[name].exports[one.kind, one.subject] = one

    def add_import(self, name: str, one: Import) -> None:
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
        if not is_authorized(self.accounts[one.account].exports, name, one):
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


def is_authorized(exports: Mapping[tuple[SharingKind, str], Export], importer: str, one: Import) -> bool:
    """Whether an account exports what another imports, to it."""
    return export_for(exports, importer, one) is not None


def export_for(exports: Mapping[tuple[SharingKind, str], Export], importer: str, one: Import) -> Export | None:
    """The export that an import is of: the one of its own subject, else the first that covers it; None: not for it."""
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
    if found is None:
        return None
    if found.token_position:
        named = tokens(subject)[found.token_position - 1]
        return found if found.subject != one.subject and named == importer.encode() else None
    return found if found.accounts is None or importer in found.accounts else None


def check_sharing(accounts: Mapping[str, Sharing]) -> None:
    """Raise SharingError for the first export or import of all accounts that cannot be, in nats-server's order."""
    added = _Added({name: _Account() for name in accounts})
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
