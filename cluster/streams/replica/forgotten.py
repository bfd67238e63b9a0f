"""Writes into a stream's log that members have forgotten messages, which the one that leads may not have.

Every replica learns it by applying the entry. It is due until a leader has it committed, or, if all have forgotten,
until an entry says that; each call of `tell` compares, so that it may be called at any time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.state import commands
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind

if TYPE_CHECKING:
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group


@attrs.define(eq=False)
class ForgottenMessages:
    """The news of one replica. `_by_all` is None when there is none to tell."""

    _site: Site
    _machine: StreamMachine
    _by_all: bool | None = None
    _is_on_its_way: bool = False

    def note(self, *, by_all: bool) -> None:
        """Have it told, once this replica leads. That all have forgotten is never taken back."""
        self._by_all = by_all or bool(self._by_all)

    def tell(self, group: Group) -> None:
        """Propose the entry, if there is news, this replica leads, and none is on its way."""
        if self._by_all is None or self._is_on_its_way or not group.is_leader:
            return
        level = self._machine.level(self._site.level_in_use())
        note = commands.at_level(commands.NoteForgotten(self._site.clock.unix_ns(), self._by_all), level)
        if note is not None:  # else other members do not know of it: it waits until they do
            self._is_on_its_way = True
            entry = Proposal(kind=Kind.STREAM_OP, body=commands.encode_stream_command(note))
            group.propose(entry, partial(self._told, group, self._by_all))

    def _told(self, group: Group, by_all: bool, outcome: Outcome, _result: object) -> None:  # noqa: FBT001  (a callback's)
        self._is_on_its_way = False
        if outcome is Outcome.OK and self._by_all == by_all:
            self._by_all = None
        elif outcome is Outcome.OK:
            self.tell(group)  # that all have forgotten, which was learnt meanwhile
