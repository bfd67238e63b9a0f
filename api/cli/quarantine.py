"""`jetraft quarantine DIR`: list what a store keeps of groups that could not be used, and remove it.

The server ends such copies itself (cluster/upkeep/quarantine.py); this is for those that an operator has looked at, or
wants gone at once. It may run beside the server: nothing refers to a copy.

Exit status: 0 when it was done, 1 when a copy could not be removed or is not there, 2 when DIR is no store or the
command line is wrong.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.ledger import quarantine
from jetraft.store.ledger.quarantine import KeptCopy
from jetraft.store.model.clock import NS_PER_S

FAILED = 1
NO_STORE = 2
NOTHING_KEPT = "nothing is kept\n"
EXAMPLES = """
examples:
  jetraft quarantine /var/lib/jetraft
  jetraft quarantine /var/lib/jetraft --remove S-R3F-h2kPq0aT.17
  jetraft quarantine /var/lib/jetraft --remove-all

exit status: 0 when it was done, 1 when a copy could not be removed or is not there, 2 when DIR is not a store.
"""


def main(_command: str, words: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="jetraft quarantine",
        description="List what a store keeps for inspection of logs that were replaced and of damaged bytes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", metavar="DIR", type=Path, help="the store directory of a server, which may run")
    removal = parser.add_mutually_exclusive_group()
    removal.add_argument("--remove", metavar="GROUP", help="remove what is kept of a group, as the list names it")
    removal.add_argument("--remove-all", action="store_true", help="remove all that is kept")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    options = parser.parse_args(words)
    root: Path = options.store
    if not (root / quarantine.GROUPS_NAME).is_dir():
        sys.stderr.write(f"jetraft quarantine: {root} is not a store directory\n")
        return NO_STORE
    disk = LocalDisk(Writer())
    copies = quarantine.copies(disk, root)
    if options.remove or options.remove_all:
        chosen = [copy for copy in copies if options.remove_all or name_of(copy) == options.remove]
        return _remove(disk, chosen, options)
    sys.stdout.write(json.dumps([_fields(copy) for copy in copies]) + "\n" if options.json else _table(copies))
    return 0


def name_of(copy: KeptCopy) -> str:
    """How the list names the group of a copy."""
    return "{}.{}".format(*copy.group)


def _remove(disk: LocalDisk, copies: Sequence[KeptCopy], options: argparse.Namespace) -> int:
    if not copies and options.remove:
        sys.stderr.write(f"jetraft quarantine: nothing is kept of {options.remove}\n")
        return FAILED
    status = 0
    for copy in copies:
        try:
            quarantine.remove(disk, copy)
        except OSError as error:
            sys.stderr.write(f"jetraft quarantine: {copy.path}: {error.strerror}\n")
            status = FAILED
        else:
            sys.stdout.write(f"removed {copy.path} ({copy.bytes} bytes)\n")
    return status


def _fields(copy: KeptCopy) -> dict[str, object]:
    seen = datetime.fromtimestamp(copy.seen_ns // NS_PER_S, UTC).isoformat() if copy.seen_ns else None
    kind = "log" if copy.is_log else "damaged bytes"
    return {"group": name_of(copy), "kind": kind, "bytes": copy.bytes, "since": seen, "path": str(copy.path)}


def _table(copies: Sequence[KeptCopy]) -> str:
    if not copies:
        return NOTHING_KEPT
    rows = [("GROUP", "KIND", "BYTES", "SINCE", "PATH")]
    rows += [
        (str(row["group"]), str(row["kind"]), str(row["bytes"]), str(row["since"] or "-"), str(row["path"]))
        for row in map(_fields, copies)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"
