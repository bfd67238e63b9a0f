"""`make bench-growth`: does the cost of a message stay flat while everything around it grows?

    python -m tests.bench.growth [--quick] [--json FILE] [--plot FILE]

Server CPU per message is compared, because it is steadier than the rate on a busy machine. A series is flat when its
dearest point costs at most FLAT times its cheapest.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import attrs

from tests.bench.measure import build_generator, cpu_s, generate, rss_bytes, servers
from tests.harness.server import Server

FLAT = 1.5
MSGS = 400_000


@attrs.frozen(kw_only=True)
class Point:
    """One measurement of a series: the size of what grows, CPU per message, rate, memory."""

    size: int
    cpu_ns: float
    rate: float
    rss_mb: float


@attrs.frozen(kw_only=True)
class Series:
    """What grows, by which option, through which sizes; with `first` by a run of its own before the measured one."""

    name: str
    mode: str
    option: str
    sizes: tuple[int, ...]
    fixed: tuple[str, ...] = ()
    first: tuple[str, ...] | None = None


SERIES = (
    Series(name="subjects of a stream", mode="jspub", option="subjects", sizes=(1, 100, 10_000, 100_000)),
    Series(name="subscriptions", mode="fan", option="idle_subs", sizes=(1, 100, 10_000)),
    Series(
        name="consumers of a stream",
        mode="jspub",
        option="idle_consumers",
        sizes=(1, 100, 1000),
        fixed=("keep=1",),
        first=("msgs=1",),
    ),
    Series(
        name="messages in the stream",
        mode="jspub",
        option="msgs",
        sizes=(10_000, 1_000_000, 10_000_000),
        fixed=("keep=1", "subjects=1000"),
        first=("window=8000", "subjects=1000"),
    ),
)


def measure(generator: Path, series: Series, size: int, server: Server, msgs: int) -> Point:
    """One point on a fresh server."""
    options = [*series.fixed, f"msgs={msgs}"]
    if series.first is not None:
        generate(generator, "fill", server, (*series.first, f"{series.option}={size}"))
    else:
        options.append(f"{series.option}={size}")
    if series.mode == "jspub":
        options.append("window=4000")
    before = cpu_s(server.running.pid)
    answer = generate(generator, series.mode, server, tuple(options))
    spent = cpu_s(server.running.pid) - before
    return Point(size=size, cpu_ns=spent * 1e9 / msgs, rate=answer["rate"], rss_mb=rss_bytes(server.running.pid) / 1e6)


def run(generator: Path, *, quick: bool) -> dict[str, list[Point]]:
    """All series; each point is the median of three fresh servers (one in the short form)."""
    found: dict[str, list[Point]] = {}
    for series in SERIES:
        points = []
        for size in series.sizes:
            if quick and size > 1_000_000:
                continue
            runs = []
            for _ in range(1 if quick or size > 1_000_000 else 3):
                with servers("jetraft", nodes=1) as (server,):
                    runs.append(measure(generator, series, size, server, MSGS // (4 if quick else 1)))
            points.append(sorted(runs, key=lambda point: point.cpu_ns)[len(runs) // 2])
            print(
                f"{series.name:<26}{size:>12,}{points[-1].cpu_ns:>10,.0f} ns{points[-1].rate:>14,.0f}/s"
                f"{points[-1].rss_mb:>9,.0f} MB",
                flush=True,
            )
        found[series.name] = points
    return found


def ratio(points: list[Point]) -> float:
    """The dearest point by the cheapest."""
    costs = [point.cpu_ns for point in points]
    return max(costs) / max(min(costs), 1.0)


def plot(found: dict[str, list[Point]], path: Path) -> None:
    """Cost by size, one line a series."""
    import matplotlib as mpl  # noqa: PLC0415  only who asks for a picture needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, points in found.items():
        base = statistics.median(point.cpu_ns for point in points)
        axes.plot([point.size for point in points], [point.cpu_ns / base for point in points], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.axhline(FLAT, color="grey", linestyle=":")
    axes.set_xlabel("size")
    axes.set_ylabel("server CPU per message / median of the series")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> int:
    """Run and print; the exit status does not judge."""
    parser = argparse.ArgumentParser(prog="make bench-growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer messages, nothing above a million")
    parser.add_argument("--json", default="bench-growth.json", help="where the figures go")
    parser.add_argument("--plot", default="", help="draw the series into this file (needs matplotlib)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        found = run(build_generator(Path(directory)), quick=arguments.quick)
    for name, points in found.items():
        print(f"{name:<26} x{ratio(points):.2f} (flat is at most x{FLAT})")
    document = {name: [attrs.asdict(point) for point in points] for name, points in found.items()}
    Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        plot(found, Path(arguments.plot))
    return 0


if __name__ == "__main__":
    sys.exit(main())
