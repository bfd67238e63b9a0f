"""The state that the parts of one log share, and the only state that more than one of them changes.

The parts are described in store/log/file_log.py. Everything else that a part remembers is private to it.
"""

import attrs

from jetraft.store.blocks.block import Block
from jetraft.store.log._growth import WriteQueue
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.port import Entry, LogProgress, StoreFailed


@attrs.define(eq=False, kw_only=True)
class LogState(LogProgress):
    """Changes of one log that are in memory. Belongs to the one trio thread."""

    place: LogPlace
    """The place of the log. Never changes."""

    write_queue: WriteQueue = attrs.field(factory=WriteQueue)
    """The changes that no batch has taken. `Durability` replaces it when one starts, so no part keeps a reference."""

    growing: Block | None = None
    """The block to which the next entry is appended: the newest one, or None until this process has started one."""

    newest: Entry | None = None
    """The last entry as it was appended, if it is small: it is applied next. None after its bytes or the end change."""

    is_closed: bool = False
    """Final. Batches that the writer already has still finish, and nothing counts as durable."""

    def check_usable(self) -> None:
        """Raise StoreFailed after a write error."""
        if self.failed is not None:
            raise StoreFailed(f"{self.place.group}: takes no more writes after: {self.failed}") from self.failed
        assert not self.is_closed
