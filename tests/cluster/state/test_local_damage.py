"""No damage on its own disk keeps a replica from applying a committed entry: every command over every damage.

An entry that cannot be applied stops its group after each restart. So a machine over a damaged log must not raise, and
must come to the state of one over a sound log, or say that it has met damage: then the group stops before it takes a
checkpoint, and applies the same entries again once the log is repaired.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_transitions import creation_of
from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.state.snapshot import encode_config
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.compaction import Plan, compact
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.config import ConsumerConfig, DeliverPolicy
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState, StoreError
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.cluster.lab import stream_config
from tests.cluster.state.test_any_command import COMMANDS
from tests.cluster.state.test_machine import Deaf
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

if TYPE_CHECKING:
    from jetraft.cluster.state.commands import ConsumerCommand, StreamCommand

GROUP: Final = Path("/groups/S-R1F-abcdefgh")
IDENTITY: Final = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
FORMS: Final = ["plain", "compacted", "s2", "encrypted", "encrypted and compacted"]
DAMAGES: Final = {
    "a missing file": ("open", errno.ENOENT),
    "no descriptor": ("open", errno.EMFILE),
    "an unreadable sector": ("read", errno.EIO),
    "a failed write": ("write", errno.EIO),
    "a full disk": ("write", errno.ENOSPC),
    "a failed fsync": ("sync", errno.EIO),
    "damaged frames": ("flip", 0),
    "a truncated file": ("truncate", 0),
}
AT_TIME: Final = ConsumerConfig(
    durable_name="t", deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=5000, name="t"
)


class Damageable:
    """A machine over a log on a disk. Blocks of the first messages are in the form that is asked for."""

    def __init__(self, form: str) -> None:
        self.disk = LossyDisk()
        self.disk.make_directory(GROUP.parent)
        self.disk.sync_names()
        self.heard: list[StoreError | OSError] = []
        secrets = Secrets(key=b"k" * 32) if form.startswith("encrypted") else None
        self.options = LogOptions(block_bytes_first=4096, block_bytes_max=4096, secrets=secrets)
        self.log = open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=0), self.options)
        self.log.set_hard_state(HardState(term=1, vote=None))
        self.machine = StreamMachine(StreamStore(self.log, StoreLimits(), on_damage=self.heard.append), Deaf())
        self._fill(is_summed=secrets is None)
        if "compacted" in form or form == "s2":
            self._compact(compressed=form == "s2")
        self.log.roll_early()
        self.messages(b"s.last")

    def _fill(self, *, is_summed: bool) -> None:
        self.add(Kind.STREAM_OP, commands.encode_stream_command(config_of()))
        for number in range(30):
            self.messages(b"s.a", b"s.b", b"x.%d" % (number % 3), is_summed=is_summed)
        for name in ("c", "d", "e"):
            creation = commands.CreateConsumer(name, encode_config(ConsumerConfig(durable_name=name)), 1)
            self.add(Kind.CONSUMER_OP, commands.encode_consumer_commands([creation]))

    def _compact(self, *, compressed: bool) -> None:
        gone = commands.Remove(commands.to_runs(range(8, 60)), erase=False)
        self.add(Kind.STREAM_OP, commands.encode_stream_command(gone))
        store, index = self.machine.store, self.log.last_index
        plans = [Plan(block=block, index=index, live=store.live_in(block)) for block, _, _ in store.block_fill()]
        for _ in range(2):
            self.messages(b"s.c")
            self.log.save_checkpoint(self.log.last_index, 1, b"", self.machine.snapshot())
            self.settle()
        rewritten = 0
        for plan in plans:
            source = self.log.upkeep.compaction_source(plan.block, plan.index)
            if source is not None and not plan.is_dead:
                done = compact(self.log.place, source, plan.live, compressed=compressed)
                rewritten += self.log.upkeep.exchange(done)
        assert rewritten

    def messages(self, *subjects: bytes, is_summed: bool = False) -> None:
        first_seq = self.machine.next_seq
        records = [make_record(subject, b"", b"data" * 40, ts_ns=first_seq * 1000) for subject in subjects]
        self.add(Kind.MESSAGES, records, count=len(records), first_seq=first_seq, summed=is_summed)

    def add(self, kind: int, body: Any, **fields: Any) -> None:
        index = self.log.last_index + 1
        frame = seal(kind, index=index, term=1, incarnation=7, body=body, **fields)
        self.log.append([Entry(index=index, term=1, kind=kind, frame=frame)])
        self.settle()
        self.machine.apply([Entry(index=index, term=1, kind=kind, frame=frame)])

    def settle(self) -> None:
        self.log.submit()
        self.disk.finish()

    def damage(self, what: str, random: Random) -> None:
        self.settle()
        operation, code = DAMAGES[what]
        names = [name for name in self.disk.list_directory(self.log.place.log) if name.endswith(".blk")]
        if code:
            self.disk.fail_always(operation, code)
            return
        for name in names[:-1]:
            path = self.log.place.log / name
            size = len(self.disk.read_whole(path))
            if operation == "truncate":
                self.disk.cut(path, size // 2)
            else:
                for at in range(130 + random.randrange(40), size, 100):
                    self.disk.flip_bit(path, at)

    def replay(self) -> StreamMachine:
        """Apply the log again over a disk that answers, as after a repair: from the last checkpoint."""
        self.disk.recover()
        self.log.close()
        self.disk.finish()
        self.log.place.ledger.close()
        self.log = open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=0), self.options)
        machine = StreamMachine(StreamStore(self.log, StoreLimits()), Deaf())
        checkpoint = self.log.load_checkpoint()
        if checkpoint is not None:
            machine.restore(checkpoint.state)
        applied = 0 if checkpoint is None else checkpoint.index
        for index in range(applied + 1, self.log.last_index + 1):
            machine.apply(self.log.entries(index, index, 0))
        return machine


def config_of() -> commands.SetConfig:
    return commands.SetConfig(encode_config(stream_config()), 1)


def body_of(command: StreamCommand | ConsumerCommand) -> tuple[Kind, bytes]:
    if isinstance(command, get_args(commands.StreamCommand)):
        return Kind.STREAM_OP, commands.encode_stream_command(command)
    return Kind.CONSUMER_OP, commands.encode_consumer_commands([command])  # type: ignore[list-item]


ERASE: Final = True
ALL: Final = {*get_args(commands.StreamCommand), *get_args(commands.ConsumerCommand)}
SEQS: Final = st.integers(1, 100)
READING: Final = st.one_of(  # commands that have had a reason to look at messages
    st.builds(commands.Remove, st.sets(SEQS, min_size=1, max_size=6).map(sorted).map(commands.to_runs), st.just(ERASE)),
    st.builds(commands.Digest, SEQS, SEQS, st.just(""), st.just(10)),
    st.builds(commands.NoteForgotten, SEQS, st.booleans()),
    st.just(commands.CreateConsumer("t", encode_config(AT_TIME), 1)),
    st.just(creation_of("r", AT_TIME, 1, StreamStore(MemLog(), StoreLimits()))),
)


@settings(max_examples=120, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    what=st.sampled_from(sorted(DAMAGES)),
    todo=st.lists(READING | COMMANDS, min_size=1, max_size=5),
    seed=st.integers(0, 1 << 16),
)
def test_every_command_is_applied_over_every_damage(
    form: str, what: str, todo: list[StreamCommand | ConsumerCommand], seed: int
) -> None:
    if form.startswith("encrypted"):
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    sound, damaged = Damageable(form), Damageable(form)
    damaged.damage(what, Random(seed))
    for command in todo:
        kind, body = body_of(command)
        for replica in (sound, damaged):
            index = replica.log.last_index + 1
            frame = seal(kind, index=index, term=1, incarnation=7, body=body)
            entry = Entry(index=index, term=1, kind=kind, frame=frame)
            if replica.log.failed is None:
                replica.log.append([entry])
                replica.log.submit()
            replica.machine.apply([entry])
    is_failing = damaged.heard or damaged.log.failed is not None
    assert is_failing or damaged.machine.snapshot() == sound.machine.snapshot()
    if what in {"no descriptor", "an unreadable sector"} and damaged.log.failed is None:
        damaged.disk.recover()
        damaged.settle()
        assert damaged.replay().snapshot() == sound.machine.snapshot()


def test_no_command_is_left_out() -> None:
    asked: set[type] = set()

    @settings(max_examples=1000, deadline=None, database=None, derandomize=True)
    @given(command=READING | COMMANDS)
    def collect(command: StreamCommand | ConsumerCommand) -> None:
        asked.add(type(command))

    collect()
    assert asked == ALL
