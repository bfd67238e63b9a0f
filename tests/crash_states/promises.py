"""What a group may rely on at a moment: what is durable, and what may have become so.

Every change of a log gives a `View` and the log's token after it. Once the log says that a token is durable, its view
is the least that any crash must leave; views after it are on their way, and a crash may leave any of them, or a part.
"""

from typing import TYPE_CHECKING

import attrs

from jetraft.store.port import HardState
from tests.crash_states.histories import Applied

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_HARD_STATE = HardState(term=0, vote=None)
NO_CHECKPOINT = -1


@attrs.frozen
class View:
    """What a log holds: its entries from index 1 on, those no longer kept included, and term and vote."""

    history: tuple[Applied, ...] = ()
    hard_state: HardState = NO_HARD_STATE


@attrs.frozen(kw_only=True)
class Promise:
    """What a crash at this moment must leave."""

    durable: View = View()
    on_their_way: tuple[View, ...] = ()
    commit: int = 0
    checkpoint: int = NO_CHECKPOINT  # the index of the newest that is durable; 0: the members that a log begins with
    erasing: frozenset[int] = frozenset()  # sequences that may read as zeros
    erased: frozenset[int] = frozenset()  # sequences that must

    @property
    def views(self) -> tuple[View, ...]:
        """Of which the log must be one, or part of one."""
        return (self.durable, *self.on_their_way)


class Promises:
    """Follows the tokens of one log."""

    def __init__(self, found: Promise) -> None:
        self._settled = found
        self._views: list[tuple[int, View]] = []
        self._checkpoints: list[tuple[int, int]] = []
        self._erasing: list[tuple[int, int]] = []
        self.commit = found.commit

    def changed(self, token: int, view: View) -> None:
        """The log holds this at `token`."""
        self._views.append((token, view))

    def saved(self, token: int, index: int) -> None:
        """A checkpoint at `index` is on its way."""
        self._checkpoints.append((token, index))

    def erasing(self, token: int, seqs: "Iterable[int]") -> None:
        """The content of these messages is being overwritten."""
        self._erasing += [(token, seq) for seq in seqs]
        self._settled = attrs.evolve(self._settled, erasing=self._settled.erasing | {seq for _, seq in self._erasing})

    def at(self, durable_token: int) -> Promise:
        """What holds once the log is durable up to a token."""
        views = [view for token, view in self._views if token <= durable_token]
        self._views = self._views[len(views) :]
        checkpoints = [index for token, index in self._checkpoints if token <= durable_token]
        self._checkpoints = self._checkpoints[len(checkpoints) :]
        erased = {seq for token, seq in self._erasing if token <= durable_token}
        self._erasing = [item for item in self._erasing if item[0] > durable_token]
        before = self._settled
        self._settled = attrs.evolve(
            before,
            durable=views[-1] if views else before.durable,
            on_their_way=tuple(view for _, view in self._views),
            checkpoint=checkpoints[-1] if checkpoints else before.checkpoint,
            erased=before.erased | erased if erased else before.erased,
            commit=self.commit,
        )
        return self._settled
