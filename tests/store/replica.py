"""A stream's log and store as a replica has them: entries applied in order, checkpoints, restarts; for tests."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.compaction import Plan, compact
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog

GROUP = Path("/groups/S-R1F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
NO_MESSAGES = 2**63
Message = tuple[bytes, bytes, bytes]  # subject, hdr, payload


class Replica:
    """Everything that is done is on disk when a method returns."""

    def __init__(self, disk: LossyDisk, options: LogOptions, limits: StoreLimits | None = None) -> None:
        self.disk = disk
        self.options = options
        self.limits = limits or StoreLimits()
        self.plans: list[Plan] = []
        self.sums = False  # whether messages have checksums of their own
        self.compressed = False  # whether blocks that are compacted are packed too
        self.start()
        if not self.log.hard_state.term:
            self.log.set_hard_state(HardState(term=1, vote=None))
            self.settle()

    # Life.

    def start(self) -> None:
        """Recover as a group does: the newest checkpoint, and the entries behind it."""
        self.log = self.opened()
        self.plans.clear()
        self.store = StreamStore(self.log, self.limits)
        checkpoint = self.log.load_checkpoint()
        self.applied = 0
        self.saved = [(0, 0)]
        if checkpoint is not None and checkpoint.state:
            self.store.restore(checkpoint.state)
            self.applied = checkpoint.index
            self.saved = [(checkpoint.index, self.first_live)]
        while self.applied < self.log.last_index:
            self.apply(self.log.entries(self.applied + 1, self.applied + 1, 0)[0])

    def opened(self) -> "FileLog":
        """The log as it is on disk."""
        log = open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=4000), self.options)
        if log.damaged_entries:  # as the only member of a group has it repaired
            log.repair.salvage()
            log.repair.give_up(log.damaged_entries)
        return log

    def restart(self) -> None:
        self.log.close()
        self.log.place.ledger.close()
        assert self.disk.open_files == 0
        self.start()

    def settle(self) -> None:
        self.log.submit()
        self.disk.finish()

    # Entries.

    def publish(self, messages: list[Message]) -> None:
        records = [
            _frame.make_record(subject, hdr, payload, ts_ns=self.log.last_index + 1)
            for subject, hdr, payload in messages
        ]
        self._append(Kind.MESSAGES, records, first_seq=self.store.next_seq, count=len(records), summed=self.sums)

    def command(self, name: str, *arguments: object) -> None:
        """An entry that removes: `remove` seqs erase, `purge` subject, `remove_below` seq."""
        self._append(Kind.STREAM_OP, [msgpack.packb((name, *arguments))])

    def _append(self, kind: Kind, body: list[bytes], **fields: Any) -> None:
        index = self.log.last_index + 1
        frame = _frame.seal(kind, index=index, term=1, incarnation=7, body=body, **fields)
        entry = Entry(index=index, term=1, kind=kind, frame=frame)
        self.log.append([entry])
        self.settle()
        self.apply(entry)
        self.settle()

    def apply(self, entry: Entry) -> None:
        if entry.kind == Kind.MESSAGES:
            self.store.apply_messages(entry)
        else:
            name, *arguments = msgpack.unpackb(entry.frame[48:])
            if name == "remove":
                self.store.remove(arguments[0], erase=arguments[1])
            elif name == "purge":
                self.store.purge(subject=arguments[0])
            else:
                self.store.remove_below(arguments[0])
        self.applied = entry.index

    # Upkeep.

    @property
    def first_live(self) -> int:
        return self.store.first_seq if self.store.messages else NO_MESSAGES

    def checkpoint(self) -> None:
        """Save one and trim behind the older one, as raft/checkpointing.py does."""
        if self.applied == self.saved[-1][0]:
            return
        self.log.save_checkpoint(self.applied, 1, b"", self.store.snapshot())
        self.settle()
        self.saved = [self.saved[-1], (self.applied, self.first_live)]
        self.log.trim(self.saved[0][1], self.saved[0][0])
        self.settle()

    def plan(self) -> None:
        known = {plan.block for plan in self.plans}
        self.plans += [
            Plan(block=block, index=self.applied, live=self.store.live_in(block))
            for block, _, _ in self.store.block_fill()
            if block not in known
        ]

    def carry_out(self) -> int:
        """Do the plans whose time has come, whether they gain much or not; returns how many were done."""
        ready = [plan for plan in self.plans if plan.index <= self.log.checkpoint_floor]
        self.plans = [plan for plan in self.plans if plan not in ready]
        done = 0
        for plan in ready:
            if plan.is_dead:
                done += self.log.upkeep.drop_dead([plan.block], plan.index)
                continue
            source = self.log.upkeep.compaction_source(plan.block, plan.index)
            if source is not None:
                done += self.log.upkeep.exchange(compact(self.log.place, source, plan.live, compressed=self.compressed))
        self.settle()
        return done

    def found(self) -> dict[int, Message]:
        """Every live message, read from the log."""
        loaded = self.store.load_many(range(self.store.first_seq, self.store.last_seq + 1))
        return {message.seq: (message.subject, message.hdr, message.payload) for message in loaded}

    def block_files(self) -> dict[str, bytes]:
        directory = self.log.place.log
        names = [name for name in self.disk.list_directory(directory) if name.endswith(".blk")]
        return {name: self.disk.read_whole(directory / name) for name in names}
