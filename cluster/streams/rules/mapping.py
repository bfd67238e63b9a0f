"""The subject transform of a stream: published messages get the subjects under which the stream stores them.

It comes before everything else that is asked of a message: limits, expectations and de-duplication see the subject as
it is stored, and so do readers. A subject that does not match the transform's source stays. The leader maps, so that
what `random` draws is in the log. Only streams with a transform have a `SubjectMapping`. Source: stream.go
(processJetStreamMsg), observed on 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.store.model.mapping.transforming import SUBJECT_BYTES_MAX, transform_between, transformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.mapping.transforms import Transform


class SubjectMapping:
    """Maps the subjects of captured messages."""

    def __init__(self, transform: Transform, draw: Callable[[int], int]) -> None:
        self._transform = transform
        self._draw = draw

    @classmethod
    def of(cls, config: StreamConfig, draw: Callable[[int], int]) -> Self | None:
        """That of a stream; None when it stores subjects as they come. `draw(n)` returns a number below n."""
        rule = config.subject_transform
        transform = None if rule is None else transform_between(rule.src, rule.dest)
        return None if transform is None else cls(transform, draw)

    def mapped(self, batch: bytes) -> bytes:
        """A batch of capture records, with the subjects that are stored."""
        made = []
        for found in captures(batch):
            subject = transformed(self._transform, found.subject, self._draw)
            if subject is None or len(subject) > SUBJECT_BYTES_MAX:
                made.append(found.record)
            else:
                made.append(encode_capture(subject, found.reply, found.hdr, found.payload, found.origin))
        return b"".join(made)
