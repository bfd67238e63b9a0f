"""The short form of `make corruption`: a log on a simulated disk in hundreds of ways, and a few real servers."""

import attrs
import pytest

from tests.corruption.damages import Case, Damage, cases, inflict
from tests.corruption.known import KNOWN
from tests.corruption.log import OneLog
from tests.corruption.one import OneServer
from tests.corruption.places import places
from tests.corruption.three import ThreeServers
from tests.corruption.verdicts import Outcome, Verdict

pytestmark = pytest.mark.campaign

LOG_SEEDS = 8


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> OneServer:
    setup = OneServer(tmp_path_factory.mktemp("one"), is_thorough=False)
    setup.build()
    return setup


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> ThreeServers:
    setup = ThreeServers(tmp_path_factory.mktemp("three"), is_thorough=False)
    setup.build()
    return setup


def check(outcome: Outcome) -> None:
    """A violation is known, and what is known is a violation."""
    assert outcome.file, f"{outcome.case}: {outcome.what}; the kinds of files have changed"
    known = KNOWN.get((outcome.setup, outcome.case.kind, outcome.case.damage))
    if known is None:
        assert not outcome.verdict.is_violation, f"{outcome.finding}\n{outcome.file}: {outcome.what}\n{outcome.command}"
    else:
        assert outcome.verdict.is_violation, f"not violated any more, take it out of KNOWN: {known}"


@attrs.frozen
class HeldTree:
    """Files in memory."""

    files: dict[str, bytes]

    def names(self) -> list[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def write(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def remove(self, name: str) -> None:
        del self.files[name]


def test_every_file_of_a_store_is_damaged_in_every_way_also_one_that_nobody_has_told_of(one: OneServer) -> None:
    tree = HeldTree({name: one.tree.read(name) for name in one.tree.names()})
    for name in ("journal.0", "jetstream/groups/S-R1F-abcdefgh.99/anything"):
        tree.write(name, b"content")

    planned = {(case.kind, case.damage) for case in cases(tree, seed=0)}

    found = {place.kind for place in places(tree)}
    assert {"journal.#", "stream/anything"} < found
    assert planned == {(kind, damage) for kind in found for damage in Damage}
    for kind in found:
        is_empty = not any(tree.read(place.name) for place in places(tree) if place.kind == kind)
        for damage in (Damage.DELETE,) if is_empty else (Damage.FLIP, Damage.TRUNCATE, Damage.ZERO, Damage.DELETE):
            copied = HeldTree(dict(tree.files))
            done = inflict(copied, Case(kind=kind, damage=damage, seed=0))
            assert done.file, (kind, damage)
            assert copied.files.get(done.file) != tree.files[done.file]


LOGS = [OneLog(), OneLog(is_young=True), OneLog(is_encrypted=True)]


@pytest.mark.parametrize("setup", LOGS, ids=lambda setup: setup.name)
def test_damage_to_any_file_of_a_log_is_told(setup: OneLog) -> None:
    setup.build()
    outcomes = [setup.run(case) for seed in range(LOG_SEEDS) for case in cases(setup.tree, seed)]

    violated = {(setup.name, it.case.kind, it.case.damage): it for it in outcomes if it.verdict.is_violation}
    known = {key for key in KNOWN if key[0] == setup.name}
    assert [(it.finding, it.what, it.command) for key, it in violated.items() if key not in known] == []
    assert known - violated.keys() == set(), "not violated any more: take it out of KNOWN"
    assert {it.verdict for it in outcomes} >= {Verdict.SAME, Verdict.LOST_LISTED}


@pytest.mark.parametrize(
    ("kind", "damage", "seed"),
    [
        ("stream/*.blk only", Damage.ZERO, 0),
        ("stream/*.blk only", Damage.TRUNCATE, 0),
        ("stream/*.blk only", Damage.DELETE, 0),
        ("stream/*.blk only", Damage.OLD, 0),
        ("stream/*.blk last", Damage.TRUNCATE, 0),
        ("stream/*.blk", Damage.FLIP, 1),
        ("meta/*.blk only", Damage.DELETE, 0),
        ("ledger.#", Damage.FLIP, 0),
        ("ledger.#", Damage.OLD, 1),
        ("ledger.#", Damage.DELETE, 0),
        ("node.json", Damage.FLIP, 0),
    ],
)
def test_a_server_whose_store_is_damaged_says_so(one: OneServer, kind: str, damage: Damage, seed: int) -> None:
    check(one.run(Case(kind=kind, damage=damage, seed=seed)))


def test_a_store_in_which_nothing_is_damaged_is_the_same(one: OneServer) -> None:
    outcome = one.run(Case(kind="lock", damage=Damage.DELETE, seed=0))  # every start makes it again

    assert (outcome.verdict, outcome.finding.detail) == (Verdict.SAME, "")


def test_three_stores_in_which_nothing_is_damaged_are_the_same(three: ThreeServers) -> None:
    outcome = three.run(Case(kind="lock", damage=Damage.DELETE, seed=0))

    assert (outcome.verdict, outcome.finding.detail) == (Verdict.SAME, "")


def test_a_member_of_three_with_a_damaged_block_has_everything_again(three: ThreeServers) -> None:
    check(three.run(Case(kind="stream/*.blk only", damage=Damage.ZERO, seed=0)))
