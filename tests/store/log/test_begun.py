"""The first entries of a log, which the ledger keeps until there is a block: no file, and as good as one."""

import errno
from pathlib import Path
from random import Random

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.ledger_records import GroupState, NodeState
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R1F-abcdefgh")
LOG = GROUP / "log-00000001"
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)
OPTIONS = LogOptions(begun_bytes_max=300)
VOTED = HardState(term=1, vote=IDENTITY.node_id)


def opened(disk: LossyDisk, options: LogOptions = OPTIONS) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), options)


def entry(index: int, *, term: int = 1, kind: Kind = Kind.STREAM_OP, body: bytes = b"configuration") -> Entry:
    count = int(kind is Kind.MESSAGES)
    if count:
        body = _frame.make_record(b"s", b"", body, ts_ns=index)
    frame = _frame.seal(kind, index=index, term=term, incarnation=7, body=body, first_seq=count, count=count)
    return Entry(index=index, term=term, kind=kind, frame=frame)


def settle(disk: LossyDisk, log: FileLog) -> None:
    log.submit()
    disk.finish()
    assert log.durable_token == log.token()


def founded(disk: LossyDisk, options: LogOptions = OPTIONS) -> FileLog:
    """A log as the only member of a group begins it: vote, members and the first entry in one batch."""
    log = opened(disk, options)
    log.set_hard_state(VOTED)
    log.save_checkpoint(0, 0, b"members", b"")
    log.append([entry(1)])
    settle(disk, log)
    return log


def append(disk: LossyDisk, log: FileLog, *entries: Entry) -> None:
    log.append(entries)
    settle(disk, log)


def found(log: FileLog) -> list[Entry]:
    return log.entries(1, log.last_index, 1 << 20) if log.last_index else []


def state_of(log: FileLog) -> GroupState:
    state = log.place.ledger.state(log.place.key)
    assert state is not None
    return state


@pytest.mark.parametrize("seed", range(20))
def test_a_first_entry_is_there_after_a_power_cut_without_a_file(seed: int) -> None:
    disk = LossyDisk()
    log = founded(disk)
    assert log.durable_index == 1
    disk.crash(Random(seed))
    assert disk.list_directory(LOG) == []
    log = opened(disk)
    assert (found(log), log.durable_index, log.hard_state) == ([entry(1)], 1, VOTED)
    assert log.token() == log.durable_token, "there is nothing to write"


@pytest.mark.parametrize("seed", range(20))
def test_the_vote_and_the_first_entry_come_together_or_not_at_all(seed: int) -> None:
    disk = LossyDisk()
    log = opened(disk)
    log.set_hard_state(VOTED)
    log.append([entry(1)])
    log.submit()
    disk.crash(Random(seed))
    log = opened(disk)
    assert (log.last_index, log.hard_state.term) in {(0, 0), (1, 1)}


@pytest.mark.parametrize("steps", range(20))
def test_a_kill_beside_a_checkpoint_of_the_first_entries_does_not_make_the_ledger_an_older_one(steps: int) -> None:
    """Its file and the first block are there before the ledger says so: all that counts is in the ledger."""
    disk, options = LossyDisk(), LogOptions(begun_bytes_max=2000)
    log = founded(disk, options)
    append(disk, log, entry(2, kind=Kind.NOOP))
    assert len(state_of(log).begun) == 2
    log.save_checkpoint(2, 1, b"members", b"state")
    log.submit()
    for _ in range(steps):
        disk.step()
    disk.kill()
    log = opened(disk, options)
    assert (found(log), log.hard_state) == ([entry(1), entry(2, kind=Kind.NOOP)], VOTED)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_makes_a_block_with_what_the_ledger_had(seed: int, *, restarts: bool) -> None:
    disk = LossyDisk()
    log = founded(disk)
    if restarts:
        log.close()
        log = opened(disk)
    append(disk, log, entry(2, kind=Kind.MESSAGES))
    assert (len(state_of(log).births), state_of(log).begun) == (1, ())
    disk.crash(Random(seed))
    log = opened(disk, LogOptions())
    assert found(log) == [entry(1), entry(2, kind=Kind.MESSAGES)]
    assert log.damaged_entries == ()


@pytest.mark.parametrize("steps", range(20))
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_while_the_first_block_is_made(seed: int, steps: int) -> None:
    disk = LossyDisk()
    log = founded(disk)
    log.append([entry(2, kind=Kind.MESSAGES)])
    log.submit()
    for _ in range(steps):
        disk.step()
    disk.crash(Random(seed))
    log = opened(disk)
    assert found(log)[:1] == [entry(1)]
    assert log.damaged_entries == ()
    append(disk, log, entry(log.last_index + 1, kind=Kind.MESSAGES))


def test_no_ops_go_to_the_ledger_until_they_are_too_many() -> None:
    """Each start of a member that is alone writes one."""
    disk = LossyDisk()
    log = founded(disk)
    append(disk, log, entry(2, kind=Kind.NOOP))
    assert state_of(log).begun == (entry(1).frame, entry(2, kind=Kind.NOOP).frame)
    assert disk.list_directory(LOG) == []
    append(disk, log, *(entry(index, kind=Kind.NOOP) for index in range(3, 9)))
    assert (len(disk.list_directory(LOG)), state_of(log).begun) == (1, ())
    log.close()
    assert opened(disk).last_index == 8


@pytest.mark.parametrize("kind", [Kind.STREAM_OP, Kind.CONSUMER_OP, Kind.RAFT_CONFIG])
def test_what_only_this_log_knows_has_a_block_before_it_counts(kind: Kind) -> None:
    """Both copies of the ledger may be lost, and the only member goes on with what is in its blocks."""
    disk = LossyDisk()
    log = founded(disk)
    append(disk, log, entry(2, kind=kind))
    assert (len(state_of(log).births), state_of(log).begun) == (1, ())
    disk = LossyDisk()
    log = opened(disk)
    log.set_hard_state(VOTED)
    append(disk, log, entry(1, kind=Kind.META))
    assert len(state_of(log).births) == 1, "the table of the meta group"


def test_messages_checkpoints_and_encryption_want_a_file_at_once() -> None:
    disk = LossyDisk()
    log = opened(disk)
    log.set_hard_state(VOTED)
    append(disk, log, entry(1, kind=Kind.MESSAGES))
    assert len(state_of(log).births) == 1, "a message can be erased, in a block"
    disk = LossyDisk()
    log = founded(disk)
    log.save_checkpoint(1, 1, b"members", b"state")
    settle(disk, log)
    assert (len(state_of(log).births), len(disk.list_directory(LOG))) == (1, 2)
    disk = LossyDisk()
    log = founded(disk, attrs.evolve(OPTIONS, secrets=Secrets(key=b"k" * 32)))
    assert (len(state_of(log).births), state_of(log).begun) == (1, ()), "the ledger is not encrypted"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("index", [1, 2])
def test_a_cut_takes_entries_away_that_only_the_ledger_has(seed: int, index: int) -> None:
    disk = LossyDisk()
    log = founded(disk)
    append(disk, log, entry(2, kind=Kind.NOOP))
    log.set_hard_state(HardState(term=2, vote=None))
    log.cut_from(index)
    other = entry(index, term=2, body=b"another")
    append(disk, log, other)
    expected = [entry(1), other][2 - index :] if index == 1 else [entry(1), other]
    assert found(log) == expected
    disk.crash(Random(seed))
    assert found(opened(disk)) == expected


def assumed(disk: LossyDisk) -> FileLog:
    """A log whose beginning follows from something durable, after its first step, of which nothing is on the disk."""
    log = opened(disk)
    log.durability.assume_beginning(is_alone=True)
    log.set_hard_state(VOTED)
    log.save_checkpoint(0, 0, b"members", b"")
    log.submit()
    log.append([entry(1)])
    log.submit()
    return log


def test_what_follows_from_something_durable_counts_without_a_batch() -> None:
    disk = LossyDisk()
    log = assumed(disk)
    assert (log.durable_token, log.durable_index) == (log.token(), 1)
    assert not log.is_secure
    assert not log.durability.is_busy
    assert log.place.ledger.is_idle
    assert (state_of(log).begun, state_of(log).hard_state) == ((entry(1).frame,), VOTED), "as another opening is to see"
    log.close()
    again = open_log(log.place.ledger, GROUP, IDENTITY, BlockCache(), OPTIONS)
    assert (found(again), again.hard_state) == ([entry(1)], VOTED)


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("seed", range(5))
def test_an_assumed_beginning_is_there_after_a_crash_or_nothing_is(seed: int, steps: int) -> None:
    disk = LossyDisk()
    log = assumed(disk)
    assert not log.note_floor()
    for _ in range(steps):
        disk.step()
    is_secure = log.is_secure
    disk.crash(Random(seed))
    log = opened(disk)
    allowed = {(1, 1)} if is_secure else {(0, 0), (1, 1)}
    assert (log.last_index, log.hard_state.term) in allowed
    if not log.last_index:
        log = assumed(disk)
    append(disk, log, entry(2, kind=Kind.MESSAGES))
    disk.crash(Random(seed))
    assert found(opened(disk)) == [entry(1), entry(2, kind=Kind.MESSAGES)]


def test_the_ledger_has_an_assumed_beginning_when_floors_are_noted() -> None:
    disk = LossyDisk()
    log = assumed(disk)
    log.note_floor()
    disk.finish()
    assert log.is_secure


@pytest.mark.parametrize("steps", range(24))
@pytest.mark.parametrize("seed", range(3))
def test_what_comes_after_an_assumed_beginning_is_durable_with_it(seed: int, steps: int) -> None:
    disk = LossyDisk()
    log = assumed(disk)
    log.append([entry(2, kind=Kind.MESSAGES)])
    log.submit()
    assert log.durable_index == 1
    for _ in range(steps):
        disk.step()
    durable_index = log.durable_index
    assert durable_index == 1 or log.is_secure
    disk.crash(Random(seed))
    log = opened(disk)
    assert log.damaged_entries == ()
    if durable_index > 1:
        assert found(log) == [entry(1), entry(2, kind=Kind.MESSAGES)]
    assert (log.last_index > 0) is (log.hard_state.term > 0)


@pytest.mark.parametrize(("term", "vote"), [(1, None), (1, NodeId("N7654321")), (2, None)])
def test_a_promise_to_others_is_never_assumed(term: int, vote: NodeId | None) -> None:
    disk, hard_state = LossyDisk(), HardState(term=term, vote=vote)
    log = opened(disk)
    log.durability.assume_beginning(is_alone=True)
    log.set_hard_state(hard_state)
    log.submit()
    assert log.durable_token < log.token()
    disk.finish()
    log.append([entry(1, term=hard_state.term)])
    log.submit()
    assert log.durable_token < log.token(), "nor what comes after it"


@pytest.mark.parametrize("seed", range(10))
def test_a_member_among_others_assumes_who_they_are_and_nothing_else(seed: int) -> None:
    disk = LossyDisk()
    log = opened(disk)
    log.durability.assume_beginning(is_alone=False)
    log.save_checkpoint(0, 0, b"members", b"")
    log.submit()
    assert (log.durable_token, log.place.ledger.is_idle, log.is_secure) == (log.token(), True, False)
    log.set_hard_state(VOTED)
    log.submit()
    assert log.durable_token < log.token()
    disk.finish()
    assert log.is_secure
    log.append([entry(1)])
    log.submit()
    assert log.durable_index == 0, "it will be said to be here"
    disk.crash(Random(seed))
    log = opened(disk)
    found_checkpoint = log.load_checkpoint()
    assert found_checkpoint is not None
    assert (found_checkpoint.members, log.hard_state) == (b"members", VOTED)


def test_a_log_that_has_begun_goes_on_as_it_does() -> None:
    disk = LossyDisk()
    founded(disk).close()
    log = opened(disk)
    log.durability.assume_beginning(is_alone=True)
    log.append([entry(2, kind=Kind.NOOP)])
    log.submit()
    assert log.durable_index == 1


def test_what_is_assumed_outlives_a_batch_that_fails() -> None:
    disk = LossyDisk()
    log = assumed(disk)
    disk.fail_next("write", errno.ENOSPC)
    log.note_floor()
    disk.finish()
    assert not log.is_secure
    log.note_floor()
    disk.finish()
    assert log.is_secure
    disk.crash(Random(1))
    assert found(opened(disk)) == [entry(1)]


def test_no_floor_is_noted_for_what_the_ledger_has_itself() -> None:
    disk = LossyDisk()
    log = founded(disk)
    assert not log.note_floor()
    disk.crash(Random(0))
    log = opened(disk)
    assert not log.note_floor(), "without a block it would say that one is missing"
    append(disk, log, entry(2, kind=Kind.MESSAGES))
    assert log.note_floor()
    disk.finish()
    assert state_of(log).floor.log_index == 2


@pytest.mark.parametrize("has_block", [False, True])
def test_a_member_that_has_lost_its_promises_goes_on_with_its_first_entries_once(*, has_block: bool) -> None:
    """Where the ledger has lost the birth of the first block, it still has the entries with which that begins."""
    disk = LossyDisk()
    log = founded(disk)
    expected = [entry(1)]
    if has_block:
        state = state_of(log)
        append(disk, log, entry(2, kind=Kind.MESSAGES))
        expected.append(entry(2, kind=Kind.MESSAGES))
        log.place.ledger.commit_now(ledger_records.replaced(log.place.key, state))
    ledger = log.place.ledger
    ledger.commit_now(ledger_records.replaced(log.place.key, attrs.evolve(state_of(log), memory_lost=True)))
    ledger.close()
    for _ in range(2):
        log = opened(disk, attrs.evolve(OPTIONS, accept_lost_hard_state=True))
        assert (found(log), log.hard_state.term) == (expected, 1)
        settle(disk, log)
        disk.crash(Random(1))
    state = state_of(opened(disk))
    assert (bool(state.births), bool(state.begun)) == (has_block, not has_block)


def test_the_floor_of_a_first_block_is_noted_also_when_nothing_follows_the_first_entry() -> None:
    disk = LossyDisk()
    log = founded(disk)
    log.roll_early()
    settle(disk, log)
    assert state_of(log).births
    assert log.note_floor()


def test_the_ledger_keeps_first_entries_when_it_is_written_anew_and_reads_states_without_them() -> None:
    disk = LossyDisk()
    log = founded(disk)
    ledger = log.place.ledger
    ledger._rewrite_at = 0
    ledger.commit_now()
    ledger.close()
    assert found(opened(disk)) == [entry(1)]
    state, key = NodeState(), (GroupId("g"), 1)
    plain = ledger_records.replaced(key, GroupState(hard_state=VOTED))
    state.apply(plain)
    assert state.groups[key].begun == ()
    state.apply(ledger_records.begun(key, [b"frame"]))
    assert list(state.records()) == [ledger_records.replaced(key, state.groups[key])]
    assert len(plain) < len(ledger_records.replaced(key, state.groups[key])), "as before where there are none"
