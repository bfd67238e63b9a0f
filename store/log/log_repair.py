"""The repair of a damaged log: terms and frames of entries, and how far the log went.

raft/recovery/repair.py drives it, after an opening in SALVAGE mode has found damage (store/log/opening.py) and before
the group starts. The object has no state of its own: `FileLog.repair` makes one when it is asked for.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs

from jetraft.store.blocks.block import BlockList
from jetraft.store.frames.format import FRAME_HEADER_BYTES
from jetraft.store.log.damage import Damage
from jetraft.store.log.recovery import FoundBlock
from jetraft.store.log.retained_checkpoints import RetainedCheckpoints
from jetraft.store.log.salvage import salvaged
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.model.files import index_ranges


@attrs.frozen(kw_only=True, slots=True)
class LogRepair:
    """See the module."""

    _place: LogPlace
    _blocks: BlockList
    _damage: Damage
    _checkpoints: RetainedCheckpoints
    _damaged_blocks: tuple[FoundBlock, ...]  # as the opening found them, oldest first

    # Entries.

    @property
    def returned(self) -> Mapping[int, bytes]:
        """The original frames, by index, of entries that were given up and then received from a member."""
        return self._damage.returned

    def set_term(self, index: int, term: int) -> None:
        """Set the term of a damaged entry, which another member has. Raises ValueError when it is out of bounds."""
        self._blocks.terms.correct(index, term)

    def substitute(self, index: int) -> bytes:
        """The frame that replaces a damaged entry when it is given up: see Damage."""
        return self._damage.substitute(index)

    def give_up(self, ranges: index_ranges.Ranges, frames: Mapping[int, bytes] = MappingProxyType({})) -> None:
        """Give up these damaged entries, except for those whose verified frames are given: see Damage."""
        self._damage.give_up(ranges, self._checkpoints.newest(), frames)

    def note_lost(self, indexes: Sequence[int]) -> None:
        """Report these entries as lost: they were replaced by placeholders."""
        self._damage.lost = index_ranges.merged([*self._damage.lost, *((index, index) for index in indexes)])

    def salvage(self) -> list[int]:
        """Let `substitute` return the sound records of damaged frames; returns the indexes of these entries.

        Only for the single member of a group: with others, the same entry would differ between members. Blocking.
        Raises OSError.
        """
        self._damage.salvaged = salvaged(self._place, self._damaged_blocks)
        return sorted(self._damage.salvaged)

    # The end of the log.

    @property
    def is_end_unknown(self) -> bool:
        """Whether the damage is at the end: then the number of entries that the log had is unknown."""
        return any(item.end_unknown for item in self._damaged_blocks)

    @property
    def end_known(self) -> int:
        """The last entry that existed, according to the ledger and the checkpoints; there may have been more."""
        state = self._place.ledger.state(self._place.key)
        noted = 0 if state is None else state.floor.log_index
        return max(noted, self._checkpoints.newest_index)

    @property
    def end_index_max(self) -> int:
        """The highest index that the newest block has capacity for."""
        first_index = self._damaged_blocks[-1].head.first_index
        # No frame is shorter than its header, so this bound is never too low; it may be far too high.
        return max(self.end_known, first_index + self.end_capacity_bytes // FRAME_HEADER_BYTES)

    @property
    def end_capacity_bytes(self) -> int:
        """The size of the newest block; a single frame may be larger."""
        return self._damaged_blocks[-1].head.reserved_bytes

    # Checkpoints.

    def forget_checkpoints(self) -> bool:
        """Continue without checkpoints, because all are damaged: the log still has all entries since the first.

        Returns False, and changes nothing, when entries that they cover were dropped or compacted. The ledger has the
        damaged checkpoints until the next one is durable.
        """
        if self._blocks.first_index != 1:
            return False
        self._checkpoints.forget()
        return True
