"""`python -m tests.corruption.witnesses`: what bears witness to a store is changed in every combination, and judged.

Six kinds of files say what a server that stands alone has acknowledged, and each may be sound, missing, empty, of an
older time, or another group's; keys are a seventh of an encrypted store. Each combination is inflicted on a copy of a
store; after it either everything is served or listed, or the server says why it serves nothing and what to do.

    --depth N        how many of them are changed at once, at most (2)
    --with NAME      only combinations with this one (repeatable)
    --recent         what is older is so by one session, and not by all of them
    --encrypted      a store with keys
    --seconds N      begin no combination after so many
    --json FILE      append one line per combination
    --one TEXT       one combination, as it is printed

What is left out is in `is_consistent`: nothing can tell a copy of the whole store from the store itself.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import combinations, product
from pathlib import Path
from typing import Final

from tests.corruption.one import OneServer
from tests.corruption.places import META, FileTree, group_of
from tests.corruption.verdicts import Finding
from tests.harness.raw import RawClient


class Witness(Enum):
    """Files that say together what was acknowledged."""

    LEDGER_A = "ledger.0"
    LEDGER_B = "ledger.1"
    NODE = "node.json"
    META_LOG = "meta log"
    CHECKPOINTS = "checkpoints"  # of streams
    BLOCKS = "blocks"  # of streams
    KEYS = "keys"


class Instead(Enum):
    """What is there in place of the files of a witness."""

    MISSING = "missing"
    EMPTY = "empty"
    OLDER = "older"
    ANOTHERS = "another's"  # of the next group, or of another store


Combination = Mapping[Witness, Instead]
LEDGERS: Final = (Witness.LEDGER_A, Witness.LEDGER_B)


def witness_of(name: str) -> Witness | None:
    """Which one a file of a store belongs to; None for locks and the like."""
    file, group = name.rpartition("/")[2], group_of(name)
    if not group:
        return next((it for it in (*LEDGERS, Witness.NODE) if it.value == file), None)
    if file.startswith("key."):
        return Witness.KEYS
    if not file.endswith((".blk", ".ckpt", ".parity")):
        return None
    if group == META:
        return Witness.META_LOG
    return Witness.CHECKPOINTS if file.endswith(".ckpt") else Witness.BLOCKS


def combined(depth: int, witnesses: Sequence[Witness]) -> Iterator[Combination]:
    """Every combination of up to `depth` witnesses, the small ones first."""
    for count in range(1, depth + 1):
        for chosen in combinations(witnesses, count):
            for states in product(Instead, repeat=count):
                found = dict(zip(chosen, states, strict=True))
                if not is_consistent(found):
                    yield found


def is_consistent(combination: Combination) -> bool:
    """Whether nothing is left that could say otherwise: ledger and blocks are from the same earlier time.

    Checkpoints of after would, but a stream may have none. No ledger, and one of another store, say nothing.
    """
    return all(it in combination for it in LEDGERS) and combination.get(Witness.BLOCKS) is Instead.OLDER


def spelled(combination: Combination) -> str:
    """For people, and for --one."""
    return ", ".join(f"{it.value} {state.value}" for it, state in combination.items())


def parsed(text: str) -> Combination:
    """What `spelled` has written."""
    return {
        it: state
        for part in text.split(", ")
        for it in Witness
        for state in Instead
        if part == f"{it.value} {state.value}"
    }


def change(tree: FileTree, combination: Combination, *, older: FileTree, other: FileTree) -> None:
    """Do to a store what a combination says; `older` is the same store before, `other` another one."""
    sound = {name: tree.read(name) for name in tree.names()}
    for it, state in combination.items():
        names = sorted(name for name in sound if witness_of(name) is it)
        match state:
            case Instead.MISSING:
                _put(tree, names, {})
            case Instead.EMPTY:
                _put(tree, names, dict.fromkeys(names, b""))
            case Instead.OLDER:
                before = [name for name in older.names() if witness_of(name) is it]
                _put(tree, names, {name: older.read(name) for name in before})
            case Instead.ANOTHERS:
                _put(tree, names, _anothers(names, sound, other))


def _put(tree: FileTree, names: Sequence[str], files: Mapping[str, bytes]) -> None:
    """These files in place of those of these names."""
    for name in set(names) - files.keys():
        tree.remove(name)
    for name, content in files.items():
        (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
        tree.write(name, content)


def _anothers(names: Sequence[str], sound: Mapping[str, bytes], other: FileTree) -> dict[str, bytes]:
    """Each file with the content of one of the next group; where there is one group or none, of the other store."""
    groups = sorted({group_of(name) for name in names})
    found = {}
    for name in names:
        group = group_of(name)
        if group in {"", META}:
            alike = [it for it in other.names() if witness_of(it) is witness_of(name)]
            content = other.read(alike[0]) if alike else b""
        else:
            following = groups[(groups.index(group) + 1) % len(groups)]
            alike = [it for it in names if group_of(it) == following]
            place = [it for it in names if group_of(it) == group].index(name)
            content = sound[alike[place % len(alike)]]
        found[name] = content
    return found


class LoneStore(OneServer):
    """A store that has lived, one of an earlier time, and another one of a server with the same name."""

    def build(self) -> None:
        """See OneServer; then live for a moment elsewhere."""
        super().build()
        self.another = FileTree(self.directory / "another" / "store")
        with self._server(self.directory / "another") as server, RawClient(server.address) as client:
            for name in ("X", "Y", "Z"):
                answer = client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
                assert "error" not in answer, answer
                for number in range(10):
                    assert client.acknowledged(f"{name}.{number}", bytes(100))["seq"] == number + 1

    def judged(self, combination: Combination, *, is_oldest: bool = True) -> Finding:
        """Change a copy of the store, start a server on it and judge, and once more after a restart."""

        def changed(tree: FileTree) -> str:
            change(tree, combination, older=self.older[-1 if is_oldest else 0], other=self.another)
            return spelled(combination)

        return self.run_changed(changed)


def main() -> int:
    """Print each violation and, at the end, how often each verdict was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--with", dest="wanted", action="append", default=[])
    parser.add_argument("--recent", action="store_true")
    parser.add_argument("--encrypted", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one")
    wish = parser.parse_args()
    witnesses = [it for it in Witness if wish.encrypted or it is not Witness.KEYS]
    wanted = {Witness(name) for name in wish.wanted}
    counts: Counter[str] = Counter()
    violated = 0
    deadline = time.monotonic() + wish.seconds
    with tempfile.TemporaryDirectory(prefix="jetraft-witnesses-") as directory:
        store = LoneStore(Path(directory), is_encrypted=wish.encrypted, is_thorough=False)
        store.build()
        for combination in [parsed(wish.one)] if wish.one else combined(wish.depth, witnesses):
            if time.monotonic() > deadline:
                break
            if not wanted <= combination.keys():
                continue
            finding = store.judged(combination, is_oldest=not wish.recent)
            counts[finding.verdict.value] += 1
            violated += finding.verdict.is_violation
            if finding.verdict.is_violation or wish.one:
                sys.stdout.write(f"{finding.verdict.value.upper()}: {spelled(combination)}\n    {finding.detail}\n")
                sys.stdout.flush()
            if wish.json is not None:
                line = {"what": spelled(combination), "verdict": finding.verdict.value, "detail": finding.detail}
                with wish.json.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
    figures = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    sys.stdout.write(f"{counts.total()} combinations: {figures or 'none'}\n")
    return 1 if violated or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
