"""What stands in a log for an entry that is damaged on every member: a frame of no messages, without a sequence.

It is the same on every member, whatever else each of them has lost around it, and tells itself from every entry that a
leader has made. Once all members have agreed that the entry is lost (raft/repair.py), it is the entry of that index and
term, and given to who lacks it; below the beginning of a log it only holds a place. What was there nobody knows. If it
was messages, they had the next sequences: so a stream that goes on behind it leaves out as many as one entry can have,
unless a later entry says which sequence came next.
"""

from typing import Final

from jetraft.store._frame import Header, parse_header, seal
from jetraft.store.format import Kind

MESSAGES_MAX: Final = 1 << 16  # of one entry: an entry of 1 MiB (cluster/streams/admit.py) has fewer than 50,000


def stand_in(index: int, term: int, incarnation: int) -> bytes:
    """The frame for one entry, under the index and the term that it had."""
    return seal(Kind.MESSAGES, index=index, term=term, incarnation=incarnation, body=b"", first_seq=0)


def is_stand_in(header: Header) -> bool:
    """Whether a frame is one."""
    return header.kind == Kind.MESSAGES and not header.record_count and not header.first_stream_seq


def stands_in(frame: bytes) -> bool:
    """The same of a whole frame."""
    return is_stand_in(parse_header(frame))
