"""Salvages sound records from damaged entries, for a member that no other member can help.

One flipped bit in a frame of up to 1 MiB would cost all of its messages. Where records have checksums, it costs only
the message that it hit (store/frames/_holes.pyx); in the frame's header of 48 bytes it costs the whole frame.

The files stay as they are, so every opening has the same result.
"""

import attrs

from jetraft.store.blocks.damage_scan import Gap
from jetraft.store.disk.files import read_readable
from jetraft.store.frames._frame import find_mark, parse_header
from jetraft.store.frames._holes import salvage
from jetraft.store.frames.format import MARK_BYTES, block_name
from jetraft.store.log.recovery import FoundBlock
from jetraft.store.log.write_queue import LogPlace


@attrs.frozen(kw_only=True, slots=True)
class Salvaged:
    """A frame with holes in place of damaged records, as long as the damaged one, and where that one starts."""

    frame: bytes
    place: int


def salvaged(place: LogPlace, damaged: tuple[FoundBlock, ...]) -> dict[int, Salvaged]:
    """The rest, by index, of damaged entries that have a sound record. Blocking. Raises OSError."""
    found: dict[int, Salvaged] = {}
    for item in damaged:
        if item.gaps and item.is_there:
            data = read_readable(place.disk, place.log / block_name(item.head))
            for gap in item.gaps:
                found |= _of_gap(data, gap, place.identity.incarnation)
    return found


def _of_gap(data: bytes, gap: Gap, incarnation: int) -> dict[int, Salvaged]:
    """The frames of a gap, from the first one on, as long as each one tells where the next starts."""
    found: dict[int, Salvaged] = {}
    at, end = gap.start, min(gap.end, len(data))
    for index in range(gap.first_index, gap.last_index + 1):
        frame = salvage(data, offset=at, end=end, incarnation=incarnation, index=index)
        if frame is None:
            break
        found[index] = Salvaged(frame=frame, place=at)
        at += parse_header(frame).length
        if find_mark(data[: at + MARK_BYTES], offset=at, incarnation=incarnation) == at:
            at += MARK_BYTES
    return found
