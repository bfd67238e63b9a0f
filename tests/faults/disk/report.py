"""The table of a series of disk faults."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median

from tests.faults.disk.run import DiskResult

HEADINGS = (
    "fault",
    "runs",
    "faults",
    "acknowledged",
    "lost",
    "told as lost",
    "other",
    "unfinished runs",
    "recovered p50 s",
    "max s",
    "leader moved max s",
    "gap max s",
    "acks/s before, during, after",
)


def table(results: Iterable[DiskResult]) -> str:
    """One line for each scenario, in Markdown."""
    ordered = list(results)
    names = list(dict.fromkeys(result.scenario for result in ordered))
    ordered.sort(key=lambda result: names.index(result.scenario))
    rows = [row(name, list(group)) for name, group in groupby(ordered, key=lambda result: result.scenario)]
    if len(rows) > 1:
        rows.append(row("all", ordered))
    lines = [HEADINGS, tuple("---" if not place else "---:" for place in range(len(HEADINGS))), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def row(name: str, results: Sequence[DiskResult]) -> tuple[str, ...]:
    """The cells of one line. Lost are messages that were acknowledged, are gone, and are not told as lost."""
    verdicts = [result.verdict for result in results if result.verdict is not None]
    other = sum(v.misplaced + v.duplicates + v.strangers + v.disordered + v.unequal + v.contradictory for v in verdicts)
    paces = [rates for result in results for rates in result.paces]
    healed = sorted(seconds for result in results for seconds in result.healed_s)
    return (
        name,
        str(len(results)),
        str(sum(result.faults for result in results)),
        str(sum(verdict.acked for verdict in verdicts)),
        str(sum(result.unreported for result in results)),
        str(sum(result.reported for result in results)),
        str(other),
        str(sum(result.problem is not None for result in results)),
        f"{healed[len(healed) // 2]:.1f}" if healed else "-",
        f"{healed[-1]:.1f}" if healed else "-",
        _most(seconds for result in results for seconds in result.moved_s),
        _most(seconds for result in results for seconds in result.gaps_s),
        ", ".join(f"{median(rates):.0f}" for rates in zip(*paces, strict=True)) or "-",
    )


def _most(seconds: Iterable[float]) -> str:
    found = max(seconds, default=None)
    return "-" if found is None else f"{found:.2f}"
