from collections.abc import Sequence

from jetraft.api.plane._accounts import Account
from jetraft.api.plane._plane import Plane
from jetraft.store.stream._records import RecordReader

def deliver_run(
    plane: Plane,
    account: Account,
    reader: RecordReader,
    to: bytes,
    ack_prefix: bytes,
    stream_seqs: Sequence[int],
    consumer_seqs: Sequence[int],
    counts: Sequence[int],
    nums_pending: Sequence[int],
) -> int: ...
