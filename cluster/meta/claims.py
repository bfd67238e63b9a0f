"""Which stream of an account has claimed which subjects; answers "is this taken?" without a full scan.

The patterns of all streams are one tree, and those of a new stream are another: they meet in one walk down both, so
what a check costs is what the two trees cost to build (store/model/_patterns.pyx). Patterns that would take more are
refused before they are proposed; the check of an entry that is applied has no such bound, as all nodes must agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model._patterns import PatternTree

if TYPE_CHECKING:
    from collections.abc import Iterable


class SubjectClaims:
    """The claimed patterns of one account, each with the name of its stream."""

    def __init__(self) -> None:
        self._tree: PatternTree[str] = PatternTree()

    def add(self, name: str, patterns: Iterable[bytes]) -> None:
        """Record the patterns of a stream."""
        for pattern in patterns:
            self._tree.add(pattern, name)

    def remove(self, name: str, patterns: Iterable[bytes]) -> None:
        """Forget patterns that were added."""
        for pattern in patterns:
            self._tree.remove(pattern, name)

    def are_taken(self, patterns: PatternTree[bool], *, ignore: str | None = None, bounded: bool = False) -> bool:
        """Whether one of these patterns overlaps one of a stream other than `ignore`.

        Raises TooManyCombinationsError where it is `bounded`.
        """
        return self._tree.meets(patterns, but=ignore, bounded=bounded)

    def overlapping(self, pattern: bytes) -> set[str]:
        """The names of the streams that have a pattern which overlaps this one."""
        return set(self._tree.overlapping(pattern))
