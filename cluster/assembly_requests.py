"""The layer that finds the owner of a request and carries it out there, and what the API uses of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.calls.forward import Forwarder
from jetraft.cluster.calls.handing_over import Handovers
from jetraft.cluster.meta.currency import Currency
from jetraft.cluster.meta.frontend import Bounds, MetaFrontend
from jetraft.cluster.meta.lease_grants import LeaseGrants
from jetraft.cluster.meta.table_lease import TableLease
from jetraft.cluster.requests.backup_transfers import Backups
from jetraft.cluster.requests.in_force import ConfigsInForce
from jetraft.cluster.requests.inquiries import Inquiries
from jetraft.cluster.requests.listing import Listing
from jetraft.cluster.requests.locator import Owners
from jetraft.cluster.requests.read_confirmations import ReadConfirmations
from jetraft.cluster.requests.releases import Releases
from jetraft.cluster.requests.service import ClusterService
from jetraft.cluster.requests.serving import ServedRequests
from jetraft.cluster.requests.template_publishes import TemplatePublishes
from jetraft.cluster.requests.usage import Usages

if TYPE_CHECKING:
    from jetraft.cluster.assembly_shared import Shared
    from jetraft.cluster.meta.leader_duties import LeaderDuties
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.store.model.clock import Clock


@attrs.frozen(kw_only=True, slots=True)
class Requests:
    """The parts that find the owner of a request, and carry it out there."""

    served: ServedRequests
    owners: Owners
    forwarder: Forwarder
    frontend: MetaFrontend
    inquiries: Inquiries
    in_force: ConfigsInForce
    releases: Releases
    reads: ReadConfirmations
    backups: Backups
    currency: Currency
    lease: TableLease
    template_publishes: TemplatePublishes
    handovers: Handovers | None  # None on a server that stands alone


def request_parts(setting: NodeSetting, ports: NodePorts, shared: Shared) -> Requests:
    """Make the layer of requests."""
    mesh, clock, node_id = ports.mesh, ports.clock, setting.node_id
    machine, meta_group, directory = shared.machine, shared.meta_group, shared.directory
    served = ServedRequests()
    owners = Owners(node_id=node_id, mesh=mesh, machine=machine, meta_group=meta_group, replica_of=directory.get)
    forwarder = _forwarder(ports, shared, owners, served)
    frontend = _frontend(setting, ports, shared, owners)
    grants = _grants(machine, clock)
    inquiries = Inquiries(
        node_id=node_id,
        forwarder=forwarder,
        served=served,
        owners=owners,
        machine=machine,
        meta_group=meta_group,
        frontend=frontend,
        directory=directory,
        changes=shared.changes,
        clock=clock,
        grants=grants,
    )
    releases = _releases(ports, shared, forwarder, served, grants)
    in_force = ConfigsInForce(node_id=node_id, mesh=mesh, machine=machine, directory=directory, changes=shared.changes)
    return Requests(
        served=served,
        owners=owners,
        forwarder=forwarder,
        frontend=frontend,
        inquiries=inquiries,
        in_force=in_force,
        releases=releases,
        reads=ReadConfirmations(forwarder=forwarder, served=served, owners=owners, directory=directory),
        backups=Backups(
            node_id=node_id,
            owners=owners,
            forwarder=forwarder,
            served=served,
            inquiries=inquiries,
            in_force=in_force,
            frontend=frontend,
            machine=machine,
            directory=directory,
            changes=shared.changes,
            outboxes=ports.outboxes,
            advisories=shared.advisories,
            clock=clock,
            rng=ports.rng,
            space=shared.space,
            accounts=shared.accounts,
        ),
        currency=Currency(committed_index=inquiries.committed_index, wait_applied=meta_group.wait_applied),
        lease=_lease(ports, shared, inquiries),
        template_publishes=_template_publishes(ports, shared, forwarder, served, frontend),
        handovers=None if mesh is None else Handovers(mesh=mesh, timers=ports.timers, clock=clock),
    )


def _grants(machine: MetaMachine, clock: Clock) -> LeaseGrants:
    grants = LeaseGrants()

    def note() -> None:
        if machine.leading_term is not None:
            grants.lead(machine.leading_term, clock.mono_ns())

    machine.on_leader.connect(note)
    return grants


def _forwarder(ports: NodePorts, shared: Shared, owners: Owners, served: ServedRequests) -> Forwarder:
    return Forwarder(
        node_id=shared.view.node_id,
        mesh=ports.mesh,
        locate=owners.locate,
        execute=served.execute,
        is_cut_off=lambda: shared.view.is_cut_off,
    )


def _lease(ports: NodePorts, shared: Shared, inquiries: Inquiries) -> TableLease:
    ask = None if ports.mesh is None else inquiries.meta_state
    return TableLease(clock=ports.clock, ask=ask, wait_applied=shared.meta_group.wait_applied)


def _releases(
    ports: NodePorts, shared: Shared, forwarder: Forwarder, served: ServedRequests, grants: LeaseGrants
) -> Releases:
    return Releases(
        node_id=shared.view.node_id,
        mesh=ports.mesh,
        forwarder=forwarder,
        served=served,
        meta_group=shared.meta_group,
        directory=shared.directory,
        grants=grants,
        clock=ports.clock,
    )


def _frontend(setting: NodeSetting, ports: NodePorts, shared: Shared, owners: Owners) -> MetaFrontend:
    return MetaFrontend(
        machine=shared.machine,
        cluster=shared.view,
        meta_group=shared.meta_group,
        clock=ports.clock,
        rng=ports.rng,
        bounds=Bounds(limits=setting.limits, limits_of=shared.accounts.limits_of, unique_tag=setting.unique_tag),
        leader_of=owners.leader_of,
        is_short=shared.is_short,
    )


def _template_publishes(
    ports: NodePorts, shared: Shared, forwarder: Forwarder, served: ServedRequests, frontend: MetaFrontend
) -> TemplatePublishes:
    return TemplatePublishes(
        mesh=ports.mesh,
        machine=shared.machine,
        meta_group=shared.meta_group,
        outboxes=ports.outboxes,
        forwarder=forwarder,
        served=served,
        frontend=frontend,
        directory=shared.directory,
    )


def cluster_service(
    setting: NodeSetting, ports: NodePorts, shared: Shared, requests: Requests, leader_duties: LeaderDuties
) -> ClusterService:
    """Make what the API uses."""
    machine, directory, owners = shared.machine, shared.directory, requests.owners
    limits_of = shared.accounts.limits_of
    return ClusterService(
        node_id=setting.node_id,
        cluster=shared.view,
        machine=machine,
        frontend=requests.frontend,
        leader_duties=leader_duties,
        directory=directory,
        owners=owners,
        usages=Usages(
            mesh=ports.mesh,
            machine=machine,
            replicas=directory.replicas,
            limits_of=limits_of,
            domain=shared.advisories.domain,
        ),
        forwarder=requests.forwarder,
        served=requests.served,
        inquiries=requests.inquiries,
        in_force=requests.in_force,
        releases=requests.releases,
        template_publishes=requests.template_publishes,
        listing=Listing(
            node_id=setting.node_id, mesh=ports.mesh, cluster=shared.view, owners=owners, inquiries=requests.inquiries
        ),
        backups=requests.backups,
        advisories=shared.advisories,
        accounts=shared.accounts.limits,
    )
