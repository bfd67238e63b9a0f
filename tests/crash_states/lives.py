"""The life of one group: what a replica does with its log and its stream, at random, and what that promises.

Entries are appended, cut, committed and applied; the member votes, takes checkpoints, trims, erases, compacts, drops
blocks, rolls early, and installs the log of another member. Order and conditions are those of raft/ and cluster/:
checkpointing.py, catchup.py, compactor.py. What a life does depends on its random numbers alone.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.disk.io import sync_directory
from jetraft.store.log.compaction import Plan, compact, discard
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, HardState
from tests.crash_states.histories import Applied, History, apply, beginning, continued, last_seq, messages, removal
from tests.crash_states.installs import Donor, Install, begin_install
from tests.crash_states.product import OWN, Setup
from tests.crash_states.promises import Promise, Promises, View
from tests.crash_states.verification import MEMBERS, Found, rebuilt

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog
    from tests.doubles.lossy_disk import LossyDisk

Make = Callable[[History, int, Random], Entry]  # an entry that continues a history in a term

CANDIDATES: Final = (NodeId("AAAAAAAA"), NodeId("BBBBBBBB"))
NO_MESSAGES: Final = 1 << 63
AT_ONCE: Final = 0.7  # of starts: a member that stands alone knows that everything it has is committed
ABANDONED_SHARE: Final = 0.02  # of the steps of an install
BEGINNING: Final = 0.9  # of entries before the first message, where the ledger keeps the first ones


class GroupLife:
    """One group from an opening to the next crash."""

    def __init__(  # noqa: PLR0913, PLR0917  (which group, where, from what it goes on)
        self, number: int, disk: "LossyDisk", setup: Setup, found: Found, random: Random, met: Counter[str]
    ) -> None:
        self._number = number
        self._disk = disk
        self._setup = setup
        self._random = random
        self._met = met
        self.log: FileLog = found.log
        self.history: list[Applied] = list(found.view.history)
        self._hard_state = found.view.hard_state
        self._promises = Promises(found.promise)
        self._frozen: Promise | None = None  # while the log is exchanged
        self._plans: list[Plan] = []
        self._install: Install | None = None
        checkpoint = found.checkpoint
        self._applied = checkpoint.index if checkpoint else 0
        self._store = rebuilt(self.log, checkpoint, setup.limits, self._applied)
        if random.random() < AT_ONCE:
            self._promises.commit = len(self.history)
        self._apply_committed()
        saved = (checkpoint.index, self._first_live) if checkpoint else (0, 0)
        self._saved = [saved]
        if setup.is_assumed:
            self.log.durability.assume_beginning(is_alone=True)
        if not self._hard_state.term:
            self._vote(1)
        if checkpoint is None:
            self.log.save_checkpoint(0, 0, MEMBERS, b"")
            self._promises.saved(self.log.token(), 0)

    @property
    def promise(self) -> Promise:
        """What a crash must leave now."""
        promise = self._frozen or self._promises.at(self.log.durable_token)
        if self.log.is_secure:
            return promise
        assert len(promise.durable.history) <= 1, "only the first step is assumed"
        assert promise.durable.hard_state.term <= 1
        # A crash may leave a log that has not begun.
        self._met["assumed beginnings"] += 1
        return Promise(on_their_way=promise.views)

    @property
    def _first_live(self) -> int:
        return self._store.first_seq if self._store.messages else NO_MESSAGES

    def act(self) -> None:
        """Do one thing."""
        action = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if self._install is not None and action in _OF_A_LEADER:
            action = GroupLife._fetch
        action(self)

    def settle(self) -> None:
        """Write everything that waits, commit a part of it, apply what is committed."""
        self.log.submit()
        self._disk.finish()
        assert self.log.failed is None, self.log.failed
        durable_index = min(self.log.durable_index, len(self.history))
        if durable_index > self._promises.commit and self._install is None and self._random.random() < 0.8:
            self._promises.commit = self._random.randint(self._promises.commit, durable_index)
        self._apply_committed()

    def _apply_committed(self) -> None:
        for applied in self.history[self._applied : self._promises.commit]:
            erased = apply(self._store, applied.entry, may_erase=True)
            if erased:
                self._met["erased messages"] += len(erased)
                self._promises.erasing(self.log.token(), erased)
        self._applied = self._promises.commit

    def _changed(self) -> None:
        self._promises.changed(self.log.token(), View(tuple(self.history), self._hard_state))

    # What the log is asked for.

    def _append(self) -> None:
        entries = []
        for _ in range(self._random.randint(1, 4)):
            term = self._hard_state.term
            removes = last_seq(self.history) and self._random.random() < 0.2
            make: Make = removal if removes else messages
            if self._setup.begun_bytes and not last_seq(self.history) and self._random.random() < BEGINNING:
                make = beginning
            entry = make(self.history, term, self._random)
            self.history.append(continued(self.history, entry, self._setup.limits))
            entries.append(entry)
        self.log.append(entries)
        self._changed()

    def _cut(self) -> None:
        if len(self.history) > self._promises.commit:
            index = self._random.randint(self._promises.commit + 1, len(self.history))
            self.log.cut_from(index)
            del self.history[index - 1 :]
            self._met["cuts"] += 1
            self._changed()

    def _elect(self) -> None:
        self._vote(self._hard_state.term + 1)

    def _vote(self, term: int) -> None:
        vote = self._random.choice([None, *CANDIDATES])
        if self._setup.is_assumed and term == 1:
            vote = OWN
        self._hard_state = HardState(term=term, vote=vote)
        self.log.set_hard_state(self._hard_state)
        self._changed()

    def _submit(self) -> None:
        self.log.submit()

    def _checkpoint(self) -> None:
        term = self.log.term_at(self._applied)
        if term is None or self._applied <= self._saved[-1][0]:
            return
        self.log.save_checkpoint(self._applied, term, MEMBERS, self._store.snapshot())
        self._promises.saved(self.log.token(), self._applied)
        self._saved = [self._saved[-1], (self._applied, self._first_live)]
        self._met["checkpoints"] += 1

    def _trim(self) -> None:
        """Early or late: the log holds back what its checkpoints need."""
        index, first_live_seq = self._random.choice([self._saved[0], (self._applied, self._first_live)])
        self._met["trimmed blocks"] += self.log.trim(first_live_seq, index)

    def _roll(self) -> None:
        if self.log.growing[0] is not None:
            self.log.roll_early()
            self._met["early rolls"] += 1

    # Compaction, as cluster/upkeep/compactor.py does it.

    def _compact(self) -> None:
        floor = self.log.checkpoint_floor
        ready = [plan for plan in self._plans if plan.index <= floor]
        self._plans = [plan for plan in self._plans if plan.index > floor]
        dead = [plan for plan in ready if plan.is_dead]
        if dead:
            index = max(plan.index for plan in dead)
            self._met["dropped blocks"] += self.log.upkeep.drop_dead([plan.block for plan in dead], index)
        for plan in ready:
            if not plan.is_dead:
                self._rewrite(plan)
        planned = {plan.block for plan in self._plans}
        self._plans += [
            Plan(block=block, index=self._applied, live=self._store.live_in(block))
            for block, _, _ in self._store.block_fill()
            if block not in planned and self.log.upkeep.compaction_source(block, self._applied) is not None
        ]

    def _rewrite(self, plan: Plan) -> None:
        source = self.log.upkeep.compaction_source(plan.block, plan.index)
        if source is None:
            return
        compacted = compact(self.log.place, source, plan.live, compressed=self._setup.is_compressed)
        if self._random.random() < 0.9 and self.log.upkeep.exchange(compacted):
            self._met["compacted blocks"] += 1
            if self._random.random() < 0.6:
                sync_directory(self._disk, source.path.parent)
        elif self._random.random() < 0.5:
            discard(self._disk, source.path)

    # Another member's log, as raft/recovery/catchup.py fetches and installs it.

    def _fetch(self) -> None:
        install = self._install
        if install is None:
            self._vote(self._hard_state.term + 1)  # the donor leads
            committed = self.history[: self._promises.commit]
            donor = Donor(self._number, committed, self._hard_state.term, self._setup, self._random)
            self._install = begin_install(self.log, donor)
        elif self._random.random() < ABANDONED_SHARE:
            install.staging.abandon()
            self._install = None
            self._vote(self._hard_state.term + 1)
            self._met["abandoned installs"] += 1
        elif not install.take(self._random):
            self._exchange_log(install)

    def _exchange_log(self, install: Install) -> None:
        self._install = None
        self.settle_all()
        before = self.promise
        donor, index = install.donor, len(install.donor.history)
        view, erasing = View(tuple(donor.history), self._hard_state), before.erasing | donor.erased
        self._frozen = attrs.evolve(before, on_their_way=(*before.on_their_way, view), erasing=erasing)
        self.log.close()
        self.log = install.finish()
        self.settle_all()  # until then a crash leaves either log
        erased = before.erased | donor.erased
        found = Promise(durable=view, commit=index, checkpoint=index, erasing=erasing, erased=erased)
        self._promises, self._frozen = Promises(found), None
        self.history, self._applied, self._plans = list(donor.history), index, []
        self._store = rebuilt(self.log, self.log.load_checkpoint(), self._setup.limits, index)
        self._saved = [(index, self._first_live)]
        self._met["installs"] += 1

    def settle_all(self) -> None:
        """Write everything that waits."""
        self.log.submit()
        self._disk.finish()
        assert self.log.durable_token == self.log.token()


_WEIGHTS: Final = {
    GroupLife._append: 40,
    GroupLife._cut: 6,
    GroupLife._elect: 6,
    GroupLife._submit: 17,
    GroupLife.settle: 9,
    GroupLife._checkpoint: 6,
    GroupLife._trim: 2,
    GroupLife._compact: 7,
    GroupLife._roll: 0.7,
    GroupLife._fetch: 1,
}
_OF_A_LEADER: Final = (GroupLife._append, GroupLife._cut, GroupLife._elect)  # not while another's log comes in
