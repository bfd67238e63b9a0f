"""What is left of the damaged entries of a log, for a member that has nobody to get them back from.

One flipped bit in a frame of up to 1 MiB would cost all of its messages. Where its records have checksums of their
own, it costs the message that it hit: see store/_holes.pyx. In the header of the frame, 48 bytes, it costs the whole.

The files stay as they are, so every opening comes to the same.
"""

from jetraft.store._frame import find_mark, parse_header
from jetraft.store._holes import salvage
from jetraft.store.backlog import LogPlace
from jetraft.store.format import MARK_BYTES, block_name
from jetraft.store.recovery import FoundBlock, read_readable
from jetraft.store.survey import Gap


def salvaged(place: LogPlace, damaged: tuple[FoundBlock, ...]) -> dict[int, bytes]:
    """Frames with holes by index, of the entries of which something is sound. Blocking. Raises OSError."""
    found: dict[int, bytes] = {}
    for item in damaged:
        if item.gaps and item.is_there:
            data = read_readable(place.disk, place.log / block_name(item.head))
            for gap in item.gaps:
                found |= _of_gap(data, gap, place.identity.incarnation)
    return found


def _of_gap(data: bytes, gap: Gap, incarnation: int) -> dict[int, bytes]:
    """Its frames from the first one on, as long as one tells where the next begins."""
    found: dict[int, bytes] = {}
    at, end = gap.start, min(gap.end, len(data))
    for index in range(gap.first_index, gap.last_index + 1):
        frame = salvage(data, offset=at, end=end, incarnation=incarnation, index=index)
        if frame is None:
            break
        found[index] = frame
        at += parse_header(frame).length
        if find_mark(data[: at + MARK_BYTES], offset=at, incarnation=incarnation) == at:
            at += MARK_BYTES
    return found
