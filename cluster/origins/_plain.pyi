from collections.abc import Callable

class SourceRun:
    consumer_seq: int
    last_seq: int
    num_pending: int
    def __init__(
        self,
        before: bytes,
        between: bytes,
        after: bytes,
        *,
        consumer_seq: int,
        last_seq: int,
        change: Callable[[bytes], bytes] | None = None,
    ) -> None: ...

def take_plain(
    batch: bytes, start: int, consumer_seq: int, last_seq: int, size_max: int
) -> tuple[bytes, int, int, int]: ...
