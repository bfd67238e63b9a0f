"""The rows of the table a second time: what a server that stands alone has where its meta log is damaged.

In a cluster the meta group's majority keeps the table. A server that stands alone has one copy of that log, and a lost
entry of it would be a stream that is unknown, with all its messages on disk. So the node's ledger, which is
kept twice, has each row too (`stream/<group>`): it goes there with the next records of any group, which a new stream
has at once, and costs no fsync of its own. A row leaves the ledger when the group's data does, and not before: so a row
without data is one of a stream that was deleted. In an encrypted store it is sealed with the configured key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import msgpack

from jetraft.cluster.meta.commands import number, row_fields, row_of, text
from jetraft.store.frames.keyring import open_value, seal_value
from jetraft.store.ledger import ledger_records
from jetraft.store.model.errors import ApiError
from jetraft.store.model.ids import GroupId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
    from jetraft.store.frames.keyring import Secrets
    from jetraft.store.ledger.ledger import Ledger
    from jetraft.store.ledger.ledger_records import GroupKey

PREFIX: Final = "stream/"
VERSION: Final = 1
_PLAIN: Final = b"\0"
_SEALED: Final = b"\1"


class SavedRows:
    """See the module."""

    def __init__(self, ledger: Ledger, machine: MetaMachine, secrets: Secrets | None = None) -> None:
        self._ledger = ledger
        self._machine = machine
        self._secrets = secrets
        self._revisions: dict[GroupId, int] = {}  # of those saved as they are to be, and of those on their way

    @classmethod
    def following(cls, ledger: Ledger, machine: MetaMachine, secrets: Secrets | None = None) -> Self:
        """The rows that are saved, from now on kept up with the table. A row under another key is saved again."""
        rows = cls(ledger, machine, secrets)
        rows._revisions = {saved.group_id: saved.revision if saved.is_current else -1 for saved in rows._saved()}
        machine.on_change.connect(rows._note)
        return rows

    def missing(self, stored: Collection[GroupKey]) -> list[StreamAssignment]:
        """The rows that the table lacks, or has as they were before, of groups that have data here; oldest first.

        Only right when everything committed is applied.
        """
        table = self._machine.table
        known = {row.group_id: row.revision for row in table.streams.values()}
        found = [saved for saved in self._saved() if known.get(saved.group_id, -1) < saved.revision]
        rows = [row for saved in found if saved.key in stored and (row := saved.row()) is not None]
        wanted = [row for row in rows if not any(table.is_removed(row.group_id, peer) for peer in row.peers)]
        return sorted(wanted, key=lambda row: row.created_ns)

    def superfluous(self, stored: Collection[GroupKey]) -> list[StreamAssignment]:
        """The rows of the table whose streams have been deleted since: they have neither data nor a saved row.

        Only right of a table that lacks entries: else it may be a stream that was just created.
        """
        saved = {saved.key for saved in self._saved()}
        rows = self._machine.table.streams.values()
        return [row for row in rows if (key := (row.group_id, row.incarnation)) not in saved and key not in stored]

    def without(self, stored: Iterable[GroupKey]) -> list[GroupId]:
        """Which of these groups have no row here."""
        known = {saved.key for saved in self._saved() if saved.row() is not None}
        return sorted(key[0] for key in stored if key not in known)

    def prune(self, stored: Collection[GroupKey]) -> None:
        """Let the rows go of streams that the table does not have, and of which there is no data: they were deleted."""
        known = {row.group_id for row in self._machine.table.streams.values()}
        for saved in self._saved():
            if saved.group_id not in known and saved.key not in stored:
                self.forget(saved.group_id)

    def forget(self, group_id: GroupId) -> None:
        """The group's data goes: so does its row, with the record of that."""
        if self._revisions.pop(group_id, None) is not None:
            self._ledger.note(ledger_records.value(PREFIX + group_id, None))

    def _note(self, keys: Sequence[StreamKey]) -> None:
        for key in keys:
            row = self._machine.table.get(key)
            if row is not None and self._revisions.get(row.group_id, -1) < row.revision:
                self._revisions[row.group_id] = row.revision
                self._ledger.note(self._value(row))

    def _value(self, row: StreamAssignment) -> bytes:
        name, body = PREFIX + row.group_id, bytes(msgpack.packb([VERSION, *row_fields(row)]))
        content = _PLAIN + body if self._secrets is None else _SEALED + seal_value(body, name, self._secrets)
        return ledger_records.value(name, content)

    def _saved(self) -> list[_Saved]:
        """All that can be read."""
        contents = [(name, content) for name, content in self._ledger.values.items() if name.startswith(PREFIX)]
        found = [self._opened(name, content) for name, content in contents]
        return [saved for saved in found if saved is not None]

    def _opened(self, name: str, content: bytes) -> _Saved | None:
        if content[:1] == _PLAIN:
            return _saved_as(content[1:], is_current=self._secrets is None)
        opened = None if self._secrets is None else open_value(content[1:], name, self._secrets)
        return None if opened is None else _saved_as(opened[0], is_current=opened[1])


@attrs.frozen(kw_only=True, slots=True)
class _Saved:
    """A row as it was saved. Most are only counted: its config is decoded when it is needed."""

    group_id: GroupId
    incarnation: int
    revision: int
    is_current: bool  # as it would be saved now
    fields: list[Any]

    @property
    def key(self) -> GroupKey:
        return self.group_id, self.incarnation

    def row(self) -> StreamAssignment | None:
        """None for one that a newer version wrote."""
        try:
            return row_of(self.fields)
        except (ValueError, TypeError, ApiError):
            return None


def _saved_as(body: bytes, *, is_current: bool) -> _Saved | None:
    """None for what a newer version wrote: such a row is not taken back here."""
    try:
        version, *fields = msgpack.unpackb(body)
        _account, _config, group_id, incarnation, revision, *_members = fields
        if version != VERSION:
            return None
        return _Saved(
            group_id=GroupId(text(group_id)),
            incarnation=number(incarnation),
            revision=number(revision),
            is_current=is_current,
            fields=fields,
        )
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
