"""The meta group's state machine: committed commands become rows of the table.

Apply validates again what the leader validated before it proposed, because two proposals can pass the leader's check
side by side: a creation whose name or subjects were taken in between changes nothing and says so in its result
(nats-server #8123, #8491 applied first and undid later). The same entries give the same table on every node; so one
that this version cannot decode stops the group here: passed over, it would leave this node with another table.

`on_change` tells which streams have changed: inside apply, in log order, with the keys of one batch, so a listener only
notes them and works later. `on_leader` tells that another node leads; `leader_known` lets tasks wait for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

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
)
from jetraft.cluster.meta.table import MetaTable
from jetraft.cluster.meta.templates import StreamTemplate
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.raft.changes import Change
from jetraft.raft.machine import NO_LIVE_MESSAGES
from jetraft.store.frames.format import FRAME_HEADER_BYTES
from jetraft.store.frames.placeholder import is_placeholder_frame
from jetraft.store.model import errors
from jetraft.store.model.feature_level import LEVEL, MOVES, NewerLevelError
from jetraft.store.model.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jetraft.store.model.errors import ApiError
    from jetraft.store.model.ids import NodeId
    from jetraft.store.port import Entry


@attrs.frozen(kw_only=True, slots=True)
class CommandVerdict:
    """The outcome of one command: the assignment as it stands now (before a removal), or why nothing changed."""

    assignment: StreamAssignment | None = None
    error: ApiError | None = None
    changed: bool = False
    templates_changed: bool = False
    removed: tuple[StreamAssignment, ...] = ()  # with their template


NOTED: Final = CommandVerdict(changed=True)


class MetaMachine:
    """The table as derived state of the meta group's log."""

    def __init__(self, known_level: int = LEVEL) -> None:
        """`known_level` is the highest feature level that this server takes part in."""
        self.known_level = known_level
        self.table = MetaTable()  # what requests, placement and the backend see
        self._working = self.table  # what entries are applied to: another one only after `rewind`
        self._hidden_until = 0
        self.has_table = True  # False: nothing is known of what exists (`forget`)
        self.leading_term: int | None = None
        self.leader: NodeId | None = None
        self.applied_index = 0
        self.lost_entries = 0  # placeholders of commands that no member has any more
        self.on_change: Signal[[Sequence[StreamKey]]] = Signal()
        self.on_templates: Signal[[]] = Signal()  # templates have come or gone
        self.on_leader: Signal[[]] = Signal()
        self.leader_known = Change()

    @property
    def first_live_seq(self) -> int:
        """There are no messages in this log: every checkpointed block may go."""
        return NO_LIVE_MESSAGES

    def apply(self, entries: Sequence[Entry]) -> Sequence[CommandVerdict]:
        """Apply committed entries; see the module. Raises BadCommandError, NewerLevelError: a newer version must."""
        self.has_table = True
        verdicts = [self._apply_entry(entry) for entry in entries]
        if self._working is not self.table:
            if self.applied_index >= self._hidden_until:
                self._show(self._working)
            return verdicts
        changed = [verdict.assignment.key for verdict in verdicts if verdict.changed and verdict.assignment]
        self._tell([*changed, *(row.key for verdict in verdicts for row in verdict.removed)])
        if any(verdict.templates_changed for verdict in verdicts):
            self.on_templates.emit()
        return verdicts

    def snapshot(self) -> bytes:
        """Return the table as bytes."""
        return self._working.pack()

    def restore(self, state: bytes) -> None:
        """Replace the table. Streams of the old and of the new table count as changed. Raises as `apply`."""
        restored = MetaTable.unpack(state)
        self.has_table = True
        self._check_known(restored.feature_level)
        if self._working is self.table:
            self._working = restored
            self._show(restored)
        else:
            self._working = restored

    def rewind(self) -> None:
        """The log will be applied again from an earlier index on: show the table as it is until that point is reached.

        In between the table would be one of the past, and replicas would be stopped, or given an old config.
        """
        self._working = MetaTable()
        self._hidden_until = max(self._hidden_until, self.applied_index)
        self.applied_index = 0

    def forget(self) -> None:
        """This node is no member of the meta group: the table is empty, which says nothing of what exists."""
        self.leading_term, self.leader, self.applied_index, self._hidden_until = None, None, 0, 0
        self.has_table = False
        self._working = MetaTable()
        self._show(self._working)
        self._tell_leader()

    def became_leader(self, term: int) -> None:
        """Note that this node may answer for the cluster."""
        self.leading_term = term
        self.leader = None
        self._tell_leader()

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        """Note who may."""
        assert self.leading_term is None or term >= self.leading_term
        self.leading_term = None
        self.leader = leader
        self._tell_leader()

    def _apply_entry(self, entry: Entry) -> CommandVerdict:
        assert entry.index > self.applied_index
        self.applied_index = entry.index
        if is_placeholder_frame(entry.frame):
            self.lost_entries += 1
            return CommandVerdict()
        return self._apply_command(decode(entry.frame[FRAME_HEADER_BYTES:]), entry.index)

    def _apply_command(self, command: Command, index: int) -> CommandVerdict:  # noqa: PLR0911  (one for each kind)
        match command:
            case AssignStream():
                return self._assign(command, index)
            case ReconfigureStream():
                return self._reconfigure(command, index)
            case SettleStream():
                return self._settle(command)
            case RemoveStream():
                return self._remove(command)
            case AdoptStream():
                return self._adopt(command.row)
            case NameNode() | RaiseLevel():
                return self._note(command)
            case AddTemplate():
                return self._add_template(command, index)
            case RemoveTemplate():
                return self._remove_template(command)

    def _note(self, command: NameNode | RaiseLevel) -> CommandVerdict:
        if isinstance(command, NameNode):
            self._working.name_node(command.node_id, command.name)
        else:
            self._check_known(command.level)
            self._working.feature_level = max(self._working.feature_level, command.level)
        return NOTED

    def _check_known(self, level: int) -> None:
        if level > self.known_level:
            raise NewerLevelError(level, self.known_level)

    def _assign(self, command: AssignStream, index: int) -> CommandVerdict:
        config = command.config
        existing = self._working.get(StreamKey(command.account, config.name))
        if existing is not None:
            return CommandVerdict(assignment=existing, error=errors.STREAM_NAME_EXISTS.with_values())
        if self._working.are_taken(command.account, config.subject_filters):
            return CommandVerdict(error=errors.STREAM_SUBJECT_OVERLAP.with_values())
        refused = self._working.refused_by_template(command.account, config, is_new=True)
        if refused is not None:
            return CommandVerdict(error=refused)
        assignment = StreamAssignment(
            account=command.account,
            config=config,
            group_id=command.group_id,
            incarnation=index,
            revision=index,
            peers=command.peers,
            preferred=command.preferred,
            created_ns=command.created_ns,
            founding=command.peers,
        )
        self._working.put(assignment)
        return CommandVerdict(assignment=assignment, changed=True)

    def _adopt(self, row: StreamAssignment) -> CommandVerdict:
        existing = self._working.get(row.key)
        if existing is not None and existing.group_id != row.group_id:
            return CommandVerdict(assignment=existing, error=errors.STREAM_NAME_EXISTS.with_values())
        if existing is not None and existing.revision >= row.revision:
            return CommandVerdict(assignment=existing)
        if any(self._working.is_removed(row.group_id, peer) for peer in row.peers):
            return CommandVerdict(error=errors.STREAM_NOT_FOUND.with_values())
        if self._working.are_taken(row.account, row.config.subject_filters, ignore=row.config.name):
            return CommandVerdict(error=errors.STREAM_SUBJECT_OVERLAP.with_values())
        self._working.put(row)
        return CommandVerdict(assignment=row, changed=True)

    def _reconfigure(self, command: ReconfigureStream, index: int) -> CommandVerdict:
        config = command.config
        existing = self._working.get(StreamKey(command.account, config.name))
        if existing is None or existing.incarnation != command.incarnation:
            return CommandVerdict(error=errors.STREAM_NOT_FOUND.with_values())
        if self._working.are_taken(command.account, config.subject_filters, ignore=config.name):
            return CommandVerdict(assignment=existing, error=errors.STREAM_SUBJECT_OVERLAP.with_values())
        refused = self._working.refused_by_template(command.account, config, is_new=False)
        if refused is not None:
            return CommandVerdict(assignment=existing, error=refused)
        keeps_shape = not command.peers and config.num_replicas == existing.config.num_replicas
        if not keeps_shape and command.based_on != existing.revision:
            return CommandVerdict(assignment=existing, error=errors.CLUSTER_MEMBER_CHANGE_IN_FLIGHT.with_values())
        # An adopted row may come from a log that was longer: its next revision is a later one all the same.
        remembers = self._working.feature_level >= MOVES
        revision = max(index, existing.revision + 1)
        assignment = existing.reshaped(config, command.peers, revision, remembers=remembers)
        self._working.put(assignment)
        return CommandVerdict(assignment=assignment, changed=True)

    def _settle(self, command: SettleStream) -> CommandVerdict:
        existing = self._working.get(StreamKey(command.account, command.name))
        if existing is None or existing.incarnation != command.incarnation or existing.revision != command.revision:
            return CommandVerdict(assignment=existing)
        return CommandVerdict(assignment=self._working.settle(existing), changed=True)

    def _remove(self, command: RemoveStream) -> CommandVerdict:
        key = StreamKey(command.account, command.name)
        existing = self._working.get(key)
        if existing is None or existing.incarnation != command.incarnation:
            return CommandVerdict(error=errors.STREAM_NOT_FOUND.with_values())
        self._working.remove(key)
        return CommandVerdict(assignment=existing, changed=True)

    def _add_template(self, command: AddTemplate, index: int) -> CommandVerdict:
        table, key = self._working, StreamKey(command.account, command.name)
        patterns = [subject.encode() for subject in command.config.subjects]
        if key in table.templates.rows:
            taken = errors.STREAM_TEMPLATE_CREATE_FAILED.with_values(
                err=f'template with name "{command.name}" already exists'
            )
            return CommandVerdict(error=taken)
        if table.are_taken(command.account, patterns) or table.templates.overlapping(command.account, patterns):
            return CommandVerdict(error=errors.STREAM_SUBJECT_OVERLAP.with_values())
        table.templates.put(
            StreamTemplate(
                account=command.account,
                name=command.name,
                config=command.config,
                max_streams=command.max_streams,
                incarnation=index,
            )
        )
        return CommandVerdict(templates_changed=True)

    def _remove_template(self, command: RemoveTemplate) -> CommandVerdict:
        key = StreamKey(command.account, command.name)
        found = self._working.templates.rows.get(key)
        if found is None or found.incarnation != command.incarnation:
            return CommandVerdict(error=errors.STREAM_TEMPLATE_NOT_FOUND.with_values())
        self._working.templates.remove(key)
        made = tuple(self._working.made_by(command.account, command.name))
        for row in made:
            self._working.remove(row.key)
        return CommandVerdict(templates_changed=True, removed=made)

    def _show(self, table: MetaTable) -> None:
        before = list(self.table.streams)
        self.table = table
        self._tell([*before, *table.streams])
        self.on_templates.emit()

    def _tell(self, keys: Iterable[StreamKey]) -> None:
        changed = list(dict.fromkeys(keys))
        if changed:
            self.on_change.emit(changed)

    def _tell_leader(self) -> None:
        self.on_leader.emit()
        self.leader_known.notify()
