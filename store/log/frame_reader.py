"""Reads frames of one log from the write queue, from the cache, or from a block's file.

A frame from a file is verified before it is returned: its checksum, and that it is the entry that the block's table has
at that place. A reader who takes frames one behind the other gets them from a window of the block that is read at once
(store/blocks/read_ahead.py): `rewriting`, `shorten`, `reload`, `forget` and `close` drop the windows of what changes.
A window has bytes that are written and that no rewriting touches; every frame that waits for the writer is in memory,
where it is looked for first.
"""

import logging
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from jetraft.store.blocks._window import Window
from jetraft.store.blocks.block import Block, entry_of
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.blocks.proofs import untagged
from jetraft.store.disk.copies import DAMAGE_ERRNOS
from jetraft.store.disk.io import Disk
from jetraft.store.frames._frame import entry_frame, make_mark, parse_header, verify
from jetraft.store.frames._thin import expand, thin_like
from jetraft.store.frames.cipher import SEAL_BYTES, GroupCipher
from jetraft.store.frames.compression import pack_like, unpack
from jetraft.store.frames.format import (
    FRAME_FLAGS_AT,
    FRAME_HEADER_BYTES,
    FRAME_PACKED,
    FRAME_SEALED,
    FRAME_THIN,
    MARK_BYTES,
)
from jetraft.store.log._growth import HeldFrames
from jetraft.store.log.write_queue import BlockFile, Rewriting
from jetraft.store.port import Entry, FrameRef, FrameRun, StoreCorrupt, run_of_one

log = logging.getLogger(__name__)

NOT_OPEN: Final = FRAME_SEALED | FRAME_PACKED | FRAME_THIN  # flags of a frame that readers get in another form
FILES_OPEN_MAX: Final = 8  # per log, for reads of blocks that no longer grow


class FrameReader(HeldFrames):
    """The frames of one log by block and offset."""

    __slots__ = (
        "_cipher",
        "_disk",
        "_incarnation",
        "_mended",
        "_open",
        "_rewriting",
        "files",
    )

    def __init__(self, disk: Disk, cache: BlockCache, incarnation: int, cipher: GroupCipher | None = None) -> None:
        super().__init__(cache, cache.register_log())
        self._disk = disk
        self._incarnation = incarnation
        self._cipher = cipher
        self._rewriting: dict[tuple[int, int], bytes] = {}  # by (block, offset): written over older frames
        self._mended: dict[tuple[int, int], bytes] = {}  # by (block, number): for frames that are damaged there
        self._open: dict[int, int] = {}  # block -> descriptor, least recently used first
        self.files: dict[int, BlockFile] = {}  # by block number

    def mend(self, block: Block, number: int, frame: bytes) -> None:
        """Take this frame, salvaged from a damaged one, for the form of that one: as long, and stored as it is."""
        self._mended[block.number, number] = frame

    def replaced(self, block: Block) -> dict[int, bytes]:
        """The frames, by number, that memory has in place of damaged ones in the file of a block at rest."""
        waiting = [(at, frame) for (number, at), frame in self._unwritten.items() if number == block.number]
        return {bisect_left(block.offsets, at): frame for at, frame in waiting}

    def rewriting(self, block: Block, offset: int, frame: bytes) -> Rewriting:
        """Replace a frame for readers; returns what to write. `rewritten` says when the file has it.

        Raises StoreCorrupt, OSError, and changes nothing, when the form of a frame in a compacted block cannot be read.
        """
        key = block.number, offset
        index = block.index_at(offset)
        assert index is not None
        number, stored = block.number_of(index), frame
        if block.indexes is not None:
            stored = self._stored_like(self._stored(block, number), frame)
        file, place, is_sealed = self.files[block.number], block.place_of(number), self.is_sealed(block)
        item = Rewriting(file=file, frame=frame, place=place, stored=stored, is_sealed=is_sealed)
        self._rewriting[key] = frame
        if (block.number, number) in self._mended:
            self._mended[block.number, number] = stored
        if key in self._unwritten:
            self._unwritten[key] = frame
        self.cache.replace((self._log, *key), frame)
        self._drop_windows(block.number)
        return item

    def rewritten(self, key: tuple[int, int], frame: bytes) -> None:
        """Note that the file has this frame at `key`, which is (block, offset)."""
        if self._rewriting.get(key) is frame:
            del self._rewriting[key]

    def in_memory(self, block: Block, offset: int) -> bytes | None:
        """The frame if it is in memory, else None."""
        key = block.number, offset
        frame = self._rewriting.get(key) or self._unwritten.get(key)
        return self.cache.get((self._log, block.number, offset)) if frame is None else frame

    def frame(self, block: Block, offset: int) -> bytes:
        """The frame at a place. Raises KeyError when none starts there, StoreCorrupt when it is damaged."""
        frame = self.in_memory(block, offset) or self._from_window(block, offset)
        if frame is not None:
            return frame
        number = bisect_left(block.offsets, offset)
        if number == len(block.offsets) or block.offsets[number] != offset:
            raise KeyError((block.number, offset))
        ahead, place = self.cache.ahead, (self._log, block.number)
        bytes_max = ahead.size_at(place, number)
        window = self._read_ahead(block, number, bytes_max) if bytes_max else None
        stored = None if window is None else window.take(offset)
        if window is not None and stored is not None:
            return self._open_in(window, block, offset, stored)
        index = block.index_of(number)
        frame = self.run(block, index, index, 0)[0].frame
        self.cache.put((*place, offset), frame)
        ahead.missed(place, number)
        return frame

    def _from_window(self, block: Block, offset: int) -> bytes | None:
        """The frame if it was read ahead, else None."""
        found = self.cache.ahead.take((self._log, block.number), offset)
        return None if found is None else self._open_in(found[0], block, offset, found[1])

    def _open_in(self, window: Window, block: Block, offset: int, frame: bytes) -> bytes:
        """The frame of a window as readers get it."""
        if frame[FRAME_FLAGS_AT] & NOT_OPEN:
            frame = self._opened(block, window.place_of(offset), frame)
            self.cache.ahead.keep_opened(window, offset, frame)
            self.cache.make_room()
        return frame

    def _read_ahead(self, block: Block, first: int, bytes_max: int) -> Window | None:
        """Read a window from frame number `first` on; None when nothing can be read at once there."""
        file, start = self.files[block.number], block.place_of(first)
        last, end = self._reach(block, first, len(block.offsets) - 1, start + bytes_max)
        if file.is_read_singly or end <= start:
            return None
        try:
            data = self._read(block, end - start, start)
        except StoreCorrupt:  # some byte of it: from now on a reader gets the error of its own frame, after one attempt
            file.is_read_singly = True
            return None
        offsets = block.offsets[first : last + 1]
        window = Window(
            data,
            start=start,
            offsets=offsets,
            places=offsets if block.stored is None else block.stored[first : last + 1],
            first_index=block.index_of(first),
            indexes=None if block.indexes is None else block.indexes[first : last + 1],
            incarnation=self._incarnation,
        )
        following = (block.number, last + 1) if last + 1 < len(block.offsets) else (block.number + 1, 0)
        self.cache.ahead.keep((self._log, block.number), first, window, following)
        self.cache.make_room()
        return window

    def run(self, block: Block, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Entries from `lo` to at most `hi` of one block, by one read of about `bytes_max` from its file; at least one.

        An entry that is not written yet comes from memory, alone. Raises StoreCorrupt.
        """
        key = block.number, block.offset_of(lo)
        waiting = self._rewriting.get(key) or self._unwritten.get(key)
        if waiting is not None:
            return [entry_of(waiting)]
        first = block.number_of(lo)
        start = block.place_of(first)
        last, end = self._reach(block, first, block.number_from(hi + 1) - 1, start + bytes_max)
        data = self._read(block, end - start, start)
        return [self._checked(block, data, start, number) for number in range(first, last + 1)]

    def stored_run(self, block: Block, lo: int, hi: int, bytes_max: int) -> FrameRun:
        """The same frames as their file has them, neither verified nor opened. Raises StoreCorrupt."""
        key = block.number, block.offset_of(lo)
        waiting = self._rewriting.get(key) or self._unwritten.get(key)
        if waiting is not None:
            return run_of_one(entry_of(waiting), FrameRef(*key))
        first = block.number_of(lo)
        start = block.place_of(first)
        last, end = self._reach(block, first, block.number_from(hi + 1) - 1, start + bytes_max)
        places = (block.offsets if block.stored is None else block.stored)[first : last + 1]
        return FrameRun(
            block=block.number,
            data=self._read(block, end - start, start),
            places=array("I", [place - start for place in places]),
            offsets=block.offsets[first : last + 1],
            indexes=range(lo, lo + last - first + 1) if block.indexes is None else block.indexes[first : last + 1],
            incarnation=self._incarnation,
        )

    def piece(self, block: Block, offset: int, size: int) -> bytes:
        """Bytes of a block for another member: without its tag, decrypted, with marks in place of seals."""
        data = self._plain_marks(block, offset, size)
        if self._cipher is None or not self.is_sealed(block):
            return data
        shown = bytearray(data)
        end = offset + len(data)
        for number in range(block.number_before(offset), len(block.offsets)):
            at, index = block.place_of(number), block.index_of(number)
            if at >= end:
                break
            frame = self._stored(block, number)
            mark = make_mark(incarnation=self._incarnation, offset=at + len(frame), next_index=index + 1)
            low, high = max(at, offset), min(at + len(frame) + SEAL_BYTES, end)
            if low < high:
                shown[low - offset : high - offset] = (frame + mark)[low - at : high - at]
        return bytes(shown)

    def _plain_marks(self, block: Block, offset: int, size: int) -> bytes:
        """Bytes of a block's file without its tag, which is private to this member."""
        tag = self.files[block.number].head.tag
        if not tag:
            return self._read(block, size, offset)
        start = max(0, offset - MARK_BYTES + 1)  # to find marks that the range cuts
        data = self._read(block, offset - start + size + MARK_BYTES - 1, start)
        return untagged(data, start, self._incarnation, tag)[offset - start : offset - start + size]

    def current(self, block: Block, number: int) -> bytes:
        """A frame, decrypted: the one that waits to be written, else as its file has it. Raises StoreCorrupt."""
        key = block.number, block.offsets[number]
        waiting = self._rewriting.get(key) or self._unwritten.get(key)
        return self._stored(block, number) if waiting is None else waiting

    def is_sealed(self, block: Block) -> bool:
        """Whether the frames of a block are encrypted. Either all of them are, or none."""
        file = self.files[block.number]
        if file.sealed is None:
            header = self._read(block, FRAME_HEADER_BYTES, block.place_of(0))
            if len(header) < FRAME_HEADER_BYTES:
                raise StoreCorrupt(f"{file.path}: shorter than its first frame")
            file.sealed = bool(header[FRAME_FLAGS_AT] & FRAME_SEALED)
        return file.sealed

    def _reach(self, block: Block, first: int, last: int, end_max: int) -> tuple[int, int]:
        """(number of the last frame, end) of a read from `first` to at most `last` that ends by `end_max` if possible.

        It ends where the file was written to, and before a frame that is being rewritten.
        """
        written = self.files[block.number].written
        if last <= first or end_max <= block.place_of(first):  # a frame alone
            return first, min(block.place_end(first), written)
        places = block.offsets if block.stored is None else block.stored
        behind = bisect_right(places, end_max, first + 1)  # the first frame that starts behind the end
        is_whole = behind == len(places) and block.used <= end_max
        last = min(last, behind - 1 if is_whole else behind - 2, bisect_left(places, written, first + 1) - 1)
        for number, offset in self._rewriting:
            if number == block.number and block.offsets[first] < offset:
                last = min(last, bisect_left(block.offsets, offset) - 1)
        last = max(first, last)
        return last, min(block.place_end(last), written)

    def _checked(self, block: Block, data: bytes, start: int, number: int) -> Entry:
        at, index = block.place_of(number) - start, block.index_of(number)
        found = entry_frame(data, at, index, self._incarnation)
        if found is None:
            path = self.files[block.number].path
            raise StoreCorrupt(f"{path}: entry {index} at byte {start + at} is damaged")
        frame, term, kind = found
        if frame[FRAME_FLAGS_AT] & NOT_OPEN:
            frame = self._opened(block, start + at, frame)
        return Entry(index=index, term=term, kind=kind, frame=frame)

    def _opened(self, block: Block, offset: int, frame: bytes) -> bytes:
        """The frame as it was appended, with empty messages in place of those that compaction removed."""
        file = self.files[block.number]
        frame = self._unsealed(file, offset, frame)
        try:
            if frame[FRAME_FLAGS_AT] & FRAME_PACKED:
                frame = unpack(frame)
            return expand(frame) if frame[FRAME_FLAGS_AT] & FRAME_THIN else frame
        except ValueError as error:
            raise StoreCorrupt(f"{file.path}: the frame at byte {offset}: {error}") from error

    def _unsealed(self, file: BlockFile, offset: int, frame: bytes) -> bytes:
        if not frame[FRAME_FLAGS_AT] & FRAME_SEALED:
            return frame
        if self._cipher is None:
            raise StoreCorrupt(f"{file.path}: the frame at byte {offset} is encrypted, and no key is configured")
        return self._cipher.open_frame(file.head.serial, offset, frame, what=str(file.path))

    def _stored_like(self, former: bytes, frame: bytes) -> bytes:
        """The form of a frame that replaces another one in its file, in as many bytes."""
        inside = unpack(former) if former[FRAME_FLAGS_AT] & FRAME_PACKED else former
        stored = thin_like(inside, frame) if inside[FRAME_FLAGS_AT] & FRAME_THIN else frame
        if inside is former:
            return stored
        packed = pack_like(former, stored)
        if packed is None:
            log.warning("an erased frame does not fit in its place; the next compaction of its block removes it")
        return packed or former

    def _stored(self, block: Block, number: int) -> bytes:
        """A frame as its file has it, decrypted. Raises StoreCorrupt."""
        mended = self._mended.get((block.number, number))
        if mended is not None:
            return mended
        file, place = self.files[block.number], block.place_of(number)
        data = self._read(block, block.place_end(number) - place, place)
        if not verify(data):
            raise StoreCorrupt(f"{file.path}: entry {block.index_of(number)} at byte {place} is damaged")
        return self._unsealed(file, place, data[: parse_header(data).length])

    def _read(self, block: Block, size: int, offset: int) -> bytes:
        """Bytes of a block's file; fewer where it is too short.

        Raises StoreCorrupt when they cannot be read or the file is gone; OSError when that may pass: no descriptor.
        """
        try:
            return self._disk.read(self._descriptor(block.number), size, offset)
        except OSError as error:
            if error.errno not in DAMAGE_ERRNOS:
                raise
            raise StoreCorrupt(f"{self.files[block.number].path}: byte {offset} cannot be read: {error}") from error

    def _descriptor(self, number: int) -> int:
        file = self.files[number]
        if file.fd is not None:
            return file.fd
        fd = self._open.pop(number, None)
        if fd is None:
            fd = self._disk.open_file(file.path)
            if file.is_growing:
                file.fd = fd
                return fd
            if len(self._open) == FILES_OPEN_MAX:
                self._disk.close_file(self._open.pop(next(iter(self._open))))
        self._open[number] = fd
        return fd

    def shorten(self, block: Block) -> None:
        """Note that the last frames of a block were cut."""
        self._drop_windows(block.number)

    def reload(self, number: int, written: int) -> None:
        """Note that the file of a block was replaced by another one, with so many bytes, and has no damage."""
        file = self.files[number]
        self._forget_replaced(number)
        file.written, file.sealed, file.is_read_singly = written, self._cipher is not None, False
        self._drop_windows(number)
        fd = self._open.pop(number, None)
        if fd is not None:
            self._disk.close_file(fd)

    def forget(self, number: int) -> BlockFile:
        """Drop a block: close its descriptor for reading, and return its file."""
        for key in [key for key in self._rewriting if key[0] == number]:
            del self._rewriting[key]
        self._forget_replaced(number)
        self._drop_windows(number)
        fd = self._open.pop(number, None)
        if fd is not None:
            self._disk.close_file(fd)
        return self.files.pop(number)

    def close(self) -> None:
        """Close every descriptor."""
        self.cache.ahead.drop_log(self._log)
        for fd in self._open.values():
            self._disk.close_file(fd)
        self._open.clear()
        for file in self.files.values():
            if file.fd is not None:
                self._disk.close_file(file.fd)
                file.fd = None
        self._unwritten.clear()

    def _forget_replaced(self, number: int) -> None:
        """Drop the frames that memory has in place of damaged ones: the file has them, or is gone."""
        for frames in (self._unwritten, self._mended):
            for key in [key for key in frames if key[0] == number]:
                del frames[key]

    def _drop_windows(self, number: int) -> None:
        self.cache.ahead.drop_block((self._log, number))
