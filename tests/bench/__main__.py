"""`make bench`: both servers in turn on the same work, A B A B, and the ratio of each pair.

    python -m tests.bench [--quick] [--runs N] [--only NAME[,NAME]] [--json FILE]

A ratio is ours divided by the peer's rate; the table shows the median of the pairs with the lowest and the highest.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import attrs

from tests.bench.cases import CASES, Case
from tests.bench.measure import BenchError, Result, build_generator, run_case
from tests.bench.memory import memory_rows
from tests.harness.process import ServerFailed

QUICK_SHARE = 0.25
PEER_TRIES = 3
HEAD = (
    f"{'case':<24}{'ours/s':>12}{'peer/s':>12}{'ratio':>8}  {'min..max':<16}{'floor':>6}{'cpu ns ours/peer':>20}"
    f"{'p50 us':>16}{'p99 us':>18}"
)


@attrs.frozen(kw_only=True)
class Row:
    """One case with the medians over its runs."""

    case: Case
    ours: list[Result]
    peer: list[Result]

    @property
    def ratios(self) -> list[float]:
        """Ours by peer, pair by pair."""
        return [a.rate / b.rate for a, b in zip(self.ours, self.peer, strict=True)]

    def document(self) -> dict[str, object]:
        """The row of bench.json."""
        return {
            "name": self.case.name,
            "ours": round(median(self.ours, "rate"), 1),
            "peer": round(median(self.peer, "rate"), 1),
            "ratio": round(statistics.median(self.ratios), 3),
            "ratio_min": round(min(self.ratios), 3),
            "ratio_max": round(max(self.ratios), 3),
            "unit": "msgs/s",
            "floor": self.case.floor,
            "cpu_ns_ours": round(median(self.ours, "cpu_ns")),
            "cpu_ns_peer": round(median(self.peer, "cpu_ns")),
            "p50_us_ours": self.ours[0].p50_us,
            "p50_us_peer": self.peer[0].p50_us,
            "p99_us_ours": self.ours[0].p99_us,
            "p99_us_peer": self.peer[0].p99_us,
            "rss_mb_ours": round(max(result.rss_mb for result in self.ours), 1),
            "rss_mb_peer": round(max(result.rss_mb for result in self.peer), 1),
        }

    def line(self) -> str:
        """The row of the table."""
        row = self.document()
        ratio = statistics.median(self.ratios)
        floor = "" if self.case.floor is None else f"{self.case.floor:g}" + ("" if ratio >= self.case.floor else "!")
        spread = f"{min(self.ratios):.2f}..{max(self.ratios):.2f}"
        cpu = f"{row['cpu_ns_ours']:,}/{row['cpu_ns_peer']:,}"
        return (
            f"{self.case.name:<24}{row['ours']:>12,.0f}{row['peer']:>12,.0f}{ratio:>7.2f}x  "
            f"{spread:<16}{floor:>6}{cpu:>20}"
            f"{pair(row['p50_us_ours'], row['p50_us_peer']):>16}{pair(row['p99_us_ours'], row['p99_us_peer']):>18}"
        )


def pair(ours: object, peer: object) -> str:
    """Two figures side by side, or nothing where the case has none."""
    return "" if ours is None else f"{ours}/{peer}"


def median(results: list[Result], field: str) -> float:
    """The median of one figure."""
    figures: list[float] = [getattr(result, field) for result in results]
    return statistics.median(figures)


def run_peer(generator: Path, case: Case, *, share: float) -> Result:
    """The same of the peer, which may find its port taken, or say that a stream exists before it takes publishes."""
    for _ in range(PEER_TRIES - 1):
        try:
            return run_case(generator, case, "reference", share=share)
        except (BenchError, ServerFailed) as error:
            print(f"{case.name}: the peer once more: {str(error).splitlines()[0]}", file=sys.stderr)
    return run_case(generator, case, "reference", share=share)


def run(case: Case, generator: Path, *, runs: int, share: float) -> Row:
    """Run one case on both servers in turn."""
    ours, peer = [], []
    for _ in range(runs):
        ours.append(run_case(generator, case, "jetraft", share=share))
        peer.append(run_peer(generator, case, share=share))
    return Row(case=case, ours=ours, peer=peer)


def main() -> int:
    """Run the benchmark; the exit status says whether every run was sound, never whether a floor was reached."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short form: fewer cases, messages and runs")
    parser.add_argument("--runs", type=int, default=0, help="pairs per case (default 3, quick 1)")
    parser.add_argument("--only", default="", help="only these cases, separated by commas")
    parser.add_argument("--json", default="bench.json", help="where the figures go")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    cases = [case for case in CASES if (case.name in only if only else case.quick or not arguments.quick)]
    runs = arguments.runs or (1 if arguments.quick else 3)
    share = QUICK_SHARE if arguments.quick else 1.0
    rows: list[dict[str, object]] = []
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        generator = build_generator(Path(directory))
        for case in cases:
            row = run(case, generator, runs=runs, share=share)
            rows.append(row.document())
            print(row.line(), flush=True)
        if not only:
            rows += memory_rows(generator)
    Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
