"""Walking over a binary payload without decoding it: where the walk is, how far it may go, what did not fit.

The walk ends after a number of values and levels, whatever the bytes promise, so that no payload holds a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

VALUES_MAX: Final = 2_048  # of a payload: 2 ms, and 10 where each is a field of Protobuf with 10 bytes
DEPTH_MAX: Final = 32
VARINT_BYTES_MAX: Final = 10  # 64 bits


class Misfit(Exception):  # noqa: N818  (a way out of nested walks, not an error)
    """An expectation that was missed; on its way out it learns where."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self._path: list[str | int] = []

    def within(self, part: str | int) -> None:
        """It is inside of this field, or item."""
        self._path.append(part)

    @property
    def pointer(self) -> str:
        """Its place (RFC 6901)."""
        return "".join(f"/{part}" for part in reversed(self._path))


class Cursor:
    """A place in a payload; `with cursor.inside` is one level deeper."""

    __slots__ = ("_depth", "_values", "data", "end", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.end = len(data)
        self._values = VALUES_MAX
        self._depth = DEPTH_MAX

    def step(self) -> None:
        """Count a value. Raises Misfit, as all here."""
        self._values -= 1
        if self._values < 0:
            raise Misfit(f"has more than {VALUES_MAX} values")

    @property
    def inside(self) -> Self:
        """A level deeper, until the block is left."""
        self._depth -= 1
        if self._depth < 0:
            raise Misfit(f"nested deeper than {DEPTH_MAX}")
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth += 1

    def varint(self, expected: str) -> int:
        """An unsigned number of 7 bits a byte, the lowest first."""
        data, pos, found, shift = self.data, self.pos, 0, 0
        if pos < self.end and data[pos] < 0x80:  # noqa: PLR2004  (mostly it is one byte)
            self.pos = pos + 1
            return data[pos]
        while pos < self.end and shift < 7 * VARINT_BYTES_MAX:
            byte = data[pos]
            pos += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004  (the last byte)
                self.pos = pos
                return found
            shift += 7
        is_too_long = shift >= 7 * VARINT_BYTES_MAX
        raise Misfit(f"expected {expected}" if is_too_long else f"expected {expected}, the payload ends")

    def take(self, size: int, expected: str) -> bytes:
        """The next bytes."""
        start = self.pos
        self.skip(size, expected)
        return self.data[start : self.pos]

    def skip(self, size: int, expected: str) -> None:
        """Pass over bytes."""
        if size > self.end - self.pos:
            raise Misfit(f"expected {expected}, the payload ends")
        self.pos += size

    def text(self, size: int) -> None:
        """Pass over UTF-8."""
        try:
            str(self.take(size, "string"), "utf-8")
        except UnicodeDecodeError:
            raise Misfit("expected UTF-8") from None
