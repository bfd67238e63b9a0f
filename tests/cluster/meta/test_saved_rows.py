"""The rows that a server which stands alone keeps in its ledger, beside the table."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from jetraft.cluster.calls.forward import Moved
from jetraft.cluster.meta.adoption import Adoption
from jetraft.cluster.meta.commands import AdoptStream, Command, ReconfigureStream, RemoveStream
from jetraft.cluster.meta.machine import CommandVerdict, MetaMachine
from jetraft.cluster.meta.saved_rows import PREFIX, SavedRows
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.store.frames.cipher import CipherKind
from jetraft.store.frames.format import Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.frames.placeholder import placeholder_frame
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import GroupKey, value
from jetraft.store.model.ids import GroupId
from jetraft.store.port import Entry
from tests.cluster.meta.makers import ACCOUNT, assign, assignment, config, entry
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.meta_group import AppliedMetaGroup

if TYPE_CHECKING:
    from jetraft.cluster.meta.frontend import MetaFrontend

ROOT = Path("/store")
KEY, NEW_KEY = (Secrets(key=letter * 32, cipher=CipherKind.AES) for letter in (b"a", b"b"))
REMOVE = RemoveStream(account=ACCOUNT, name="S", incarnation=1)


@attrs.define(eq=False)
class Store:
    """A ledger on a disk, and the table of the process that has it open."""

    disk: LossyDisk = attrs.Factory(LossyDisk)
    secrets: Secrets | None = None
    ledger: Ledger = attrs.field(init=False)
    machine: MetaMachine = attrs.field(init=False)
    rows: SavedRows = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Another process, whose table is empty."""
        self.disk.kill()
        self.ledger, self.machine = Ledger.open(self.disk, ROOT), MetaMachine()
        self.rows = SavedRows.following(self.ledger, self.machine, self.secrets)

    def apply(self, *commands: Command) -> None:
        for command in commands:
            self.machine.apply([entry(self.machine.applied_index + 1, command)])

    def lose(self) -> None:
        """What was the next entry nobody has any more."""
        index = self.machine.applied_index + 1
        frame = placeholder_frame(index, 1, 1)
        self.machine.apply([Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)])

    def write(self) -> None:
        """Some batch of the ledger comes."""
        self.ledger.commit_now(value("anything", b""))

    def row(self, name: str) -> StreamAssignment | None:
        return self.machine.table.get(StreamKey(ACCOUNT, name))


@pytest.fixture
def store() -> Store:
    return Store()


def keys_of(*rows: StreamAssignment | None) -> set[GroupKey]:
    return {(row.group_id, row.incarnation) for row in rows if row is not None}


@pytest.mark.parametrize("secrets", [None, KEY])
def test_a_row_is_saved_with_the_next_batch_and_missing_from_a_table_without_it(secrets: Secrets | None) -> None:
    store = Store(secrets=secrets)
    store.apply(assign("S", "a.>"))
    row = store.row("S")
    batches = store.ledger.statistics().batches
    store.write()
    assert store.ledger.statistics().batches == batches + 1, "it costs none of its own"

    store.start()

    assert store.rows.missing(keys_of(row)) == [row]
    assert (b"a.>" in store.disk.read_whole(ROOT / "ledger.0")) == (secrets is None), "sealed where the store is"


def test_a_row_that_the_table_has_is_not_missing(store: Store) -> None:
    store.apply(assign("S"))
    store.write()
    assert store.rows.missing(keys_of(store.row("S"))) == []


def test_a_change_that_the_table_has_lost_is_missing_and_an_older_table_does_not_undo_it(store: Store) -> None:
    store.apply(assign("S"), ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S", "b", max_msgs=5)))
    changed = store.row("S")
    store.write()
    store.start()
    store.apply(assign("S"))
    store.write()

    assert store.rows.missing(keys_of(changed)) == [changed]


def test_a_stream_without_data_was_deleted_and_so_is_its_row_in_the_end(store: Store) -> None:
    store.apply(assign("S"))
    store.write()
    store.start()
    assert store.rows.missing(set()) == []

    store.rows.prune(set())
    store.write()

    assert not [name for name in store.ledger.values if name.startswith(PREFIX)]


def test_a_stream_that_is_being_deleted_is_not_missing(store: Store) -> None:
    store.apply(assign("S"))
    row = store.row("S")
    store.write()
    store.apply(REMOVE)
    assert store.rows.missing(keys_of(row)) == []


def test_a_row_goes_with_the_record_that_its_group_has_gone(store: Store) -> None:
    store.apply(assign("S"))
    row = store.row("S")
    assert row is not None
    store.write()
    store.rows.forget(row.group_id)
    store.write()
    store.start()
    assert store.rows.missing(keys_of(row)) == []


def test_a_row_under_the_key_before_is_read_and_saved_under_the_new_one() -> None:
    store = Store(secrets=KEY)
    store.apply(assign("S"))
    row = store.row("S")
    store.write()
    store.secrets = attrs.evolve(NEW_KEY, prev_key=KEY.key)
    store.start()
    assert store.rows.missing(keys_of(row)) == [row]
    store.apply(assign("S"))
    store.write()
    store.secrets = NEW_KEY
    store.start()
    assert store.rows.missing(keys_of(row)) == [row]
    store.secrets = KEY
    store.start()
    assert store.rows.missing(keys_of(row)) == []
    assert store.rows.without(keys_of(row)) == [GroupId("S-R1F-S")]


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\xc1", b"\0\x91\x02", b"\2later", b"\1" + bytes(60)])
def test_what_a_newer_version_has_saved_is_left_alone(content: bytes, store: Store) -> None:
    group = GroupId("S-R1F-later000"), 3
    store.ledger.commit_now(value(PREFIX + group[0], content))
    store.start()
    assert store.rows.missing({group}) == []
    assert store.rows.without({group}) == [group[0]]


class Proposals:
    """The frontend of an adoption, which applies at once what it is asked for."""

    def __init__(self, store: Store, *, is_leader: bool = True) -> None:
        self._store = store
        self._is_leader = is_leader

    async def adopt(self, row: StreamAssignment) -> StreamAssignment:
        if not self._is_leader:
            raise Moved
        verdict = self._apply(AdoptStream(row=row))
        if verdict.error is not None:
            raise verdict.error
        assert verdict.assignment is not None
        return verdict.assignment

    async def remove(self, account: str, name: str) -> None:
        row = self._store.machine.table.streams[StreamKey(account, name)]
        self._apply(RemoveStream(account=account, name=name, incarnation=row.incarnation))

    def _apply(self, command: Command) -> CommandVerdict:
        machine = self._store.machine
        (verdict,) = machine.apply([entry(machine.applied_index + 1, command)])
        return verdict


def adoption(store: Store, stored: set[GroupKey], *, is_leader: bool = True) -> Adoption:
    store.machine.became_leader(1)
    frontend = cast("MetaFrontend", Proposals(store, is_leader=is_leader))
    return Adoption(
        rows=store.rows,
        machine=store.machine,
        frontend=frontend,
        meta_group=AppliedMetaGroup().ref(),
        stored=lambda: stored,
    )


async def test_what_the_table_has_lost_is_taken_back_loudly(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.apply(assign("S"), assign("T"))
    s, t = store.row("S"), store.row("T")
    store.write()
    store.start()
    store.lose()
    store.apply(assign("T"))

    await adoption(store, keys_of(s, t)).run()

    assert (store.row("S"), store.row("T")) == (s, t)
    assert "stream $G > S (S-R1F-S): damage has cost the meta group what it knew of it" in caplog.text
    assert "> T" not in caplog.text


async def test_a_stream_whose_deletion_is_lost_is_not_in_the_way_of_its_successor(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    first = assign("S", group="S-R1F-first000")
    second = assign("S", group="S-R1F-second00")
    store.apply(first, REMOVE, second)
    successor = store.row("S")
    store.rows.forget(first.group_id)
    store.write()
    store.start()
    store.apply(first)
    store.lose()
    store.apply(second)  # of no effect: its name is taken

    await adoption(store, keys_of(successor)).run()

    assert store.row("S") == successor
    assert "it is deleted again" in caplog.text


async def test_a_stream_that_was_just_created_has_no_data_yet(store: Store) -> None:
    store.apply(assign("S"))
    await adoption(store, set()).run()
    assert store.row("S") is not None


async def test_a_stream_that_cannot_be_taken_back_is_said(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.apply(assign("S", "a.>"))
    row = store.row("S")
    store.write()
    store.start()
    store.apply(assign("T", "a.b"))
    await adoption(store, keys_of(row)).run()
    assert store.row("S") is None
    assert "cannot be taken back: subjects overlap with an existing stream; its data is kept" in caplog.text


async def test_a_stream_is_taken_back_when_what_was_in_its_way_is_deleted(store: Store) -> None:
    store.apply(assign("S", "a.>"))
    row = store.row("S")
    store.write()
    store.start()
    store.apply(assign("T", "a.b"))
    repeated = adoption(store, keys_of(row))
    await repeated.run()
    await repeated.run()
    assert store.row("S") is None
    found = store.row("T")
    assert found is not None
    store.apply(RemoveStream(account=ACCOUNT, name="T", incarnation=found.incarnation))
    await repeated.run()
    assert store.row("S") == row


def test_an_adopted_row_is_changed_by_later_entries_whatever_their_index(store: Store) -> None:
    row = assignment("S", incarnation=50)
    change = ReconfigureStream(account=ACCOUNT, incarnation=50, config=config("S", max_msgs=5))
    store.apply(AdoptStream(row=row), change, AdoptStream(row=row))
    changed = store.row("S")
    assert changed is not None
    assert (changed.config.max_msgs, changed.revision) == (5, 51), "and an older row does not undo that"
