"""Messages that passed admission, from their proposal until they are applied, and what is answered to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.streams.puback import duplicate_ack, puback_prefix

if TYPE_CHECKING:
    from jetraft.cluster.streams._admission import RecordBatch
    from jetraft.store.model.api_error import ApiError


@attrs.define(eq=False)
class Publish:
    """Messages that became one proposal, and who waits for its outcome."""

    records: RecordBatch
    msg_ids: list[bytes] = attrs.Factory(list)
    duplicates: list[tuple[bytes, int]] = attrs.Factory(list)  # (reply, sequence): repeats of messages in flight

    def acks(self, stream: bytes, domain: str = "") -> bytes:
        """The positive acks as a batch for `Outbox.send_batch`."""
        acks = self.records.acks(puback_prefix(stream, domain))
        if not self.duplicates:
            return acks
        late = [encode_capture(reply, payload=duplicate_ack(stream, seq, domain)) for reply, seq in self.duplicates]
        return acks + b"".join(late)


@attrs.frozen(slots=True)
class Known:
    """The first copy of a message: its sequence, and its publish while that is in flight."""

    seq: int
    publish: Publish | None


@attrs.frozen(kw_only=True, slots=True)
class TraceOutcome:
    """What was decided about a traced message; the number is that of its trace in this turn."""

    number: int
    subject: str = ""
    no_interest: bool = False
    error: str = ""


@attrs.define(eq=False)
class Admitted:
    """What came of a batch: proposals in order, and answers that need no proposal (refusals, known duplicates)."""

    publishes: list[Publish]
    answers: list[bytes]  # capture records for `Outbox.send_batch`
    traced: list[TraceOutcome] = attrs.Factory(list)


@attrs.frozen(kw_only=True, slots=True)
class AdmittedCopies:
    """What came of copies. `left`: how many at the end are passed over, or when it is `full`, not judged."""

    admitted: Admitted
    left: int
    full: ApiError | None
