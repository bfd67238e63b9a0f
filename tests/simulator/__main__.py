"""`python -m tests.simulator --mode base --seeds 100 [--first 0] [--story]`: run seeds, print what failed."""

import argparse
import sys
import time
from collections import Counter

from tests.simulator.run import MODES, Simulation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--story", action="store_true", help="print the story of every failing seed")
    options = parser.parse_args()
    failures = 0
    for name in MODES if options.mode == "all" else [options.mode]:
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
        print(f"{name}: {options.seeds} seeds in {took_s:.1f} s, {dict(totals)}", flush=True)  # noqa: T201  (a command)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
