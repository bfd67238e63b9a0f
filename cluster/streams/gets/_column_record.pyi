from jetraft.store.stream._records import RecordReader
from jetraft.store.stream._runs import Runs

TIMES: int
SUBJECTS: int
HEADERS: int
DATA: int

def columns_record(
    reader: RecordReader,
    seqs: Runs,
    reply: bytes,
    *,
    room: int,
    wanted: int,
    content_max: int,
    from_seq: int,
    to_seq: int,
    num_pending: int,
    applied_seq: int,
    first_seq: int,
    created_ns: int,
) -> tuple[bytes, int, int, int, int, bool]: ...
