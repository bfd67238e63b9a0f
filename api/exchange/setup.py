"""Tells a plane what its accounts export, import, map and allow: at the start, and whenever that changes.

`SharedAccounts.follow` compares what is wanted with what there is and changes the difference, so what stays the same is
not interrupted. It is called between turns, with what `rules` found to be right.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypedDict

import attrs

from jetraft.api.exchange.rules import export_of, exports_of
from jetraft.api.exchange.transforms import choices_of, local_of, names_of
from jetraft.api.exchange.values import Export, Import, LatencySampling, ServiceResponseType, Sharing, SharingKind
from jetraft.store.model.signal import Signal
from jetraft.store.model.subject import is_subset

if TYPE_CHECKING:
    from jetraft.api.plane._accounts import Account
    from jetraft.api.plane._exchange import Latencies
    from jetraft.api.plane._plane import Plane

    class ServiceLatencies(Latencies, Protocol):
        """The plane tells these of requests, and they are told which services are measured (traces/latency.py)."""

        def follow(self, number: int, exporter: str, sampling: LatencySampling | None) -> None:
            """Measure the service of a number from now on, or no more."""


NOTHING = Sharing()
API_INFO = b"$JS.API.INFO"  # who imports this uses the JetStream of another account; nats-server asks for it too


def nobody(_account: str) -> int:
    """A server that stands alone."""
    return 0


class ServiceKind(TypedDict):
    """How a service is exported, as the plane is told."""

    many: bool
    threshold_ns: int
    measured: "ServiceLatencies | None"
    traced: bool


@attrs.frozen
class ImportedService:
    """A service that is imported: its account and its subject there."""

    account: str
    subject: str


@attrs.frozen
class ImportInForce:
    """An import that is in force. `service` is what it is of, None for a stream."""

    account: str
    imported: Import
    service: ImportedService | None


@attrs.define(eq=False)
class SharedAccounts:
    """The sharing of the accounts of one plane. Accounts that ever shared anything stay as long as this does."""

    plane: "Plane"
    cluster: str
    latencies: "ServiceLatencies | None" = None  # None: nothing is measured
    elsewhere: Callable[[str], int] = nobody  # how many clients an account has at the other servers of the cluster
    sharing: dict[str, Sharing] = attrs.field(factory=dict, init=False)
    changed: Signal[[str]] = attrs.field(factory=Signal, init=False)  # an account shares something else
    _held: "dict[str, Account]" = attrs.field(factory=dict, init=False)
    _links: dict[str, dict[ImportInForce, int]] = attrs.field(
        factory=dict, init=False
    )  # by account: the plane's numbers
    _services: dict[ImportedService, tuple[int, Export]] = attrs.field(factory=dict, init=False)

    def follow(self, accounts: Mapping[str, Sharing]) -> None:
        """Let the accounts share this from now on, and nothing else. All of it is in force on return.

        Connections that there are keep their limits: the caller applies `Plane.limit_connection`.
        """
        changed = {name for name in {*self.sharing, *accounts} if self.of(name) != accounts.get(name, NOTHING)}
        touched = {name for name, sharing in accounts.items() if any(one.account in changed for one in sharing.imports)}
        before, self.sharing = self.sharing, dict(accounts)
        wanted = {name: self._wanted(name) for name in sorted(changed | touched)}
        for name, links in wanted.items():
            self._limit_and_map(name, before.get(name, NOTHING))
            self._end(name, links)
        for name, links in wanted.items():
            self._begin(name, links)
        self._tidy_services()
        for name in sorted(changed):
            self.changed.emit(name)

    def of(self, name: str) -> Sharing:
        """The sharing of an account."""
        return self.sharing.get(name, NOTHING)

    def borrows_api(self, name: str) -> bool:
        """Whether an account imports JetStream's API from another one."""
        services = (one for one in self.of(name).imports if one.kind is SharingKind.SERVICE)
        return any(is_subset(API_INFO, local_of(one).encode()) for one in services)

    def _account(self, name: str) -> "Account":
        if name not in self._held:
            self._held[name] = self.plane.account(name)
        return self._held[name]

    def _wanted(self, name: str) -> dict[ImportInForce, Export]:
        """The imports of an account, and the exports that this is of."""
        found = {}
        for one in self.of(name).imports:
            export = export_of(exports_of(self.of(one.account)), one)
            assert export is not None, "imports are checked before"
            is_service = one.kind is SharingKind.SERVICE
            found[ImportInForce(name, one, ImportedService(one.account, export.subject) if is_service else None)] = (
                export
            )
        return found

    def _limit_and_map(self, name: str, before: Sharing) -> None:
        after, account = self.of(name), self._account(name)
        if before.mappings != after.mappings:
            self.plane.unmap(account)
            for mapping in after.mappings:
                self.plane.map_subject(account, mapping.source.encode(), choices_of(mapping, self.cluster))
        if self.latencies is not None and measures(before) != measures(after):
            self.plane.measure_account(account, self.latencies if measures(after) else None)
        if before.limits != after.limits:
            self.limit(name)

    def count_elsewhere(self, counts: Callable[[str], int]) -> None:
        """Take these from what an account may have here."""
        self.elsewhere = counts

    def limit(self, name: str) -> None:
        """Have the plane keep to an account's limits, beside what it has elsewhere."""
        limits = self.of(name).limits
        most = limits.max_connections
        self.plane.limit(
            self._account(name),
            max_connections=max(0, most - self.elsewhere(name)) if most > 0 else most,
            max_subscriptions=limits.max_subscriptions,
            max_payload=limits.max_payload,
        )

    def _end(self, name: str, wanted: dict[ImportInForce, Export]) -> None:
        links = self._links.get(name, {})
        for link in links.keys() - wanted.keys():
            self.plane.end_import(self._account(name), links.pop(link))

    def _begin(self, name: str, wanted: dict[ImportInForce, Export]) -> None:
        links = self._links.setdefault(name, {})
        for link, export in wanted.items():
            number = 0 if link.service is None else self._number_of(link.service, export)
            if link not in links:
                links[link] = self._import(link, number)
        if not links:
            del self._links[name]

    def _import(self, link: ImportInForce, service: int) -> int:
        one, names = link.imported, names_of(link.imported)
        here, there = self._account(link.account), self._account(one.account)
        if one.kind is SharingKind.SERVICE:
            return self.plane.import_service(here, names.local, there, service, to=names.there, share=one.share)
        source = one.subject.encode()
        return self.plane.import_stream(
            here, names.local, there, source, shown=names.here, back=names.there, traced=one.allow_trace
        )

    def _number_of(self, service: ImportedService, export: Export) -> int:
        """The number of a service, which the plane gives when the first account imports it."""
        kind: ServiceKind = {
            "many": export.response_type is not ServiceResponseType.SINGLE,
            "threshold_ns": export.threshold_ns,
            "measured": self.latencies if export.latency is not None else None,
            "traced": export.allow_trace,
        }
        number, before = self._services.get(service, (0, export))
        if not number:
            number = self.plane.export_service(**kind)
        elif before != export:
            self.plane.change_service(number, **kind)
        if self.latencies is not None:
            self.latencies.follow(number, service.account, export.latency)
        self._services[service] = number, export
        return number

    def _tidy_services(self) -> None:
        """Forget the services that no account imports any more."""
        used = {link.service for links in self._links.values() for link in links}
        for service in [one for one in self._services if one not in used]:
            number, _ = self._services.pop(service)
            if self.latencies is not None:
                self.latencies.follow(number, service.account, None)
            self.plane.end_service(number)


def measures(sharing: Sharing) -> bool:
    """Whether an account exports a service whose latencies are told."""
    return any(one.latency is not None for one in sharing.exports)


def set_up(
    plane: "Plane", accounts: Mapping[str, Sharing], cluster: str, latencies: "ServiceLatencies | None" = None
) -> SharedAccounts:
    """Set all accounts up, which were found to be right; the caller keeps the result as long as the plane."""
    shared = SharedAccounts(plane, cluster, latencies)
    shared.follow(accounts)
    return shared
