"""The assignments of all streams, as of one applied meta log index. Holds; decides nothing.

Invariants: a stream's subjects are in `claims` exactly while the stream is here; group ids are never shared; a removed
stream leaves a tombstone, and only a tombstone allows a node to delete a group's data (a stream that is merely absent,
for example from a snapshot that was taken too early, is never deleted: nats-server #4410, #6188, #7556).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Final

import attrs
import msgpack

from jetraft.cluster.meta.claims import SubjectClaims
from jetraft.cluster.meta.commands import (
    CONFIG_BYTES_MAX,
    TEXT_BYTES_MAX,
    BadCommandError,
    level_of,
    number,
    row_fields,
    row_of,
    text,
)
from jetraft.cluster.meta.node_load import PromisedLoad
from jetraft.cluster.meta.templates import Templates, template_fields, template_of, template_row
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model import errors
from jetraft.store.model._patterns import PatternTree
from jetraft.store.model.errors import ApiError
from jetraft.store.model.feature_level import FIRST
from jetraft.store.model.ids import GroupId, NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.store.model.config import StreamConfig

SNAPSHOT_VERSION: Final = 2
VERSION_WITH_LEVEL: Final = 3  # of a table above the first feature level
# A node that was away for more deletes than this keeps the data of the oldest ones and reports them as orphans.
TOMBSTONES_MAX: Final = 10_000


@attrs.frozen(kw_only=True, slots=True)
class TableStatistics:
    """Sizes, for monitoring."""

    streams: int
    nodes: int
    tombstones: int
    feature_level: int


class MetaTable:
    """Streams by account and name, tombstones by group, node names by id."""

    def __init__(self) -> None:
        self._streams: dict[StreamKey, StreamAssignment] = {}
        self._of_account: defaultdict[str, dict[str, StreamAssignment]] = defaultdict(dict)  # the same, by name
        self._claims: defaultdict[str, SubjectClaims] = defaultdict(SubjectClaims)
        self._mirrors: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # (account, origin): names
        self._tombstones: OrderedDict[GroupId, int] = OrderedDict()
        self._departures: OrderedDict[tuple[GroupId, NodeId], int] = OrderedDict()
        self._node_names: dict[NodeId, str] = {}
        self.promised_load = PromisedLoad()
        self.feature_level = FIRST  # that entries may use
        self.templates = Templates()

    @property
    def streams(self) -> Mapping[StreamKey, StreamAssignment]:
        """All assignments, in order of creation."""
        return self._streams

    @property
    def node_names(self) -> Mapping[NodeId, str]:
        """The names of all nodes that were ever part of the cluster."""
        return self._node_names

    def get(self, key: StreamKey) -> StreamAssignment | None:
        """Return the assignment of a stream."""
        return self._streams.get(key)

    def of_account(self, account: str) -> Iterator[StreamAssignment]:
        """Yield the streams of one account, in order of creation."""
        return iter(self._of_account.get(account, {}).values())

    def mirrors_of(self, account: str, name: str) -> list[StreamAssignment]:
        """Return the streams of the account that mirror this one, in order of creation."""
        return [self._streams[StreamKey(account, mirror)] for mirror in self._mirrors.get((account, name), ())]

    def are_taken(
        self, account: str, patterns: Iterable[bytes], *, ignore: str | None = None, bounded: bool = False
    ) -> bool:
        """Whether a stream of the account, other than `ignore`, claims one of these subjects.

        Raises TooManyCombinationsError where it is `bounded`.
        """
        return self._claims[account].are_taken(PatternTree(patterns), ignore=ignore, bounded=bounded)

    def claiming(self, account: str, pattern: bytes) -> Iterator[StreamAssignment]:
        """Yield the streams of an account that claim a subject which this pattern admits, by name."""
        claims = self._claims.get(account)
        names = () if claims is None else sorted(claims.overlapping(pattern))
        return (self._streams[StreamKey(account, name)] for name in names)

    def made_by(self, account: str, template: str) -> Iterator[StreamAssignment]:
        """Yield the streams that a template has made."""
        return (row for row in self.of_account(account) if template_of(row.config) == template)

    def refused_by_template(self, account: str, config: StreamConfig, *, is_new: bool) -> ApiError | None:
        """Why a stream may not be: a template takes its subjects, or the one that makes it is gone or makes no more."""
        templates = self.templates
        made_by = template_of(config)
        if not templates.rows and not made_by:
            return None
        if templates.overlapping(account, config.subject_filters, ignore=made_by):
            return errors.STREAM_SUBJECT_OVERLAP.with_values()
        if not made_by or not is_new:
            return None
        template = templates.rows.get(StreamKey(account, made_by))
        if template is None:
            return errors.STREAM_TEMPLATE_NOT_FOUND.with_values()
        if sum(1 for _ in self.made_by(account, made_by)) >= template.max_streams:
            return errors.MAXIMUM_STREAMS_LIMIT.with_values()
        return None

    def is_removed(self, group_id: GroupId, node_id: NodeId) -> bool:
        """Say whether an applied entry deleted this group (its id never comes twice), or took it from this node."""
        return group_id in self._tombstones or (group_id, node_id) in self._departures

    def put(self, assignment: StreamAssignment) -> None:
        """Add a stream or replace its assignment."""
        old = self._streams.get(assignment.key)
        if old is not None:
            self._forget_load(old)
            self._claims[old.account].remove(old.config.name, _patterns(old))
            if old.config.mirror != assignment.config.mirror:
                self._forget_mirror(old)
        self._streams[assignment.key] = assignment
        self._of_account[assignment.account][assignment.config.name] = assignment
        if assignment.config.mirror is not None and assignment.config.mirror.external is None:
            self._mirrors[assignment.account, assignment.config.mirror.name][assignment.config.name] = None
        self.promised_load.add(assignment.config, assignment.peers, assignment.preferred)
        for node_id in assignment.newcomers:
            self._departures.pop((assignment.group_id, node_id), None)
        self._claims[assignment.account].add(assignment.config.name, _patterns(assignment))

    def remove(self, key: StreamKey) -> None:
        """Remove a stream and leave its tombstone."""
        old = self._streams.pop(key)
        del self._of_account[old.account][old.config.name]
        if not self._of_account[old.account]:
            del self._of_account[old.account]
        self._forget_load(old)
        self._claims[old.account].remove(old.config.name, _patterns(old))
        self._forget_mirror(old)
        self._tombstones[old.group_id] = old.incarnation
        while len(self._tombstones) > TOMBSTONES_MAX:
            self._tombstones.popitem(last=False)

    def _forget_mirror(self, old: StreamAssignment) -> None:
        place = (old.account, "" if old.config.mirror is None else old.config.mirror.name)
        if old.config.name in self._mirrors.get(place, ()):
            del self._mirrors[place][old.config.name]
            if not self._mirrors[place]:
                del self._mirrors[place]

    def _forget_load(self, old: StreamAssignment) -> None:
        self.promised_load.add(old.config, old.peers, old.preferred, times=-1)

    def settle(self, assignment: StreamAssignment) -> StreamAssignment:
        """The leaving nodes of a stream are out: note that for each, and return the row without them."""
        for node_id in assignment.leaving:
            self._departures[assignment.group_id, node_id] = assignment.revision
        while len(self._departures) > TOMBSTONES_MAX:
            self._departures.popitem(last=False)
        settled = attrs.evolve(
            assignment,
            leaving=(),
            former=None,
            newcomers=tuple(node for node in assignment.newcomers if node not in assignment.leaving),
        )
        self.put(settled)
        return settled

    def name_node(self, node_id: NodeId, name: str) -> None:
        """Note the name of a node."""
        self._node_names[node_id] = name

    def pack(self) -> bytes:
        """Return the whole table as bytes; equal tables give equal bytes."""
        streams = [row_fields(assignment) for assignment in self._streams.values()]
        nodes = sorted(self._node_names.items())
        departures = [[*who, revision] for who, revision in self._departures.items()]
        fields = [streams, list(self._tombstones.items()), departures, nodes]
        if self.feature_level == FIRST:
            return bytes(msgpack.packb([SNAPSHOT_VERSION, *fields]))
        templates = [template_fields(row) for row in self.templates.rows.values()]
        return bytes(msgpack.packb([VERSION_WITH_LEVEL, *fields, templates, self.feature_level]))

    @classmethod
    def unpack(cls, packed: bytes) -> MetaTable:
        """Return the table of `pack`. Raises BadCommandError."""
        table = cls()
        try:
            version, *fields = msgpack.unpackb(packed, max_bin_len=CONFIG_BYTES_MAX, max_str_len=TEXT_BYTES_MAX)
            table.feature_level = _level(version, fields)
            templates = fields.pop() if version == VERSION_WITH_LEVEL else ()
            streams, tombstones, departures, nodes = fields
            for fields in streams:
                table.put(row_of(fields))
            for group_id, incarnation in tombstones:
                table._tombstones[GroupId(text(group_id))] = number(incarnation)
            for group_id, node_id, revision in departures:
                table._departures[GroupId(text(group_id)), NodeId(text(node_id))] = number(revision)
            for node_id, name in nodes:
                table.name_node(NodeId(text(node_id)), text(name))
            for template in templates:
                table.templates.put(template_row(template))
        except (ValueError, TypeError, IndexError, ApiError, msgpack.UnpackException) as error:
            raise BadCommandError(f"meta snapshot of {len(packed)} bytes: {error}") from error
        return table

    def statistics(self) -> TableStatistics:
        """Return the sizes."""
        return TableStatistics(
            streams=len(self._streams),
            nodes=len(self._node_names),
            tombstones=len(self._tombstones),
            feature_level=self.feature_level,
        )


def _level(version: object, fields: list[object]) -> int:
    """Take the level from the end of the fields; there is none in a table of the first level."""
    if version == VERSION_WITH_LEVEL:
        return level_of(fields.pop())
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"version {version}, expected {SNAPSHOT_VERSION} or {VERSION_WITH_LEVEL}")
    return FIRST


def _patterns(assignment: StreamAssignment) -> list[bytes]:
    return list(assignment.config.subject_filters)
