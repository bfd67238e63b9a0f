"""The directory of one node's store: who it belongs to, one process at a time, a place per group.

    node.json        format version, node id, server name, cluster: read before anything else is touched
    lock             held with flock while a process uses the directory
    <small files>    others of the node, each replaced as a whole
    groups/<id>.<incarnation>/   a group's log, see store/format.py
    trash/           groups that were deleted, on their way out
    quarantine/      logs that could not be repaired and were replaced from other members

Opening refuses a directory of another node, of a newer format, or in use, with one line that says which.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import orjson

from jetraft.store.format import FORMAT_VERSION
from jetraft.store.model.ids import GroupId, NodeId, node_id_of
from jetraft.store.port import StoreCorrupt, StoreRefused

IDENTITY_NAME: Final = "node.json"
LOCK_NAME: Final = "lock"
GROUPS_NAME: Final = "groups"
TRASH_NAME: Final = "trash"
QUARANTINE_NAME: Final = "quarantine"
SMALL_FILE_BYTES_MAX: Final = 1 << 20
STAT_BLOCK_BYTES: Final = 512  # the unit of st_blocks, whatever the file system's is


@attrs.frozen
class SmallFile:
    """A small file that is replaced as a whole: written aside, fsynced, renamed, its directory fsynced."""

    path: Path

    def load(self) -> bytes | None:
        """Its content; None when there is no such file."""
        try:
            with self.path.open("rb") as file:
                return file.read(SMALL_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None

    def save(self, content: bytes) -> None:
        """Replace it; durable when this returns. Raises OSError."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path)
        sync_directory(self.path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_way_to(root: Path) -> None:
    """Make the names of the directories that lead here durable: else a power cut may take the whole store.

    Always, as whoever made them may have been killed before it came to this; on this file system, as far as this
    process may read it.
    """
    place = root.resolve()
    device = place.stat().st_dev
    for parent in place.parents:
        if parent.stat().st_dev != device:
            return
        with suppress(PermissionError):
            sync_directory(parent)


@attrs.define(eq=False)
class NodeDir:
    """An open store directory. `close` lets another process have it."""

    root: Path
    node_id: NodeId
    _lock_fd: int

    @classmethod
    def open(cls, root: Path, *, server_name: str, named: bool, cluster: str) -> "NodeDir":
        """Take the directory for this process, making it when it is missing.

        Raises StoreRefused, StoreCorrupt, OSError.
        A server that stands alone and was given no name (`named` False) has another name at every start; it goes on
        under the node id that the directory has.
        """
        (root / GROUPS_NAME).mkdir(parents=True, exist_ok=True)
        (root / TRASH_NAME).mkdir(exist_ok=True)
        _sync_way_to(root)
        lock_fd = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            node_id = _claim(
                SmallFile(root / IDENTITY_NAME), root, server_name=server_name, named=named, cluster=cluster
            )
        except BlockingIOError as error:
            os.close(lock_fd)
            raise StoreRefused(f"{root}: another server process uses this store directory") from error
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(root, node_id, lock_fd)

    def close(self) -> None:
        """Give the directory back."""
        os.close(self._lock_fd)

    def file(self, name: str) -> SmallFile:
        """A small file of the node."""
        return SmallFile(self.root / name)

    def group(self, group_id: GroupId, incarnation: int) -> Path:
        """Where a group's log lives. Group ids are made by this program: letters, digits and dashes."""
        assert "/" not in group_id
        return self.root / GROUPS_NAME / f"{group_id}.{incarnation}"

    def groups(self) -> Iterator[tuple[GroupId, int]]:
        """Every group (id, incarnation) that has a directory."""
        for path in sorted((self.root / GROUPS_NAME).iterdir()):
            group_id, _, incarnation = path.name.rpartition(".")
            if group_id and incarnation.isdigit():
                yield GroupId(group_id), int(incarnation)

    def stored_bytes(self) -> int:
        """What the groups' files take on disk."""
        files = (path for path in (self.root / GROUPS_NAME).rglob("*") if path.is_file())
        return sum(path.stat().st_blocks * STAT_BLOCK_BYTES for path in files)

    def set_aside(self, group_id: GroupId, incarnation: int) -> None:
        """Rename a group's directory into the quarantine, durably, for whoever wants to look at it: the newest one."""
        source = self.group(group_id, incarnation)
        target = self.root / QUARANTINE_NAME / source.name
        if not source.exists():
            return
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            shutil.rmtree(target)
        source.rename(target)
        sync_directory(target.parent)
        sync_directory(source.parent)
        sync_directory(self.root)

    def move_to_trash(self, group_id: GroupId, incarnation: int) -> Path | None:
        """Rename a group's directory out of the way, durably; None when there is none."""
        source = self.group(group_id, incarnation)
        target = self.root / TRASH_NAME / source.name
        if not source.exists():
            return None
        if target.exists():
            shutil.rmtree(target)
        source.rename(target)
        sync_directory(source.parent)
        sync_directory(target.parent)
        return target

    def empty_trash(self) -> None:
        """Remove what was thrown away, for instance by a process that died meanwhile."""
        for path in (self.root / TRASH_NAME).iterdir():
            shutil.rmtree(path, ignore_errors=True)


def _claim(file: SmallFile, root: Path, *, server_name: str, named: bool, cluster: str) -> NodeId:
    """Check whose directory it is, or write that it is ours; returns the node id to go by."""
    content, node_id = file.load(), node_id_of(server_name)
    if content is None:
        identity = {"format": FORMAT_VERSION, "node_id": node_id, "server_name": server_name, "named": named}
        file.save(orjson.dumps(identity | {"cluster": cluster}))
        return node_id
    try:
        identity = orjson.loads(content)
        version, owner, was_named = int(identity["format"]), NodeId(identity["node_id"]), bool(identity["named"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreCorrupt(f"{root / IDENTITY_NAME}: unreadable: {error}") from error
    if version > FORMAT_VERSION:
        raise StoreRefused(f"{root}: store format {version} is newer than this server's {FORMAT_VERSION}")
    if owner != node_id and (cluster or (named and was_named)):
        name = identity.get("server_name", "?")
        raise StoreRefused(
            f'{root}: belongs to server "{name}" (node {owner}), not to "{server_name}" (node {node_id})'
        )
    if version < FORMAT_VERSION:  # what this server writes from now on an older one must not take for damage
        file.save(orjson.dumps(identity | {"format": FORMAT_VERSION}))
    return owner
