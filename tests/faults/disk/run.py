"""One run of a disk scenario: load, faults, the last acknowledgements, then every replica read and judged."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from tests.faults.disk.mounts import FaultyDisk, LoopDisk, MountFailed
from tests.faults.disk.scenarios import DiskScenario
from tests.faults.disk.stage import (
    STREAM,
    Disk,
    PlainDisk,
    Stage,
    read_all,
    read_what_is_left,
    reported_lost,
    running,
)
from tests.faults.journal import Journal, Verdict, judge
from tests.faults.writers import Load
from tests.harness.process import ServerFailed
from tests.harness.server import Kind

DRAIN_S: Final = 60.0
BETWEEN_S: Final = 0.5


@attrs.frozen(kw_only=True)
class DiskResult:
    """How a run ended. `problem`: it could not be finished; `unreported` messages are gone without a word."""

    scenario: str
    seed: int
    faults: int = 0
    verdict: Verdict | None = None
    unreported: int = 0
    reported: int = 0
    healed_s: tuple[float, ...] = ()
    moved_s: tuple[float, ...] = ()
    gaps_s: tuple[float, ...] = ()
    paces: tuple[tuple[float, ...], ...] = ()
    notes: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def clean(self) -> bool:
        """Whether every promise was kept and the run came to its end."""
        if self.problem is not None or self.verdict is None or self.unreported:
            return False
        verdict = self.verdict
        return attrs.evolve(verdict, lost=0).clean


def run(  # noqa: PLR0913  (the coordinates of a run)
    kind: Kind, scenario: DiskScenario, seed: int, *, directory: Path, config: str | None, repeats: int | None = None
) -> DiskResult:
    """Play one seed. What goes wrong is in the result; the stores are gone, logs and the journal are in `directory`."""

    def disk(place: int) -> Disk:
        where = directory / f"disk{place + 1}"
        if scenario.medium == "loop":
            return LoopDisk(where, directory / f"disk{place + 1}.img")
        return FaultyDisk(where) if scenario.medium == "fuse" else PlainDisk(where)

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    stage: Stage | None = None
    result = DiskResult(scenario=scenario.name, seed=seed)
    try:
        with running(kind, disk, scenario.size, directory=directory, config=config, seed=seed) as stage:
            moments: list[int] = []
            try:
                write(stage, scenario, repeats or scenario.repeats, moments)
                replicas = read_all(stage)
            except ServerFailed as error:
                result = attrs.evolve(result, problem=str(error))
                replicas = read_what_is_left(stage)
            result = judged(stage, result, replicas) if replicas else result
            result = attrs.evolve(result, gaps_s=gaps(stage.journal, moments))
    except (ServerFailed, MountFailed, OSError, AssertionError) as error:
        result = attrs.evolve(result, problem=f"{type(error).__name__}: {error}")
    if stage is None:
        return result
    return attrs.evolve(
        result,
        faults=stage.faults,
        healed_s=tuple(stage.healed_s),
        moved_s=tuple(stage.moved_s),
        paces=tuple(stage.paces),
        notes=tuple(stage.notes),
    )


def write(stage: Stage, scenario: DiskScenario, repeats: int, moments: list[int]) -> None:
    """Faults under load, until all that was sent is acknowledged; `moments` receives when they began."""
    addresses = [node.address for node in stage.nodes]
    with Load(stage.journal, stream=STREAM, addresses=addresses, rate=scenario.rate) as load:
        stage.wait_acks(200)
        for _ in range(repeats):
            moments.append(time.monotonic_ns())
            stage.faults += 1
            scenario.act(stage)
            time.sleep(BETWEEN_S)
        unknown = load.finish(DRAIN_S)
    if unknown:
        raise ServerFailed(f"{unknown} messages are not acknowledged {DRAIN_S:.0f} s after the last fault")


def judged(stage: Stage, result: DiskResult, replicas: Mapping[str, Mapping[int, bytes]]) -> DiskResult:
    """Compare what was acknowledged with what each replica holds; what is listed as lost is not gone without a word."""
    listed = reported_lost(stage)
    acked = [sent for sent in stage.journal.messages.values() if sent.acked_ns]
    gone = {sent.seq for held in replicas.values() for sent in acked if held.get(sent.seq) != sent.payload}
    verdict = judge(stage.journal, replicas)
    return attrs.evolve(result, verdict=verdict, unreported=len(gone - listed), reported=len(gone & listed))


def gaps(journal: Journal, moments: list[int]) -> tuple[float, ...]:
    """The longest silence of each fault, in seconds."""
    ends = [*moments[1:], max([*journal.ack_times_ns[-1:], *moments[-1:]], default=0)]
    return tuple(journal.longest_gap_ns(began, end) / 1e9 for began, end in zip(moments, ends, strict=True))
