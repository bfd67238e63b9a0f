"""Pages in slices: what makes one gives way between its rows, so that a page of any size holds the thread for a moment.

A page is made by steps: a generator that says at each step how many bytes it has written since the last one, and
returns the page. `Pace` runs them, no longer than SLICE_NS at a time, and waits as long as each slice took: pages take
half of the node's time at most. One page at a time is made so; what is made without steps comes between its slices.

Between two steps everything may change: a step looks at what is there then, and a row that is gone is left out. Rows of
a document are made when they are written (`Rows`), so memory is that of the text, which the runner of the steps bounds.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import orjson
import trio

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.encoding.jsoncodec import encode

SLICE_NS: Final = 2_000_000  # as much as the node's other work in slices (cluster/turn_work.py)
ROWS_PER_STEP: Final = 64  # of what is only added up: each takes 1 to 10 us
PIECE_LEAVES_MAX: Final = 256  # numbers and texts that are written in one step: some 50 us
PART_BYTES: Final = 64 * 1024  # that pieces are joined to

T = TypeVar("T")
Steps = Generator[int, None, T]


class TooLargeError(Exception):
    """The page has more bytes than there is room for."""


@attrs.frozen(eq=False)
class Rows:
    """A list of a document whose items are made one at a time as they are written. None is left out."""

    items: Iterable[object]


@attrs.define(eq=False)
class Pace:
    """Runs what makes pages for one listener."""

    _turn: trio.Lock = attrs.field(factory=trio.Lock)
    _sliced: trio.Lock = attrs.field(factory=trio.Lock)
    _waited_for: trio.Lock = attrs.field(factory=trio.Lock)
    _next_at_s: float = 0.0  # trio's time
    _next_wait_at_s: float = 0.0

    async def once(self, make: Callable[[], T]) -> T:
        """Call this when what was called before has been paid back."""
        async with self._turn:
            await trio.sleep_until(self._next_at_s)
            began_s = trio.current_time()
            try:
                return make()
            finally:
                now_s = trio.current_time()
                self._next_at_s = now_s + (now_s - began_s)

    async def wait_for(self, made: Awaitable[T]) -> T:
        """Wait for what gives way by itself, or waits for others; one at a time, and paid back as well."""
        async with self._waited_for:
            await trio.sleep_until(self._next_wait_at_s)
            began_s = trio.current_time()
            try:
                return await made
            finally:
                now_s = trio.current_time()
                self._next_wait_at_s = now_s + (now_s - began_s)

    async def finish(self, steps: Steps[T], room: Callable[[], int]) -> T:
        """Run all steps; returns what they return. Raises TooLargeError when they write more than there is room for."""
        async with self._sliced:
            written = 0
            try:
                while True:
                    more, found = await self.once(partial(a_slice, steps))
                    if found:
                        return found[0]
                    written += more
                    if written > room():
                        raise TooLargeError(str(written))
            finally:
                steps.close()


def a_slice(steps: Steps[T]) -> tuple[int, list[T]]:
    """Run steps for SLICE_NS; the bytes that they have written, and what they return when they are over."""
    until_s = trio.current_time() + SLICE_NS / NS_PER_S
    written = 0
    while True:
        try:
            written += next(steps)
        except StopIteration as end:
            return written, [end.value]
        if trio.current_time() >= until_s:
            return written, []


def in_steps(items: Iterable[T], look: Callable[[T], None]) -> Steps[None]:
    """Look at each item, ROWS_PER_STEP of them in a step."""
    for number, item in enumerate(items, 1):
        look(item)
        if number % ROWS_PER_STEP == 0:
            yield 0


def json_parts(document: dict[str, Any], *, is_indented: bool) -> Steps[list[bytes]]:
    """The JSON text of a document with Rows in it, in parts of PART_BYTES and more; the same text as without steps."""
    text = _Text(is_indented=is_indented)
    yield from text.put(document, 0)
    return text.parts()


@attrs.define(eq=False)
class _Text:
    """JSON, written in pieces."""

    is_indented: bool
    _parts: list[bytes] = attrs.field(factory=list)
    _last: bytearray = attrs.field(factory=bytearray)

    def parts(self) -> list[bytes]:
        """All that was written."""
        return [*self._parts, bytes(self._last)]

    def put(self, value: object, depth: int) -> Steps[None]:
        """Write a value that is a list or an object: what is small of it together, the rest item by item."""
        if isinstance(value, dict):
            yield from self._items(iter(value.items()), depth, dict)
        else:
            assert isinstance(value, list | tuple | Rows)
            items = value.items if isinstance(value, Rows) else value
            yield from self._items(((None, item) for item in items), depth, list, leaves_out=isinstance(value, Rows))

    def _items(
        self, entries: Iterator[tuple[Any, object]], depth: int, kind: type, *, leaves_out: bool = False
    ) -> Steps[None]:
        ends = b"{}" if kind is dict else b"[]"
        line = b"\n" + b"  " * depth if self.is_indented else b""
        small: list[tuple[Any, object]] = []
        count, separator = 0, ends[:1]
        for key, item in entries:
            if item is None and leaves_out:
                count += 1
            elif (more := leaves_of(item)) <= PIECE_LEAVES_MAX:
                small.append((key, item))
                count += more
            else:
                head = line + b"  " if self.is_indented else b""
                if key is not None:
                    head += encode(key) + (b": " if self.is_indented else b":")
                run = self._run(small, kind, line, separator)
                yield self._add(run + (b"," if run or separator == b"," else separator) + head)
                yield from self.put(item, depth + 1)
                small, count, separator = [], 0, b","
            if count > PIECE_LEAVES_MAX:
                run = self._run(small, kind, line, separator)
                yield self._add(run)
                separator = b"," if run else separator
                small, count = [], 0
        run = self._run(small, kind, line, separator)
        is_empty = not run and separator != b","
        yield self._add(ends if is_empty else run + line + ends[1:])

    def _run(self, items: list[tuple[Any, object]], kind: type, line: bytes, separator: bytes) -> bytes:
        """Items that are written at once, with what comes before them; nothing for none."""
        if not items:
            return b""
        value = dict(items) if kind is dict else [item for _, item in items]
        if not self.is_indented:
            return separator + encode(value)[1:-1]
        return separator + encode(value, option=orjson.OPT_INDENT_2)[1:-2].replace(b"\n", line)

    def _add(self, text: bytes) -> int:
        self._last += text
        if len(self._last) >= PART_BYTES:
            self._parts.append(bytes(self._last))
            self._last.clear()
        return len(text)


def leaves_of(value: object) -> int:
    """How many numbers and texts a value has, or more than PIECE_LEAVES_MAX if it has more, or Rows."""
    if isinstance(value, Rows):
        return PIECE_LEAVES_MAX + 1
    if not isinstance(value, dict | list | tuple):
        return 1
    count = 1
    for item in value.values() if isinstance(value, dict) else value:
        count += leaves_of(item) if isinstance(item, dict | list | tuple | Rows) else 1
        if count > PIECE_LEAVES_MAX:
            break
    return count
