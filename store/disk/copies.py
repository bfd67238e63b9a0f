"""Files that are stored in several copies: any failure of one copy falls back to the others.

A copy fails if its bytes are damaged, if a sound file of another kind or owner is in its place (a misdirected write),
or if the device cannot read it. None of these concerns the other copies. When all copies have failed, `verdict`
distinguishes what can be repaired from what needs an operator.
"""

import errno
from collections.abc import Sequence
from typing import Final

from jetraft.store.port import StoreCorrupt, StoreMisplaced, StoreNewer, StoreRefused

FAILURES: Final = (StoreCorrupt, StoreRefused, OSError)

# Errors of the medium or the file system that concern these bytes. Others (no descriptor, no memory) are temporary.
DAMAGE_ERRNOS: Final = frozenset({errno.EIO, errno.ENOENT, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EILSEQ})


def verdict(failures: Sequence[Exception]) -> Exception:
    """The error to raise when all copies have failed, in this order of precedence.

    An OSError that does not concern the bytes; StoreNewer if a newer server can read one copy; StoreRefused if one copy
    is refused for another reason; StoreMisplaced if all copies belong elsewhere, as in a directory that was copied from
    another node; otherwise StoreCorrupt. Repair may act on the last two.
    """
    assert failures
    for error in failures:
        if isinstance(error, OSError) and error.errno not in DAMAGE_ERRNOS:
            return error
    what = "; ".join(map(str, failures))
    if any(isinstance(error, StoreNewer) for error in failures):
        return StoreNewer(what)
    if any(isinstance(error, StoreRefused) and not isinstance(error, StoreMisplaced) for error in failures):
        return StoreRefused(what)
    if all(isinstance(error, StoreMisplaced) for error in failures):
        return StoreMisplaced(what)
    return StoreCorrupt(what)
