"""The frame that replaces an entry that is damaged on every member: no messages and no sequence (decision 39).

It is equal on all members, and differs from every entry that a leader makes. Once all members have agreed that the
entry is lost (raft/recovery/repair.py), the placeholder is the entry of that index and term, and is sent to members
that lack it; below the first index of a log it only keeps the index occupied. The content of the entry is unknown. It
may have been messages with the next sequences, so the stream leaves out as many sequences as one entry can have,
unless a later entry tells the next one.
"""

from typing import Final

from jetraft.store.frames._frame import Header, parse_header, seal
from jetraft.store.frames.format import Kind

MESSAGES_MAX: Final = (
    1 << 16
)  # of one entry: an entry of 1 MiB (cluster/streams/admission/admit.py) has fewer than 50,000


def placeholder_frame(index: int, term: int, incarnation: int) -> bytes:
    """The placeholder for the entry of this index and term."""
    return seal(Kind.MESSAGES, index=index, term=term, incarnation=incarnation, body=b"", first_seq=0)


def is_placeholder(header: Header) -> bool:
    """Whether a header is that of a placeholder."""
    return header.kind == Kind.MESSAGES and not header.record_count and not header.first_stream_seq


def is_placeholder_frame(frame: bytes) -> bool:
    """Whether a frame is a placeholder."""
    return is_placeholder(parse_header(frame))
