"""The report of the demo, and the check of its result."""

import math
from collections import Counter
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from demo.flights import MEAN_DELAY_MIN, MEAN_TOLERANCE, ROWS, ROWS_WITH_DELAY, Delays, Group, total
from demo.publisher import Progress
from demo.windows import Stored

RELATIVE_TOLERANCE = 1e-9  # the same doubles are added in different orders
MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class Outcome:
    """The measurements of the demo."""

    expected: dict[Group, Delays]
    found: dict[Group, Delays]
    written: Stored  # what Spark has written back
    progress: Progress
    stored: int
    killed: str
    kill_at: int
    leaderless_s: float
    restart_s: float
    caught_up_s: float
    served: list[dict[str, Any]]
    speeds: list[dict[str, float]]
    rss_bytes: dict[str, int]
    rss_bytes_max: dict[str, int]


def show(console: Console, outcome: Outcome) -> bool:
    """Print the tables; returns whether every figure is the expected one."""
    console.print(comparison(outcome))
    console.print(measures(outcome))
    faults = wrong(outcome)
    for fault in faults:
        console.print(f"WRONG: {fault}", style="bold red", highlight=False)
    if not faults:
        console.print(
            "Spark's table equals pandas's, and so does what it wrote back; every row is in the stream exactly once.",
            style="green",
        )
    return not faults


def comparison(outcome: Outcome) -> Table:
    """Spark's table next to that of pandas."""
    table = Table(title="flights and mean departure delay in minutes, per carrier and origin", row_styles=["", "dim"])
    for name in ("carrier", "origin"):
        table.add_column(name)
    for name in ("Spark: flights", "mean", "pandas: flights", "mean", "equal"):
        table.add_column(name, justify="right")
    for group in sorted(outcome.expected.keys() | outcome.found.keys()):
        expected, found = outcome.expected.get(group), outcome.found.get(group)
        table.add_row(*group, *cells(found), *cells(expected), "yes" if same(expected, found) else "[red]NO[/red]")
    whole_found, whole_expected = total(outcome.found), total(outcome.expected)
    table.add_section()
    equal = "yes" if same(whole_expected, whole_found) else "[red]NO[/red]"
    table.add_row("all", "", *cells(whole_found), *cells(whole_expected), equal)
    return table


def measures(outcome: Outcome) -> Table:
    """Speeds, the gap, replicas, memory."""
    table = Table(title="measured", show_header=False)
    table.add_column("what")
    table.add_column("value")
    progress = outcome.progress
    seconds = progress.last_ack_s - progress.started_s
    table.add_row("rows acknowledged", f"{progress.acked} in {seconds:.1f} s")
    table.add_row("published", f"{progress.acked / seconds:,.0f} messages/s, each acknowledged")
    table.add_row(
        "sent again",
        f"{progress.resent}, of which {progress.duplicates} were recognised as duplicates by their Nats-Msg-Id",
    )
    table.add_row("killed", f"{outcome.killed}, the leader, after {outcome.kill_at} acknowledgements")
    table.add_row(
        "time without a leader", f"{outcome.leaderless_s:.2f} s, the longest time between two acknowledgements"
    )
    table.add_row(
        "restart", f"{outcome.restart_s:.2f} s to ready; all replicas current {outcome.caught_up_s:.2f} s later"
    )
    spark_rows(table, outcome)
    for name, size in outcome.rss_bytes.items():
        most = max(size, outcome.rss_bytes_max.get(name, 0))
        table.add_row(f"memory of {name}", f"{size / MIB:.0f} MiB at the end, {most / MIB:.0f} MiB at most")
    return table


def spark_rows(table: Table, outcome: Outcome) -> None:
    """The connector's speed, that of whole micro-batches without the first (Spark's start), and who served them."""
    rows, busy_s = sum(one["rows"] for one in outcome.served), sum(one["seconds"] for one in outcome.served)
    table.add_row("connector", f"{rows / busy_s:,.0f} rows/s of a reading task" if busy_s else "-")
    later = outcome.speeds[1:]
    rows, busy_s = sum(batch["rows"] for batch in later), sum(batch["seconds"] for batch in later)
    speed = f"{rows / busy_s:,.0f} rows/s in {len(later)} micro-batches after the first" if busy_s else "-"
    table.add_row("Spark", f"{speed}; {outcome.written.windows} windows")
    table.add_row("written back", f"{outcome.written.messages:,} messages into stream DELAYS, exactly once")
    by_server: Counter[str] = Counter()
    for one in outcome.served:
        by_server[one["server"]] += one["rows"]
    table.add_row("served to Spark by", ", ".join(f"{name}: {count}" for name, count in sorted(by_server.items())))


def wrong(outcome: Outcome) -> list[str]:
    """A line for each figure that is not the expected one."""
    whole = total(outcome.found)
    faults = [
        f"{carrier} {origin}: Spark has {outcome.found.get((carrier, origin))}, pandas {expected}"
        for (carrier, origin), expected in outcome.expected.items()
        if not same(expected, outcome.found.get((carrier, origin)))
    ]
    faults += [
        f"{carrier} {origin}: stream DELAYS has {outcome.written.table.get((carrier, origin))}, pandas {expected}"
        for (carrier, origin), expected in outcome.expected.items()
        if not same(expected, outcome.written.table.get((carrier, origin)))
    ]
    faults += [f"Spark has a group that pandas has not: {group}" for group in outcome.found.keys() - outcome.expected]
    if (whole.flights, whole.with_delay) != (ROWS, ROWS_WITH_DELAY):
        faults.append(f"Spark counted {whole.flights} flights, {whole.with_delay} of them with a delay")
    if whole.mean_delay_min is None or abs(whole.mean_delay_min - MEAN_DELAY_MIN) > MEAN_TOLERANCE:
        faults.append(f"Spark's mean delay is {whole.mean_delay_min}, not {MEAN_DELAY_MIN}")
    if outcome.stored != ROWS:
        faults.append(f"the stream has {outcome.stored} messages, expected {ROWS}")
    return faults


def same(expected: Delays | None, found: Delays | None) -> bool:
    """Whether the counts are equal, and the means within RELATIVE_TOLERANCE."""
    if expected is None or found is None:
        return False
    if (expected.flights, expected.with_delay) != (found.flights, found.with_delay):
        return False
    if expected.mean_delay_min is None or found.mean_delay_min is None:
        return expected.mean_delay_min is found.mean_delay_min
    return math.isclose(expected.mean_delay_min, found.mean_delay_min, rel_tol=RELATIVE_TOLERANCE)


def cells(delays: Delays | None) -> tuple[str, str]:
    """Flights and mean as text."""
    if delays is None:
        return "-", "-"
    return str(delays.flights), "-" if delays.mean_delay_min is None else f"{delays.mean_delay_min:.6f}"
