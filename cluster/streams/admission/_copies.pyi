from jetraft.cluster.origins._plain import SourceRun
from jetraft.cluster.streams.publishing._admission import RecordBatch

def take_copies(
    records: RecordBatch,
    batch: bytes,
    start: int,
    run: SourceRun,
    message_bytes_max: int,
    messages_room: int,
    bytes_room: int,
    size_max: int,
) -> int: ...
