from collections.abc import Mapping

class WebSocketCommon:
    def __init__(
        self, *, ping_interval_ns: int, packed_max: int, plain_max: int, closes: Mapping[int, bytes]
    ) -> None: ...
