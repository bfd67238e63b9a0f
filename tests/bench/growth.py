"""`make bench-growth`: does the cost of a message stay flat while everything around it grows?

    python -m tests.bench.growth [--quick] [--only WORD] [--runs N] [--json FILE] [--plot FILE]

The server's CPU per message is compared, because it is steadier than the rate on a busy machine. A series is flat when
its dearest point costs at most FLAT times its cheapest. The figures of series that are not run are kept from the file.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs

from tests.bench.measure import build_generator, generate, generate_paced, servers
from tests.bench.plot import Line, draw
from tests.harness.server import Server

FLAT: Final = 1.5
QUICK_SIZE_MAX: Final = 1_000_000
ONCE_FROM: Final = 10_000_000  # points that take long to prepare are measured on one server only
REPEATS: Final = 3  # measured parts on one server


@attrs.frozen(kw_only=True)
class Point:
    """One measurement of a series: the size of what grows, CPU per message, rate, resident memory afterwards."""

    size: int
    cpu_ns: float
    rate: float
    rss_mb: float


@attrs.frozen(kw_only=True)
class Series:
    """What grows, by which option of the load generator, through which sizes.

    `first` is a run of its own before the measured ones, and has the option then. The measured part is repeated on the
    same server, except where it is the growing itself (`fresh`).
    """

    name: str
    mode: str
    option: str
    sizes: tuple[int, ...]
    msgs: int = 400_000
    options: tuple[str, ...] = ()
    first: tuple[str, ...] | None = None
    fresh: bool = False


SERIES: Final = (
    Series(
        name="subjects of a stream",
        mode="jspub",
        option="subjects",
        sizes=(1, 100, 10_000, 100_000, 1_000_000),
        options=("window=4000", "keep=1"),
        first=("window=8000", "msgs=500000"),
    ),
    Series(
        name="subjects as they come",
        mode="jspub",
        option="subjects",
        sizes=(1, 100, 10_000, 100_000, 1_000_000),
        msgs=500_000,
        options=("window=4000",),
        fresh=True,
    ),
    Series(
        name="idle subscriptions",
        mode="fan",
        option="idle_subs",
        sizes=(1, 100, 10_000, 100_000, 1_000_000),
        msgs=2_000_000,
    ),
    Series(
        name="subscriptions in use",
        mode="fan",
        option="subjects",
        sizes=(1, 100, 10_000, 100_000, 1_000_000),
        msgs=2_000_000,
    ),
    Series(
        name="consumers, publishing",
        mode="jspub",
        option="idle_consumers",
        sizes=(1, 100, 1000),
        options=("window=4000", "keep=1"),
        first=("msgs=1",),
    ),
    Series(
        name="consumers, one reads",
        mode="fetch",
        option="idle_consumers",
        sizes=(1, 100, 1000),
        msgs=300_000,
        first=("window=4000", "msgs=300000"),
    ),
    Series(
        name="messages, publishing",
        mode="jspub",
        option="msgs",
        sizes=(10_000, 1_000_000, 10_000_000),
        options=("window=4000", "subjects=1000", "keep=1"),
        first=("window=8000", "subjects=1000"),
    ),
    Series(
        name="messages, reading",
        mode="fetch",
        option="msgs",
        sizes=(300_000, 1_000_000, 10_000_000),
        msgs=300_000,
        first=("window=8000", "subjects=1000"),
    ),
)


def measure(generator: Path, series: Series, size: int, server: Server, msgs: int) -> Point:
    """One point on a fresh server: the cheapest of the repeated parts, as what disturbs only ever adds."""
    growing = f"{series.option}={size}"
    options = (*series.options, f"msgs={msgs}")
    if series.first is not None:
        generate(generator, "fill", server, (*series.first, growing))
    if series.option == "subjects" and not series.fresh:
        options = (*options, growing)
    if series.first is None:
        options = (*options, growing)
    costs, rates = [], []
    for _ in range(1 if series.fresh else REPEATS):
        answer, cpu_ns, rss_mb = generate_paced(generator, series.mode, [server], options)
        costs.append(cpu_ns)
        rates.append(answer["rate"])
    return Point(size=size, cpu_ns=min(costs), rate=max(rates), rss_mb=rss_mb)


def run(generator: Path, series: Series, *, quick: bool, runs: int) -> list[Point]:
    """One series; each point is the median over fresh servers, which take turns through the sizes."""
    sizes = [size for size in series.sizes if size <= QUICK_SIZE_MAX or not quick]
    found: dict[int, list[Point]] = {size: [] for size in sizes}
    for turn in range(runs):
        for size in sizes:
            if turn and size >= ONCE_FROM:
                continue
            with servers("jetraft", nodes=1) as (server,):
                found[size].append(measure(generator, series, size, server, series.msgs // (4 if quick else 1)))
    points = []
    for measured in found.values():
        points.append(sorted(measured, key=lambda point: point.cpu_ns)[len(measured) // 2])
        print(
            f"{series.name:<24}{points[-1].size:>12,}{points[-1].cpu_ns:>10,.0f} ns{points[-1].rate:>14,.0f}/s"
            f"{points[-1].rss_mb:>9,.0f} MB",
            flush=True,
        )
    return points


def ratio(points: list[Point]) -> float:
    """The dearest point by the cheapest."""
    costs = [point.cpu_ns for point in points]
    return max(costs) / max(min(costs), 1.0)


def lines(found: dict[str, list[Point]]) -> list[Line]:
    """Cost by size, in medians of the series."""
    drawn = []
    for name, points in found.items():
        base = statistics.median(point.cpu_ns for point in points)
        drawn.append(Line(name=name, points=tuple((point.size, point.cpu_ns / base) for point in points)))
    return drawn


def load(path: Path) -> dict[str, list[Point]]:
    """The figures of an earlier run, by series; nothing when there is no file."""
    if not path.exists():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    return {name: [Point(**point) for point in points] for name, points in document.items()}


def main() -> int:
    """Run and print; the exit status does not judge."""
    parser = argparse.ArgumentParser(prog="make bench-growth", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a quarter of the messages, one run, nothing above a million"
    )
    parser.add_argument("--only", default="", help="only the series whose name contains this")
    parser.add_argument("--runs", type=int, default=0, help="fresh servers per point (default 3, quick 1)")
    parser.add_argument("--json", default="bench-growth.json", help="where the figures go")
    parser.add_argument(
        "--plot", default="docs/growth.svg", help="draw the series into this file; empty for no picture"
    )
    arguments = parser.parse_args()
    path = Path(arguments.json)
    found = load(path) if arguments.only else {}
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        generator = build_generator(Path(directory))
        for series in SERIES:
            if arguments.only in series.name:
                runs = arguments.runs or (1 if arguments.quick else 3)
                found[series.name] = run(generator, series, quick=arguments.quick, runs=runs)
    found = {series.name: found[series.name] for series in SERIES if series.name in found}
    for name, points in found.items():
        print(f"{name:<24} x{ratio(points):.2f} (flat is at most x{FLAT})")
    document = {name: [attrs.asdict(point) for point in points] for name, points in found.items()}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        Path(arguments.plot).write_text(draw(lines(found), flat=FLAT), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
