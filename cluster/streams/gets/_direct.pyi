class DirectEncoder:
    def __init__(self, stream: bytes) -> None: ...
    def record(
        self,
        reply: bytes,
        seq: int,
        ts_ns: int,
        subject: bytes,
        hdr: bytes,
        payload: bytes,
        num_pending: int,
        last_seq: int,
    ) -> bytes: ...
