"""Which stream has claimed which subjects; answers "does this overlap with an existing stream?" without a full scan.

The patterns of an account are a tree by their tokens, and a question walks down the branches that its own tokens and
the wildcards lead to. So it costs as many steps as the pattern has tokens, whether the streams differ in their first
token or in their last; only a wildcard in the question looks at all branches of its level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model.subject import ANY_TAIL, ANY_TOKEN, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class _Branch:
    """What follows the tokens that lead here. Streams may share a pattern: overlaps are refused elsewhere."""

    __slots__ = ("branches", "names")

    def __init__(self) -> None:
        self.branches: dict[bytes, _Branch] | None = None
        self.names: dict[str, None] | None = None  # of the streams whose pattern ends here

    def grown(self, token: bytes) -> _Branch:
        """The branch of a token, made where it is missing."""
        if self.branches is None:
            self.branches = {}
        branch = self.branches.get(token)
        if branch is None:
            branch = self.branches[token] = _Branch()
        return branch

    def after(self, token: bytes) -> _Branch | None:
        """The branch of a token, if there is one."""
        return None if self.branches is None else self.branches.get(token)

    def all_names(self) -> Iterator[str]:
        """The streams of all patterns that end here or further down."""
        yield from self.names or ()
        for branch in (self.branches or {}).values():
            yield from branch.all_names()

    @property
    def is_bare(self) -> bool:
        """Whether nothing ends here or further down."""
        return not self.names and not self.branches


class SubjectClaims:
    """The claimed patterns of one account, each with the name of its stream."""

    def __init__(self) -> None:
        self._root = _Branch()

    def add(self, name: str, patterns: Iterable[bytes]) -> None:
        """Record the patterns of a stream."""
        for pattern in patterns:
            branch = self._root
            for token in tokens(pattern):
                branch = branch.grown(token)
            if branch.names is None:
                branch.names = {}
            branch.names[name] = None

    def remove(self, name: str, patterns: Iterable[bytes]) -> None:
        """Forget patterns that were added."""
        for pattern in dict.fromkeys(patterns):  # requests cannot repeat one; a row of the log must not stop the group
            _remove(self._root, name, tokens(pattern), 0)

    def overlapping(self, pattern: bytes, *, ignore: str | None = None) -> Iterator[str]:
        """Yield the names of streams with a pattern that overlaps this one, except the stream `ignore`."""
        for name in _overlapping(self._root, tokens(pattern), 0):
            if name != ignore:
                yield name


def _remove(branch: _Branch, name: str, path: Sequence[bytes], depth: int) -> None:
    if depth == len(path):
        assert branch.names is not None
        del branch.names[name]
        return
    assert branch.branches is not None
    token = path[depth]
    child = branch.branches[token]
    _remove(child, name, path, depth + 1)
    if child.is_bare:
        del branch.branches[token]


def _overlapping(branch: _Branch, path: Sequence[bytes], depth: int) -> Iterator[str]:
    """The streams below `branch` whose patterns overlap what is left of `path`."""
    if depth == len(path):
        yield from branch.names or ()
        return
    token, branches = path[depth], branch.branches or {}
    if token == ANY_TAIL:
        for child in branches.values():
            yield from child.all_names()
        return
    tail = branches.get(ANY_TAIL)
    if tail is not None:
        yield from tail.names or ()
    if token == ANY_TOKEN:
        children = [child for key, child in branches.items() if key != ANY_TAIL]
    else:
        children = [child for child in (branch.after(token), branch.after(ANY_TOKEN)) if child is not None]
    for child in children:
        yield from _overlapping(child, path, depth + 1)
