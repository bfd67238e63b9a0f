"""The journal of what must be there: crashes, damage to either copy, rewriting, failures."""

import contextlib
import copy
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import given, settings

from jetraft.store.ledger import ledger as ledger_module
from jetraft.store.ledger import ledger_records as records
from jetraft.store.ledger.kept_ages import KeptAges
from jetraft.store.ledger.ledger import NAMES, Ledger
from jetraft.store.ledger.ledger_records import Born, GroupState, NodeState, Point
from jetraft.store.ledger.reading import DAMAGED_SUFFIX
from jetraft.store.model.files.store_age import KnownAge
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import HardState, StoreRefused
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import LEDGER_FILES

ROOT = Path("/store")
KEYS = [(GroupId(f"S-R3F-group{number:03d}"), number + 1) for number in range(4)]
KEY = KEYS[0]


@pytest.fixture
def disk() -> LossyDisk:
    return LossyDisk()


def voted(term: int) -> bytes:
    return records.voted(KEY, HardState(term=term, vote=NodeId("AAAAAAAA")))


def term_of(ledger: Ledger) -> int:
    state = ledger.state(KEY)
    return 0 if state is None or state.hard_state is None else state.hard_state.term


def reopened(disk: LossyDisk) -> Ledger:
    disk.kill()
    return Ledger.open(disk, ROOT, KEYS)


def test_what_is_durable_is_there_after_a_power_cut(disk: LossyDisk) -> None:
    ledger = Ledger.open(disk, ROOT)
    done: list[OSError | None] = []
    ledger.append([voted(1), voted(2)], done.append)
    disk.finish()
    assert done == [None]
    disk.crash(Random(1))
    assert term_of(Ledger.open(disk, ROOT)) == 2


def test_what_is_noted_costs_no_batch_and_is_noted_again_when_one_fails(disk: LossyDisk) -> None:
    ledger = Ledger.open(disk, ROOT)
    before = ledger.statistics().batches
    ledger.note(records.value("a", b"1"))
    disk.finish()
    assert ledger.statistics().batches == before
    assert ledger.is_idle
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError):  # noqa: PT011  (its number says it)
        ledger.commit_now(voted(1))
    assert "a" not in ledger.values

    ledger.commit_now(voted(2))

    assert ledger.values["a"] == b"1"
    assert reopened(disk).values["a"] == b"1"


def test_what_waits_goes_with_the_next_batch_for_all(disk: LossyDisk) -> None:
    """However many groups vote at once, it takes two batches: the first one's, and everybody else's."""
    ledger = Ledger.open(disk, ROOT)
    before = ledger.statistics().batches
    done: list[OSError | None] = []
    for number in range(1000):
        ledger.append([records.voted((GroupId(f"g{number}"), 1), HardState(term=1, vote=None))], done.append)
    disk.finish()
    assert done == [None] * 1000
    assert ledger.statistics().batches == before + 2


@settings(max_examples=150, deadline=None)
@given(batches=st.lists(st.integers(1, 5), max_size=6), steps=st.integers(0, 30), seed=st.integers(0, 1 << 30))
def test_a_crash_leaves_what_was_promised_and_a_prefix_of_the_rest(batches: list[int], steps: int, seed: int) -> None:
    disk = LossyDisk()
    ledger = Ledger.open(disk, ROOT)
    term, promised = 0, 0

    def promise(upto: int) -> Callable[[OSError | None], None]:
        def done(error: OSError | None) -> None:
            nonlocal promised
            promised = upto if error is None else promised

        return done

    for count in batches:
        term += count
        ledger.append([voted(number) for number in range(term - count + 1, term + 1)], promise(term))
    for _ in range(steps):
        disk.step()
    disk.crash(Random(seed))
    found = Ledger.open(disk, ROOT, KEYS)
    assert promised <= term_of(found) <= term
    state = found.state(KEY)
    assert state is None or not state.memory_lost


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["flip", "gone", "short", "empty", "zeros", "old"])
def test_one_copy_is_enough_and_the_other_is_put_right(disk: LossyDisk, name: str, how: str) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(1))
    old = disk.read_whole(ROOT / name)
    for term in range(2, 9):
        ledger.commit_now(voted(term))
    ledger.close()
    spoil(disk, ROOT / name, how, old)

    for _ in range(2):
        found = reopened(disk)
        assert term_of(found) == 8
        state = found.state(KEY)
        assert state is not None
        assert not state.memory_lost
        found.close()
    assert disk.read_whole(ROOT / NAMES[0]) == disk.read_whole(ROOT / NAMES[1])


def spoil(disk: LossyDisk, path: Path, how: str, old: bytes) -> None:
    data = disk.read_whole(path)
    changes = {
        "flip": lambda: disk.flip_bit(path, 200),
        "gone": lambda: perform(disk, path, None),
        "short": lambda: perform(disk, path, data[:150]),
        "empty": lambda: perform(disk, path, b""),
        "zeros": lambda: perform(disk, path, bytes(len(data))),
        "old": lambda: perform(disk, path, old),
    }
    changes[how]()


def perform(disk: LossyDisk, path: Path, content: bytes | None) -> None:
    batch = disk.batch()
    if content is None:
        batch.unlink(bytes(path))
        disk.perform(batch)
        return
    fd = disk.open_file(path)
    batch.truncate(fd, 0)
    batch.write(fd, [content], 0)
    batch.sync(fd)
    disk.perform(batch)
    disk.close_file(fd)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_any_damage_to_one_copy_loses_nothing(seed: int) -> None:
    rng = Random(seed)
    disk = LossyDisk()
    ledger = Ledger.open(disk, ROOT)
    for term in range(1, 12):
        ledger.commit_now(voted(term), records.value("name", b"%d" % term))
    ledger.close()
    path = ROOT / rng.choice(NAMES)
    used = len(disk.read_whole(path).rstrip(b"\0"))
    for _ in range(rng.randint(1, 5)):
        disk.flip_bit(path, rng.randrange(used))

    found = reopened(disk)

    assert (term_of(found), found.values) == (11, {"name": b"11"})


@pytest.mark.parametrize("lost", [2, 4])
def test_the_same_record_lost_in_both_copies_leaves_all_groups_without_memory(disk: LossyDisk, lost: int) -> None:
    """The newest too, which no later record gives away: a crash tears one copy, never both."""
    ledger = Ledger.open(disk, ROOT)
    for term in range(1, 5):
        ledger.commit_now(voted(term))
    ledger.close()
    place = disk.read_whole(ROOT / NAMES[0]).index(voted(lost))
    for name in NAMES:
        disk.flip_bit(ROOT / name, place)
    damaged = [disk.read_whole(ROOT / name) for name in NAMES]

    for _ in range(2):  # that is remembered
        found = reopened(disk)
        for key in KEYS:
            state = found.state(key)
            assert state is not None
            assert state.memory_lost
        found.close()
    disk.crash(Random(1))
    assert [disk.read_whole(ROOT / (name + DAMAGED_SUFFIX)) for name in NAMES] == damaged, (
        "kept for who has to find out"
    )


@pytest.mark.parametrize("lost", [b"starts", b"AAAAAAAA"])
def test_a_ledger_that_has_lost_records_is_not_taken_for_an_older_copy(disk: LossyDisk, lost: bytes) -> None:
    """A start that others know of may be among them: its node, which has not been replaced, would be kept out."""
    ledger = Ledger.open(disk, ROOT)
    KeptAges.begin(ledger)
    KeptAges.begin(ledger).ledger.commit_now(voted(1))
    heard = KeptAges.begin(ledger).own()
    assert heard is not None
    known = KnownAge.first(heard)
    ledger.close()
    place = disk.read_whole(ROOT / NAMES[0]).rindex(lost)
    for name in NAMES:
        disk.flip_bit(ROOT / name, place)

    told = KeptAges.begin(reopened(disk)).own()

    assert told is not None
    assert not known.is_after(told)
    again = KeptAges.begin(reopened(disk)).own()
    assert again is not None
    assert not KnownAge.first(told).is_after(again), "once"
    assert again.ledger == told.ledger


@pytest.mark.parametrize("name", NAMES)
def test_the_newest_record_damaged_in_the_only_copy_is_not_taken_for_an_unfinished_one(
    disk: LossyDisk, name: str
) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(1))
    ledger.commit_now(voted(2))
    ledger.close()
    perform(disk, ROOT / NAMES[NAMES.index(name) - 1], None)
    disk.flip_bit(ROOT / name, disk.read_whole(ROOT / name).index(voted(2)))

    state = reopened(disk).state(KEY)

    assert state is not None
    assert state.memory_lost


@pytest.mark.parametrize("offset", range(64))
def test_any_flipped_bit_of_a_head_is_seen(disk: LossyDisk, offset: int) -> None:
    """Of the version too: a newer one is refused, and a flipped bit is not one (seed forget-five 1001)."""
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(7))
    ledger.close()
    disk.flip_bit(ROOT / NAMES[0], offset)
    assert term_of(reopened(disk)) == 7


@pytest.mark.parametrize("names", [NAMES, NAMES[:1], NAMES[1:]])
def test_a_ledger_without_heads_is_lost_not_new(disk: LossyDisk, names: tuple[str, ...]) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(1))
    ledger.close()
    for name in names:
        disk.flip_bit(ROOT / name, 3)
    state = reopened(disk).state(KEY)
    assert state is not None
    assert state.memory_lost == (names == NAMES)


def test_it_is_written_anew_when_it_has_grown_and_a_crash_in_between_does_no_harm(
    disk: LossyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "REWRITE_BYTES_MIN", 4 << 10)
    ledger = Ledger.open(disk, ROOT)
    ledger._rewrite_at = 4 << 10
    term, promised = 0, 0
    rng = Random(5)
    while ledger.statistics().rewrites < 6:
        term += 1
        done: list[OSError | None] = []
        ledger.append([voted(term)], done.append)
        while not done:
            disk.step()
            if rng.random() < 0.05:
                left = copy.deepcopy(disk)
                left.crash(Random(rng.random()))
                assert promised <= term_of(Ledger.open(left, ROOT)) <= term
        promised = term
    assert ledger.statistics().bytes_used < 8 << 10
    assert disk.open_files == LEDGER_FILES


def test_a_rewriting_leaves_nothing_in_doubt_at_any_moment(disk: LossyDisk) -> None:
    """A log that is opened meanwhile does not fail: streams are opened and created while the journal is rewritten."""
    ledger = Ledger.open(disk, ROOT)
    ledger._rewrite_at = 0
    rewrites = ledger.statistics().rewrites
    done: list[OSError | None] = []
    ledger.append([voted(1)], done.append)
    while not done:
        assert not ledger.is_in_doubt
        disk.step()
    assert ledger.statistics().rewrites == rewrites + 1
    disk.finish()


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_what_has_failed_is_in_doubt_until_new_files_have_their_names(disk: LossyDisk, operation: str) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger._rewrite_at = 0 if operation == "rename" else ledger._rewrite_at
    done: list[OSError | None] = []
    disk.fail_next(operation, errno.EIO)
    ledger.append([voted(1)], done.append)
    disk.finish()
    assert done[0] is not None
    assert ledger.is_in_doubt

    ledger.append([], done.append)
    while len(done) == 1:
        assert ledger.is_in_doubt
        disk.step()
    assert not ledger.is_in_doubt


@pytest.mark.parametrize("operation", ["write", "sync", "allocate"])
def test_a_failed_batch_is_told_and_the_next_one_goes_to_new_files(disk: LossyDisk, operation: str) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(1))
    generation = ledger.statistics().generation
    done: list[OSError | None] = []
    disk.fail_next(operation, errno.EIO)
    big = records.value("big", bytes(300 << 10))  # beyond what is allocated
    ledger.append([voted(2), big], done.append)
    disk.finish()
    assert [type(error) for error in done] == [OSError]
    assert term_of(ledger) == 1

    ledger.append([voted(3)], done.append)
    disk.finish()

    assert done[1] is None
    assert ledger.statistics().generation == generation + 1
    disk.crash(Random(1))
    assert term_of(Ledger.open(disk, ROOT)) == 3


def test_how_far_it_is_goes_forward_with_what_is_durable_and_comes_back(disk: LossyDisk) -> None:
    """Others remember it (decision 126): a place that went back would shut this node out."""
    ledger = Ledger.open(disk, ROOT)
    places = [ledger.place]
    for term in range(1, 4):
        ledger.commit_now(voted(term))
        places.append(ledger.place)
    ledger._rewrite_at = 0
    ledger.commit_now(voted(4))
    places.append(ledger.place)
    ledger.append([voted(5)], lambda _error: None)
    assert ledger.place == places[-1], "not durable yet"
    assert places == sorted(set(places))
    disk.finish()
    last = ledger.place
    assert last > places[-1]
    identity = ledger.identity
    ledger.close()
    found = reopened(disk)
    assert (found.identity, found.place) == (identity, last)
    found.close()
    disk.flip_bit(ROOT / NAMES[0], 200)
    assert reopened(disk).place > last, "an opening that has repaired it goes on from there"


def test_without_room_to_write_it_anew_it_goes_on_as_it_is(disk: LossyDisk) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger._rewrite_at = 0
    done: list[OSError | None] = []
    disk.fail_next("allocate", errno.ENOSPC)
    ledger.append([voted(1)], done.append)
    disk.finish()
    assert done == [None]
    assert ledger.statistics().failures == 1
    assert term_of(reopened(disk)) == 1


def test_a_newer_version_is_refused(disk: LossyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("jetraft.store.ledger.ledger.Head", _newer)
        Ledger.open(disk, ROOT).close()
    with pytest.raises(StoreRefused, match="newer"):
        Ledger.open(disk, ROOT)


def _newer(**fields: int) -> object:
    from jetraft.store.ledger.file import Head  # noqa: PLC0415  the one that is not replaced

    return Head(**fields, version=99)


def test_everything_about_a_group_comes_back() -> None:
    state = GroupState(
        hard_state=HardState(term=7, vote=None),
        generation=3,
        births=(Born(4, 10, 2, 4096), Born(6, 20, 3, 0)),
        floor=Point(25, 7),
        dropped=((1, 9),),
        checkpoints=(Point(8, 1), Point(12, 2)),
        is_noted=True,
        memory_lost=True,
    )
    node = NodeState()
    node.apply(records.replaced(KEY, state))
    assert node.groups == {KEY: state}
    again = NodeState()
    for record in node.records():
        again.apply(record)
    assert again == node


def test_a_block_voids_what_earlier_ones_hold_from_its_first_entry_on() -> None:
    state = GroupState()
    for block in (Born(1, 1, 0, 100), Born(2, 5, 1, 100), Born(3, 9, 1, 100), Born(4, 7, 1, 100), Born(5, 5, 2, 100)):
        state = state.with_birth(block)
    assert [block.serial for block in state.births] == [1, 5]
    assert state.floor == Point(4, 2)


def test_a_cut_lowers_the_floor_and_nothing_else_does() -> None:
    state = GroupState().with_birth(Born(1, 1, 0, 100)).with_floor(Point(9, 1)).with_floor(Point(5, 1))
    assert state.floor == Point(9, 1)
    assert state.with_birth(Born(2, 6, 2, 100)).floor == Point(5, 2)


def test_the_newest_block_is_never_taken_for_dropped() -> None:
    state = GroupState().with_birth(Born(1, 1, 0, 100)).with_birth(Born(2, 5, 1, 100))
    assert [block.serial for block in state.with_dropped(((1, 4),)).births] == [2]


@pytest.mark.parametrize("errno_", [errno.EMFILE, errno.EACCES])
def test_copies_that_cannot_be_opened_now_are_not_taken_for_lost(
    disk: LossyDisk, monkeypatch: pytest.MonkeyPatch, errno_: int
) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(5))
    ledger.close()
    disk.kill()

    def refused(path: Path, *, create: bool = False) -> int:
        if path.name in NAMES:
            raise OSError(errno_, "not now", str(path))
        return LossyDisk.open_file(disk, path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open_file", refused)
        with pytest.raises(OSError, match="not now"):
            Ledger.open(disk, ROOT, KEYS)
    assert term_of(reopened(disk)) == 5


def test_an_fsync_that_fails_while_one_copy_is_opened_costs_nothing(disk: LossyDisk) -> None:
    """The kernel may tell the next process of a write that failed for the last one. The other copy has everything."""
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(5))
    generation = ledger.statistics().generation
    ledger.close()
    disk.kill()
    operate = disk._operate

    def failing(name: str, arguments: tuple[object, ...]) -> None:
        if name == "sync" and disk._open[int(str(arguments[0]))] is disk._directory(ROOT).names[NAMES[0]]:
            disk._operate = operate  # type: ignore[method-assign]
            disk.fail_next("sync", errno.EIO)
        operate(name, arguments)

    disk._operate = failing  # type: ignore[method-assign]
    ledger = Ledger.open(disk, ROOT, KEYS)
    assert term_of(ledger) == 5
    assert ledger.statistics().generation == generation + 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rewrites", [0, 5])
def test_a_copy_of_another_ledger_does_not_count_beside_the_own_one(disk: LossyDisk, name: str, rewrites: int) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(5), records.value("owner", b"this"))
    ledger.close()
    foreign = LossyDisk()
    other = Ledger.open(foreign, ROOT)
    for term in range(90, 91 + rewrites):
        other._rewrite_at = 0 if rewrites else other._rewrite_at
        other.commit_now(voted(term), records.value("owner", b"other"))
    perform(disk, ROOT / name, foreign.read_whole(ROOT / name))
    disk.kill()
    found = Ledger.open(disk, ROOT, KEYS, is_own=lambda state: state.values.get("owner") == b"this")
    assert term_of(found) == 5
    assert disk.read_whole(ROOT / NAMES[0]) == disk.read_whole(ROOT / NAMES[1])


@pytest.mark.parametrize("name", NAMES)
def test_of_two_ledgers_of_servers_with_one_name_the_one_that_knows_the_groups_here_counts(
    disk: LossyDisk, name: str
) -> None:
    ledger = Ledger.open(disk, ROOT)
    ledger.commit_now(voted(5))
    ledger.close()
    foreign = LossyDisk()
    other = Ledger.open(foreign, ROOT)
    other._rewrite_at = 0  # a newer generation
    other.commit_now(records.voted((GroupId("S-R1F-elsewhere"), 3), HardState(term=9, vote=None)))
    other.commit_now()
    perform(disk, ROOT / name, foreign.read_whole(ROOT / name))
    disk.kill()
    assert term_of(Ledger.open(disk, ROOT, KEYS)) == 5


FIELDS = st.one_of(st.integers(-1, 10**6), st.sampled_from(["S-R1F-a", "", "7"]), st.binary(max_size=9), st.none())
RECORDS = st.one_of(
    st.tuples(st.just("v"), st.tuples(FIELDS, FIELDS)),
    st.tuples(st.sampled_from("tbfdcmegnrx"), st.lists(FIELDS | st.lists(FIELDS, max_size=3), max_size=8)),
    st.tuples(
        st.sampled_from("mef"), st.tuples(st.just("g"), st.integers(1, 9), FIELDS | st.lists(FIELDS, max_size=3))
    ),
)


@settings(max_examples=400)
@given(st.binary(max_size=60) | RECORDS.map(lambda record: msgpack.packb([record[0], *record[1]])))
def test_what_is_no_record_changes_nothing_and_what_is_one_holds_no_more_than_its_bytes(data: bytes) -> None:
    state = NodeState()
    with contextlib.suppress(ValueError):
        state.apply(data)
    held = [*state.values.values()]
    for group in state.groups.values():
        held += [group.founding or b"", *group.begun]
    assert sum(map(len, held)) <= len(data)
    again = NodeState()
    for record in state.records():
        again.apply(record)
    assert again == state


def test_a_rewriting_has_no_erasure_of_a_block_or_group_that_is_gone() -> None:
    state = NodeState()
    for serial, first_index in ((1, 1), (3, 10), (5, 20)):
        state.apply(records.born(KEY, Born(serial, first_index, 1, 0)))
    for serial in (1, 2, 3, 6):  # 2 was cut, 6 is not born yet
        state.apply(records.erased(KEY, serial))
    state.apply(records.erased(KEYS[1], 1))
    again = NodeState()
    for record in state.records():
        again.apply(record)
    assert again.groups == state.groups
    assert again.erased == {records.erased_name(KEY): {1, 3, 6}}
    again.apply(records.erased(KEY, 3, is_so=False))
    assert again.erased == {records.erased_name(KEY): {1, 6}}
    again.apply(records.removed(KEY))
    assert again.erased == {}


def test_a_value_with_a_name_like_that_of_an_erasure_is_a_value() -> None:
    state = NodeState()
    for name in ("erased/g.1", "erased/g.1/x", "erased/7", "erased/g.1/", "rows/7"):
        state.apply(records.value(name, b"content"))
        assert state.values[name] == b"content"
    assert state.erased == {}
