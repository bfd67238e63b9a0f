"""`python -m tests.simulator --mode base --seeds 100 [--first 0] [--engine pysyncobj] [--jobs 2] [--story]`.

Plays seeds, prints what failed and what was played. `--json FILE` adds the figures to a file, one line a mode.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import attrs

from tests.simulator.copying import KINDS
from tests.simulator.engines import ENGINES, NODE, play
from tests.simulator.nodes.run import MODES as NODE_MODES
from tests.simulator.run import MODES
from tests.simulator.series import Series, modes_of, play_series


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=[*MODES, *KINDS, NODE, *NODE_MODES, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--engine", choices=list(ENGINES), default="core")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--story", action="store_true", help="print the story of every failing seed")
    parser.add_argument("--json", type=Path, help="a file to add the figures to")
    options = parser.parse_args()
    failures = 0
    for mode in modes_of(options.engine) if options.mode == "all" else [options.mode]:
        began_s = time.monotonic()
        series = play_series(mode, options.engine, first=options.first, seeds=options.seeds, jobs=options.jobs)
        report(series, time.monotonic() - began_s, story=options.story)
        failures += len(series.problems)
        if options.json is not None:
            with options.json.open("a") as file:
                file.write(json.dumps(attrs.asdict(series) | {"first": options.first}) + "\n")
    return 1 if failures else 0


def report(series: Series, took_s: float, *, story: bool) -> None:
    """Print what came of one mode."""
    for seed, problem in sorted(series.problems.items()):
        print(f"{series.mode} seed {seed}: {problem}")  # noqa: T201  (a command)
        if story:
            print("\n".join(play(seed, series.mode, series.engine).history))  # noqa: T201  (a command)
    print(  # noqa: T201  (a command)
        f"{series.mode} ({series.engine}): {series.seeds} seeds, {series.simulated_hours:.2f} simulated hours",
        f"in {took_s:.1f} s, {len(series.problems)} problems,",
        ", ".join(f"{count} {name}" for name, count in sorted(series.counts.items())),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
