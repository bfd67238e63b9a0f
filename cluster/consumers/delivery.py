"""A run of deliveries to one place, in the making: messages are added one by one, with what each must say."""

from __future__ import annotations

import attrs

from jetraft.cluster.ports import DeliveryRun


@attrs.define(eq=False)
class Run:
    """A delivery run in the making."""

    to: bytes
    pin_id: str | None = None
    stream_seqs: list[int] = attrs.Factory(list)
    consumer_seqs: list[int] = attrs.Factory(list)
    counts: list[int] = attrs.Factory(list)
    nums_pending: list[int] = attrs.Factory(list)

    def add(self, stream_seq: int, consumer_seq: int, count: int, num_pending: int) -> None:
        """One more message."""
        self.stream_seqs.append(stream_seq)
        self.consumer_seqs.append(consumer_seq)
        self.counts.append(count)
        self.nums_pending.append(num_pending)

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
        )
