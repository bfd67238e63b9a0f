"""Every case at n = 10, 100, 1,000 and 10,000, in a full server: python -m tests.scaling [--short] [WORD...].

Only cases are measured whose names have all the words. Prints what grows faster than n log n or holds the server for
more than 20 ms of its processor time, and then the longest steps; the exit status says whether there is such a case.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.scaling.cases import all_cases
from tests.scaling.measure import LONG, SHORT, Cost, faults, filled

SIZES: Final = (10, 100, 1_000, 10_000)
SHORT_SIZES: Final = (10, 100, 1_000)
SHOWN: Final = 15


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    began = time.monotonic()
    longest: list[tuple[Cost, str]] = []
    slow = 0
    with tempfile.TemporaryDirectory() as directory, filled(Path(directory), SHORT if asked.short else LONG) as meter:
        print(f"filled after {time.monotonic() - began:.1f} s", flush=True)
        cases = [case for case in all_cases() if all(word in case.name for word in asked.words)]
        cases = [case for case in cases if case.is_many or not asked.short]
        for case in cases:
            costs = meter.curve(case, SHORT_SIZES if asked.short else SIZES)
            if costs:
                longest.append((max(costs, key=lambda cost: cost.longest_ns), case.name))
            for fault in (found := faults(costs)):
                print(f"{case.name}: {fault}", flush=True)
            slow += bool(found)
            assert meter.server.running.running, case.name
    print(f"{len(cases)} cases in {time.monotonic() - began:.0f} s, {slow} of them too slow; the longest steps:")
    for cost, name in sorted(longest, key=lambda row: -row[0].longest_ns)[:SHOWN]:
        print(f"| {name}, n = {cost.size:,} | {cost.longest_ns / 1e6:.1f} ms of {cost.total_ns / 1e6:.1f} |")
    return int(slow > 0)


if __name__ == "__main__":
    raise SystemExit(main())
