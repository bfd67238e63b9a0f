"""Which stream has claimed which subjects; answers "does this overlap with an existing stream?" without a full scan.

Patterns are bucketed by their first token, because two patterns can only overlap when their first tokens are equal or
one of them is a wildcard. A cluster with 100,000 streams on distinct prefixes therefore looks at one bucket.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from jetraft.store.model.subject import overlaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WILDCARDS: Final = (b"*", b">")


class SubjectClaims:
    """The claimed patterns of one account, each with the name of its stream."""

    def __init__(self) -> None:
        self._by_first_token: defaultdict[bytes, dict[tuple[str, bytes], None]] = defaultdict(dict)

    def add(self, name: str, patterns: Iterable[bytes]) -> None:
        """Record the patterns of a stream."""
        for pattern in patterns:
            self._by_first_token[_first_token(pattern)][name, pattern] = None

    def remove(self, name: str, patterns: Iterable[bytes]) -> None:
        """Forget patterns that were added."""
        for pattern in patterns:
            token = _first_token(pattern)
            bucket = self._by_first_token[token]
            del bucket[name, pattern]
            if not bucket:
                del self._by_first_token[token]

    def overlapping(self, pattern: bytes, *, ignore: str | None = None) -> Iterator[str]:
        """Yield the names of streams with a pattern that overlaps this one, except the stream `ignore`."""
        for bucket in self._candidates(_first_token(pattern)):
            for name, claimed in bucket:
                if name != ignore and overlaps(claimed, pattern):
                    yield name

    def _candidates(self, token: bytes) -> Iterator[Iterable[tuple[str, bytes]]]:
        tokens = list(self._by_first_token) if token in WILDCARDS else [token, *WILDCARDS]
        for candidate in tokens:
            bucket = self._by_first_token.get(candidate)
            if bucket is not None:
                yield bucket


def _first_token(pattern: bytes) -> bytes:
    return pattern.split(b".", 1)[0]
