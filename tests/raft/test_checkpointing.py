"""When a checkpoint is taken, when the log is trimmed behind it, and that neither happens while a peer fetches."""

import pytest

from jetraft.raft.checkpointing import Checkpointer, CheckpointPolicy
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import SnapshotOffer
from jetraft.store.log.mem_log import MemLog
from jetraft.store.port import Checkpoint
from tests.raft.lab import ListMachine
from tests.raft.rig import A, entries

COUNT = 10
POLICY = CheckpointPolicy(applied_entries_min=COUNT, applied_bytes_min=1 << 40)


class Group:
    """A log that grows and is applied, block by block, with its checkpointer."""

    def __init__(self) -> None:
        self.log = MemLog(block_bytes=200, durable_on_submit=False)
        self.checkpointer = Checkpointer(
            POLICY,
            log=self.log,
            machine=ListMachine(),
            configurations=ConfigurationHistory(Configuration(voters=(A,))),
            index=0,
            state_bytes=0,
        )

    def apply(self, count: int) -> int:
        new = entries(*[1] * count, first=self.log.last_index + 1)
        self.log.append(new)
        self.checkpointer.note_applied(new)
        return self.log.last_index

    def sync(self) -> None:
        self.log.submit()
        self.log.complete()


def test_a_checkpoint_is_taken_when_enough_was_applied_since_the_last() -> None:
    group = Group()
    group.checkpointer.save_if_due(group.apply(COUNT - 1), 0)
    assert group.checkpointer.index == 0
    group.checkpointer.save_if_due(group.apply(1), 0)
    assert group.checkpointer.index == COUNT
    group.checkpointer.save_if_due(group.apply(COUNT - 1), 0)
    assert group.checkpointer.index == COUNT


def test_the_log_is_trimmed_behind_the_older_of_two_durable_checkpoints_once() -> None:
    group = Group()
    for _ in range(2):
        group.checkpointer.save_if_due(group.apply(COUNT), 0)
        assert group.checkpointer.trim_if_durable(0) == 0, "not durable yet"
        group.sync()
    assert group.checkpointer.trim_if_durable(0) > 0
    assert 1 < group.log.first_index <= COUNT + 1
    assert group.checkpointer.trim_if_durable(0) == 0


def test_while_a_peer_fetches_nothing_is_taken_or_trimmed_and_afterwards_it_is() -> None:
    """Rule 36."""
    group = Group()
    for _ in range(2):
        group.checkpointer.save_if_due(group.apply(COUNT), 0)
        group.sync()
    group.checkpointer.hold_until(5)
    group.checkpointer.hold_until(3)
    assert group.checkpointer.is_held(4)
    group.checkpointer.save_if_due(group.apply(COUNT), 4)
    assert group.checkpointer.index == 2 * COUNT
    assert group.checkpointer.trim_if_durable(4) == 0
    assert group.log.first_index == 1
    assert not group.checkpointer.is_held(5)
    assert group.checkpointer.trim_if_durable(5) > 0
    group.checkpointer.save_if_due(group.log.last_index, 5)
    assert group.checkpointer.index == 3 * COUNT


def test_a_peer_gets_the_newest_checkpoint_and_the_blocks_that_it_needs() -> None:
    group = Group()
    assert group.checkpointer.newest() is None
    for number in (1, 2):
        group.checkpointer.save(group.apply(COUNT), 0)
        group.sync()
        found = group.checkpointer.newest()
        assert found is not None
        assert found[1].index == number * COUNT


def test_an_offer_reads_no_checkpoint_and_waits_until_that_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader offers to every member that is behind, again and again, and the state may be large."""
    group = Group()
    monkeypatch.setattr(MemLog, "load_checkpoint", unreadable)
    first = group.apply(COUNT)
    group.checkpointer.save(first, 0)
    assert group.checkpointer.offer(7) is None
    group.sync()
    assert group.checkpointer.offer(7) == offered(first)
    group.checkpointer.save(group.apply(COUNT), 0)
    assert group.checkpointer.offer(7) == offered(first)
    group.sync()
    assert group.checkpointer.offer(7) == offered(2 * COUNT)


def test_an_older_checkpoint_is_offered_when_the_newest_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    found = []
    for _ in range(2):
        group.checkpointer.save(group.apply(COUNT), 0)
        group.sync()
        found.append(group.log.load_checkpoint())
    monkeypatch.setattr(MemLog, "load_checkpoint", lambda _log: found[0])
    newest = group.checkpointer.newest()
    assert newest is not None
    assert newest[1].index == COUNT
    assert group.checkpointer.offer(7) == offered(COUNT)


def unreadable(_log: MemLog) -> Checkpoint | None:
    raise AssertionError("nothing has to be read")


def offered(index: int) -> SnapshotOffer:
    members = Configuration(voters=(A,)).encode()
    return SnapshotOffer(term=7, index=index, index_term=1, members=members)
