"""Requests about streams at the meta leader: validate, place, propose, wait for the verdict.

Everything is checked against the applied table before anything is proposed, and again by apply, whose verdict is the
answer. A node that does not lead raises Moved before it has done anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.meta.account_limits import check_count, check_room, check_stream_size
from jetraft.cluster.meta.allocator import Allocator
from jetraft.cluster.meta.commands import (
    AddTemplate,
    AdoptStream,
    AssignStream,
    Command,
    NameNode,
    RaiseLevel,
    ReconfigureStream,
    RemoveStream,
    RemoveTemplate,
    SettleStream,
    decode,
    encode,
    level_needed_by,
)
from jetraft.cluster.meta.machine import CommandVerdict, MetaMachine
from jetraft.cluster.meta.origins import check_origins_fit, with_direct_gets
from jetraft.cluster.meta.templates import StreamTemplate, stream_of, template_of
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError
from jetraft.store.frames.format import Kind
from jetraft.store.model import errors
from jetraft.store.model._patterns import TooManyCombinationsError
from jetraft.store.model.config import Placement, StorageType, StreamConfig
from jetraft.store.model.events import FEATURE_LEVEL_RAISED
from jetraft.store.model.extensions import TEMPLATE, check_stream_extensions, check_stream_extensions_update
from jetraft.store.model.feature_level import BASE, FIRST, MOVES, STREAM_KEYS, TEMPLATES, needed_by
from jetraft.store.model.ids import ALPHABET, GroupId, NodeId
from jetraft.store.model.state import AccountLimits
from jetraft.store.model.validation.validate import (
    NO_LIMITS,
    ServerLimits,
    check_stream_update,
    normalise_stream,
    same_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from random import Random

    from jetraft.cluster.meta.meta_group import MetaGroupRef
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.tiers import Allowance

log = logging.getLogger(__name__)

GROUP_SUFFIX_CHARS: Final = 8


@attrs.frozen(kw_only=True, slots=True)
class Bounds:
    """Bounds of streams: limits of the server and of accounts; `unique_tag`: no two replicas share a value.

    `level_keys` are the keys of their metadata that need a feature level.
    """

    limits: ServerLimits = NO_LIMITS
    limits_of: Callable[[str], Allowance] = lambda _account: AccountLimits()
    unique_tag: str = ""
    level_keys: Mapping[str, int] = STREAM_KEYS


@attrs.frozen(kw_only=True, slots=True)
class StreamCreated:
    """The stream as it stands; `fresh` says that this request made it."""

    assignment: StreamAssignment
    fresh: bool


class MetaFrontend:
    """Creates, changes and removes streams."""

    def __init__(  # noqa: PLR0913  (what it asks)
        self,
        *,
        machine: MetaMachine,
        cluster: ClusterView,
        meta_group: MetaGroupRef,
        clock: Clock,
        rng: Random,
        bounds: Bounds | None = None,
        leader_of: Callable[[StreamAssignment], NodeId | None] = lambda row: row.preferred,
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """`leader_of` says which node leads a stream, as far as this one knows."""
        self._meta_group = meta_group
        self._leader_of = leader_of
        self._machine = machine
        self._cluster = cluster
        self._clock = clock
        self._rng = rng
        bounds = bounds or Bounds()
        self._limits = bounds.limits
        self._limits_of = bounds.limits_of
        self._level_keys = bounds.level_keys
        self._allocator = Allocator(
            machine=machine,
            cluster=cluster,
            unique_tag=bounds.unique_tag,
            replicated_max=bounds.limits.max_ha_assets,
            is_short=is_short,
        )

    def checked(self, config: StreamConfig, *, pedantic: bool) -> StreamConfig:
        """Return the config as it would be kept. Raises ApiError when it is not valid."""
        normal = normalise_stream(config, limits=self._limits, clustered=self._cluster.clustered, pedantic=pedantic)
        check_stream_extensions(normal)
        return normal

    async def create(self, account: str, config: StreamConfig, *, pedantic: bool) -> StreamCreated:
        """Create a stream, or return the one that exists with this very config.

        Durable on a majority of the meta group when it returns. Raises ApiError, Moved or AnswerLost.
        """
        self._require_leadership()
        config = with_direct_gets(self._machine.table, account, self.checked(config, pedantic=pedantic))
        check_stream_size(self._limits_of(account), config)
        existing = self._machine.table.get(StreamKey(account, config.name))
        if existing is not None:
            return _same_or_taken(existing, config)
        check_count(self._limits_of(account), config, self._others(account, config))
        check_room(self._limits_of(account), config, self._others(account, config), is_new=True)
        self._require_free_subjects(account, config, ignore=None)
        check_origins_fit(self._machine.table, account, config)
        placed = self._allocator.new(config)
        command = AssignStream(
            account=account,
            config=config,
            group_id=self._new_group_id(config),
            peers=placed.peers,
            preferred=placed.preferred,
            created_ns=self._clock.unix_ns(),
        )
        with self._allocator.placing(config, placed):
            verdict = await self._propose(command)
        if verdict.error is not None and verdict.assignment is not None:
            return _same_or_taken(verdict.assignment, config)
        return StreamCreated(assignment=_granted(verdict), fresh=True)

    async def update(self, account: str, config: StreamConfig, *, pedantic: bool) -> StreamAssignment:
        """Change a stream's config and return its new row, durable on a majority. Raises as create."""
        self._require_leadership()
        config = with_direct_gets(self._machine.table, account, self.checked(config, pedantic=pedantic))
        check_stream_size(self._limits_of(account), config)
        existing = self._machine.table.get(StreamKey(account, config.name))
        if existing is None:
            raise errors.STREAM_NOT_FOUND.with_values()
        config = check_stream_update(existing.config, config)
        check_stream_extensions_update(existing.config, config)
        check_room(self._limits_of(account), config, self._others(account, config), is_new=False)
        peers = self._allocator.changed(existing, config, self._leader_of(existing))
        if peers or config.num_replicas != existing.config.num_replicas:
            self._require_changeable_members()
        self._require_free_subjects(account, config, ignore=config.name)
        check_origins_fit(self._machine.table, account, config)
        if config == existing.config:
            return existing
        return await self._reshape(existing, config, peers)

    async def put_in_force(self, row: StreamAssignment, config: StreamConfig) -> StreamAssignment:
        """Give a restored stream its real config, whatever the one before allowed. Raises as create."""
        self._require_leadership()
        return await self._reshape(row, config, ())

    async def settle(self, account: str, name: str, *, incarnation: int, revision: int) -> None:
        """The stream's group has the members of this revision of its row. Raises Moved or AnswerLost."""
        self._require_leadership()
        await self._propose(SettleStream(account=account, name=name, incarnation=incarnation, revision=revision))

    async def replace_peer(self, account: str, name: str, node_id: NodeId | None) -> None:
        """Take a stream's replica from a node and give it to another. Raises ApiError, Moved or AnswerLost.

        When there is no other nothing is changed: a stream does not lose a replica that it cannot get back.
        """
        existing = self._row(account, name)
        if node_id not in existing.peers:
            raise errors.CLUSTER_PEER_NOT_MEMBER.with_values()
        self._require_changeable_members()
        remaining = tuple(peer for peer in existing.peers if peer != node_id)
        healed = self._allocator.filled(existing, remaining, without={node_id})
        if healed is None:
            raise errors.PEER_REMAP_FAILED.with_values()
        await self._reshape(existing, existing.config, healed)

    async def move(
        self, account: str, name: str, placement: Placement | None, *, away: NodeId | None
    ) -> StreamAssignment:
        """Move a stream away from a node, or from any of its nodes, to nodes of a placement; its config stays.

        Returns the new row, durable on a majority; the replicas follow, and none is given up before the new one has
        everything. Raises as create.
        """
        existing = self._row(account, name)
        if away is not None and away not in existing.holders:
            raise errors.CLUSTER_PEER_NOT_MEMBER.with_values()
        self._require_changeable_members()
        peers = self._allocator.moved(existing, placement, away=away, leader=self._leader_of(existing))
        if existing.is_changing:
            raise errors.STREAM_MOVE_IN_PROGRESS.with_values()
        return await self._reshape(existing, existing.config, peers)

    async def cancel_move(self, account: str, name: str) -> StreamAssignment:
        """Take a change of a stream's peers back that is not complete. Returns the row; raises as create.

        Those that had been the peers are again, with the replicas and the placement of then.
        """
        existing = self._row(account, name)
        former = existing.former
        if former is None:
            raise errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS.with_values()
        if not set(former.peers) <= set(self._cluster.members):
            raise errors.PEER_REMAP_FAILED.with_values()
        config = attrs.evolve(existing.config, num_replicas=former.replicas, placement=former.placement)
        if config == existing.config and former.peers == existing.peers:
            return existing
        return await self._reshape(existing, config, former.peers)

    async def add_template(self, account: str, name: str, config: StreamConfig, max_streams: int) -> StreamTemplate:
        """Have streams made by a template; durable on a majority. Raises as create."""
        self._require_leadership()
        metadata = {**(config.metadata or {}), TEMPLATE: name}
        checked = self.checked(attrs.evolve(config, name="_", metadata=metadata), pedantic=False)
        command = AddTemplate(
            account=account, name=name, config=attrs.evolve(checked, name=""), max_streams=max_streams
        )
        verdict = await self._propose(command)
        if verdict.error is not None:
            raise verdict.error
        return self._template(account, name)

    async def remove_template(self, account: str, name: str) -> Sequence[StreamAssignment]:
        """Delete a template with the streams that it has made, and return these. Raises as create."""
        self._require_leadership()
        found = self._template(account, name)
        verdict = await self._propose(RemoveTemplate(account=account, name=name, incarnation=found.incarnation))
        if verdict.error is not None:
            raise verdict.error
        return verdict.removed

    async def create_by_template(self, account: str, subject: str) -> StreamCreated:
        """The stream of a subject that a template takes, made if it is not there. Raises as create."""
        self._require_leadership()
        existing = self._machine.table.get(StreamKey(account, stream_of(subject)))
        if existing is not None and template_of(existing.config) and existing.config.subjects == (subject,):
            return StreamCreated(assignment=existing, fresh=False)
        template = self._machine.table.templates.taking(account, subject.encode())
        if template is None:
            raise errors.STREAM_TEMPLATE_NOT_FOUND.with_values()
        return await self.create(account, template.config_for(subject), pedantic=False)

    def _template(self, account: str, name: str) -> StreamTemplate:
        found = self._machine.table.templates.rows.get(StreamKey(account, name))
        if found is None:
            raise errors.STREAM_TEMPLATE_NOT_FOUND.with_values()
        return found

    async def heal(self, members: Sequence[NodeId]) -> Mapping[str, str]:
        """Give the replicas of nodes that are no members of the meta group to others, where there are any.

        Returns the streams that still have such a replica, with the reason. Raises Moved or AnswerLost.
        """
        self._require_leadership()
        there, unhealed = frozenset(members), {}
        for key in [row.key for row in self._machine.table.streams.values() if not there.issuperset(row.peers)]:
            # Asked again for each: the row may have changed while others were waited for.
            existing = self._machine.table.get(key)
            if existing is not None and not there.issuperset(existing.peers):
                reason = await self._heal_stream(existing, there)
                if reason is not None:
                    unhealed["stream {} > {}".format(*key)] = reason
        return unhealed

    async def _heal_stream(self, existing: StreamAssignment, members: AbstractSet[NodeId]) -> str | None:
        """Return why the stream keeps the replica of a node that was removed; None when another node gets it."""
        remaining = tuple(peer for peer in existing.peers if peer in members)
        gone = ", ".join(self._cluster.name_of(peer) for peer in existing.peers if peer not in members)
        if not remaining:
            return f"only {gone} has its messages; it is served again when that server is a member again"
        healed = self._allocator.filled(existing, remaining, without=set(existing.peers))
        if healed is None:
            return f"no other server can take the replica of {gone}"
        try:
            await self._reshape(existing, existing.config, healed)
        except errors.ApiError as error:
            return str(error)
        return None

    async def _reshape(
        self, existing: StreamAssignment, config: StreamConfig, peers: tuple[NodeId, ...]
    ) -> StreamAssignment:
        command = ReconfigureStream(
            account=existing.account,
            incarnation=existing.incarnation,
            config=config,
            peers=peers,
            based_on=existing.revision,
        )
        return _granted(await self._propose(command))

    async def remove(self, account: str, name: str) -> StreamAssignment:
        """Delete a stream and return its last row; durable on a majority of the meta group. Raises as create."""
        existing = self._row(account, name)
        command = RemoveStream(account=account, name=name, incarnation=existing.incarnation)
        return _granted(await self._propose(command))

    async def adopt(self, row: StreamAssignment) -> StreamAssignment:
        """Put a row into the table that it has lost, and return what it has then. Raises as create."""
        self._require_leadership()
        return _granted(await self._propose(AdoptStream(row=row)))

    async def name_nodes(self) -> None:
        """Note the names of online nodes that the table does not have yet. Raises Moved or AnswerLost."""
        self._require_leadership()
        known = self._machine.table.node_names
        for node_id, name in sorted(self._cluster.online().items()):
            if known.get(node_id) != name:
                await self._propose(NameNode(node_id=node_id, name=name))

    def _row(self, account: str, name: str) -> StreamAssignment:
        self._require_leadership()
        existing = self._machine.table.get(StreamKey(account, name))
        if existing is None:
            raise errors.STREAM_NOT_FOUND.with_values()
        return existing

    def _require_leadership(self) -> None:
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)

    def _require_changeable_members(self) -> None:
        """Refuse at once what the engine can never do, with nats-server's words for a server that cannot either."""
        if self._meta_group.group is None:
            raise Moved
        if not self._meta_group.group.members_may_change:
            raise errors.STREAM_REPLICAS_NOT_UPDATABLE.with_values()

    def _others(self, account: str, config: StreamConfig) -> Iterable[StreamAssignment]:
        return (row for row in self._machine.table.of_account(account) if row.config.name != config.name)

    def _require_free_subjects(self, account: str, config: StreamConfig, *, ignore: str | None) -> None:
        try:
            is_taken = self._machine.table.are_taken(account, config.subject_filters, ignore=ignore, bounded=True)
        except TooManyCombinationsError:
            raise errors.STREAM_INVALID_CONFIG.with_values(
                err="too many wildcard subjects to compare with those of other streams"
            ) from None
        if is_taken:
            raise errors.STREAM_SUBJECT_OVERLAP.with_values()
        refused = self._machine.table.refused_by_template(account, config, is_new=ignore is None)
        if refused is not None:
            raise refused

    def _new_group_id(self, config: StreamConfig) -> GroupId:
        letter = "M" if config.storage is StorageType.MEMORY else "F"
        suffix = "".join(self._rng.choice(ALPHABET) for _ in range(GROUP_SUFFIX_CHARS))
        return GroupId(f"S-R{config.num_replicas}{letter}-{suffix}")

    async def raise_to_base(self) -> None:
        """Have the table at the level of the oldest version that takes part, once all members say that they know it.

        Raises Moved or AnswerLost. Nothing is said where members are away or older: what needs the level is written as
        they know it (cluster/state/commands.py), or asks for it by itself.
        """
        self._require_leadership()
        if self._machine.table.feature_level < BASE and not self._cluster.behind(BASE):
            await self._raise_level(BASE, "what every server knows")

    def _needed_by(self, command: Command) -> tuple[int, str]:
        match command:
            case AddTemplate():
                return TEMPLATES, "a template"
            case AssignStream():
                return needed_by(command.config, self._level_keys)
            case ReconfigureStream():
                needed = needed_by(command.config, self._level_keys)
                # A change of peers can be cancelled from that level on; below it is made all the same.
                return max(needed, (MOVES, "a move")) if command.peers and not self._cluster.behind(MOVES) else needed
            case AdoptStream(row=row):
                needed = needed_by(row.config, self._level_keys)
                return needed if row.former is None else max(needed, (MOVES, "a move"))
            case RaiseLevel():
                return FIRST, ""  # every member knows the level that it names
        return level_needed_by(command), f"{type(command).__name__} in the table"

    async def _raise_level(self, level: int, feature: str) -> None:
        """Have the table at this feature level. Raises ApiError when a member does not know it or is away."""
        if level <= self._machine.table.feature_level:
            return
        if behind := self._cluster.behind(level):
            text = f"{feature} needs feature level {level}: upgrade and start these servers first: {', '.join(behind)}"
            raise errors.STREAM_INVALID_CONFIG.with_values(err=text)
        await self._propose(RaiseLevel(level=level))
        FEATURE_LEVEL_RAISED.log(feature_level=level, feature=feature)

    async def _propose(self, command: Command) -> CommandVerdict:
        await self._raise_level(*self._needed_by(command))
        body = encode(command)
        decode(body)  # what cannot be decoded must not be committed: it would stop every member
        proposal = Proposal(kind=Kind.META, body=body)
        if self._meta_group.group is None:
            raise Moved
        try:
            verdict = await self._meta_group.group.propose_and_wait(proposal)
        except NotLeaderError as error:
            raise Moved(self._machine.leader) from error
        except OutcomeUnknownError as error:
            raise AnswerLost from error
        assert isinstance(verdict, CommandVerdict)
        return verdict


def _same_or_taken(existing: StreamAssignment, config: StreamConfig) -> StreamCreated:
    if same_stream(existing.config, config):
        return StreamCreated(assignment=existing, fresh=False)
    raise errors.STREAM_NAME_EXISTS.with_values()


def _granted(verdict: CommandVerdict) -> StreamAssignment:
    if verdict.error is not None:
        raise verdict.error
    assert verdict.assignment is not None
    return verdict.assignment
