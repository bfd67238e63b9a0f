"""`python -m tests.simulator --mode base --seeds 100 [--first 0] [--story]`: run seeds, print what failed."""

import argparse
import sys
import time
from collections import Counter

import pytest

from jetraft.raft.pysyncobj_engine import create_engine
from tests.simulator.engines import use_engine
from tests.simulator.run import FAULTS_NS, HEALING_NS, MODES, Simulation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--engine", choices=["core", "pysyncobj"], default="core", help="modes of fixed membership only"
    )
    parser.add_argument("--story", action="store_true", help="print the story of every failing seed")
    options = parser.parse_args()
    with pytest.MonkeyPatch.context() as patch:
        if options.engine == "pysyncobj":
            use_engine(patch, create_engine)
        return play(options)


def play(options: argparse.Namespace) -> int:
    """Every seed of the wished modes; PySyncObj's membership is fixed."""
    failures = 0
    fixed = options.engine == "pysyncobj"
    modes = [
        name for name, mode in MODES.items() if not (fixed and (mode.changes_members or name.startswith("forget")))
    ]
    for name in modes if options.mode == "all" else [options.mode]:
        began_s = time.monotonic()
        totals: Counter[str] = Counter()
        for seed in range(options.first, options.first + options.seeds):
            result = Simulation(seed, MODES[name]).run()
            totals.update(result.counts)
            if result.problem is not None:
                failures += 1
                print(f"{name} seed {seed}: {result.problem}")  # noqa: T201  (a command)
                if options.story:
                    print("\n".join(result.history))  # noqa: T201  (a command)
        took_s = time.monotonic() - began_s
        hours = options.seeds * (FAULTS_NS + HEALING_NS) / 3.6e12
        print(  # noqa: T201  (a command)
            f"{name} ({options.engine}): {options.seeds} seeds, {hours:.2f} simulated hours in {took_s:.1f} s,",
            dict(totals),
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
