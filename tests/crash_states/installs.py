"""Another member's log to be installed: a donor that has applied the same committed entries, and others after them."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.port import HardState
from jetraft.store.stream.stream_store import StreamStore
from tests.crash_states.histories import Applied, apply, continued, last_seq, messages, removal
from tests.crash_states.product import Node, Setup, format_disk
from tests.crash_states.verification import MEMBERS
from tests.doubles.lossy_disk import LossyDisk

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog
    from jetraft.store.port import GroupLog, Staging

MORE_MAX: Final = 12  # entries that the donor has and the receiver lacks
CHUNK_BYTES_MAX: Final = 4000
NO_MESSAGES: Final = 1 << 63


@attrs.define(eq=False)
class Install:
    """One on its way: pieces are taken from the donor until all are here, then the logs are exchanged."""

    staging: "Staging"
    donor: "Donor"

    def take(self, random: Random) -> bool:
        """Fetch one piece; False when all are here."""
        missing = self.staging.missing()
        if missing is None:
            return False
        block, offset, size = missing
        data = self.donor.log.read_chunk(block, offset, min(size, random.randint(1, CHUNK_BYTES_MAX)))
        self.staging.put_chunk(block, offset, data)
        return True

    def finish(self) -> "FileLog":
        """Open the new log in place of the old one, which is closed; it counts when its first batch is durable."""
        log: FileLog = self.staging.finish()  # type: ignore[assignment]  # of a log in files it is one
        return log


def begin_install(log: "GroupLog", donor: "Donor") -> Install:
    """Start gathering the donor's log beside this one."""
    found = donor.log.manifest(donor.first_live)
    assert found is not None
    return Install(log.begin_install(*found), donor)


class Donor:
    """A leader of a new term whose newest checkpoint lies behind the committed entries that it shares.

    On a disk of its own, which is not crashed. It is trimmed behind its older checkpoint, as any log is.
    """

    def __init__(self, group: int, committed: Sequence[Applied], term: int, setup: Setup, random: Random) -> None:
        self._disk = LossyDisk()
        format_disk(self._disk)
        self.log = Node(self._disk, setup, is_donor=True).open(group)
        self.log.set_hard_state(HardState(term=term, vote=None))
        self.history: list[Applied] = list(committed)
        self._erased: set[int] = set()
        self._store = StreamStore(self.log, setup.limits)
        for number in range(random.randint(1, MORE_MAX)):
            removes = last_seq(self.history) and number % 4 == 3
            entry = (removal if removes else messages)(self.history, term, random)
            self.history.append(continued(self.history, entry, setup.limits))
        middle = random.randint(1, len(self.history))
        for applied in self.history[:middle]:
            self._take(applied)
        older = self._save(middle)
        for applied in self.history[middle:]:
            self._take(applied)
        self.first_live = self._save(len(self.history))
        self.log.trim(older, middle)
        self._settle()

    @property
    def erased(self) -> frozenset[int]:
        """What it has overwritten."""
        return frozenset(self._erased)

    def _take(self, applied: Applied) -> None:
        self.log.append([applied.entry])
        self._erased.update(apply(self._store, applied.entry, may_erase=True))

    def _save(self, index: int) -> int:
        """Take a checkpoint; returns the first sequence that lives then."""
        self._settle()
        term = self.log.term_at(index)
        assert term is not None
        if index > self.log.statistics().checkpoint_index:
            self.log.save_checkpoint(index, term, MEMBERS, self._store.snapshot())
        self._settle()
        return self._store.first_seq if self._store.messages else NO_MESSAGES

    def _settle(self) -> None:
        self.log.submit()
        self._disk.finish()
