from collections.abc import Callable, Mapping

class WebSocketCommon:
    def __init__(
        self,
        *,
        ping_interval_ns: int,
        packed_max: int,
        plain_max: int,
        closes: Mapping[int, bytes],
        on_http: Callable[[int, bytes], None],
    ) -> None: ...
