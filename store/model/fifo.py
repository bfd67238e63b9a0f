"""A queue that takes no memory while it is empty.

An empty `collections.deque` takes 760 bytes, because it always has capacity for 64 items. A replica has about six
queues, a node thousands of replicas, most of them idle: deques were a quarter of the memory of an idle replica.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Fifo(Generic[T]):
    """The methods of a deque that queues use. It has a deque only while it is not empty."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[T] | None = None

    def append(self, item: T) -> None:
        """Add at the end."""
        items = self._items
        if items is None:
            items = self._items = deque()
        items.append(item)

    def popleft(self) -> T:
        """Remove the first item and return it. Raises IndexError."""
        items = self._items
        if items is None:
            raise IndexError("pop from an empty queue")
        item = items.popleft()
        if not items:
            self._items = None
        return item

    def clear(self) -> None:
        """Remove everything."""
        self._items = None

    def __len__(self) -> int:
        return 0 if self._items is None else len(self._items)

    def __bool__(self) -> bool:
        return self._items is not None

    def __getitem__(self, place: int) -> T:
        if self._items is None:
            raise IndexError("the queue is empty")
        return self._items[place]

    def __setitem__(self, place: int, item: T) -> None:
        if self._items is None:
            raise IndexError("the queue is empty")
        self._items[place] = item

    def __iter__(self) -> Iterator[T]:
        return iter(self._items or ())

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._items or ())
