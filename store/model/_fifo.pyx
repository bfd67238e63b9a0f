# cython: language_level=3
"""A queue that takes no memory while it is empty, and no call of Python to be looked at.

An empty `collections.deque` takes 760 bytes, because it always has capacity for 64 items. A replica has about six
queues, a node thousands of replicas, most of them idle: deques were a quarter of the memory of an idle replica. A turn
asks a dozen times whether a queue has something, so it is compiled.
"""

cdef enum:
    HEAD_MAX = 64       # places of removed items that a long queue keeps at least before they are given back


cdef class Fifo:
    """The methods of a deque that queues use. It has a list only while it is not empty."""

    cdef list _items    # None while it is empty; those before `_head` are removed
    cdef Py_ssize_t _head

    @classmethod
    def __class_getitem__(cls, item):
        """Fifo[T]: the type of its items is for readers and type checkers."""
        return cls

    def append(self, item):
        """Add at the end."""
        if self._items is None:
            self._items = []
        self._items.append(item)

    def popleft(self):
        """Remove the first item and return it. Raises IndexError."""
        cdef Py_ssize_t length
        if self._items is None:
            raise IndexError("pop from an empty queue")
        item = self._items[self._head]
        self._head += 1
        length = len(self._items)
        if self._head == length:
            self.clear()
        else:
            self._items[self._head - 1] = None
            if self._head >= HEAD_MAX and 2 * self._head >= length:  # so each item is moved once, on average
                del self._items[:self._head]
                self._head = 0
        return item

    cpdef clear(self):
        """Remove everything."""
        self._items = None
        self._head = 0

    def __len__(self):
        return 0 if self._items is None else len(self._items) - self._head

    def __bool__(self):
        return self._items is not None

    def __getitem__(self, Py_ssize_t place):
        place = self._at(place)
        return self._items[place]

    def __setitem__(self, Py_ssize_t place, item):
        place = self._at(place)
        self._items[place] = item

    cdef Py_ssize_t _at(self, Py_ssize_t place) except -1:
        """Where in the list an item is; negative places count from the end. Raises IndexError."""
        cdef Py_ssize_t count = 0 if self._items is None else len(self._items) - self._head
        if not -count <= place < count:
            raise IndexError("the queue has no such place")
        return self._head + place + (count if place < 0 else 0)

    def __iter__(self):
        return iter(() if self._items is None else self._items[self._head:])

    def __reversed__(self):
        return reversed(() if self._items is None else self._items[self._head:])
