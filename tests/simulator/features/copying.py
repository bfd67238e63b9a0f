"""A mirror, or a stream with a source, of another group: leader changes, restarts and power cuts on either side.

Two runs in one world: the origin is a stream of its own nodes, with all faults of a run, and the copy is another one.
Between them are the real readers of origins and the real push consumers. A copy has what the origin has committed, in
the order of the origin, each message once; at the end nothing is missing that the origin still has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.state import commands
from jetraft.store.model import message
from jetraft.store.model.config import RetentionPolicy, StreamSource
from tests.simulator.features.coroutines import proposals_of_the_world
from tests.simulator.features.feature import Feature, Stored
from tests.simulator.world import ViolationError, World

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    from jetraft.cluster.state.commands import StreamCommand
    from jetraft.store.model.config import StreamConfig
    from tests.simulator.checkers import Checker

COPY = "COPY"
OWN_FROM = 1_000_000  # the numbers of messages that clients publish into a stream with a source


class Origin(Feature):
    """A stream that keeps everything."""


class ShortOrigin(Feature):
    """A stream that removes what is old."""

    def configure(self, config: StreamConfig) -> StreamConfig:
        return attrs.evolve(config, retention=RetentionPolicy.LIMITS)


class Copies(Feature):
    """What the copying stream is, and what its log may have."""

    works = False
    is_mirror = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._origin: Checker | None = None
        self._copied = 0  # the origin's last sequence in the log
        self._removes = False
        self.publishes = not self.is_mirror

    def follow(self, origin: Checker, *, removes: bool) -> None:
        """The memory of the other run; an origin that removes what is old may be read too late."""
        self._origin, self._removes = origin, removes

    def configure(self, config: StreamConfig) -> StreamConfig:
        source = StreamSource(name="S")
        config = attrs.evolve(super().configure(config), name=COPY)
        if self.is_mirror:
            return attrs.evolve(config, mirror=source, subjects=())
        return attrs.evolve(config, sources=(source,))

    def patches(self) -> contextlib.AbstractContextManager[object]:
        return proposals_of_the_world()

    def on_messages(self, messages: Sequence[Stored]) -> None:
        for stored in messages:
            seq = stored.seq if self.is_mirror else self._source_seq(stored)
            if seq:
                self._on_copy(seq, stored)

    def _source_seq(self, stored: Stored) -> int:
        value = message.get(stored.hdr, message.STREAM_SOURCE) if stored.hdr else None
        return int(value.split()[1]) if value else 0

    def _on_copy(self, seq: int, stored: Stored) -> None:
        assert self._origin is not None
        if self._origin.messages.get(seq) != stored.payload:
            raise ViolationError(f"message {stored.seq} is to be a copy of {seq}, which is another one")
        if seq <= self._copied:
            raise ViolationError(f"message {seq} of the origin is copied after {self._copied}")
        missed = [one for one in range(self._copied + 1, seq) if one in self._origin.messages]
        if missed and not self._removes:
            raise ViolationError(f"messages {missed} of the origin are left out before {seq}")
        self._copied = seq
        self.world.counts["copied"] += 1

    def on_stream(self, command: StreamCommand) -> None:
        if isinstance(command, commands.SkipTo):
            self.world.counts["skips"] += 1

    def judge(self) -> str | None:
        assert self._origin is not None
        last_seq = max(self._origin.messages, default=0)
        if self._copied < last_seq:
            return f"liveness: the origin has {last_seq} messages, {self._copied} are copied"
        return None


class SourcedCopies(Copies):
    """A stream with a source, and publishers of its own."""

    is_mirror = False
