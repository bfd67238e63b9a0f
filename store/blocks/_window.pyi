# Types of _window.pyx, which has the docstrings.

from array import array

class Window:
    opened: dict[int, bytes]
    bytes_held: int
    def __init__(
        self,
        data: bytes,
        *,
        start: int,
        offsets: array[int],
        places: array[int],
        first_index: int,
        indexes: array[int] | None,
        incarnation: int,
    ) -> None: ...
    def take(self, offset: int) -> bytes | None: ...
    def place_of(self, offset: int) -> int: ...
