"""`python -m tests.releases`: upgrade three servers of the release before, back, and again (root); see upgrade.py."""

import argparse
import sys
import tempfile
from pathlib import Path

import jetraft
from tests.faults.netns import Network, missing
from tests.faults.nodes import Nodes
from tests.releases.previous import NoHistoryError, built, released
from tests.releases.upgrade import REPLICAS, Move, Outcome, Upgrade


def shown(outcome: Outcome) -> str:
    """A table of the steps, and the verdict."""
    lines = [f"{'server':8}{'version':12}{'away':>8}{'silence of acknowledgements':>32}"]
    for step in outcome.steps:
        silence = ", ".join(f"{name} {gap:.2f} s" for name, gap in step.silence_s.items())
        lines.append(f"{step.node:8}{step.version:12}{step.away_s:6.1f} s{silence:>32}")
    for name, verdict in outcome.verdicts.items():
        lines.append(f"{name}: {verdict.acked} acknowledged, {verdict.lost} lost, {verdict.duplicates} twice")
    lines.append(f"consumer: {outcome.read} read and acknowledged, {outcome.redelivered} delivered again")
    lines.append(f"bucket: {outcome.revisions} updates")
    return "\n".join([*lines, *(f"PROBLEM {problem}" for problem in outcome.problems)])


def main() -> int:
    """The exit status: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", help="of the older version; the last release if none is named")
    parser.add_argument("--only-forward", action="store_true", help="servers are not taken back")
    arguments = parser.parse_args()
    if (why := missing()) is not None:
        sys.stdout.write(f"{why}\n")
        return 1
    version, commit = (arguments.commit, arguments.commit) if arguments.commit else released()
    try:
        older = built(commit)
    except NoHistoryError as error:
        sys.stdout.write(f"the history is needed: {error}\n")
        return 1
    with tempfile.TemporaryDirectory() as scratch, Network(REPLICAS) as network:
        nodes = Nodes("jetraft", network, REPLICAS, directory=Path(scratch))
        for node in nodes:
            node.source = older
        forward: list[Move] = [(node, jetraft.__version__, None) for node in nodes]
        back: list[Move] = [(node, version, older) for node in nodes]
        with nodes:
            outcome = Upgrade(nodes, Path(scratch)).play(
                forward if arguments.only_forward else [*forward, *back, *forward]
            )
    sys.stdout.write(f"{shown(outcome)}\n")
    return bool(outcome.problems)


if __name__ == "__main__":
    sys.exit(main())
