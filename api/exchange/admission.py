"""Which of the imports that accounts ask for are in force, as accounts come, change and go one after the other. Pure.

In a configuration an import that is not right is an error. Accounts that operators have signed change on their own: an
import that is not right has no effect, until its exporter, its activation or what it is in conflict with has changed.
"""

from typing import Final

import attrs

from jetraft.api.exchange.rules import Added, SharedByAccount, SharingError, exports_of
from jetraft.api.exchange.values import Import, Sharing, SharingKind

NOTHING: Final = Sharing()


@attrs.frozen(slots=True)
class RefusedImport:
    """An import that has no effect now, and why."""

    account: str
    imported: Import
    why: str


@attrs.define(eq=False)
class Admission:
    """See the module. `admitted` is what each account shares now; those that share nothing are left out."""

    admitted: dict[str, Sharing] = attrs.field(factory=dict, init=False)
    _wanted: dict[str, Sharing] = attrs.field(factory=dict, init=False)
    _importers: dict[str, set[str]] = attrs.field(factory=dict, init=False)  # by exporter
    _added: Added = attrs.field(factory=Added, init=False)

    def put(self, name: str, sharing: Sharing, now_s: float) -> list[RefusedImport]:
        """An account is there and shares this; returns what it imports without effect."""
        self._forget_importer(name)
        self._wanted[name] = sharing
        for one in sharing.imports:
            self._importers.setdefault(one.account, set()).add(name)
        mine = SharedByAccount(exports=exports_of(sharing), signers=sharing.signers)
        self._added.accounts[name] = mine
        refused = self._check({name} | self._importers.get(name, set()), now_s)
        return [one for one in refused if one.account == name]

    def remove(self, name: str, now_s: float) -> None:
        """An account is there no more."""
        self._forget_importer(name)
        for known in (self._wanted, self._added.accounts, self.admitted):
            known.pop(name, None)
        self._check(self._importers.get(name, set()), now_s)

    def check_all(self, now_s: float) -> list[RefusedImport]:
        """Ask for everything again; returns all that has no effect."""
        return self._check(set(self._wanted), now_s)

    def check_activations(self, now_s: float) -> list[RefusedImport]:
        """Activations begin and end with time."""
        names = {name for name, sharing in self._wanted.items() if any(one.activation for one in sharing.imports)}
        return self._check(names, now_s)

    def next_change_s(self, now_s: float) -> float | None:
        """When the next activation begins or ends; None: never."""
        found = (one.activation for sharing in self._wanted.values() for one in sharing.imports if one.activation)
        moments = [at for one in found for at in (one.not_before_s, one.expires_s) if at > now_s]
        return min(moments, default=None)

    def _forget_importer(self, name: str) -> None:
        for one in self._wanted.get(name, NOTHING).imports:
            self._importers.get(one.account, set()).discard(name)

    def _check(self, names: set[str], now_s: float) -> list[RefusedImport]:
        """Ask for all imports of some accounts again, streams before services, in the order in which they stand."""
        self._added.now_s = now_s
        refused: list[RefusedImport] = []
        for name in names:
            self._added.accounts[name].imports.clear()
        for name in sorted(names):
            found: list[Import] = []
            for kind in SharingKind:
                for one in self._wanted[name].imports:
                    if one.kind is kind:
                        try:
                            self._added.add_import(name, one)
                            found.append(one)
                        except SharingError as error:
                            refused.append(RefusedImport(name, one, str(error)))
            self._admit(name, tuple(found))
        return refused

    def _admit(self, name: str, imports: tuple[Import, ...]) -> None:
        sharing = attrs.evolve(self._wanted[name], imports=imports)
        if attrs.evolve(sharing, signers=frozenset()) == NOTHING:
            self.admitted.pop(name, None)
        else:
            self.admitted[name] = sharing
