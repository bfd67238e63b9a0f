"""Blocks written again without what is gone: what stays, when it may happen, and what a crash leaves."""

from pathlib import Path
from random import Random

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.compaction import Compacted, compact, is_worthwhile, parity_path, tmp_path
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.scrub import verify
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId
from jetraft.store.port import HardState, StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of
from tests.store.replica import GROUP, IDENTITY, Replica

SMALL = LogOptions(block_bytes_first=4096, block_bytes_max=4096)
PAYLOAD = b"p" * 200
ERASE = True


@pytest.fixture
def disk() -> LossyDisk:
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    return disk


def updated_keys(disk: LossyDisk, options: LogOptions = SMALL, *, rounds: int = 12) -> Replica:
    """A key-value stream: ten keys of which five are written again and again, three messages an entry."""
    replica = Replica(disk, options, StoreLimits(max_msgs_per_subject=1))
    replica.publish([(b"k.%d" % key, b"", b"first") for key in range(5, 10)])
    for turn in range(rounds):
        for _ in range(3):
            replica.publish([(b"k.%d" % key, b"", PAYLOAD + b"%d" % turn) for key in range(5)])
    return replica


def upkeep(replica: Replica) -> int:
    """Plan, let two checkpoints pass, carry out; returns how many blocks changed."""
    replica.plan()
    for _ in range(2):
        replica.publish([(b"k.0", b"", PAYLOAD)])
        replica.checkpoint()
    return replica.carry_out()


def stored_bytes(replica: Replica) -> int:
    return replica.log.statistics().bytes_used


def test_what_lives_stays_and_the_rest_is_given_back(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    before, messages = stored_bytes(replica), replica.found()
    blocks = replica.log.statistics().blocks
    assert blocks > 8

    assert upkeep(replica) > 5

    messages[replica.store.last_seq] = (b"k.0", b"", PAYLOAD)
    assert replica.found() == {seq: m for seq, m in messages.items() if replica.store.subject_of(seq) is not None}
    assert stored_bytes(replica) < before / 4
    assert replica.log.statistics().blocks < blocks / 2
    kept = replica.found()
    replica.restart()
    assert replica.found() == kept
    assert replica.store.message_bytes_total == sum(22 + 8 + len(s) + len(p) for s, _, p in kept.values())


def test_nothing_may_go_before_both_checkpoints_are_behind_the_plan(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    replica.checkpoint()
    replica.publish([(b"k.0", b"", PAYLOAD)])
    replica.plan()
    before = replica.block_files()
    replica.carry_out()
    assert replica.block_files() == before
    replica.publish([(b"k.0", b"", PAYLOAD)])
    replica.checkpoint()
    replica.carry_out()
    assert replica.plans, "one checkpoint kept is still from before the plan"
    replica.publish([(b"k.0", b"", PAYLOAD)])
    replica.checkpoint()
    assert replica.carry_out() > 5


@pytest.mark.parametrize("damaged", ["newest checkpoint", "none"])
def test_either_checkpoint_can_be_the_next_start(disk: LossyDisk, damaged: str) -> None:
    replica = updated_keys(disk)
    upkeep(replica)
    expected = replica.found()
    replica.log.close()
    if damaged == "newest checkpoint":
        names = [name for name in disk.list_directory(replica.log.place.log) if name.endswith(".ckpt")]
        disk.flip_bit(replica.log.place.log / names[-1], 120)
    replica.start()
    assert replica.found() == expected


def test_the_log_begins_behind_what_was_compacted_and_its_entries_are_no_longer_sent(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    upkeep(replica)
    log = replica.log
    places = [(index, log.locate(index)) for index in range(1, log.last_index + 1)]
    compacted = [index for index, _ in places if log.is_compacted(index)]
    assert compacted
    assert log.first_index > max(compacted)
    assert log.boundary == (log.first_index - 1, 1)
    first = log.first_index
    replica.restart()
    assert replica.log.first_index == first
    assert [index for index in range(1, first) if replica.log.is_compacted(index)] == compacted


def test_a_compacted_block_is_compacted_again(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    upkeep(replica)
    once = stored_bytes(replica)
    for round_number in range(3):
        replica.command("purge", b"k.%d" % (5 + round_number))
        if round_number == 1:
            replica.restart()
        upkeep(replica)
    expected = replica.found()
    assert stored_bytes(replica) < once
    replica.restart()
    assert replica.found() == expected


@pytest.mark.parametrize("secrets", [None, Secrets(key=b"k")])
def test_a_message_in_a_compacted_block_can_be_erased(disk: LossyDisk, secrets: Secrets | None) -> None:
    if secrets is not None:
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    replica = updated_keys(disk, LogOptions(block_bytes_first=4096, block_bytes_max=4096, secrets=secrets))
    upkeep(replica)
    for restarted in (False, True):
        seq = replica.store.last_for(b"k.6" if restarted else b"k.5")
        assert seq is not None
        if restarted:
            replica.restart()
        replica.command("remove", [seq], ERASE)
        expected = replica.found()
        assert seq not in expected
        assert len(expected) == 8 if restarted else 9
    replica.restart()
    assert replica.found() == expected
    data = b"".join(replica.block_files().values())
    assert data.count(b"first") == (3 if secrets is None else 0)


def test_what_changed_while_a_block_was_written_anew_wins(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    compacted = one_compacted(replica)
    seq = replica.store.last_for(b"k.5")
    assert seq is not None
    replica.command("remove", [seq], ERASE)  # the erased message is in that block
    assert not replica.log.upkeep.exchange(compacted)
    expected = replica.found()
    replica.restart()
    assert replica.found() == expected


def one_compacted(replica: Replica) -> Compacted:
    """The oldest block written again, not yet in its place."""
    replica.plan()
    for _ in range(2):
        replica.publish([(b"k.0", b"", PAYLOAD)])
        replica.checkpoint()
    plan = replica.plans[0]
    source = replica.log.upkeep.compaction_source(plan.block, plan.index)
    assert source is not None
    return compact(replica.log.place, source, plan.live)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("exchanged", [False, True])
def test_a_crash_leaves_the_old_block_or_the_new_one(disk: LossyDisk, seed: int, *, exchanged: bool) -> None:
    replica = updated_keys(disk)
    compacted = one_compacted(replica)
    if exchanged:
        assert replica.log.upkeep.exchange(compacted)
    expected = replica.found()
    disk.crash(Random(seed))
    replica.start()
    assert replica.found() == expected
    assert not any(name.endswith(".tmp") for name in disk.list_directory(replica.log.place.log))


def test_a_new_file_that_the_device_has_not_got_right_is_not_used(disk: LossyDisk) -> None:
    class Forgetful(LossyDisk):
        forgets = False

        def forget_cached(self, fd: int) -> None:
            super().forget_cached(fd)
            if self.forgets:
                self._file(fd).data[200] ^= 1

    forgetful = Forgetful()
    forgetful.make_directory(GROUP.parent)
    forgetful.sync_names()
    replica = updated_keys(forgetful)
    forgetful.forgets = True
    with pytest.raises(StoreCorrupt, match="the device returns other bytes than were written"):
        one_compacted(replica)


def test_damage_in_a_compacted_block_is_found_and_its_other_messages_are_served(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    upkeep(replica)
    log = replica.log
    targets = [target for target in log.upkeep.scrub_targets() if log.is_compacted(target.last_index)]
    for target in targets:
        verify(disk, target)
    index, frame = next((entry.index, entry.frame) for _, entry in log.frames(1, targets[0].last_index))
    expected = replica.found()
    log.close()
    disk.unlink(parity_path(targets[0].path))
    disk.flip_bit(targets[0].path, 128 + 32 + 70)
    with pytest.raises(StoreCorrupt):
        verify(disk, targets[0])
    with pytest.raises(StoreCorrupt):
        replica.start()
    replica.options = LogOptions(mode=RecoveryMode.SALVAGE)

    damaged = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), replica.options)
    assert damaged.damaged_entries == ((index, index),)
    repair(damaged, {index: frame}).close()
    replica.start()

    assert replica.log.damaged_entries == ()
    assert replica.log.is_compacted(index)
    assert replica.found() == expected


def test_an_entry_of_a_compacted_block_that_nobody_has_is_given_up_alone(disk: LossyDisk) -> None:
    replica = updated_keys(disk)
    upkeep(replica)
    expected = replica.found()
    replica.log.close()
    (target, *_) = replica.log.upkeep.scrub_targets()
    disk.unlink(parity_path(target.path))
    disk.flip_bit(target.path, 128 + 32 + 70)

    log = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE))
    log.repair.give_up(log.damaged_entries)
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    store = StreamStore(log, StoreLimits(max_msgs_per_subject=1))
    store.restore(checkpoint.state)

    assert store.lost() == [(1, 5)]
    assert {seq: store.load(seq) is not None for seq in expected if 5 < seq <= store.last_seq} == {
        seq: True for seq in expected if 5 < seq <= store.last_seq
    }


@pytest.mark.parametrize("sender", [None, Secrets(key=b"one")])
@pytest.mark.parametrize("receiver", [None, Secrets(key=b"two")])
def test_a_compacted_log_is_copied_to_another_member(
    disk: LossyDisk, sender: Secrets | None, receiver: Secrets | None
) -> None:
    if sender or receiver:
        pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    replica = updated_keys(disk, LogOptions(block_bytes_first=4096, block_bytes_max=4096, secrets=sender))
    upkeep(replica)
    found = replica.log.manifest(1)
    assert found is not None
    manifest, checkpoint = found
    other = Path("/groups/other")
    identity = attrs.evolve(IDENTITY, group_id=GroupId("other"))
    target = open_log(replica.log.place.ledger, other, identity, BlockCache(), LogOptions(secrets=receiver))
    target.set_hard_state(HardState(term=1, vote=None))
    target.submit()
    disk.finish()
    staging = target.begin_install(manifest, checkpoint)
    while (wanted := staging.missing()) is not None:
        block, offset, size = wanted
        staging.put_chunk(block, offset, replica.log.read_chunk(block, offset, min(size, 333)))
    target.close()

    copy = StreamStore(staging.finish(), StoreLimits())
    copy.restore(checkpoint.state)

    expected = {seq: message for seq, message in replica.found().items() if seq <= copy.last_seq}
    assert {seq: (m.subject, m.hdr, m.payload) for seq in expected if (m := copy.load(seq))} == expected
    assert copy.messages == len(expected)


def test_a_block_is_worth_it_when_half_of_it_is_gone() -> None:
    assert is_worthwhile(1 << 20, 1 << 19)
    assert not is_worthwhile(1 << 20, (1 << 19) + 1)
    assert not is_worthwhile(100_000, 50_000)  # a small gain is not worth three fsyncs


def test_the_temporary_file_has_a_name_that_an_opening_removes() -> None:
    assert tmp_path(Path("/x/1-1.blk")).name == "1-1.blk.tmp"
