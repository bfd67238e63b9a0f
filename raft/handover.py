"""When the log of one group goes to the writer, and whether the trio thread may write it itself.

A batch that no client waits for goes to the writer: written here, it would delay the clients that come meanwhile
(decision 26).
"""

from typing import Final

from jetraft.raft.engine.membership import Configuration
from jetraft.store.port import GroupLog

BLOCKING_BYTES_MAX: Final = 128 << 10  # more than this takes longer to write than a thread takes to wake


class Handover:
    """How much of one log was handed to the writer, and whether a client waits for the rest."""

    __slots__ = ("_is_awaited", "_log", "_progress", "_submitted_token")

    def __init__(self, log: GroupLog) -> None:
        self._log = log
        self._progress = log.progress
        self._submitted_token = -1
        self._is_awaited = True  # a client waits for something that is queued or not yet handed to the writer

    def note_proposal(self, *, is_awaited: bool, is_first: bool) -> None:
        """A proposal is queued; `is_first`: no other one is."""
        if is_awaited:
            self._is_awaited = True
        elif is_first and not self.has_unwritten():
            self._is_awaited = False

    def has_unwritten(self) -> bool:
        """Whether something waits for the writer."""
        return self._progress.token != self._submitted_token

    def would_block(self, configuration: Configuration) -> bool:
        """Whether `write(may_block=True)` is likely to wait for the disk: a group of one, with a small batch."""
        if not self._is_awaited:
            return False
        return len(configuration.members) == 1 and self._log.would_block(BLOCKING_BYTES_MAX)

    def write(self, *, may_block: bool) -> None:
        """Hand the log to the writer; with `may_block` it may write here and now, as no other log has work."""
        self._submitted_token, self._is_awaited = self._progress.token, True
        self._log.submit(may_block=may_block)
