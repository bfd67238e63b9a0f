"""The form in which an origin's messages are stored: under which subjects, with which headers.

Pure: what `random` draws is handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model import message
from jetraft.store.model.mapping.transforming import SUBJECT_BYTES_MAX, transform_between, transformed
from jetraft.store.model.mapping.transforms import PieceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.store.model.config import SubjectTransform
    from jetraft.store.model.mapping.transforms import Transform

REMEMBERED_MAX: Final = 4096  # subjects of one origin whose change is remembered,
REMEMBERED_BYTES_MAX: Final = 256  # and no longer than this: 2 MiB at most
EXPECTED: Final = b"Nats-Expected-"  # what a publisher expected was of the origin


def without_expectations(hdr: bytes, *names: bytes) -> bytes:
    """The headers without what a publisher expected of the origin, and without these."""
    if EXPECTED not in hdr and not any(name in hdr for name in names):
        return hdr
    expected = [name for name, _ in message.items(hdr) if name.startswith(EXPECTED)]
    return message.strip(hdr, *expected, *names)


class SubjectChanges:
    """The transforms of one origin: the first whose source matches counts, and one without a destination filters.

    What they make of a subject is what the stream's own transform (`then`) is given.
    """

    def __init__(
        self,
        transforms: Sequence[SubjectTransform],
        draw: Callable[[int], int],
        then: SubjectTransform | None = None,
    ) -> None:
        """`draw(n)` returns a number below n."""
        found = [transform_between(transform.src, transform.dest) for transform in transforms]
        self._transforms = [transform for transform in found if transform is not None]
        self._draw = draw
        self._then: Transform | None = None
        self._remembered: dict[bytes, bytes] = {}
        self.follow(then)

    def follow(self, then: SubjectTransform | None) -> None:
        """The stream's own transform is this one from now on."""
        self._then = None if then is None else transform_between(then.src, then.dest)
        self._remembered.clear()
        changes = [*self._transforms, *([] if self._then is None else [self._then])]
        self._is_drawn = any(piece.kind is PieceKind.RANDOM for change in changes for piece in change.pieces)

    def __bool__(self) -> bool:
        return bool(self._transforms) or self._then is not None

    def of(self, subject: bytes) -> bytes:
        """The subject that one becomes."""
        found = self._remembered.get(subject)
        if found is not None:
            return found
        found = self._changed(subject)
        if not self._is_drawn and len(subject) <= REMEMBERED_BYTES_MAX:
            if len(self._remembered) == REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[subject] = found
        return found

    def _changed(self, subject: bytes) -> bytes:
        for transform in self._transforms:
            changed = transformed(transform, subject, self._draw)
            if changed is not None:
                subject = changed
                break
        if self._then is None:
            return subject
        stored = transformed(self._then, subject, self._draw)
        return subject if stored is None or len(stored) > SUBJECT_BYTES_MAX else stored
