"""Many seeds: played by as many processes as wished, their figures added up."""

import gc
import os
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import attrs

from tests.harness.forms import examples
from tests.simulator.copying import KINDS
from tests.simulator.engines import NODE, play
from tests.simulator.nodes.run import MODES as NODE_MODES
from tests.simulator.run import MODES

SEEDS_PER_TASK = 10
SEEDS_PER_MODE = examples(12, long=200)  # inside the test suite
RARE = {"five": (17,), "snap": (12,)}  # seeds that meet what the first ones do not
MET = {  # what no series of a mode may lack, or it shows less than it says
    "base": {"leaders", "ok", "confirmed", "reads", "digests", "transfers", "clock jumps", "tried again"},
    "chaos": {"late", "held back"},
    "five": {"snapshots", "late", "held back"},
    "one": {"leaders", "ok", "confirmed", "reads", "digests", "clock jumps"},
    "snap": {"snapshots", "pieces"},
    "member": {"member changes", "reshapes", "snapshots"},
    "clocks": {"leaders", "ok", "digests", "walls set", "expired", "tried again"},
    "rot": {"bits rotted", "found running", "repairs", "snapshots"},
    "erase": {"erased", "bits rotted", "found running", "repairs", "digests"},
    "damage": {"entries damaged", "repairs", "leaders"},
    "damage-snap": {"entries damaged", "repairs", "snapshots"},
    "forget": {"lost disks", "lost hard states", "admissions", "bits flipped", "repairs"},
    "batches": {"batches", "batches acked", "batches tried again", "fast", "fast ended", "flow acks", "digests"},
    "counters": {"increments", "ok", "batches refused", "tried again", "digests"},
    "schedules": {"schedules", "produced", "walls set", "digests", "leaders"},
    "resets": {"resets", "deliveries", "confirmed", "digests"},
    "letters": {"letters", "letters' acks confirmed", "stale acks", "lost on the way", "digests", "leaders"},
    "delays": {"waits", "due", "cancelled", "walls set", "digests", "leaders"},
    "chain": {"heads", "consistency proofs", "inclusion proofs", "digests", "leaders"},
    "mirror": {"copied", "lost on the way", "consumers asked for", "leaders"},
    "source": {"copied", "lost on the way", "consumers asked for", "ok"},
    "node": {"ok", "leaders", "reopened", "power", "partition", "restarts by health"},
    "node-removal": {"ok", "removed while running", "leaders"},
    "node-churn": {"ok", "removed for good", "leaders"},
    "node-link": {"ok", "subjects moved behind a cut", "leaders"},
    "node-events": {"ok", "events lost", "leaders"},
    "forget-five": {"lost disks", "lost hard states", "admissions", "bits flipped", "repairs"},
}


@attrs.frozen(kw_only=True)
class Series:
    """What came of some seeds of one mode on one engine."""

    mode: str
    engine: str
    seeds: int = 0
    simulated_ns: int = 0
    problems: dict[int, str] = attrs.Factory(dict)
    counts: Counter[str] = attrs.Factory(Counter)

    @property
    def simulated_hours(self) -> float:
        """How long all runs took, for those in them."""
        return self.simulated_ns / 3.6e12

    def plus(self, other: "Series") -> "Series":
        """Both."""
        return attrs.evolve(
            self,
            seeds=self.seeds + other.seeds,
            simulated_ns=self.simulated_ns + other.simulated_ns,
            problems=self.problems | other.problems,
            counts=self.counts + other.counts,
        )


def seeds_of(mode: str) -> list[int]:
    """The seeds of a mode inside the test suite."""
    return sorted({*range(SEEDS_PER_MODE), *RARE.get(mode, ())})


def play_some(mode: str, engine: str, seeds: Iterable[int]) -> Series:
    """Play seeds in this process. A run leaves much garbage at once: it is collected between runs."""
    gc.disable()
    problems, counts, played, simulated_ns = {}, Counter[str](), 0, 0
    try:
        for seed in seeds:
            played += 1
            try:
                result = play(seed, mode, engine)
            except Exception:  # noqa: BLE001  (a run that breaks off is a problem of its seed; the series goes on)
                problems[seed] = traceback.format_exc()
                continue
            simulated_ns += result.simulated_ns
            counts.update(result.counts)
            if result.problem is not None:
                problems[seed] = result.problem
            gc.collect(1)
    finally:
        gc.enable()
        gc.collect()
    return Series(mode=mode, engine=engine, seeds=played, simulated_ns=simulated_ns, problems=problems, counts=counts)


def play_series(mode: str, engine: str, *, first: int, seeds: int, jobs: int) -> Series:
    """Play seeds `first` to `first + seeds - 1`, some at a time in each of `jobs` processes."""
    tasks = [
        range(begin, min(begin + SEEDS_PER_TASK, first + seeds))
        for begin in range(first, first + seeds, SEEDS_PER_TASK)
    ]
    total = Series(mode=mode, engine=engine)
    for part in _parts(mode, engine, tasks, jobs):
        total = total.plus(part)
    return total


def _parts(mode: str, engine: str, tasks: list[range], jobs: int) -> Iterator[Series]:
    if jobs == 1:
        yield from (play_some(mode, engine, task) for task in tasks)
        return
    with ProcessPoolExecutor(max_workers=min(jobs, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(play_some, mode, engine, task) for task in tasks]
        yield from (future.result() for future in futures)


def modes_of(engine: str) -> list[str]:
    """The modes that an engine can play: PySyncObj's keeps its members, and whole nodes run the core."""
    return [*(name for name, mode in MODES.items() if engine == "core" or not mode.needs_changes)] + (
        [*KINDS, NODE, *NODE_MODES] if engine == "core" else []
    )
