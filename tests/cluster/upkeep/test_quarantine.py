"""A copy of what could not be used is kept while it may be of use, and no longer."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from jetraft.cluster.upkeep.quarantine import GROUPS_LOOK_NS, KEPT_NS, GroupHere, Quarantine, why_superfluous
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.ledger.ledger_records import GroupKey
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.ledger.quarantine import KeptCopy
from jetraft.store.model.ids import GroupId

GROUP: GroupKey = (GroupId("S-R3F-abcdefgh"), 7)
DAMAGED = GroupHere(is_assigned=True, has_others=True)
WHOLE = GroupHere(is_assigned=True, is_whole=True, has_others=True)
ALONE = GroupHere(is_assigned=True, is_whole=True)
GONE = GroupHere(is_assigned=False)
LOG = KeptCopy(path=Path("log"), group=GROUP, is_log=True, bytes=10, seen_ns=1)
BYTES = attrs.evolve(LOG, is_log=False)
UNSEEN = attrs.evolve(LOG, seen_ns=0)
LATE_NS = KEPT_NS + 1


@pytest.mark.parametrize(
    ("copy", "here", "now_ns", "why"),
    [
        (LOG, DAMAGED, 1, None),
        (LOG, WHOLE, 1, "the replica here is whole again"),
        (LOG, GONE, 1, "its stream is not on this node any more"),
        (LOG, ALONE, 1, None),  # the only replica began again: nobody else has what was lost
        (BYTES, ALONE, 1, "the replica here is whole again"),
        (BYTES, DAMAGED, 1, None),
        (LOG, DAMAGED, LATE_NS - 1, None),
        (LOG, DAMAGED, LATE_NS, "it was kept for 7 days"),
        (LOG, ALONE, LATE_NS, "it was kept for 7 days"),
        (UNSEEN, ALONE, LATE_NS, None),
    ],
)
def test_a_copy_is_kept_while_it_may_be_of_use(copy: KeptCopy, here: GroupHere, now_ns: int, why: str | None) -> None:
    assert why_superfluous(copy, here, now_ns) == why


class Watch:
    """A clock of one hand."""

    def __init__(self) -> None:
        self.now_ns = 1

    def mono_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.now_ns


class Bench:
    """A store with two copies, and a quarantine over it."""

    def __init__(self, node_dir: NodeDir) -> None:
        self.here = DAMAGED
        self.clock = Watch()
        self.aside = node_dir.root / "quarantine" / "{}.{}".format(*GROUP)
        self.inner = node_dir.root / "groups" / self.aside.name / "quarantine"
        for place in (self.aside, self.inner):
            place.mkdir(parents=True)
            (place / "bytes").write_bytes(b"x" * 5000)
        self.quarantine = Quarantine(node_dir, clock=self.clock, state_of=lambda _key: self.here)

    def there(self) -> list[Path]:
        return [place for place in (self.aside, self.inner) if place.exists()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    writer = Writer()
    node_dir = NodeDir.open(LocalDisk(writer), tmp_path, server_name="n1", named=True, cluster="c")
    yield Bench(node_dir)
    node_dir.close()
    writer.stop()


async def test_what_is_kept_is_counted_and_named_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.quarantine.look()
    await bench.quarantine.look()
    figures = bench.quarantine.statistics()
    assert (figures.copies, figures.removed) == (2, 0)
    assert figures.bytes >= 10_000
    assert [str(bench.aside) in line for line in caplog.messages] == [True, False]


async def test_both_go_when_the_replica_is_whole_again(bench: Bench) -> None:
    await bench.quarantine.look()
    bench.here = WHOLE
    await bench.quarantine.look()
    assert bench.there() == []
    assert bench.quarantine.statistics().copies == 0
    assert bench.quarantine.statistics().removed == 2


async def test_a_copy_goes_by_age(bench: Bench) -> None:
    await bench.quarantine.look()
    assert (bench.aside / "seen").read_text() == "1"
    bench.clock.now_ns += KEPT_NS
    await bench.quarantine.look()
    assert bench.there() == []


async def test_the_directories_of_groups_are_looked_through_now_and_then(bench: Bench) -> None:
    """A node has thousands of them, and what is kept there comes about at an opening."""
    await bench.quarantine.look()
    other = bench.inner.parent.parent / "S-R1F-ijklmnop.9" / "unrecorded"
    other.mkdir(parents=True)
    (other / "bytes").write_bytes(b"x")
    await bench.quarantine.look()
    assert bench.quarantine.statistics().copies == 2
    bench.clock.now_ns += GROUPS_LOOK_NS
    await bench.quarantine.look()
    assert bench.quarantine.statistics().copies == 3
