"""The window of duplicates: the `Nats-Msg-Id`s that a stream has stored recently, and their sequences. Pure.

Each replica adds ids as it applies messages, and moves the window by their timestamps, never by a clock, so all
replicas have the same ids at the same log index. Messages without an id are not added. The number of ids is bounded by
the window times the publish rate, as in nats-server (stream.go, storeMsgId and purgeMsgIds).

The ids are stored in `_idwindow.pyx`, in the order of their timestamps, which never decrease.
"""

from typing import Final

import attrs
import msgpack

from jetraft.store.stream._idwindow import IdWindow

EXPIRED_MAX: Final = 10_000  # ids that are removed for one message, 0.1 us each
_SNAPSHOT_VERSION = 2


@attrs.frozen(kw_only=True, slots=True)
class DedupStatistics:
    """Figures of one window."""

    ids: int
    window_ns: int
    horizon_ts_ns: int  # ids stored before it have expired


class Dedup:
    """The message ids of the last `window_ns` nanoseconds of message time; none if it is 0."""

    def __init__(self, window_ns: int) -> None:
        assert window_ns >= 0
        self._window_ns = window_ns
        self._ids = IdWindow()
        self._horizon_ts_ns = 0

    def check(self, msg_id: bytes, *, now_ts_ns: int | None = None) -> int | None:
        """The sequence of an id that was stored within the window; None when it is new.

        `now_ts_ns` is for the leader, whose clock may be ahead of the last message; replicas omit it.
        """
        found = self._ids.get(msg_id)
        if found is None:
            return None
        seq, ts_ns = found
        if ts_ns < self._horizon_ts_ns:  # it is still to be removed
            return None
        if now_ts_ns is not None and ts_ns < now_ts_ns - self._window_ns:
            return None
        return seq

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """Add an id. Timestamps never decrease; a known id gets the new sequence."""
        if self._window_ns == 0:
            return
        last_ts_ns = self._ids.last_ts_ns()
        assert last_ts_ns is None or ts_ns >= last_ts_ns
        self._ids.add(msg_id, seq, ts_ns)

    def expire(self, now_ts_ns: int) -> int:
        """Forget the ids stored before `now_ts_ns` minus the window; return how many were removed.

        EXPIRED_MAX at most: the others are unknown too, and are removed by the next calls.
        """
        self._horizon_ts_ns = max(self._horizon_ts_ns, now_ts_ns - self._window_ns)
        return self._ids.forget_before(self._horizon_ts_ns, EXPIRED_MAX)

    def set_window(self, window_ns: int) -> None:
        """Change the window; a wider one does not restore expired ids."""
        assert window_ns >= 0
        last_ts_ns = self._ids.last_ts_ns()
        if window_ns < self._window_ns and last_ts_ns is not None:
            last_ts_ns = max(last_ts_ns, self._horizon_ts_ns + self._window_ns)
            self._window_ns = window_ns
            self.expire(last_ts_ns)
        self._window_ns = window_ns
        if window_ns == 0:
            self._ids.clear()

    def snapshot(self) -> bytes:
        """All ids as bytes, for `restore`."""
        state = (_SNAPSHOT_VERSION, self._window_ns, self._horizon_ts_ns, self._ids.pack())
        packed: bytes = msgpack.packb(state)
        return packed

    @classmethod
    def restore(cls, state: bytes) -> "Dedup":
        """The window of a `snapshot`. Raises ValueError when the bytes are not one."""
        version, *rest = msgpack.unpackb(state)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"window of duplicates: unknown snapshot version {version}")
        window_ns, horizon_ts_ns, ids = rest
        window = cls(window_ns)
        window._ids.unpack(ids)
        window._horizon_ts_ns = horizon_ts_ns
        return window

    def __len__(self) -> int:
        return self._ids.known

    def statistics(self) -> DedupStatistics:
        """Figures for monitoring and tests."""
        return DedupStatistics(ids=self._ids.known, window_ns=self._window_ns, horizon_ts_ns=self._horizon_ts_ns)
