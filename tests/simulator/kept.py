"""What survives the crash of a member that is only a core and a log in memory: what was fsynced."""

import attrs

from jetraft.store.log.mem_log import MemLog
from jetraft.store.port import Entry, HardState

ALL_BYTES = 1 << 30


@attrs.frozen
class Kept:
    """The durable part of a log."""

    entries: list[Entry] = attrs.field(factory=list)
    hard_state: HardState = attrs.field(factory=lambda: HardState(term=0, vote=None))

    def opened(self) -> MemLog:
        """The log as the next process finds it: everything in it is durable."""
        log = MemLog(durable_on_submit=False)
        log.append(self.entries)
        log.set_hard_state(self.hard_state)
        log.submit()
        log.complete()
        return log


def synced(log: MemLog) -> Kept:
    """Make everything durable, and return it."""
    log.submit()
    log.complete()
    return Kept(log.entries(1, log.last_index, ALL_BYTES) if log.last_index else [], log.hard_state)
