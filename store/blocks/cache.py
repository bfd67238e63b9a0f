"""An LRU cache of frames, shared by all logs of a node and bounded in bytes (decision 18).

A frame enters when it is appended, so that subscribers near the tail cause no reads, and when it was read alone and its
checksum was verified. Cached frames are not verified again. What is read ahead of sequential readers is in windows
(store/blocks/read_ahead.py), which take a part of the same bytes.
"""

from typing import Final

import attrs

from jetraft.store.blocks._growing import FRAME_OVERHEAD_BYTES, KeptFrames
from jetraft.store.blocks.read_ahead import ReadAhead

CACHE_BYTES_MAX: Final = 256 << 20
WINDOWS_SHARE: Final = 4  # of the bytes, at most: 12 MiB of 48 are the windows of 48 readers

Key = tuple[int, int, int]  # log, block, offset


@attrs.frozen(kw_only=True, slots=True)
class CacheStatistics:
    """A snapshot of a cache's figures."""

    frames: int
    windows: int  # read ahead of sequential readers
    bytes_held: int  # by both, with overhead
    window_bytes: int
    bytes_max: int
    hits: int
    misses: int  # of frames; those that a window had are in `window_hits`
    window_hits: int


class BlockCache(KeptFrames):
    """A map from (log, block, offset) to the bytes of a frame, and windows: at most `bytes_max` bytes with overhead."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        super().__init__(bytes_max, ReadAhead(bytes_max // WINDOWS_SHARE))
        self._logs = 0
        self._hits = 0
        self._misses = 0

    def register_log(self) -> int:
        """A unique number for the first part of a log's keys."""
        self._logs += 1
        return self._logs

    def get(self, key: Key) -> bytes | None:
        """The frame, which becomes the most recently used one; None when it is not cached."""
        frame = self._frames.get(key)
        if frame is None:
            self._misses += 1
            return None
        self._hits += 1
        self._frames.move_to_end(key)
        return frame

    def make_room(self) -> None:
        """Evict the least recently used frames where frames and windows have grown beyond the bound."""
        room = self._bytes_max - self.ahead.bytes_held
        while self._bytes_held > room and self._frames:
            _, gone = self._frames.popitem(last=False)
            self._bytes_held -= len(gone) + FRAME_OVERHEAD_BYTES

    def replace(self, key: Key, frame: bytes) -> None:
        """Replace a cached frame by one of the same length; does nothing when it is not cached."""
        if key in self._frames:
            assert len(self._frames[key]) == len(frame)
            self._frames[key] = frame

    def clear(self) -> None:
        """Forget all frames: memory is short."""
        self.ahead.clear()
        self._frames.clear()
        self._bytes_held = 0

    def statistics(self) -> CacheStatistics:
        """Figures for monitoring and tests."""
        return CacheStatistics(
            frames=len(self._frames),
            windows=len(self.ahead),
            bytes_held=self._bytes_held + self.ahead.bytes_held,
            window_bytes=self.ahead.bytes_held,
            bytes_max=self._bytes_max,
            hits=self._hits,
            misses=self._misses,
            window_hits=self.ahead.hits,
        )
