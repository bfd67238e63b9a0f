"""Nodes whose stores are older copies of what others have met are not linked."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from jetraft.raft.mesh.gossip import About
from jetraft.raft.mesh.handshake import Hello
from jetraft.raft.mesh.store_ages import StoreAges, without_lost
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.kept_ages import AGES_VALUE, KeptAges
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.model.files.store_age import LedgerPlace, StoreAge, StoreStart
from jetraft.store.model.ids import node_id_of
from tests.harness.patience import PATIENCE_S
from tests.raft.meshes import SETTLED_S, Node, running


@contextmanager
def ledger_in(root: Path) -> Iterator[tuple[Ledger, Writer]]:
    """The ledger of a server that runs over a directory."""
    writer = Writer()
    ledger = Ledger.open(LocalDisk(writer), root)
    try:
        yield ledger, writer
    finally:
        ledger.close()
        writer.stop()


def write(ledger: Ledger, count: int) -> None:
    for number in range(count):
        ledger.commit_now(ledger_records.value("v", b"%d" % number))


async def _until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():
            await trio.testing.wait_all_tasks_blocked(SETTLED_S)


def _is_written(ledger: Ledger, writer: Writer) -> bool:
    writer.drain()
    return ledger.is_idle


async def _met(places: list[Path]) -> list[Node]:
    """Nodes a and b over these stores, which have tried to link; what they have heard is kept."""
    writers = [Writer() for _ in places]
    ledgers = [Ledger.open(LocalDisk(writer), place) for writer, place in zip(writers, places, strict=True)]
    a = Node("a")
    nodes = [a]
    a.mesh.ages.begin(KeptAges.begin(ledgers[0]))
    async with running(a):
        b = Node("b", (a.address,))
        b.mesh.ages.begin(KeptAges.begin(ledgers[1]))
        nodes.append(b)
        async with running(b):
            await _until(lambda: bool(b.up) or b.mesh.ages.is_own_old or a.mesh.statistics().handshakes_refused > 0)
            for ledger, writer in zip(ledgers, writers, strict=True):
                await _until(partial(_is_written, ledger, writer))
    for ledger, writer in zip(ledgers, writers, strict=True):
        ledger.close()
        writer.stop()
    return nodes


def _copy(place: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(place, to)


async def test_a_node_with_an_older_copy_of_its_store_is_told_so_and_links_with_no_other(
    tmp_path: Path,
) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    a, b = await _met(places)
    assert b.events[:1] == [("up", a.mesh.node_id)]
    _copy(places[1], tmp_path / "copy")
    a, b = await _met(places)  # b was started once more, and a has heard of that
    assert b.events[:1] == [("up", a.mesh.node_id)]

    _copy(tmp_path / "copy", places[1])
    with ledger_in(places[1]) as (ledger, _):
        write(ledger, 50)  # it has as many records as the other one, and more
    a, b = await _met(places)
    assert (a.events, b.events, b.mesh.ages.is_own_old, a.mesh.ages.is_own_old) == ([], [], True, False)

    shutil.rmtree(places[1])
    a, b = await _met(places)
    assert b.events[:1] == [("up", a.mesh.node_id)], "with an empty store it comes back"
    _copy(tmp_path / "copy", places[1])
    a, b = await _met(places)
    assert b.mesh.ages.is_own_old, "and the one before stays out"


async def test_a_copy_that_was_made_while_the_server_ran_is_older_than_what_others_have_heard_since(
    tmp_path: Path,
) -> None:
    place, copy = tmp_path / "b", tmp_path / "copy"
    a = Node("a")
    with ledger_in(tmp_path / "a") as (ledger, _):
        a.mesh.ages.begin(KeptAges.begin(ledger))
    async with running(a):
        b = Node("b", (a.address,))
        with ledger_in(place) as (ledger, writer):
            b.mesh.ages.begin(KeptAges.begin(ledger))
            async with running(b):
                await _until(lambda: bool(a.up and b.up))
                await _until(partial(_is_written, ledger, writer))
                _copy(place, copy)
                write(ledger, 5)
                await _until(lambda: a.mesh.ages._known[b.mesh.node_id].place == ledger.place)
        again = Node("b", (a.address,))
        with ledger_in(copy) as (ledger, _):
            again.mesh.ages.begin(KeptAges.begin(ledger))
            async with running(again):
                await _until(lambda: again.mesh.ages.is_own_old)


async def test_two_servers_on_copies_of_one_store_are_found_when_their_neighbours_meet(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("a", "b", "c", "d", "copy")}
    await _met([places["a"], places["b"]])
    _copy(places["b"], places["copy"])
    async with AsyncExitStack() as stack:

        async def started(name: str, place: str, *routes: Node) -> Node:
            writer = Writer()
            stack.callback(writer.stop)
            ledger = Ledger.open(LocalDisk(writer), places[place])
            stack.callback(ledger.close)
            node = Node(name, tuple(each.address for each in routes))
            node.mesh.ages.begin(KeptAges.begin(ledger))
            await stack.enter_async_context(running(node))
            return node

        a = await started("a", "a")
        b = await started("b", "b", a)
        await _until(lambda: bool(a.up and b.up))
        c = await started("c", "c")
        other = await started("b", "copy", c)
        await _until(lambda: bool(c.up and other.up))
        d = await started("d", "d", a, c)
        sound = {node.mesh.node_id for node in (a, c, d)}
        await _until(lambda: all(node.up | {node.mesh.node_id} == sound for node in (a, c, d)))
        await _until(lambda: not b.up and not other.up)


async def test_an_operator_can_vouch_for_stores_that_were_put_back(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    await _met(places)
    _copy(places[1], tmp_path / "copy")
    await _met(places)
    _copy(tmp_path / "copy", places[1])
    with ledger_in(places[1]) as (ledger, _):
        ledger.renew()
        assert ledger.values["starts"]
    with ledger_in(places[1]) as (ledger, _):
        assert ledger.values["starts"], "what it has stays"
    a, b = await _met(places)
    assert b.events[:1] == [("up", a.mesh.node_id)]


async def test_a_store_that_an_operator_has_given_up_is_not_linked_and_not_told(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    await _met(places)
    with ledger_in(places[0]) as (ledger, _):
        ledger.commit_now(ledger_records.value(AGES_VALUE, without_lost(ledger.values[AGES_VALUE], [])))
    a, b = await _met(places)
    assert (a.events, b.mesh.ages.is_own_old) == ([], False)
    shutil.rmtree(places[1])
    a, b = await _met(places)
    assert b.events[:1] == [("up", a.mesh.node_id)], "an empty store may come"


def test_that_a_node_is_kept_out_is_logged_once_for_each_of_its_starts(caplog: pytest.LogCaptureFixture) -> None:
    """One that an operator has given up is never told, and dials every few seconds."""
    ages, other = StoreAges(node_id_of("a")), node_id_of("b")
    hello = Hello(cluster="C", node_id=other, name="b", boot=1, session=1, challenge=b"")

    def fits(*starts: int, records: int) -> bool:
        passed = tuple(StoreStart(number, LedgerPlace(1, at)) for at, number in enumerate(starts, 1))
        age = StoreAge(ledger=1, starts=passed, place=LedgerPlace(1, records))
        return ages.fit(hello, About(metadata={}, address=None, peers={}, age=age), now_ns=0)

    assert fits(1, 2, records=9)
    assert not any(fits(1, 3, records=2) for _ in range(20))
    assert [record.getMessage() for record in caplog.records] == [
        "b has started with an older copy of its store; it is not linked with that"
    ]
    assert not fits(1, 3, 4, records=3)
    assert len(caplog.records) == 2
