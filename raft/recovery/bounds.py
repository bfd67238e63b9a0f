"""Bounds of the fields of calls about the recovery of a group. Pure."""

from typing import Final

from jetraft.raft.engine.membership import MEMBERS_MAX
from jetraft.raft.mesh.messages import Metadata, list_of, number, octets, text
from jetraft.raft.wire import GROUP_NAME_BYTES_MAX, TERM_MAX

NODE_CHARS_MAX: Final = 64
CONFIGURATION_BYTES_MAX: Final = 64 << 10
INDEX_MAX: Final = (1 << 63) - 1
CALL_BYTES_MAX: Final = 128 << 10  # of a question, or of an answer without entries

# A member promises a term, or goes on in one, only when it is at most this far above its own: an election every
# millisecond for 49 days. A peer that makes up a term cannot use up those that are left.
TERMS_AHEAD_MAX: Final = 1 << 32


def group_name() -> Metadata:
    """The id of a group."""
    return text(GROUP_NAME_BYTES_MAX, chars_min=1)


def incarnation() -> Metadata:
    """Tells a group from an earlier one of the same name."""
    return number()


def log_index() -> Metadata:
    """A log index."""
    return number(high=INDEX_MAX)


def term(high: int = TERM_MAX) -> Metadata:
    """A term."""
    return number(high=high)


def nodes() -> Metadata:
    """Members of a group."""
    return list_of(text(NODE_CHARS_MAX, chars_min=1), MEMBERS_MAX)


def configuration() -> Metadata:
    """An encoded configuration; who needs it decodes it."""
    return octets(CONFIGURATION_BYTES_MAX)
