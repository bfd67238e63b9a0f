"""A checkpoint of a stream with a million times to live holds up nobody: its table is written in another thread."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

import pytest

from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.state.snapshot import Snapshot
from jetraft.raft.checkpointing import Checkpointer, CheckpointPolicy
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import RECORD_HAS_TTL, Identity, Kind
from jetraft.store.log.opening import open_log
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.cluster.state.test_machine import Deaf
from tests.store.ledgers import ledger_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jetraft.store.log.file_log import FileLog

OWN: Final = NodeId("N1234567")
IDENTITY: Final = Identity(node_id=OWN, group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
MESSAGES: Final = 1_000_000
OF_AN_ENTRY: Final = 2_000
STEP_NS_MAX: Final = 20_000_000
HDR: Final = b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n"


def fill(log: FileLog, machine: StreamMachine) -> None:
    """Append and apply all messages."""
    for number in range(MESSAGES // OF_AN_ENTRY):
        records = [make_record(b"s.a", HDR, b"x", ts_ns=number, flags=RECORD_HAS_TTL)] * OF_AN_ENTRY
        first_seq = number * OF_AN_ENTRY + 1
        frame = seal(
            Kind.MESSAGES,
            index=number + 1,
            term=1,
            incarnation=7,
            body=records,
            first_seq=first_seq,
            count=OF_AN_ENTRY,
        )
        entry = Entry(index=number + 1, term=1, kind=Kind.MESSAGES, frame=frame)
        log.append([entry])
        machine.apply([entry])
        log.submit()


@pytest.mark.campaign
def test_no_step_of_the_turn_is_long_while_a_stream_with_a_million_times_to_live_takes_a_checkpoint(
    tmp_path: Path,
) -> None:
    writer = Writer(2)
    log = open_log(
        ledger_of(LocalDisk(writer), tmp_path / "groups" / "g"), tmp_path / "groups" / "g", IDENTITY, BlockCache()
    )
    machine = StreamMachine(StreamStore(log, StoreLimits(max_msgs=MESSAGES)), Deaf())
    log.set_hard_state(HardState(term=1, vote=OWN))
    history = ConfigurationHistory(Configuration(voters=(OWN,)))
    fill(log, machine)
    checkpointer = Checkpointer(
        CheckpointPolicy(), log=log, machine=machine, configurations=history, index=0, state_bytes=0
    )
    while log.durable_token < log.token():
        select.select([writer], [], [])
        writer.drain()
    machine.store.remove(list(range(1, MESSAGES, 1000)), erase=False)
    expected = machine.snapshot()
    steps: list[int] = []

    def step(act: Callable[[], object]) -> None:
        began = time.thread_time_ns()  # of the processor: other processes have no part in it
        act()
        steps.append(time.thread_time_ns() - began)

    step(lambda: checkpointer.save(log.last_index, 1))
    step(log.submit)
    while log.durable_token < log.token():
        select.select([writer], [], [])
        step(writer.drain)

    assert max(steps) <= STEP_NS_MAX, steps
    found = log.checkpoint_reader()()
    assert found is not None
    assert found.state == expected
    assert len(Snapshot.decode(found.state).ttl) > MESSAGES
    log.close()
    log.place.ledger.close()
    writer.stop()
