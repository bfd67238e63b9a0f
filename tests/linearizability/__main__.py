"""`python -m tests.linearizability`: histories of clients under faults of real servers, judged (root); see run.py."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.faults.netns import Network, missing
from tests.faults.nodes import Nodes
from tests.linearizability.checker import Judgement
from tests.linearizability.clients import KINDS
from tests.linearizability.run import Report, play

NS_PER_MS: Final = 1_000_000


def shown(report: Report) -> str:
    """A table of the reads by kind, and what is wrong."""
    recorder = report.recorder
    operations = sum(map(len, recorder.registers.values()))
    lines = [
        f"{report.seconds:.0f} s, faults: " + ", ".join(f"{count} {name}" for name, count in report.faults.items()),
        f"registers: {operations} operations on {sum(report.keys.values())} keys, "
        + ", ".join(f"{report.keys[judgement]} {judgement.value}" for judgement in Judgement),
        f"list: {len(recorder.appends)} appends, {len(recorder.looks)} looks",
        "without an answer: " + ", ".join(f"{count} {name}" for name, count in recorder.lost.items()),
        f"{'reads':28}{'answered':>10}{'unavailable':>13}{'404, exists':>13}{'old':>7}{'by at most':>14}",
    ]
    for kind in KINDS:
        found = recorder.reads[kind]
        late = f"{max(found.late_ns) / NS_PER_MS:.1f} ms" if found.late_ns else "-"
        lines.append(f"{kind:28}{found.answered:10}{found.unavailable:13}{found.not_found:13}{found.stale:7}{late:>14}")
    return "\n".join(
        [*lines, *(f"WRONG {text}" for text in report.wrong[:20]), *(f"READS {text}" for text in report.reads)]
    )


def main() -> int:
    """The exit status: 1 when a history is wrong, 2 when direct gets alone are not what clients expect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if (lacking := missing()) is not None:
        sys.stdout.write(f"{lacking}\n")
        return 1
    with (
        tempfile.TemporaryDirectory() as scratch,
        Network(arguments.nodes) as network,
        Nodes("jetraft", network, arguments.nodes, directory=Path(scratch) / "nodes") as nodes,
    ):
        report = play(nodes, arguments.seconds, arguments.seed)
    sys.stdout.write(f"{shown(report)}\n")
    return 1 if report.wrong else 2 if report.reads else 0


if __name__ == "__main__":
    sys.exit(main())
