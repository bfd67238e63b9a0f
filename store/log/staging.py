"""Receives a copy of another member's log, and installs it.

The files are gathered in the directory of the next generation under a temporary name. When the copy is complete, the
directory gets its final name and the new log is opened. The new log replaces the old one when the ledger has its state,
which the first batch of the new log writes. A crash before that leaves the old log as it was.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from jetraft.store.blocks.reseal import Resealer
from jetraft.store.disk.files import TMP_SUFFIX
from jetraft.store.frames import checkpoint as checkpoint_file
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    GENERATION_PREFIX,
    BlockHead,
    block_name,
    checkpoint_name,
    generation_name,
    pack_block_head,
)
from jetraft.store.ledger.ledger_records import Born, GroupState, Point
from jetraft.store.log.snapshot import Arrivals, InstallRefusedError, verify_part
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.model.files.manifest import Manifest, Part
from jetraft.store.port import Checkpoint, GroupLog


class FileStaging:
    """Implements Staging: gathers the next generation of a group's log beside the current one."""

    def __init__(
        self,
        place: LogPlace,
        manifest: Manifest,
        checkpoint: Checkpoint,
        open_installed: Callable[[GroupState], GroupLog],
        is_covered: Callable[[], bool],
    ) -> None:
        assert (manifest.index, manifest.term) == (checkpoint.index, checkpoint.term)
        generation = int(place.log.name.removeprefix(GENERATION_PREFIX)) + 1
        self._place = place
        self._open_installed = open_installed
        self._is_covered = is_covered  # by the old log
        self._generation = generation
        self._checkpoint = checkpoint
        self._manifest = manifest
        self._final = place.group / generation_name(generation)
        self._directory = self._final.with_name(self._final.name + TMP_SUFFIX)
        self._sealing: dict[int, Resealer] = {}  # by part, in a store that is encrypted
        self._arrivals = Arrivals(manifest, self._write)

    @classmethod
    def begin(
        cls,
        place: LogPlace,
        manifest: Manifest,
        checkpoint: Checkpoint,
        open_installed: Callable[[GroupState], GroupLog],
        is_covered: Callable[[], bool],
    ) -> Self:
        """Make the directory of the next generation, without what an earlier attempt left there. Blocking."""
        staging = cls(place, manifest, checkpoint, open_installed, is_covered)
        place.disk.remove_directory(staging._directory)
        place.disk.make_directory(staging._directory)
        return staging

    def missing(self) -> tuple[int, int, int] | None:
        """See Staging."""
        return self._arrivals.missing()

    def put_chunk(self, block: int, offset: int, data: bytes) -> None:
        """See Staging."""
        self._arrivals.put_chunk(block, offset, data)

    def abandon(self) -> None:
        """See Staging."""
        self._place.disk.remove_directory(self._directory)

    def finish(self) -> GroupLog:
        """See Staging."""
        assert self.missing() is None
        if self._is_covered():
            raise InstallRefusedError(f"{self._place.group}: the log already covers entry {self._manifest.index}")
        disk, group = self._place.disk, self._place.group
        for number, part in enumerate(self._manifest.parts):
            self._verify(self._path(number), part)
        empty = BlockHead(
            serial=len(self._manifest.parts) + 1,
            first_index=self._manifest.index + 1,
            boundary_term=self._manifest.term,
        )
        identity = self._place.identity
        self._put(block_name(empty), pack_block_head(empty, identity))
        self._put(
            checkpoint_name(self._checkpoint.index),
            checkpoint_file.pack(self._checkpoint, identity, self._place.cipher),
        )
        fds = [disk.open_directory(path) for path in (self._directory, group, group.parent)]
        batch = disk.batch()
        batch.sync(fds[0])
        batch.rename(bytes(self._directory), bytes(self._final))
        batch.sync(fds[1])
        batch.sync(fds[2])  # these may be the first files of the group, whose directory was never synced then
        try:
            disk.perform(batch)
        finally:
            for fd in fds:
                disk.close_file(fd)
        return self._open_installed(self._state(empty))

    def _state(self, empty: BlockHead) -> GroupState:
        """The ledger's state for the new log. Term and vote stay."""
        before = self._place.ledger.state(self._place.key) or GroupState()
        heads = [*map(self._head, range(len(self._manifest.parts))), empty]
        point = Point(self._checkpoint.index, self._checkpoint.term)
        return GroupState(
            hard_state=before.hard_state,
            generation=self._generation,
            births=tuple(Born(head.serial, head.first_index, head.boundary_term, 0) for head in heads),
            floor=point,
            dropped=self._manifest.dropped(),
            checkpoints=(point,),
            is_noted=before.is_noted,
            memory_lost=before.memory_lost,
        )

    def _path(self, number: int) -> Path:
        return self._directory / block_name(self._head(number))

    def _head(self, number: int) -> BlockHead:
        part = self._manifest.parts[number]
        return BlockHead(serial=number + 1, first_index=part.first_index, boundary_term=part.boundary_term)

    def _write(self, number: int, offset: int, data: bytes) -> None:
        """Append a chunk to the file of a part. The first chunk comes with the head."""
        disk, cipher = self._place.disk, self._place.cipher
        head = pack_block_head(self._head(number), self._place.identity)
        if cipher is not None:
            if offset == 0:
                self._sealing[number] = Resealer(cipher, self._head(number), self._place.identity.incarnation)
            offset, data = self._sealing[number].feed(data, BLOCK_HEAD_BYTES)
            offset -= BLOCK_HEAD_BYTES
        batch = disk.batch()
        fd = disk.open_file(self._path(number), create=True)
        if offset == 0:
            batch.write(fd, [head, data], 0)
        else:
            batch.write(fd, [data], len(head) + offset)
        try:
            disk.perform(batch)
        finally:
            disk.close_file(fd)

    def _verify(self, path: Path, part: Part) -> None:
        disk = self._place.disk
        fd = disk.open_file(path)
        batch = disk.batch()
        batch.sync(fd)
        try:
            disk.perform(batch)
            disk.forget_cached(fd)
            data = disk.read(fd, disk.size(fd), 0)
        finally:
            disk.close_file(fd)
        incarnation = self._place.identity.incarnation
        verify_part(data, part, offset=BLOCK_HEAD_BYTES, incarnation=incarnation, what=str(path))

    def _put(self, name: str, data: bytes) -> None:
        """Write and fsync one small file."""
        disk = self._place.disk
        fd = disk.open_file(self._directory / name, create=True)
        batch = disk.batch()
        batch.write(fd, [data], 0)
        batch.sync(fd)
        try:
            disk.perform(batch)
        finally:
            disk.close_file(fd)
