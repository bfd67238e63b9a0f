"""The window of duplicates: which `Nats-Msg-Id`s a stream has stored lately, and under which sequence. Pure.

Every replica feeds it while it applies messages and moves it by their timestamps, never by a clock, so all of them
remember the same ids at the same log index. A message without an id never comes here. What is remembered is bounded
by the window times the publish rate, as in nats-server (stream.go, storeMsgId and purgeMsgIds).

Invariants: `_order` holds the ids in the order of their timestamps, which never go back; an id that was stored again
stands in it twice, and the sequence in `_ids` says which one counts.
"""

from collections import deque

import attrs
import msgpack

_SNAPSHOT_VERSION = 1


@attrs.frozen(kw_only=True, slots=True)
class DedupStatistics:
    """Figures of one window."""

    ids: int
    window_ns: int
    horizon_ts_ns: int  # ids stored before it are forgotten


class Dedup:
    """Message ids of the last `window_ns` nanoseconds of message time; 0 remembers nothing."""

    def __init__(self, window_ns: int) -> None:
        assert window_ns >= 0
        self._window_ns = window_ns
        self._ids: dict[bytes, tuple[int, int]] = {}  # id -> (stream sequence, timestamp)
        self._order: deque[tuple[int, int, bytes]] = deque()  # (timestamp, sequence, id)
        self._horizon_ts_ns = 0

    def check(self, msg_id: bytes, *, now_ts_ns: int | None = None) -> int | None:
        """The sequence under which an id was stored inside the window, None when it is new.

        `now_ts_ns` is for the leader, whose clock may be ahead of the last message; replicas leave it out.
        """
        found = self._ids.get(msg_id)
        if found is None:
            return None
        seq, ts_ns = found
        if now_ts_ns is not None and ts_ns < now_ts_ns - self._window_ns:
            return None
        return seq

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """Remember an id as stored. Timestamps never go back; an id that is known gets the new sequence."""
        if self._window_ns == 0:
            return
        assert not self._order or ts_ns >= self._order[-1][0]
        self._ids[msg_id] = (seq, ts_ns)
        self._order.append((ts_ns, seq, msg_id))

    def expire(self, now_ts_ns: int) -> int:
        """Forget the ids stored before now minus the window; return how many."""
        horizon = now_ts_ns - self._window_ns
        if horizon <= self._horizon_ts_ns:
            return 0
        self._horizon_ts_ns = horizon
        forgotten = 0
        while self._order and self._order[0][0] < horizon:
            _, seq, msg_id = self._order.popleft()
            known = self._ids.get(msg_id)
            if known is not None and known[0] == seq:
                del self._ids[msg_id]
                forgotten += 1
        return forgotten

    def set_window(self, window_ns: int) -> None:
        """Change the window; a wider one does not bring back what is forgotten."""
        assert window_ns >= 0
        if window_ns < self._window_ns and self._order:
            last_ts_ns = max(self._order[-1][0], self._horizon_ts_ns + self._window_ns)
            self._window_ns = window_ns
            self.expire(last_ts_ns)
        self._window_ns = window_ns
        if window_ns == 0:
            self._ids.clear()
            self._order.clear()

    def snapshot(self) -> bytes:
        """Everything remembered, for `restore`."""
        entries = [entry for entry in self._order if self._ids.get(entry[2], (0, 0))[0] == entry[1]]
        stamps, seqs, ids = zip(*entries, strict=True) if entries else ((), (), ())
        packed: bytes = msgpack.packb((_SNAPSHOT_VERSION, self._window_ns, self._horizon_ts_ns, ids, seqs, stamps))
        return packed

    @classmethod
    def restore(cls, state: bytes) -> "Dedup":
        """The window that `snapshot` was taken of. Raises ValueError when the bytes are not one."""
        version, window_ns, horizon_ts_ns, ids, seqs, stamps = msgpack.unpackb(state)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"snapshot version {version} of the window of duplicates")
        window = cls(window_ns)
        for msg_id, seq, ts_ns in zip(ids, seqs, stamps, strict=True):
            window.add(msg_id, seq, ts_ns)
        window._horizon_ts_ns = horizon_ts_ns
        return window

    def __len__(self) -> int:
        return len(self._ids)

    def statistics(self) -> DedupStatistics:
        """Figures for monitoring and tests."""
        return DedupStatistics(ids=len(self._ids), window_ns=self._window_ns, horizon_ts_ns=self._horizon_ts_ns)
