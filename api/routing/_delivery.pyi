from collections.abc import Sequence

from jetraft.api.routing._plane import Plane
from jetraft.store._records import RecordReader

def deliver_run(
    plane: Plane,
    reader: RecordReader,
    to: bytes,
    ack_prefix: bytes,
    stream_seqs: Sequence[int],
    consumer_seqs: Sequence[int],
    counts: Sequence[int],
    nums_pending: Sequence[int],
) -> int: ...
