"""How far this node's store is, and how far it has heard that those of others are, in its ledger.

A node that comes back with an older copy of its store is found by what others keep here (raft/mesh/store_ages.py). Each
start of a server in a cluster is a record of the ledger, and is durable before any other node hears of it.
"""

import logging
import os
from typing import Final, Self

import attrs
import msgpack

from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.model.files.store_age import STARTS_MAX, StoreAge, StoreStart, pack_starts, unpack_starts

STARTS_VALUE: Final = "starts"  # in the ledger
AGES_VALUE: Final = "ages"

log = logging.getLogger(__name__)


@attrs.frozen
class KeptAges:
    """Implements AgeKeeper of raft/mesh/store_ages.py. `starts` is empty when this start could not be written down."""

    ledger: Ledger
    starts: tuple[StoreStart, ...]

    @classmethod
    def begin(cls, ledger: Ledger) -> Self:
        """Write this start of the server down. Blocking, while nothing else is being written."""
        starts = (*_starts_of(ledger), StoreStart(int.from_bytes(os.urandom(8), "little"), ledger.place))[-STARTS_MAX:]
        try:
            ledger.commit_now(ledger_records.value(STARTS_VALUE, msgpack.packb(pack_starts(starts))))
        except OSError as error:
            log.warning("others will not notice if an older copy of this store is put back: %s", error)
            return cls(ledger, ())
        return cls(ledger, starts)

    def own(self) -> StoreAge | None:
        """How far the store is, durably."""
        if not self.starts:
            return None
        return StoreAge(ledger=self.ledger.identity, starts=self.starts, place=self.ledger.place)

    def load(self) -> bytes | None:
        """The ages that were kept last; None when there is none."""
        return self.ledger.values.get(AGES_VALUE)

    def keep(self, content: bytes, *, at_once: bool) -> None:
        """Replace it, at once or with the next batch. What fails is kept the next time."""
        record = ledger_records.value(AGES_VALUE, content)
        if at_once:
            self.ledger.append([record], lambda _error: None)
        else:
            self.ledger.note(record)


def _starts_of(ledger: Ledger) -> tuple[StoreStart, ...]:
    content = ledger.values.get(STARTS_VALUE)
    if content is None:
        return ()
    try:
        return unpack_starts(msgpack.unpackb(content))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        log.error("the starts that the ledger has are unreadable: %s", error)  # noqa: TRY400
        return ()
