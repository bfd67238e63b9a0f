"""`jetraft recover DIR --members NAME[,NAME]`: continue after the permanent loss of a majority (cluster/recovering.py).

Without `--yes-i-may-lose-data` it prints what it would do and changes nothing. It is refused while a server uses DIR,
and while a server that is not listed answers at an address of `--ask`.

Exit status: 0 when it is done, or nothing is to be done; 1 when it was refused, failed or changed nothing; 2 when the
command line is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jetraft.api.cli.progress_line import progress_line
from jetraft.cluster.recovering import Fate, NotRecoverableError, Recovering, RecoveryVerdict
from jetraft.store.model.ids import NodeId, node_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIRMATION: Final = "--yes-i-may-lose-data"
ASK_TIMEOUT_S: Final = 2.0
ASK_BYTES_MAX: Final = 64 << 10  # of an INFO line
WARNING: Final = """\
WARNING: this is for the permanent loss of a majority. It can lose acknowledged messages.
  - Messages that only the lost servers have are lost. Messages that were not acknowledged may be stored.
  - A lost server must never start again with its old store: delete the store first; then it can join as a new server.
  - Do this on every server that is left, with the same list in the same order, before you start any of them.
  - Of each group exactly one server may print "kept". Copy the directories first.
"""
DESCRIPTION: Final = """\
Continue groups that have permanently lost their majority from one of the servers that are left. Stop the server first.
Without --yes-i-may-lose-data this only prints what would be done."""
EPILOG: Final = """\
example:
  jetraft recover ./store --members n3 --ask 10.0.0.1:4222,10.0.0.2:4222

exit status: 0 done, or nothing to do, 1 refused, failed or nothing changed, 2 the command line is wrong"""


def main(_command: str, words: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    arguments = _parser().parse_args(words)
    key = os.environ.get(arguments.key_env, "") if arguments.key_env else None
    if key == "":
        sys.stderr.write(f"jetraft: --key-env: the environment variable {arguments.key_env} is not set or empty\n")
        return 2
    members = [name for name in arguments.members.split(",") if name]
    try:
        for address in filter(None, arguments.ask.split(",")):
            _refuse_while_it_answers(address, members)
        with closing(Recovering.open(arguments.directory, None if key is None else key.encode())) as recovering:
            return _recover(recovering, members, only=arguments.group, confirmed=arguments.confirmed)
    except NotRecoverableError as error:
        sys.stderr.write(f"jetraft: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jetraft recover",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # or `--y` would confirm the loss of data
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the store directory of a stopped server")
    parser.add_argument("--members", required=True, metavar="NAME[,NAME]", help="every server that is left, best first")
    parser.add_argument("--group", metavar="ID", help="only this group (`jetraft inspect DIR` lists them)")
    parser.add_argument(
        "--ask",
        default="",
        metavar="HOST:PORT[,...]",
        help="client addresses of the lost servers: refuse if one of them answers",
    )
    parser.add_argument("--key-env", metavar="NAME", help="environment variable with the key of an encrypted store")
    parser.add_argument(CONFIRMATION, action="store_true", dest="confirmed", help="make the changes")
    return parser


def _recover(recovering: Recovering, members: Sequence[str], *, only: str | None, confirmed: bool) -> int:
    verdicts = recovering.judge(members, only, told=partial(progress_line, "looking at groups"))
    changes = [verdict for verdict in verdicts if verdict.fate in {Fate.KEPT, Fate.GIVEN_UP}]
    unreadable = [verdict for verdict in verdicts if verdict.fate is Fate.UNREADABLE]
    sys.stdout.write(f"store of {recovering.server_name}, left: {', '.join(members)}\n")
    names = {node_id_of(name): name for name in members}
    for verdict in verdicts:
        sys.stdout.write(_line(verdict, names) + "\n")
    if confirmed:
        recovering.renew(members)
    if not changes:
        sys.stdout.write("nothing to do\n")
        return 1 if unreadable else 0
    sys.stdout.write(WARNING)
    if not confirmed:
        sys.stdout.write(f"nothing was changed; run it again with {CONFIRMATION} to do this\n")
        return 1
    for verdict in changes:
        recovering.carry_out(verdict)
        sys.stdout.write(f"done: {verdict.group_id} is {verdict.fate.value}\n")
    return 1 if unreadable else 0


def _line(verdict: RecoveryVerdict, names: Mapping[NodeId, str]) -> str:
    if verdict.fate is Fate.UNREADABLE:
        return f"  {verdict.group_id}: {verdict.fate.value}: {verdict.reason}"
    voters = ", ".join(names.get(voter, f"node {voter}") for voter in verdict.voters)
    where = f"last entry {verdict.last_index} of term {verdict.last_term}, voters {voters}"
    for_whom = ""
    if verdict.fate is Fate.GIVEN_UP and verdict.keeper is not None:
        for_whom = f" for {names[verdict.keeper]}"
    return f"  {verdict.group_id}: {verdict.fate.value}{for_whom}: {where}"


def _refuse_while_it_answers(address: str, members: Sequence[str]) -> None:
    """Raise NotRecoverableError if a server that is not listed in `members` answers at an address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise NotRecoverableError(f"--ask: expected HOST:PORT, got {address!r}")
    try:
        with socket.create_connection((host, int(port)), timeout=ASK_TIMEOUT_S) as connection:
            name = _name_of(connection)
    except OSError:
        return
    if name not in members:
        raise NotRecoverableError(f"{name or 'a server'} answers at {address}, so it is not lost; nothing was changed")


def _name_of(connection: socket.socket) -> str:
    """Return the server name in the INFO of the other side; empty when it sends none."""
    line = b""
    try:
        while b"\n" not in line and len(line) < ASK_BYTES_MAX:
            more = connection.recv(4096)
            if not more:
                break
            line += more
        return str(json.loads(line.partition(b" ")[2].partition(b"\n")[0])["server_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
