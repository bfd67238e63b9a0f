"""Requests of the API to the cluster: create, change, find, list and delete streams, wherever it was asked.

A request enters at any node and is carried out by its owner: the meta leader for what exists, a stream's leader for
what is in it (`forward`). The methods here run on the owner and raise Moved when this node is not the owner (any more),
before they have done anything; errors of the catalogue are raised as ApiError.

Its parts: `owners` knows who owns what, `usages` counts what accounts use, `forwarder` takes requests to their owners,
`served` carries them out, `inquiries` asks other nodes, `backups` moves whole streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.meta.placement import NodeLoad, choose_transfer_target
from jetraft.cluster.state.assignment import StreamKey
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError
from jetraft.raft.transfer_candidates import TransferCandidates
from jetraft.store.model import errors
from jetraft.store.model.state import StreamAlternate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterable, Sequence

    from jetraft.cluster.advisories import NodeAdvisories
    from jetraft.cluster.calls.forward import Forwarder
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.leader_duties import LeaderDuties
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.meta_group import Transferable
    from jetraft.cluster.meta.templates import StreamTemplate
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.requests.backup_transfers import Backups
    from jetraft.cluster.requests.in_force import ConfigsInForce
    from jetraft.cluster.requests.inquiries import Inquiries
    from jetraft.cluster.requests.listing import Listing, StreamPage
    from jetraft.cluster.requests.locator import Owners
    from jetraft.cluster.requests.releases import Releases
    from jetraft.cluster.requests.serving import ServedRequests
    from jetraft.cluster.requests.template_publishes import TemplatePublishes
    from jetraft.cluster.requests.usage import Usages
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.config import Placement, StreamConfig
    from jetraft.store.model.ids import NodeId


@attrs.frozen(kw_only=True, slots=True)
class ServiceStatistics:
    """A snapshot for monitoring."""

    streams: int
    replicas: int
    forwarded: int
    meta_leader: NodeId | None


class ClusterService:
    """The cluster as one node sees it. `not_answers` are what a handler may raise besides ApiError."""

    not_answers: Final = (Moved, AnswerLost, NotLeaderError, OutcomeUnknownError)

    def __init__(  # noqa: PLR0913  (the parts that assembly.py puts together)
        self,
        *,
        node_id: NodeId,
        cluster: ClusterView,
        machine: MetaMachine,
        frontend: MetaFrontend,
        leader_duties: LeaderDuties,
        directory: ReplicaDirectory[StreamReplica],
        owners: Owners,
        usages: Usages,
        forwarder: Forwarder,
        served: ServedRequests,
        inquiries: Inquiries,
        in_force: ConfigsInForce,
        releases: Releases,
        template_publishes: TemplatePublishes,
        listing: Listing,
        backups: Backups,
        advisories: NodeAdvisories,
        accounts: Container[str],
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self._machine = machine
        self._frontend = frontend
        self._leader_duties = leader_duties
        self._directory = directory
        self.owners = owners
        self.usages = usages
        self.forwarder = forwarder
        self.served = served
        self.inquiries = inquiries
        self._in_force = in_force
        self._releases = releases
        self._template_publishes = template_publishes
        self._listing = listing
        self.backups = backups
        self.advisories = advisories
        self._accounts = accounts

    # --- streams

    def check_config(self, config: StreamConfig, *, pedantic: bool) -> None:
        """Raise ApiError when the config is not valid, or Moved when it is not for this node to say."""
        self.owners.require_meta()
        self._frontend.checked(config, pedantic=pedantic)

    async def create_stream(self, account: str, config: StreamConfig, *, pedantic: bool) -> tuple[dict[str, Any], bool]:
        """Create a stream and wait for its leader. Returns its info as a JSON object, and whether it is new."""
        await self._releases.settle(StreamKey(account, config.name), config.subject_filters)
        created = await self._frontend.create(account, config, pedantic=pedantic)
        return await self.info_of(created.assignment), created.fresh

    async def update_stream(self, account: str, config: StreamConfig, *, pedantic: bool) -> dict[str, Any]:
        """Change a stream's config and wait until its leader has taken it over. Returns its info as a JSON object.

        The other replicas that can be reached go by it too when this returns.
        """
        await self._releases.settle(StreamKey(account, config.name), config.subject_filters)
        row = await self._frontend.update(account, config, pedantic=pedantic)
        over_ns = self._releases.over_ns(row)
        try:
            info = await self.info_of(row)
        except errors.ApiError:
            # Who is told that it is not in force may ask for what the config of before is in the way of.
            await self._releases.until(over_ns)
            raise
        await self._in_force.let_replicas_follow(row)
        return info

    async def delete_stream(self, account: str, name: str) -> None:
        """Delete a stream; when this returns, no node serves it any more. Raises ApiError: it may be deleted still."""
        await self._releases.settle(StreamKey(account, name))
        try:
            row = await self._frontend.remove(account, name)
        except errors.ApiError:
            # An earlier leader may have deleted it without being able to say so.
            await self._releases.until(self._releases.grants.earlier_over_ns)
            raise
        await self._releases.stream_gone(row)

    async def delete_streams_of(self, account: str) -> AsyncIterator[str]:
        """Delete the streams of an account, one after the other, and yield their names. Raises ApiError or Moved.

        When the last name was taken and this returns, no node serves any of them any more.
        """
        self.owners.require_meta()
        removed = []
        for row in self.streams_of(account, ""):
            try:
                removed.append(await self._frontend.remove(account, row.config.name))
            except errors.ApiError as error:
                if error.err_code != errors.STREAM_NOT_FOUND.err_code:  # deleted meanwhile
                    raise
            else:
                yield row.config.name
        await self._releases.streams_gone(removed)

    async def add_template(self, account: str, name: str, config: StreamConfig, max_streams: int) -> StreamTemplate:
        """Have streams made by a template; all nodes that can be reached know it then. Raises ApiError or Moved."""
        made = await self._frontend.add_template(account, name, config, max_streams)
        await self._template_publishes.let_all_follow()
        return made

    async def remove_template(self, account: str, name: str) -> Sequence[StreamAssignment]:
        """Delete a template with its streams; no node serves these any more."""
        removed = await self._frontend.remove_template(account, name)
        await self._template_publishes.let_all_follow()
        await self._releases.streams_gone(removed)
        return removed

    def templates_of(self, account: str) -> Sequence[StreamTemplate]:
        """The templates of an account, by name. Raises Moved."""
        self.owners.require_meta()
        rows = self._machine.table.templates.rows.values()
        return sorted((row for row in rows if row.account == account), key=lambda row: row.name)

    def streams_made_by(self, template: StreamTemplate) -> Sequence[str]:
        """The names of a template's streams, in order of creation."""
        return [row.config.name for row in self._machine.table.made_by(template.account, template.name)]

    async def remove_stream_peer(self, account: str, name: str, peer: str) -> None:
        """Move a stream's replica away from a node. Raises ApiError: also when there is no other node for it."""
        await self._frontend.replace_peer(account, name, self.cluster.id_of(peer))

    async def move_stream(self, account: str, name: str, placement: Placement | None, *, server: str) -> dict[str, Any]:
        """Move a stream away from a server (empty: from any) to such nodes. Returns its info as a JSON object."""
        self.owners.require_meta()
        away = self.cluster.id_of(server) if server else None
        if server and away is None:
            raise errors.CLUSTER_SERVER_NOT_MEMBER.with_values()
        return await self.info_of(await self._frontend.move(account, name, placement, away=away))

    async def cancel_move(self, account: str, name: str) -> dict[str, Any]:
        """Take a change of a stream's replicas back that is under way. Returns its info as a JSON object."""
        return await self.info_of(await self._frontend.cancel_move(account, name))

    def is_account_known(self, account: str) -> bool:
        """Whether the account is one of the server's, or has streams all the same."""
        return account in self._accounts or any(self._machine.table.of_account(account))

    async def remove_server(self, name: str) -> None:
        """Take a node, by name or id, out of the cluster; then it serves nothing. Raises ApiError or Moved."""
        self.owners.require_meta()
        node_id = self.cluster.id_of(name)
        if node_id is None:
            raise errors.CLUSTER_SERVER_NOT_MEMBER.with_values()
        await self._leader_duties.remove(node_id)
        await self._releases.server_gone(node_id)

    def identity_of(self, account: str, stream: str) -> str:
        """The mark that tells a stream from an earlier one of its name; empty when this node knows of none."""
        row = self._machine.table.get(StreamKey(account, stream))
        return "" if row is None else row.group_id.rpartition("-")[2]

    def alternates_of(self, account: str, stream: str) -> Sequence[StreamAlternate]:
        """The stream and its mirrors, as far as this node knows; none on a server that stands alone, or without one."""
        mirrors = self._machine.table.mirrors_of(account, stream) if self.cluster.clustered else []
        names = [stream, *(row.config.name for row in mirrors)] if mirrors else []
        domain, cluster = self.advisories.domain, self.cluster.name
        return [StreamAlternate(name=name, domain=domain, cluster=cluster) for name in names]

    def streams_of(self, account: str, subject: str) -> Sequence[StreamAssignment]:
        """Return the account's streams by name, those that overlap `subject` unless it is empty. Raises Moved."""
        self.owners.require_meta()
        if subject:
            return list(self._machine.table.claiming(account, subject.encode()))
        return sorted(self._machine.table.of_account(account), key=lambda row: row.config.name)

    async def infos_of(self, rows: Iterable[StreamAssignment]) -> StreamPage:
        """Ask the leaders of all these streams at the same time; who is away or does not answer in time is missing."""
        return await self._listing.infos_of(rows)

    async def info_of(self, row: StreamAssignment) -> dict[str, Any]:
        """Ask the stream's leader, who has this row's config in force. Raises ApiError when there is none in time."""
        return await self.inquiries.require_info_of(row)

    # --- leaders

    def step_down(self, group: Transferable, placement: Placement | None) -> None:
        """Move the leadership of a group that this node leads, to the member that fits and leads least.

        Raises ApiError when no member fits. A group of one goes on, whatever was asked for, as in nats-server.
        """
        if len(group.members) == 1:
            return
        rank = self.cluster.ranking(self._directory.accounts())
        candidates = TransferCandidates([replica.group for _, replica in self._directory.replicas()], rank)
        members = [
            NodeLoad(
                node_id=node,
                name=self.cluster.name_of(node),
                online=self.cluster.is_up(node),
                leaders=candidates.led.get(node, 0),
                is_drained=self.cluster.profile_of(node).drained,
                tags=self.cluster.profile_of(node).tags,
            )
            for node in group.members
        ]
        wanted = choose_transfer_target(placement, members, own=self.node_id, cluster=self.cluster.name)
        group.transfer_leadership(wanted or candidates.choose(group))

    def meta_step_down(self, placement: Placement | None) -> None:
        """Move the leadership of the meta group. Raises as step_down, or Moved when this node does not lead it."""
        self.step_down(self.owners.leading_meta(), placement)

    def statistics(self) -> ServiceStatistics:
        """Return a snapshot."""
        return ServiceStatistics(
            streams=len(self._machine.table.streams),
            replicas=len(self._directory.replicas()),
            forwarded=self.forwarder.forwarded,
            meta_leader=self.owners.meta_leader,
        )
