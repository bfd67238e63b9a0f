"""Another log for a group that runs here: fetched from another member, or opened again from the device.

The module that has it (raft/recovery/catchup.py, cluster/upkeep/restarter.py) asks the owner of the replica to end it,
to take the other log and to start again over that. The owner may be busy, and the group goes on meanwhile: it appends,
acknowledges, is elected. So what was decided before that wait is decided again after it (rule 37): the owner asks
`is_wanted` when it comes to it, before anything has ended, and `carry_out` asks the log itself once nothing writes to
it any more.
"""

from collections.abc import Awaitable, Callable

import attrs

from jetraft.raft.group import Group
from jetraft.store.port import GroupLog, StoreError


class SwapRefusedError(StoreError):
    """The group does not need the other log any more, or is not the one that it was meant for."""


@attrs.frozen(eq=False)
class Swap:
    """See the module. `carry_out` closes the old log and returns the new one, or the old one, still open.

    It raises StoreError or OSError when the new one cannot be had: the old one can then be opened again.
    """

    group: Group
    is_wanted: Callable[[], bool]
    carry_out: Callable[[], Awaitable[GroupLog]]

    def check(self, running: Group | None) -> None:
        """Decide again, now that it is this swap's turn. Raises SwapRefusedError: then nothing may be ended for it."""
        if running is not self.group:
            raise SwapRefusedError(f"{self.group.group_id} does not run here now, or over another log")
        if not self.is_wanted():
            raise SwapRefusedError(f"{self.group.group_id} has moved on")
