"""A typed event with several listeners: the owner creates and emits it, listeners connect in their constructors.

The owner is in a lower layer than its listeners and does not know them. Listeners are called synchronously in the
owner's step, in the order of connection, so a listener only records what happened and works later.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """See the module. `P` are the parameters of a listener."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[P, object]] = []

    def connect(self, listener: Callable[P, object]) -> None:
        """Call `listener` on each later `emit`."""
        self._listeners.append(listener)

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all connected listeners."""
        for listener in self._listeners:
            listener(*args, **kwargs)
