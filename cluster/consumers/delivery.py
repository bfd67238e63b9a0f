"""A run of deliveries to one place, in the making: messages are added one by one, with what each must say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.ports import DeliveryRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@attrs.define(eq=False)
class Run:
    """A delivery run in the making."""

    to: bytes
    pin_id: str | None = None
    stream_seqs: list[int] = attrs.Factory(list)
    consumer_seqs: list[int] = attrs.Factory(list)
    counts: list[int] = attrs.Factory(list)
    nums_pending: list[int] = attrs.Factory(list)
    requests: list[object] = attrs.Factory(list)
    sizes: list[int] = attrs.Factory(list)

    def add(  # noqa: PLR0913, PLR0917  (one for each column)
        self, stream_seq: int, consumer_seq: int, count: int, num_pending: int, request: object, size: int
    ) -> None:
        """One more message: `request` is whose it is, None for a push consumer's; `size` what it was counted as."""
        self.stream_seqs.append(stream_seq)
        self.consumer_seqs.append(consumer_seq)
        self.counts.append(count)
        self.nums_pending.append(num_pending)
        self.requests.append(request)
        self.sizes.append(size)

    def finish(self, ack_prefix: bytes, *, headers_only: bool) -> DeliveryRun:
        """The run, complete."""
        return DeliveryRun(
            to=self.to,
            ack_prefix=ack_prefix,
            stream_seqs=self.stream_seqs,
            consumer_seqs=self.consumer_seqs,
            counts=self.counts,
            nums_pending=self.nums_pending,
            headers_only=headers_only,
            pin_id=self.pin_id,
            requests=self.requests,
            sizes=self.sizes,
        )


def counted_for(run: DeliveryRun, gone: Sequence[int], size_of: Callable[[int], int]) -> int:
    """Bytes that were counted for the messages at these places of a run, which are gone from the stream.

    `size_of` says what the message at a place that is still there was counted as.
    """
    if len(run.sizes) != 1 or len(run.stream_seqs) == 1:
        return sum(run.sizes[place] for place in gone) if run.sizes else 0
    missing = set(gone)
    return run.sizes[0] - sum(size_of(place) for place in range(len(run.stream_seqs)) if place not in missing)
