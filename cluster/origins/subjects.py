"""What an origin's messages are stored as: under which subjects, with which headers.

Pure: what `random` draws is handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model import message
from jetraft.store.model.transforming import transform_between, transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.store.model.config import SubjectTransform


EXPECTED: Final = b"Nats-Expected-"  # what a publisher expected was of the origin


def without_expectations(hdr: bytes, *names: bytes) -> bytes:
    """The headers without what a publisher expected of the origin, and without these."""
    if EXPECTED not in hdr and not any(name in hdr for name in names):
        return hdr
    expected = [name for name, _ in message.items(hdr) if name.startswith(EXPECTED)]
    return message.strip(hdr, *expected, *names)


class SubjectChanges:
    """The transforms of one origin: the first whose source matches counts, and one without a destination filters."""

    def __init__(self, transforms: Sequence[SubjectTransform], draw: Callable[[int], int]) -> None:
        """`draw(n)` returns a number below n."""
        found = [transform_between(transform.src, transform.dest) for transform in transforms]
        self._transforms = [transform for transform in found if transform is not None]
        self._draw = draw

    def __bool__(self) -> bool:
        return bool(self._transforms)

    def of(self, subject: bytes) -> bytes:
        """What a subject becomes."""
        for transform in self._transforms:
            changed = transformed(transform, subject, self._draw)
            if changed is not None:
                return changed
        return subject
