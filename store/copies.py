"""What is kept twice: any failure of one copy falls to the other.

A copy fails when its bytes are damaged, when a sound file of another kind or owner lies in its place (a misdirected
write), or when the device does not read it. None of these says anything about the other copy. Only when every copy has
failed does it matter how: `verdict` keeps apart what can be repaired from what an operator must look at.
"""

import errno
from collections.abc import Sequence
from typing import Final

from jetraft.store.port import StoreCorrupt, StoreMisplaced, StoreNewer, StoreRefused

FAILURES: Final = (StoreCorrupt, StoreRefused, OSError)

# What the medium or the file system says about these bytes. Other errors (no descriptor, no memory) pass by themselves.
_DAMAGE: Final = frozenset({errno.EIO, errno.ENOENT, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EILSEQ})


def verdict(failures: Sequence[Exception]) -> Exception:
    """What to raise when every copy has failed, in this order of precedence.

    An error of the system that says nothing about the bytes, as it is; StoreNewer when a newer server can read one of
    them; StoreRefused when one of them cannot be judged here; StoreMisplaced when all of them belong elsewhere, as in a
    directory that was copied from another node; else StoreCorrupt. Repair may act on the last two.
    """
    assert failures
    for error in failures:
        if isinstance(error, OSError) and error.errno not in _DAMAGE:
            return error
    what = "; ".join(map(str, failures))
    if any(isinstance(error, StoreNewer) for error in failures):
        return StoreNewer(what)
    if any(isinstance(error, StoreRefused) and not isinstance(error, StoreMisplaced) for error in failures):
        return StoreRefused(what)
    if all(isinstance(error, StoreMisplaced) for error in failures):
        return StoreMisplaced(what)
    return StoreCorrupt(what)
