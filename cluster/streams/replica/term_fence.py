"""The way back to serving for a leader that has lost its mandate and leads its group still, in the same term.

All that it has proposed in the term has to be applied first: admission begins behind that. An entry without content is
proposed, the fence, and the term is open again when it has passed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.raft.group import Group


@attrs.define(eq=False)
class TermFence:
    """The fence of one replica. `passed` is called when the term is open again."""

    passed: Callable[[], None]
    _closed_term: int = 0  # in which this replica led and lost its mandate
    _waited_for: object = None  # tells the fence that counts from those before it; None: there is none yet

    def close(self, term: int) -> None:
        """The mandate was lost in this term; a fence that was proposed before does not count."""
        self._closed_term, self._waited_for = term, None

    def is_closed(self, term: int) -> bool:
        """Whether this replica may not serve in a term yet."""
        return self._closed_term == term

    def wait(self, group: Group) -> None:
        """Propose the fence, unless it is on its way."""
        if self._waited_for is None:
            self._waited_for = fence = object()
            group.propose(Proposal(kind=Kind.NOOP), partial(self._ended, fence))

    def _ended(self, fence: object, outcome: Outcome, _result: object) -> None:
        if fence is not self._waited_for:
            return
        self._waited_for = None
        if outcome is Outcome.OK:
            self._closed_term = 0
            self.passed()
