"""The rules of docs/storage.md, each switched off, and the test that notices it.

A rule says what happens `instead`. Where a unit test shows the rule, that test is run over the mutation here; the
others are noticed by the exploration of crashes (tests/crash_states/mutations.py) or by lives on a disk that damages
what it keeps (tests/crash_states/damaged_lives.py), and named by what happens instead there. Rules that compiled code
keeps are switched off in tests/store/compiled.py.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from jetraft.cluster.state import commands
from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.upkeep import quarantine
from jetraft.cluster.upkeep.sweeping import Sweeper
from jetraft.store.blocks import parity
from jetraft.store.blocks.block import Block
from jetraft.store.blocks.proofs import Proofs
from jetraft.store.frames._frame import scan as scan_frames
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, Identity
from jetraft.store.ledger import ledger_records, legacy, node_dir, reading
from jetraft.store.ledger.expected import Expected
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log import erasure, opening, recovery, retained_checkpoints, scrub, tail, write_queue
from jetraft.store.log.durability import Durability
from jetraft.store.log.start import LogOptions
from jetraft.store.log.upkeep import BlockUpkeep
from jetraft.store.stream import stream_store
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.cluster.state import test_local_damage, test_machine
from tests.cluster.upkeep import test_compactor, test_quarantine, test_sweeping
from tests.doubles.lossy_disk import LossyDisk
from tests.store.blocks import test_damage_scan
from tests.store.disk import test_copies
from tests.store.ledger import test_ledger, test_node_dir
from tests.store.log import (
    test_encrypted_log,
    test_erasure,
    test_local_loss,
    test_log_parts,
    test_mended_blocks,
    test_recovery,
    test_scarce_room,
    test_scrub,
    test_upkeep_over_faults,
    test_witnesses,
)
from tests.store.replica import GROUP, NO_MESSAGES, Replica
from tests.store.stream import test_lost_messages, test_stream_store

Patch = pytest.MonkeyPatch
LEFT_BYTES: Final = 400  # of a newest block: the end is gone, and what is left is sound


@attrs.frozen
class Mutation:
    """A rule broken: `instead` happens, and `witness` fails."""

    rule: str
    instead: str
    switch: Callable[[Patch], None]
    witness: Callable[[], object]


class _Equal:
    """Is equal to whatever it is compared with."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # nothing keeps it


def _setting(target: object, name: str, value: object) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, name, value)


def _roomy() -> LossyDisk:
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    return disk


def _scrubbed() -> None:
    """The replica that the tests of upkeep get from a fixture."""
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    replica = Replica(disk, test_upkeep_over_faults.OPTIONS)
    test_upkeep_over_faults.test_the_scrub_reads_what_grows_and_the_checkpoints(replica, "growing block")


def _keyed() -> Replica:
    """The same of the tests of a loss."""
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    replica = Replica(disk, test_local_loss.OPTIONS, StoreLimits(max_msgs_per_subject=1))
    replica.sums = True
    replica.publish([(b"keep.%d" % key, b"", b"kept number %d" % key) for key in range(4)])
    test_local_loss.write(replica, rounds=30)
    return replica


def _kept_though_whole() -> None:
    """What the test of the quarantine asks, of the module that the mutation changes."""
    for copy in (test_quarantine.LOG, test_quarantine.BYTES):
        assert quarantine.why_superfluous(copy, test_quarantine.WHOLE, 1) == "the replica here is whole again"


def _erased_while_a_rewrite_waited() -> None:
    run = partial(test_compactor.test_what_is_erased_while_a_rewrite_waits_goes_with_the_next_one, None)
    trio.run(run, clock=MockClock(autojump_threshold=0))


def _erased_before_a_restart() -> None:
    test = test_compactor.test_the_subject_of_an_erased_message_goes_also_after_a_restart
    trio.run(partial(test, None, "both checkpoints"), clock=MockClock(autojump_threshold=0))


def _erased_over_an_unreadable_disk() -> None:
    damaged = test_local_damage.Damageable("plain")
    damaged.damage("an unreadable sector", Random(0))
    kind, body = test_local_damage.body_of(commands.Remove(commands.to_runs([3]), erase=True))
    damaged.add(kind, body)
    assert damaged.heard


def _compacted_over_a_loss() -> None:
    test_local_loss.test_a_log_with_a_lost_message_is_compacted_and_its_dead_blocks_go(_keyed())


async def _always(_sweeper: Sweeper) -> bool:
    await trio.lowlevel.checkpoint()
    return True


def _nothing_is_proved(patch: Patch) -> None:
    init = Sweeper.__init__

    def credulous(sweeper: Sweeper, *arguments: Any, **named: Any) -> None:
        init(sweeper, *arguments, **named)
        sweeper._is_current = partial(_always, sweeper)

    patch.setattr(Sweeper, "__init__", credulous)


def _swept() -> None:
    clock = MockClock(autojump_threshold=0)
    test = test_sweeping.test_nothing_is_looked_for_before_the_meta_leader_has_confirmed_the_table
    trio.run(test, clock, clock=clock)


def _a_loss_is_that_of_the_log(patch: Patch) -> None:
    at_rest = BlockUpkeep._block_at_rest

    def cautious(upkeep: BlockUpkeep, number: int) -> Block | None:
        return None if upkeep._damage.lost else at_rest(upkeep, number)

    patch.setattr(BlockUpkeep, "_block_at_rest", cautious)


def _journals_are_empty(patch: Patch) -> None:
    pack = erasure.pack
    patch.setattr(erasure, "pack", lambda _rewrites, identity: pack([], identity))


def _erased_after_a_kill() -> None:
    test_mended_blocks.test_a_kill_between_the_journal_and_the_erasure_leaves_no_parity()


def _trimmed_to_the_older_checkpoint() -> None:
    """Whoever asks for it: a start may have to do with the older one."""
    disk = _roomy()
    replica = Replica(disk, LogOptions(block_bytes_first=4096, block_bytes_max=4096))
    for _ in range(2):
        for _ in range(30):
            replica.publish([(b"s.a", b"", bytes(300))])
        replica.checkpoint()
    older, newest = replica.log.checkpoint_floor, replica.applied
    assert replica.log.trim(NO_MESSAGES, newest)
    assert replica.log.locate(older + 1) is not None


def _errors_of_apply_are_raised(patch: Patch) -> None:
    class Unheard(Exception):  # noqa: N818  (stands for an error that is not caught)
        pass

    patch.setattr(stream_store, "StoreError", Unheard)


def noted_at_once(patch: Patch) -> None:
    def note(durability: Durability) -> bool:
        end = durability._end_to_note()
        if end is not None:
            place = durability._state.place
            place.ledger.append([ledger_records.floor(place.key, end)], lambda _: None)
        return end is not None

    patch.setattr(Durability, "note_floor", note)


MUTATIONS: Final = (
    Mutation(
        "S1",
        "a file that is shorter than the ledger says is taken as it is",
        _setting(Expected, "is_short", lambda *_: False),
        lambda: test_recovery.test_a_block_that_has_lost_its_end_is_damaged(LossyDisk(), LEFT_BYTES),
    ),
    Mutation(
        "S1",
        "a log that the ledger does not know was never there, whatever its blocks say",
        _setting(legacy, "outdated", lambda *_, **__: ""),
        lambda: test_witnesses.test_a_log_counts_though_both_copies_of_the_ledger_are_older("nothing"),
    ),
    Mutation(
        "S1",
        "a block that the ledger of the only member does not know was never finished",
        _setting(legacy, "continuation", lambda *_: None),
        lambda: test_witnesses.test_a_block_with_one_batch_counts_though_the_ledger_is_older_and_no_second_mark_says_so(
            "of one block"
        ),
    ),
    Mutation(
        "S1",
        "a ledger with a lower term than the log's is believed",
        _setting(legacy, "is_below", lambda *_: False),
        lambda: test_witnesses.test_a_ledger_that_knows_a_lower_term_than_the_log_is_older(is_alone=True),
    ),
    Mutation(
        "S1",
        "of two ledgers the one with the higher generation counts",
        _setting(reading, "_own", lambda _root, _names, copies, *_: copies),
        lambda: test_ledger.test_of_two_ledgers_of_servers_with_one_name_the_one_that_knows_the_groups_here_counts(
            LossyDisk(), "ledger.1"
        ),
    ),
    Mutation(
        "S1",
        "a block that counts without a record is served before its name is durable",
        _setting(opening, "sync_directory", lambda *_: None),
        test_witnesses.test_a_block_that_counts_without_a_record_has_a_durable_name_when_it_is_served,
    ),
    Mutation(
        "S1",
        "a floor is noted ahead of the record of its block",
        noted_at_once,
        test_witnesses.test_a_floor_is_not_noted_ahead_of_the_record_of_the_block_in_which_it_is,
    ),
    Mutation(
        "S1",
        "a checkpoint above the end of a log shows nothing",
        _setting(legacy, "checkpoint_above", lambda *_: 0),
        test_witnesses.test_a_checkpoint_above_the_end_of_a_log_shows_what_its_ledger_and_its_blocks_have_lost,
    ),
    Mutation(
        "S1",
        "a group that the ledger does not know is new, whatever other groups show of the ledger",
        _setting(Ledger, "is_outdated", property(lambda _: False, lambda *_: None)),
        lambda: test_witnesses.test_a_log_without_its_blocks_is_not_begun_again_on_a_ledger_that_does_not_know_it(
            "nothing"
        ),
    ),
    Mutation(
        "S1",
        "a ledger is believed though node.json names another",
        _setting(node_dir, "_distrust_anothers", lambda *_: None),
        lambda: test_node_dir.test_of_another_ledgers_silence_about_a_group_nothing_follows(""),
    ),
    Mutation(
        "S1",
        "an encrypted log without its key files gets another key",
        _setting(legacy, "has_sealed_parts", lambda *_: False),
        lambda: test_encrypted_log.test_a_log_whose_key_files_are_both_missing_gets_no_new_key(_roomy(), "blocks"),
    ),
    Mutation(
        "S3",
        "marks do not prove that what precedes them was durable",
        _setting(recovery, "_mark_from", lambda *_: -1),
        lambda: test_recovery.test_damage_before_a_mark_is_not_a_torn_tail(LossyDisk(), BLOCK_HEAD_BYTES + 60),
    ),
    Mutation(
        "S3",
        "the loss of one message keeps the whole log from being compacted",
        _a_loss_is_that_of_the_log,
        _compacted_over_a_loss,
    ),
    Mutation(
        "S3",
        "a block gets no parity",
        _setting(parity, "pack", lambda *_: b""),
        lambda: test_mended_blocks.test_a_flipped_bit_costs_nothing("compressed"),
    ),
    Mutation("S4", "the journal of an erasure has nothing in it", _journals_are_empty, _erased_after_a_kill),
    Mutation(
        "S5",
        "a failed write is only reported",
        _setting(Durability, "fail", lambda durability, _error: durability.on_durable()),
        lambda: test_recovery.test_failed_write_is_final(LossyDisk(), "write"),
    ),
    Mutation(
        "S8",
        "what a search finds is believed",
        _setting(Proofs, "confirm", lambda *_, **__: True),
        test_damage_scan.test_a_length_that_leads_to_where_an_attacker_has_hoped_for_is_not_believed,
    ),
    Mutation(
        "S9",
        "a checkpoint that the device does not read is not skipped",
        _setting(retained_checkpoints, "FAILURES", ()),
        test_copies.test_a_checkpoint_that_the_device_does_not_read_falls_to_the_older,
    ),
    Mutation(
        "S10",
        "files of others are believed",
        _setting(Identity, "__ne__", lambda *_: False),
        test_log_parts.test_envelope_of_another_owner_or_kind_is_refused,
    ),
    Mutation(
        "S11",
        "a trim goes up to the newest checkpoint",
        _setting(retained_checkpoints.RetainedCheckpoints, "oldest_index", property(lambda kept: kept.newest_index)),
        _trimmed_to_the_older_checkpoint,
    ),
    Mutation("S12", "a table is taken for current without proof", _nothing_is_proved, _swept),
    Mutation(
        "S13",
        "sequences of lost entries at the end are given out again",
        _setting(StreamStore, "next_seq", property(lambda store: store.last_seq + 1)),
        test_lost_messages.test_sequences_go_on_above_a_damaged_end,
    ),
    Mutation(
        "S14",
        "a snapshot is believed whatever the frames hold",
        _setting(stream_store, "_live_from", lambda *_: _Equal()),
        test_stream_store.test_a_message_missing_above_the_oldest_frame_kept_is_noticed,
    ),
    Mutation(
        "S16",
        "blocks are as large where there is no room",
        _setting(tail, "affordable_block_bytes", lambda wanted, _available: wanted),
        lambda: test_scarce_room.test_blocks_are_small_where_there_is_none_and_grow_again_later(_roomy()),
    ),
    Mutation(
        "S17",
        "a scrub reads heads of frames only",
        _setting(scrub, "scan", lambda *given, **named: scan_frames(*given, **named, check=False)),
        test_scrub.test_what_is_durable_of_a_growing_block_is_verified_and_all_of_a_sealed_one,
    ),
    Mutation(
        "S17",
        "what grows is left out of the scrub",
        _setting(BlockUpkeep, "scrub_targets", lambda _upkeep: []),
        _scrubbed,
    ),
    Mutation(
        "S18",
        "acks remove nothing when they are applied",
        _setting(StreamMachine, "_done", lambda *_: None),
        test_machine.test_a_work_queue_message_goes_with_its_ack,
    ),
    Mutation("S19", "applying raises what it meets", _errors_of_apply_are_raised, _erased_over_an_unreadable_disk),
    Mutation(
        "S20",
        "an erasure passes over copies of damaged bytes",
        _setting(write_queue, "_add_removal_of_copies", lambda *_: None),
        test_erasure.test_what_is_erased_does_not_stay_in_copies_of_damaged_bytes,
    ),
    Mutation(
        "S20",
        "headers of applications stay beside those that a replay reads",
        _setting(erasure, "_without_foreign", lambda hdr: hdr),
        test_erasure.test_headers_that_a_replay_reads_are_kept_and_no_others,
    ),
    Mutation(
        "S20",
        "a rewrite settles erasures that came after its plan",
        _setting(BlockUpkeep, "forget_erasures", lambda upkeep, block, _planned: upkeep._is_rid_of(block)),
        _erased_while_a_rewrite_waited,
    ),
    Mutation(
        "S20",
        "a start does not know what was erased and still has a subject",
        _setting(BlockUpkeep, "_noted_erasures", lambda _upkeep: None),
        _erased_before_a_restart,
    ),
    Mutation(
        "S20",
        "a copy is kept though the replica is whole again",
        _setting(quarantine, "why_superfluous", lambda *_: None),
        _kept_though_whole,
    ),
)

ELSEWHERE: Final = {  # rule -> what happens instead, in tests/crash_states/mutations.py and damaged_lives.py
    "S2": "dropped blocks go before the record of it",
    "S4": "cut entries count",
    "S6": "what is written aside takes its place before it is fsynced",
    "S7": "fsync of a directory does nothing",
    "S11": "blocks are compacted for a checkpoint that is not durable",
}
