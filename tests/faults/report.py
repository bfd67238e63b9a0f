"""The table of a series of runs: what was lost or doubled, and how long nobody led or nothing was acknowledged.

`python -m tests.faults.report FILE...` prints it from the lines that `--json` wrote.
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.journal import Verdict
from tests.faults.run import Measured, Result

COLUMNS = (
    "fault", "runs", "faults", "acknowledged", "lost", "twice", "misplaced", "other", "unfinished runs",
    "new leader p50 s", "p99 s", "gap p50 s", "p99 s", "max s",
)  # fmt: skip


def table(results: Iterable[Result]) -> str:
    """One row for each scenario and one for all, as Markdown."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.scenario, []).append(result)
    rows = [row(name, group) for name, group in groups.items()]
    if len(groups) > 1:
        rows.append(row("all", [result for group in groups.values() for result in group]))
    rule = ["---"] + ["---:"] * (len(COLUMNS) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [COLUMNS, rule, *rows])


def row(name: str, results: Sequence[Result]) -> list[str]:
    """The figures of some runs."""
    verdicts = [result.verdict for result in results if result.verdict is not None]
    faults = [fault for result in results for fault in result.faults]
    gaps_ns = [fault.gap_ns for fault in faults]
    leaders_ns = [fault.leader_ns for fault in faults if fault.leader_ns is not None]
    counts = [
        len(results),
        len(faults),
        sum(verdict.acked for verdict in verdicts),
        sum(verdict.lost for verdict in verdicts),
        sum(verdict.duplicates for verdict in verdicts),
        sum(verdict.misplaced for verdict in verdicts),
        sum(v.strangers + v.disordered + v.unequal + v.contradictory for v in verdicts),
        len(results) - len(verdicts),
    ]
    times = [percentile(leaders_ns, 50), percentile(leaders_ns, 99), percentile(gaps_ns, 50), percentile(gaps_ns, 99)]
    return [name, *map(str, counts), *times, percentile(gaps_ns, 100)]


def percentile(values_ns: Sequence[int], percent: int) -> str:
    """The smallest value that so many percent do not exceed, in seconds; "-" when there are none."""
    if not values_ns:
        return "-"
    place = max(0, math.ceil(len(values_ns) * percent / 100) - 1)
    return f"{sorted(values_ns)[place] / 1e9:.2f}"


def read(path: Path) -> list[Result]:
    """The runs that `--json` wrote into a file."""
    return [_result(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _result(fields: dict[str, Any]) -> Result:
    verdict = fields["verdict"]
    return Result(
        scenario=fields["scenario"],
        seed=fields["seed"],
        verdict=Verdict(**{**verdict, "examples": tuple(verdict["examples"])}) if verdict else None,
        faults=tuple(Measured(**fault) for fault in fields["faults"]),
        problem=fields["problem"],
    )


if __name__ == "__main__":
    sys.stdout.write(table([result for name in sys.argv[1:] for result in read(Path(name))]) + "\n")
