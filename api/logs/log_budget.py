"""Bounds the lines of each kind in the log: so many at once, then so many an hour, and how many were left out.

A kind is a row of store/model/events.py, or the template of any other line, so that no loop of a client, a peer or a
disk fills the log. nats-server writes every line.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from jetraft.store.model.clock import NS_PER_S, Clock

NS_PER_HOUR: Final = 3600 * NS_PER_S
LEFT_OUT_NS: Final = 600 * NS_PER_S  # from one count of lines that were left out to the next of the same kind
KINDS_MAX: Final = 1024  # those of the source are some hundreds; lines beyond share the last one
OTHERS: Final = "others"


@attrs.define(eq=False)
class _Kind:
    """A token bucket: `lines` may be written now."""

    lines: float
    at_ns: int  # when that was so
    left_out: int = 0  # that no line has told of
    told_ns: int | None = None  # when the last line told of some


@attrs.define(eq=False)
class LogBudget:
    """See the module."""

    clock: Clock
    left_out: int = 0  # since the start, of all kinds
    _kinds: dict[str, _Kind] = attrs.field(factory=dict)
    _waiting: dict[str, None] = attrs.field(factory=dict)  # kinds with lines that no line has told of

    def admits(self, name: str, burst: int, per_hour: int) -> bool:
        """Whether a line of this kind may be written now; it is counted otherwise."""
        now_ns = self.clock.mono_ns()
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                name = OTHERS
            kind = self._kinds.setdefault(name, _Kind(burst, now_ns))
        kind.lines = min(burst, kind.lines + (now_ns - kind.at_ns) * per_hour / NS_PER_HOUR)
        kind.at_ns = now_ns
        if kind.lines >= 1:
            kind.lines -= 1
            return True
        kind.left_out += 1
        self.left_out += 1
        self._waiting[name] = None
        return False

    def take_left_out(self) -> Iterator[tuple[str, int]]:
        """Kinds and how many of their lines were left out, that are to be told of now."""
        now_ns = self.clock.mono_ns()
        for name in list(self._waiting):
            kind = self._kinds[name]
            if kind.told_ns is None or now_ns - kind.told_ns >= LEFT_OUT_NS:
                del self._waiting[name]
                kind.told_ns, count, kind.left_out = now_ns, kind.left_out, 0
                yield name, count
