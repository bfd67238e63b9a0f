from jetraft.cluster.streams.publishing._admission import RecordBatch

def run_of(
    batch: bytes,
    start: int,
    head: bytes,
    seq: int,
    message_bytes_max: int,
    messages_room: int,
    bytes_room: int,
) -> tuple[int, int]: ...
def add_run(records: RecordBatch, run: bytes) -> None: ...
def add_fast_run(
    records: RecordBatch,
    batch: bytes,
    start: int,
    head: bytes,
    seq: int,
    message_bytes_max: int,
    messages_room: int,
    bytes_room: int,
    size_max: int,
    bare: bool,
) -> tuple[int, int]: ...
