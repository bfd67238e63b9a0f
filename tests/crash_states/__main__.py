"""`python -m tests.crash_states [--states 100000] [--first 0] [--jobs 2]`, or `--first SEED --at OPERATION`.

Judges states in which crashes leave a store; with `--lives N` lives on a disk that damages what it keeps instead, from
the first seed on. Ends with status 1 when one breaks a promise.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.crash_states.damaged_lives import DAMAGES, lived
from tests.crash_states.exploration import explore
from tests.crash_states.series import Series, played, table

STATES = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=STATES, help="how many to judge; the last seed is finished")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--at", type=int, help="judge the first seed only, and the crashes after this operation")
    parser.add_argument("--lives", type=int, help="play so many lives with damage")
    options = parser.parse_args(arguments)
    if options.lives is not None:
        return play_lives(options.first, options.lives)
    began_s = time.monotonic()
    series = Series()
    if options.at is not None:
        outcomes = iter([explore(options.first, at=options.at)])
    else:
        outcomes = played(options.states, first=options.first, jobs=options.jobs)
    for outcome in outcomes:
        series = series.plus(outcome)
        for violation in outcome.violations:
            print(f"{violation}\n  {outcome.setup}", flush=True)  # noqa: T201  (a command)
    print(table(series, time.monotonic() - began_s))  # noqa: T201  (a command)
    return 1 if series.violations else 0


def play_lives(first: int, count: int) -> int:
    """Play lives with damage, and every fifth seed one without."""
    met, broken = Counter[str](), 0
    for seed in range(first, first + count):
        violation = lived(seed, met, DAMAGES if seed % 5 else ())
        broken += bool(violation)
        if violation:
            print(violation, flush=True)  # noqa: T201  (a command)
    figures = ", ".join(f"{what} {number}" for what, number in sorted(met.items()))
    print(f"{count} lives, {broken} violations; {figures}")  # noqa: T201  (a command)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
