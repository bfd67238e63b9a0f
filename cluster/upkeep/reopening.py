"""When a replica that its disk has stopped is tried again. Pure: errors and moments in, a verdict out.

A failed write is final for the log that met it, and what reached the device is unknown. The failure is ended by
another opening, which reads everything from the device again (store/log/opening.py); this says when that is worth
trying:

    damage           at once: other members have the bytes, and each attempt fetches what it can
    full disk        when there is room again, however long that takes
    read-only        as long as it takes: an operator mounts it again
    no descriptor    as long as it takes: nothing was written, and others give some back
    anything else    a few times, further and further apart: a disk that goes on failing is not to be relied on

A replica that runs without an error for FORGIVEN_NS starts from the beginning.
"""

import errno
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreCorrupt

FIRST_NS: Final = NS_PER_S // 2  # leadership has moved by then; a bus reset takes about a second
LONGEST_NS: Final = 30 * NS_PER_S
ATTEMPTS_MAX: Final = 6  # over half a minute: 0.5, 1, 2, 4, 8, 16 s
FORGIVEN_NS: Final = 600 * NS_PER_S
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSES: Final = NO_ROOM | {errno.EROFS, errno.EMFILE, errno.ENFILE}

K = TypeVar("K", bound=Hashable)


@attrs.define
class _Trouble:
    """The history of a group that has failed. `failed_ns` is None while it runs."""

    attempts: int = 0
    failed_ns: int | None = None
    began_ns: int = 0  # when the last attempt was made


class Reopening(Generic[K]):
    """The troubles of a node's groups, by any key."""

    def __init__(self) -> None:
        self._troubles: dict[K, _Trouble] = {}

    def is_due(self, key: K, error: Exception, now_ns: int, *, has_room: bool) -> bool:
        """Whether the group, which has stopped for `error`, is to be opened again now. Counts an attempt if so."""
        trouble = self._troubles.setdefault(key, _Trouble())
        if trouble.failed_ns is None:
            if now_ns - trouble.began_ns > FORGIVEN_NS:
                trouble.attempts = 0
            trouble.failed_ns = now_ns
        if self.is_given_up(key, error) or (is_full(error) and not has_room):
            return False
        if now_ns - trouble.failed_ns < _rest_ns(error, trouble.attempts):
            return False
        trouble.attempts += 1
        trouble.failed_ns, trouble.began_ns = None, now_ns
        return True

    def is_given_up(self, key: K, error: Exception) -> bool:
        """Whether only a restart of the server tries again."""
        trouble = self._troubles.get(key)
        return trouble is not None and trouble.attempts >= ATTEMPTS_MAX and not may_pass(error)


def is_full(error: Exception) -> bool:
    """Whether the disk had no room."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def may_pass(error: Exception) -> bool:
    """Whether the cause can go away by itself, or by an operator's hand, without the disk being broken."""
    return isinstance(error, StoreCorrupt) or (isinstance(error, OSError) and error.errno in PASSES)


def _rest_ns(error: Exception, attempts: int) -> int:
    if isinstance(error, StoreCorrupt) and not attempts:
        return 0
    return min(FIRST_NS << min(attempts, ATTEMPTS_MAX), LONGEST_NS)
