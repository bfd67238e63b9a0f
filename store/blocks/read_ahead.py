"""Which readers take the frames of a block one behind the other, and the windows that are read ahead of them.

A frame that is in no cache is read alone. When the one behind it is asked for next, its reader is sequential: it gets a
window, then others, each twice as large as the one before. So a scan costs one read of a file for many frames, and its
frames do not push those of others out of the cache. All windows together have a bound, and the oldest goes first: a
reader that has left it may come back, for a push consumer measures what it sends before it sends it.

A window is a copy of a file. Who changes the bytes of a block, or what its table says, drops the windows of that block:
FrameReader (store/log/frame_reader.py) has all of them. Source of the idea: the read-ahead of Linux (mm/readahead.c).
"""

from collections import OrderedDict
from typing import Final

from jetraft.store.blocks._window import Window

FIRST_BYTES: Final = 32 << 10
WINDOW_BYTES_MAX: Final = 256 << 10  # twice the read-ahead of Linux; larger ones gain nothing and leave the L2 cache
FRAME_OVERHEAD_BYTES: Final = 128  # of an opened frame in a window's dictionary, measured on CPython 3.11
READERS_MAX: Final = 128  # whose next frame is remembered, of all logs: with more, random reads look sequential

Place = tuple[int, int]  # log, block


class ReadAhead:
    """The windows of all logs of a node, at most `bytes_max` bytes with their tables, the oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._windows: dict[Place, list[Window]] = {}
        self._ages: OrderedDict[Window, Place] = OrderedDict()  # by when they were read
        # By (log, block, number of a frame): the size in bytes of the window to read there.
        self._expected: OrderedDict[tuple[int, int, int], int] = OrderedDict()
        self.bytes_held = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._ages)

    def take(self, place: Place, offset: int) -> tuple[Window, bytes] | None:
        """A verified frame of a block, as it was opened or as its file has it, and its window."""
        for window in self._windows.get(place, ()):
            frame = window.take(offset)
            if frame is not None:
                self.hits += 1
                return window, frame
        return None

    def size_at(self, place: Place, number: int) -> int:
        """The size in bytes of the window to read from this frame on, which was missed; 0: read the frame alone."""
        return min(self._expected.get((*place, number), 0), self._bytes_max)

    def missed(self, place: Place, number: int) -> None:
        """Note that a frame was read alone: its reader may go on with the next one."""
        self._expect((*place, number + 1), FIRST_BYTES)

    def keep(self, place: Place, number: int, window: Window, following: tuple[int, int]) -> None:
        """Keep the window that was read from this frame on; behind it follows a frame with (block, number).

        The oldest ones go where there are too many. One that is larger than all may be together is not kept: its reader
        has taken the frame that it asked for.
        """
        size = self._expected.pop((*place, number), FIRST_BYTES)
        self._expect((place[0], *following), min(2 * size, WINDOW_BYTES_MAX))
        if window.bytes_held <= self._bytes_max:
            self._ages[window] = place
            self._windows.setdefault(place, []).append(window)
            self.bytes_held += window.bytes_held
            self._shrink()

    def keep_opened(self, window: Window, offset: int, frame: bytes) -> None:
        """Keep a frame that is stored in another form, for the next time: to decrypt or unpack it takes long."""
        if window in self._ages and offset not in window.opened:
            window.opened[offset] = frame
            self.bytes_held += len(frame) + FRAME_OVERHEAD_BYTES
            self._shrink()

    def drop_block(self, place: Place) -> None:
        """Drop the windows of a block: its bytes or its table change."""
        for window in list(self._windows.get(place, ())):
            self._drop(window)

    def drop_log(self, log: int) -> None:
        """Drop the windows of a log that is closed.

        A repair closes its log in another thread: no reader has asked it by place, so there is nothing to drop,
        and copying the keys is one step for the thread that uses the other logs.
        """
        for place in list(self._windows):
            if place[0] == log:
                self.drop_block(place)

    def clear(self) -> None:
        """Drop everything: memory is short."""
        self._windows.clear()
        self._ages.clear()
        self._expected.clear()
        self.bytes_held = 0

    def _expect(self, key: tuple[int, int, int], size: int) -> None:
        self._expected[key] = size
        if len(self._expected) > READERS_MAX:
            self._expected.popitem(last=False)

    def _shrink(self) -> None:
        while self.bytes_held > self._bytes_max:
            self._drop(next(iter(self._ages)))

    def _drop(self, window: Window) -> None:
        place = self._ages.pop(window)
        self.bytes_held -= window.bytes_held + FRAME_OVERHEAD_BYTES * len(window.opened)
        self.bytes_held -= sum(map(len, window.opened.values()))
        left = self._windows[place]
        left.remove(window)
        if not left:
            del self._windows[place]
