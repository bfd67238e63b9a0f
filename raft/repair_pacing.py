"""When a member that waits for damaged entries asks the others again. Pure.

Its group has no quorum perhaps until it has them, so the first questions follow each other quickly; who is really away
is asked every few seconds. And there is news: whoever did not answer when it was asked, and is then heard of with a
word about the same group, is there now, and is worth asking at once. Its word counts once until it has answered: who
talks and cannot be asked, over a link that works one way, does not make anybody ask without a rest.
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
    """What is known of the members that one log asks."""

    silent: set[NodeId] = attrs.Factory(set)  # in the present, or last, attempt
    spent: set[NodeId] = attrs.Factory(set)  # were heard of, and have not answered since


class Silence(Generic[K]):
    """Who does not answer, by any key of a log that waits."""

    def __init__(self) -> None:
        self._waiting: dict[K, _Others] = {}

    def begin(self, key: K) -> None:
        """An attempt begins: everybody is asked anew."""
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
