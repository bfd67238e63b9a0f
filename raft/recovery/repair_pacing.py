"""When a member that waits for damaged entries asks the others again. Pure.

Its group may have no quorum until it has them, so the first questions follow each other quickly; a member that stays
away is asked every few seconds. A member that did not answer, and then sends a message about the same group, is back,
and is asked at once. Such a message counts once until the member has answered: over a link that works in one direction
only, messages arrive and questions fail, and must not be repeated without a pause.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

from jetraft.store.model.ids import NodeId

RESTS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)  # after the first attempt, the second, ...; then always the last

K = TypeVar("K", bound=Hashable)


def rest_s(attempts: int) -> float:
    """How long to wait after so many attempts, in seconds."""
    assert attempts >= 1
    return RESTS_S[min(attempts, len(RESTS_S)) - 1]


@attrs.define(slots=True)
class _Others:
    """The members that one log asks, and how they answered."""

    silent: set[NodeId] = attrs.Factory(set)  # in the present, or last, attempt
    spent: set[NodeId] = attrs.Factory(set)  # were heard of, and have not answered since


class Silence(Generic[K]):
    """The members that do not answer, by any key of a log that waits."""

    def __init__(self) -> None:
        self._waiting: dict[K, _Others] = {}

    def begin(self, key: K) -> None:
        """An attempt begins: all members are asked again."""
        self._waiting.setdefault(key, _Others()).silent.clear()

    def note(self, key: K, node: NodeId, *, answers: bool) -> None:
        """A node was asked, and has said what it has, or not."""
        others = self._waiting.get(key)
        if others is None:
            return  # forgotten while it was asked
        if answers:
            others.spent.discard(node)
        else:
            others.silent.add(node)

    def ends(self, key: K, node: NodeId) -> bool:
        """The node was heard of: whether that is news."""
        others = self._waiting.get(key)
        if others is None or node not in others.silent or node in others.spent:
            return False
        others.spent.add(node)
        return True

    def forget(self, key: K) -> None:
        """The log does not wait any more."""
        self._waiting.pop(key, None)
