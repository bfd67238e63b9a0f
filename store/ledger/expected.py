"""The ledger's expectation of a log's directory."""

import attrs

from jetraft.store.frames._frame import find_mark
from jetraft.store.frames.checkpoint import CHECKPOINTS_KEPT
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, BlockHead
from jetraft.store.ledger.ledger_records import Born, GroupState
from jetraft.store.model.files import index_ranges


@attrs.frozen(kw_only=True, slots=True)
class Expected:
    """The expected content of a directory of blocks, according to the ledger or to the files themselves."""

    heads: tuple[BlockHead, ...]  # by serial and by index; none is void
    dropped: index_ranges.Ranges = ()
    checkpoints: tuple[int, ...] = ()
    floor_index: int = 0  # the log was durable up to here
    is_recorded: bool = True  # by the ledger: other files are unfinished or superfluous

    @classmethod
    def of(cls, state: GroupState) -> "Expected":
        """The expectations for a group, from the ledger."""
        return cls(
            heads=tuple(map(_head_of, state.births)),
            dropped=state.dropped,
            checkpoints=tuple(point.log_index for point in state.checkpoints),
            floor_index=state.floor.log_index,
        )

    @property
    def compacted_to(self) -> int:
        """No block that ends above this index was ever compacted: both checkpoints must be above what is rewritten."""
        return self.checkpoints[0] if len(self.checkpoints) == CHECKPOINTS_KEPT else 0

    def limited(self) -> list[tuple[BlockHead, int | None]]:
        """Each block with the last index that counts in it: what follows begins there, or was dropped from there on.

        None for the newest.
        """
        found: list[tuple[BlockHead, int | None]] = []
        limit: int | None = None
        for head in reversed(self.heads):
            dropped = index_ranges.first_above(self.dropped, head.first_index)
            ends = [limit, None if dropped is None else dropped - 1]
            found.append((head, min((end for end in ends if end is not None), default=None)))
            limit = head.first_index - 1
        found.reverse()
        return found

    def is_short(self, data: bytes, head: BlockHead, incarnation: int) -> bool:
        """Whether the newest block has lost its end: it had its full length, durably, before anything was said of it.

        Where only the files say so, before its first mark came.
        """
        if len(data) >= head.reserved_bytes:
            return False
        return self.is_recorded or find_mark(data, offset=BLOCK_HEAD_BYTES, incarnation=incarnation, tag=head.tag) >= 0


def _head_of(born: Born) -> BlockHead:
    return BlockHead(
        serial=born.serial,
        first_index=born.first_index,
        boundary_term=born.boundary_term,
        reserved_bytes=born.reserved_bytes,
        tag=born.tag,
    )
