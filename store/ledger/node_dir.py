"""The directory of one node's store: its owner, its lock, and a directory for each group.

    ledger.0, .1     the owner, and what must exist in the directory (store/ledger/ledger.py)
    node.json        format version, node id, server name, cluster, for people and for servers of older formats; and
                     which ledger is the directory's
    lock             held with flock while a process uses the directory, like the directory itself
    groups/<id>.<incarnation>/   a group's log, see store/frames/format.py
    trash/           deleted groups, being removed
    quarantine/      logs that could not be repaired and were replaced from other members

A directory of format 2 has small files in place of the ledger; opening it converts them.

Opening raises StoreRefused for a directory of another node, of a newer format, or in use.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from jetraft.store.disk.files import TMP_SUFFIX, read_file
from jetraft.store.disk.io import Disk, sync_directory
from jetraft.store.frames.format import BLOCK_SUFFIX, FORMAT_VERSION, GENERATION_PREFIX
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.file import merge, parse
from jetraft.store.ledger.ledger import NAMES, Ledger
from jetraft.store.ledger.ledger_records import GroupKey, GroupState, NodeState
from jetraft.store.ledger.legacy import HARD_STATE_NAMES
from jetraft.store.ledger.quarantine import ASIDE_NAME, GROUPS_NAME, key_of
from jetraft.store.model.ids import GroupId, NodeId, node_id_of
from jetraft.store.port import StoreCorrupt, StoreRefused

log = logging.getLogger(__name__)

IDENTITY_NAME: Final = "node.json"
LOCK_NAME: Final = "lock"
TRASH_NAME: Final = "trash"
IDENTITY_VALUE: Final = "node"  # in the ledger
LEDGER_FIELD: Final = "ledger"  # of node.json: the ledger's own number, 16 hexadecimal digits
OLD_VALUES: Final = ("meta.record",)  # small files in format 2
OLD_NOTED_FILE: Final = "memory-groups.json"


@attrs.frozen
class SmallValue:
    """A small value of the node that is replaced as a whole, kept in the ledger under a name."""

    ledger: Ledger
    name: str

    def load(self) -> bytes | None:
        """Its content; None when there is none."""
        return self.ledger.values.get(self.name)

    async def save(self, content: bytes) -> None:
        """Replace it; durable when this returns. Raises OSError."""
        await self.ledger.commit(ledger_records.value(self.name, content))


@attrs.define(eq=False)
class NodeDir:
    """An open store directory. `close` lets another process have it."""

    disk: Disk
    root: Path
    node_id: NodeId
    ledger: Ledger
    _lock_fds: tuple[int, ...]

    @classmethod
    def open(cls, disk: Disk, root: Path, *, server_name: str, named: bool, cluster: str) -> "NodeDir":
        """Take the directory for this process, making it when it is missing.

        Raises StoreRefused, StoreCorrupt, OSError.
        A server that stands alone and was given no name (`named` False) has another name at every start; it goes on
        under the node id that the directory has.
        """
        for place in (root / GROUPS_NAME, root / TRASH_NAME):
            disk.make_directory(place)
        disk.sync_parents(root)  # always: the process that made them may have been killed before it synced them
        lock_fds = _locked(disk, root)
        try:
            ledger = _open_ledger(disk, root, node_id_of(server_name))
            _distrust_anothers(ledger, root)
            node_id = _claim(ledger, root, server_name=server_name, named=named, cluster=cluster)
        except BaseException:
            _unlock(disk, lock_fds)
            raise
        return cls(disk, root, node_id, ledger, lock_fds)

    def close(self) -> None:
        """Give the directory back."""
        self.ledger.close()
        _unlock(self.disk, self._lock_fds)

    def renew_ledger(self) -> None:
        """See Ledger.renew. Blocking. Raises OSError."""
        self.ledger.renew()
        content = self.ledger.values.get(IDENTITY_VALUE)
        if content is not None:
            _show(self.ledger, self.root, content)

    def value(self, name: str) -> SmallValue:
        """A small value of the node."""
        return SmallValue(self.ledger, name)

    def group(self, group_id: GroupId, incarnation: int) -> Path:
        """The directory of a group's log. Group ids are made by this program: letters, digits and dashes."""
        assert "/" not in group_id
        return self.root / GROUPS_NAME / f"{group_id}.{incarnation}"

    def groups(self) -> Iterator[tuple[GroupId, int]]:
        """Every group (id, incarnation) that has a directory."""
        yield from _groups(self.disk, self.root)

    def stored_bytes(self) -> int:
        """The bytes that the groups' files take on disk."""
        return self.disk.used_bytes(self.root / GROUPS_NAME)

    async def set_aside(self, group_id: GroupId, incarnation: int) -> None:
        """Rename a group's directory into the quarantine, for inspection. It replaces an earlier one.

        When this returns it is durable that this node may have promised there what it has forgotten. A crash in between
        leaves a group whose files are missing, and that does not vote either.
        """
        self._move_aside(group_id, incarnation)
        await self.ledger.commit(_forgotten((group_id, incarnation)))

    def set_aside_now(self, group_id: GroupId, incarnation: int) -> None:
        """The same, blocking, for a server that does not run."""
        self._move_aside(group_id, incarnation)
        self.ledger.commit_now(_forgotten((group_id, incarnation)))

    def _move_aside(self, group_id: GroupId, incarnation: int) -> None:
        disk, source = self.disk, self.group(group_id, incarnation)
        target = self.root / ASIDE_NAME / source.name
        if not disk.exists(source):
            return
        disk.make_directory(target.parent)
        if disk.exists(target) and not _has_blocks(disk, source):
            # What an opening made after a crash in here; the data is in the quarantine already.
            disk.remove_directory(source)
            return
        self._rename(source, target)
        sync_directory(disk, target.parent)
        sync_directory(disk, source.parent)
        sync_directory(disk, self.root)

    def _rename(self, source: Path, target: Path) -> None:
        """Move a directory, in place of what was there."""
        self.disk.remove_directory(target)
        batch = self.disk.batch()
        batch.rename(bytes(source), bytes(target))
        self.disk.perform(batch)

    def throw_away(self, group_id: GroupId, incarnation: int) -> None:
        """Remove a group's directory, but for the ledger. Blocking: it syncs two directories.

        It is renamed first: from then on no opening finds the group, whatever becomes of the removal.
        """
        trashed = self.rename_into_trash(group_id, incarnation)
        if trashed is not None:
            self.remove(trashed)

    async def move_to_trash(self, group_id: GroupId, incarnation: int) -> Path | None:
        """Rename a group's directory out of the way and strike it from the ledger, durably; None when there is none."""
        target = self.rename_into_trash(group_id, incarnation)
        if self.ledger.state((group_id, incarnation)) is not None:
            await self.ledger.commit(ledger_records.removed((group_id, incarnation)))
        return target

    def rename_into_trash(self, group_id: GroupId, incarnation: int) -> Path | None:
        """The same, but for the ledger: a server that stops in between strikes the group at its next start."""
        source = self.group(group_id, incarnation)
        target = self.root / TRASH_NAME / source.name
        if not self.disk.exists(source):
            return None
        self._rename(source, target)
        sync_directory(self.disk, source.parent)
        sync_directory(self.disk, target.parent)
        return target

    def remove(self, trashed: Path) -> None:
        """Remove what was thrown away, as far as that is possible now. Blocking."""
        with suppress(OSError):
            self.disk.remove_directory(trashed)

    def empty_trash(self) -> None:
        """Remove what was thrown away, for instance by a process that died meanwhile."""
        for name in self.disk.list_directory(self.root / TRASH_NAME):
            self.remove(self.root / TRASH_NAME / name)


def _locked(disk: Disk, root: Path) -> tuple[int, ...]:
    """Take the directory: its lock file, and itself, as the file may be removed for the remains of a crash.

    Raises StoreRefused.
    """
    fds: list[int] = []
    try:
        fds.append(disk.lock(root / LOCK_NAME))
        fds.append(disk.lock_directory(root))
    except OSError as error:
        _unlock(disk, fds)
        if not isinstance(error, BlockingIOError):
            raise
        raise StoreRefused(f"{root}: another server process uses this store directory") from error
    return tuple(fds)


def _unlock(disk: Disk, fds: Sequence[int]) -> None:
    for fd in fds:
        disk.close_file(fd)


def _forgotten(key: GroupKey) -> bytes:
    return ledger_records.replaced(key, GroupState(is_noted=True))


def peek_identity(root: Path) -> dict[str, Any]:
    """A store's description of its server, read without changing anything; empty when it says nothing."""
    copies = []
    for name in NAMES:
        try:
            copies.append(parse((root / name).read_bytes()))
        except (OSError, ValueError):
            copies.append(None)
    merged, state = merge(*copies), NodeState()
    for record in () if merged is None else merged.records:
        # Only the identity is wanted; records of a newer version do not hide it.
        with suppress(ValueError):
            state.apply(record)
    for content in (state.values.get(IDENTITY_VALUE), _read_if_there(root / IDENTITY_NAME)):
        with suppress(ValueError, TypeError):
            return dict(orjson.loads(content or b""))
    return {}


def _read_if_there(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def _has_blocks(disk: Disk, group: Path) -> bool:
    logs = [name for name in disk.list_directory(group) if name.startswith(GENERATION_PREFIX)]
    return any(name.endswith(BLOCK_SUFFIX) for log_name in logs for name in disk.list_directory(group / log_name))


def _open_ledger(disk: Disk, root: Path, node_id: NodeId) -> Ledger:
    """The ledger; a store of format 2 gets one, with what its small files say."""
    is_new = not any(disk.exists(root / name) for name in NAMES)
    old = _format_2(disk, root) if is_new else None
    # Groups of format 2 tell their own term and vote; any other group whose ledger is gone has forgotten them.
    known = [] if old is not None else [key for key in _groups(disk, root) if not _is_of_format_2(disk, root, key)]
    if is_new and known:
        log.error("%s: the ledger is lost: the votes of %d groups are unknown", root, len(known))
    begins_with: list[bytes] = []
    if old is not None:
        log.warning("%s: converting a store of an older format", root)
        begins_with.append(ledger_records.value(IDENTITY_VALUE, old))
        present = [name for name in OLD_VALUES if disk.exists(root / name)]
        begins_with += [ledger_records.value(name, read_file(disk, root / name)) for name in present]
        begins_with += _noted(disk, root)
    shown = _identity_from_files(disk, root)
    owners = {node_id} if shown is None else {node_id, shown[0]}
    ledger = Ledger.open(disk, root, known, begins_with, lambda state: _owner(state) in owners)
    superfluous = disk.batch()
    for name in (*OLD_VALUES, OLD_NOTED_FILE):  # the ledger has what they said, durably
        if disk.exists(root / name):
            superfluous.unlink(bytes(root / name))
    disk.perform(superfluous)
    if not is_new and any(state.memory_lost for state in map(ledger.state, ledger.groups()) if state is not None):
        log.error("%s: records of the ledger are lost: the votes of its groups are unknown", root)
    return ledger


def _distrust_anothers(ledger: Ledger, root: Path) -> None:
    """Where the directory is another ledger's, nothing follows from this one's silence about the groups that are here.

    Both copies were put there by mistake, or node.json was. So groups that this ledger knows are as it says, and of the
    others it is recorded that something may be forgotten, before node.json names this ledger. Raises OSError.
    """
    named, number = _ledger_named(ledger.disk, root), ledger_number(ledger.identity)
    if named in {"", number}:
        return
    unknown = [key for key in _groups(ledger.disk, root) if ledger.state(key) is None]
    unknown = [key for key in unknown if not _is_of_format_2(ledger.disk, root, key)]
    if not unknown:
        return
    log.error(
        "%s: ledger %s is in this directory, which is ledger %s's: what was acknowledged in %d groups that it does not "
        "know follows from their files alone. If the ledger was put there by mistake, put the right one back",
        root,
        number,
        named,
        len(unknown),
    )
    ledger.commit_now(*map(ledger_records.forgotten, unknown))


def ledger_number(identity: int) -> str:
    """The form in which node.json names a ledger."""
    return f"{identity:016x}"


def _ledger_named(disk: Disk, root: Path) -> str:
    try:
        return ledger_named(read_file(disk, root / IDENTITY_NAME))
    except OSError:
        return ""


def ledger_named(content: bytes) -> str:
    """The ledger that node.json names; empty where it names none, as earlier versions, or is not to be read."""
    try:
        found = orjson.loads(content)
    except ValueError:
        return ""
    named = found.get(LEDGER_FIELD) if isinstance(found, dict) else None
    return named if isinstance(named, str) else ""


def _owner(state: NodeState) -> NodeId | None:
    """The node whose ledger it is; None when it does not say."""
    with suppress(StoreCorrupt):
        return _identity(state.values.get(IDENTITY_VALUE, b""), what=Path(NAMES[0]))[1]
    return None


def _format_2(disk: Disk, root: Path) -> bytes | None:
    """The identity of a store that has none in a ledger yet; None when this is no such store. Raises StoreCorrupt."""
    try:
        content = read_file(disk, root / IDENTITY_NAME)
    except FileNotFoundError:
        return None
    version = _identity(content, what=root / IDENTITY_NAME)[0]
    return content if version < FORMAT_VERSION else None


def _noted(disk: Disk, root: Path) -> list[bytes]:
    """The groups in which this node may have promised what it has forgotten, of a store of format 2."""
    path = root / OLD_NOTED_FILE
    if not disk.exists(path):
        return []
    try:
        pairs = [(GroupId(str(group_id)), int(number)) for group_id, number in orjson.loads(read_file(disk, path))]
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"{path}: unreadable: {error}") from error
    return [ledger_records.noted(key) for key in pairs]


def _groups(disk: Disk, root: Path) -> Iterator[GroupKey]:
    """Every group that has a directory."""
    for name in disk.list_directory(root / GROUPS_NAME):
        key = key_of(name)
        if key is not None:
            yield key


def _is_of_format_2(disk: Disk, root: Path, key: GroupKey) -> bool:
    path = root / GROUPS_NAME / f"{key[0]}.{key[1]}"
    return any(disk.exists(path / name) for name in HARD_STATE_NAMES)


def _claim(ledger: Ledger, root: Path, *, server_name: str, named: bool, cluster: str) -> NodeId:
    """Check the owner of the directory, or record this node as its owner; returns the node id to use."""
    node_id = node_id_of(server_name)
    content = ledger.values.get(IDENTITY_VALUE)
    if content is None:
        known = _identity_from_files(ledger.disk, root)
        owner, was_named, name = known or (node_id, named, server_name)
        version = FORMAT_VERSION if known is None else 0
    else:
        version, owner, was_named, name = _identity(content, what=root / NAMES[0])
    if version > FORMAT_VERSION:
        raise StoreRefused(f"{root}: store format {version} is newer than this server's {FORMAT_VERSION}")
    if owner != node_id and (cluster or (named and was_named)):
        raise StoreRefused(
            f'{root}: belongs to server "{name}" (node {owner}), not to "{server_name}" (node {node_id})'
        )
    if content is None or version < FORMAT_VERSION:
        identity = {"format": FORMAT_VERSION, "node_id": owner, "server_name": name, "named": was_named}
        content = orjson.dumps(identity | {"cluster": cluster})
        ledger.commit_now(ledger_records.value(IDENTITY_VALUE, content))
    _show(ledger, root, content)
    return owner


def _identity(content: bytes, *, what: Path) -> tuple[int, NodeId, bool, str]:
    """(format, node id, whether its name was given, name). Raises StoreCorrupt."""
    try:
        identity = orjson.loads(content)
        name = str(identity.get("server_name", "?"))
        return int(identity["format"]), NodeId(identity["node_id"]), bool(identity["named"]), name
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreCorrupt(f"{what}: unreadable: {error}") from error


def _identity_from_files(disk: Disk, root: Path) -> tuple[NodeId, bool, str] | None:
    """Whose directory it is when the ledger is lost: what node.json says; None when that is not there or unreadable."""
    try:
        return _identity(read_file(disk, root / IDENTITY_NAME), what=root / IDENTITY_NAME)[1:]
    except (OSError, StoreCorrupt):
        return None


def _show(ledger: Ledger, root: Path, content: bytes) -> None:
    """Write to node.json whose directory it is, and which ledger's. What fails is written at the next start."""
    disk, path = ledger.disk, root / IDENTITY_NAME
    content = orjson.dumps({**orjson.loads(content), LEDGER_FIELD: ledger_number(ledger.identity)})
    with suppress(OSError):
        if disk.exists(path) and read_file(disk, path) == content:
            return
        temporary = path.with_name(path.name + TMP_SUFFIX)
        fd = disk.open_file(temporary, create=True)
        batch = disk.batch()
        batch.truncate(fd, 0)
        batch.write(fd, [content], 0)
        batch.sync(fd)
        batch.rename(bytes(temporary), bytes(path))
        try:
            disk.perform(batch)
        finally:
            disk.close_file(fd)
        sync_directory(disk, root)
