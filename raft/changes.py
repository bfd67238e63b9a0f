"""Waiting for a state to change: the owner of the state notifies, and the tasks that wait check it again.

There is no lock: state is changed and looked at by the tasks of one trio thread, and a condition does not await. A wait
has no limit of its own: the caller bounds it.
"""

from collections.abc import Callable

import trio

from jetraft.raft._turn import Noticed


class Change(Noticed):
    """See the module. `notify` costs next to nothing while no task waits."""

    __slots__ = ()

    async def wait(self) -> None:
        """Return after the next `notify`."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds; it is looked at now and after each `notify`."""
        while not condition():
            await self.wait()
