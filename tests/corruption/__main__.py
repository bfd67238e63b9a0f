"""`python -m tests.corruption`: damage every kind of file of a store, start real servers on it, and judge.

    --setup NAME     log, log-young, log-encrypted, one, one-encrypted or three (repeatable); all of them share the time
    --only TEXT      this kind of file, or those that contain this (repeatable)
    --damage NAME    flip, truncate, zero, delete, swap or old (repeatable)
    --seed K         the first seed: it chooses the file of a kind, and the place in it
    --once           this seed only
    --seconds N      begin no case after so many seconds
    --quick          shorter lives: no block is compacted
    --json FILE      append one line per case
    --directory DIR  an empty one, where stores and server logs go and stay

Exit status 0: nothing acknowledged was silently missing or changed; 1: something was.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

from tests.corruption.damages import Case, Damage, cases
from tests.corruption.log import OneLog
from tests.corruption.one import OneServer
from tests.corruption.places import Tree, places
from tests.corruption.report import summary, table, violations
from tests.corruption.three import ThreeServers
from tests.corruption.verdicts import Outcome

SETUPS = ("log", "log-young", "log-encrypted", "one", "one-encrypted", "three")


class Setup(Protocol):
    """A store that has lived, and what runs on it."""

    name: str

    @property
    def tree(self) -> Tree:
        """The store that is damaged, before that."""
        ...

    def build(self) -> None:
        """Live."""
        ...

    def run(self, case: Case) -> Outcome:
        """Damage a copy, and judge what becomes of it."""
        ...


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tests.corruption", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--setup", action="append", choices=SETUPS)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--damage", action="append", choices=[damage.value for damage in Damage])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--directory", type=Path)
    return parser.parse_args(words)


def made(name: str, directory: Path, *, is_thorough: bool) -> Setup:
    """A setup by its name, not yet built."""
    if name == "three":
        return ThreeServers(directory, is_thorough=is_thorough)
    if name.startswith("one"):
        return OneServer(directory, is_encrypted=name == "one-encrypted", is_thorough=is_thorough)
    return OneLog(is_encrypted=name == "log-encrypted", is_young=name == "log-young")


def chosen(setup: Setup, wish: argparse.Namespace) -> Iterator[Case]:
    """The cases of a setup, seed after seed."""
    kinds = {place.kind for place in places(setup.tree)}
    wanted = {kind for kind in kinds for text in wish.only if kind == text or (text in kind and text not in kinds)}
    for seed in [wish.seed] if wish.once else count(wish.seed):
        found = [
            case
            for case in cases(setup.tree, seed)
            if (not wish.only or case.kind in wanted) and (not wish.damage or case.damage.value in wish.damage)
        ]
        if not found:
            return
        yield from found


def play(wish: argparse.Namespace, directory: Path) -> Iterator[Outcome]:
    """All outcomes; the setup that has had the least time is next."""
    deadline = time.monotonic() + wish.seconds
    setups = [made(name, directory, is_thorough=not wish.quick) for name in wish.setup or SETUPS]
    waiting: dict[str, Iterator[Case]] = {}
    by_name = {setup.name: setup for setup in setups}
    used_s = dict.fromkeys(by_name, 0.0)
    while used_s and time.monotonic() < deadline:
        name = min(used_s, key=lambda name: used_s[name])
        began = time.monotonic()
        if name not in waiting:
            by_name[name].build()
            waiting[name] = chosen(by_name[name], wish)
            continue
        case = next(waiting[name], None)
        if case is None:
            del used_s[name]
            continue
        yield by_name[name].run(case)
        used_s[name] += time.monotonic() - began


def main() -> int:
    """Run, print a line for each violation at once, and the table at the end."""
    wish = options()
    logging.getLogger("jetraft").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="jetraft-corruption-") as temporary:
        outcomes: list[Outcome] = []
        try:
            for outcome in play(wish, wish.directory or Path(temporary)):
                outcomes.append(outcome)
                _tell(outcome, wish.json)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
    failed = "\n".join(violations(outcomes))
    sys.stdout.write(f"\n{table(outcomes)}\n\n{failed}\n\n{summary(outcomes)}\n")
    return 1 if failed or not any(outcome.file for outcome in outcomes) else 0


def _tell(outcome: Outcome, file: Path | None) -> None:
    if outcome.verdict.is_violation:
        sys.stdout.write(f"{outcome.setup}: {outcome.case}: {outcome.what}: {outcome.verdict.value}\n")
        sys.stdout.flush()
    if file is not None:
        line = {
            "setup": outcome.setup,
            "kind": outcome.case.kind,
            "damage": outcome.case.damage.value,
            "seed": outcome.case.seed,
            "file": outcome.file,
            "what": outcome.what,
            "verdict": outcome.verdict.value,
            "detail": outcome.finding.detail,
        }
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
