"""`jetraft backup DIR` and `jetraft restore DIR`: streams of running servers, kept in a directory of segments.

Both are clients, of jetraft and of nats-server. Each backup of a stream adds what came since the one before. Secrets
are no arguments, because other users can see those: `--password-env NAME` names an environment variable.

Exit status: 0 when all is done, 1 when something is not, 2 when the command line is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jetraft.api.cli.backup_contents import BackupPoint
from jetraft.api.cli.backup_directory import MANIFEST
from jetraft.api.cli.backup_putting import Backup, RestoreWish, put
from jetraft.api.cli.backup_session import BackupError, BackupSession
from jetraft.api.cli.backup_taking import take
from jetraft.api.cli.logging_in import access_of, add_login
from jetraft.store.model.gotime import parse_time
from jetraft.store.s2.framing import CorruptArchiveError
from pyspark_jetstream.errors import BadOptionError, JetStreamSourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

USAGE_ERROR: Final = 2
BACKUP: Final = """\
Add a segment to the backups in DIR for each stream of the account, or for those that are named: what came since the
last backup, and state, configuration and consumers as of now. Prints a line of JSON for each stream."""
RESTORE: Final = """\
Make streams out of the backups in DIR: as of the last backup, or as of a sequence or a time. Nothing is sent before the
checksums of all segments are verified. Prints a line of JSON for each stream."""
EXAMPLES: Final = {
    "backup": "%(prog)s --servers nats://127.0.0.1:4222 --stream ORDERS /backups",
    "restore": "%(prog)s --servers nats://127.0.0.1:4222 --stream ORDERS --to-time 2026-01-31T12:00:00Z /backups",
}
STATUSES: Final = "exit status: 0 all streams are done, 1 some are not, 2 the command line is wrong"


def main(command: str, words: Sequence[str]) -> int:
    """Run `backup` or `restore`; returns the exit status."""
    given = _parser(command).parse_args(words)
    try:
        access = access_of(given)
        jobs = _backups(given) if command == "backup" else _restores(given)
        session = BackupSession(access)
    except BadOptionError as error:
        return _say(command, str(error), USAGE_ERROR)
    except (BackupError, JetStreamSourceError, OSError) as error:
        return _say(command, str(error), 1)
    try:
        return max([_run(command, job, session) for job in jobs(session)], default=0)
    except (BackupError, JetStreamSourceError, OSError) as error:
        return _say(command, str(error), 1)
    finally:
        session.close()


def _run(command: str, job: Callable[[BackupSession], dict[str, Any]], session: BackupSession) -> int:
    """Do one stream; those that follow are done whatever comes of it."""
    try:
        sys.stdout.write(json.dumps(job(session)) + "\n")
    except (BackupError, JetStreamSourceError, CorruptArchiveError, OSError) as error:
        return _say(command, str(error), 1)
    return 0


def _backups(given: argparse.Namespace) -> Callable[[BackupSession], list[Callable[[BackupSession], dict[str, Any]]]]:
    root = Path(given.directory)

    def job(stream: str) -> Callable[[BackupSession], dict[str, Any]]:
        def run(session: BackupSession) -> dict[str, Any]:
            manifest, segment, live = take(session, stream, root / stream, whole=given.whole)
            return {
                "stream": stream,
                "file": str(root / stream / segment.file),
                "whole": segment.whole,
                "messages": segment.messages,
                "live": live,
                "from_seq": segment.from_seq,
                "last_seq": segment.last_seq,
                "segments": len(manifest.segments),
            }

        return run

    return lambda session: [job(stream) for stream in given.stream or session.stream_names()]


def _restores(given: argparse.Namespace) -> Callable[[BackupSession], list[Callable[[BackupSession], dict[str, Any]]]]:
    root = Path(given.directory)
    point = BackupPoint(to_seq=given.to_sequence, to_ts_ns=_time(given.to_time))
    wanted = RestoreWish(point=point, name=given.name or "")
    if given.to_sequence is not None and given.to_time is not None:
        raise BadOptionError("--to-sequence and --to-time exclude each other")
    if (wanted.name or point.to_seq is not None) and len(given.stream or ()) != 1:
        raise BadOptionError("--as and --to-sequence are for one --stream")
    streams = given.stream or sorted(path.parent.name for path in root.glob(f"*/{MANIFEST}"))
    if not streams:
        raise BackupError(f"{root}: there is no backup")

    def job(stream: str) -> Callable[[BackupSession], dict[str, Any]]:
        def run(session: BackupSession) -> dict[str, Any]:
            info = put(session, Backup(root / stream, wanted), wanted)
            state = info["state"]
            numbers = {name: state.get(name, 0) for name in ("messages", "first_seq", "last_seq", "consumer_count")}
            return {"stream": info["config"]["name"], **numbers}

        return run

    return lambda _session: [job(stream) for stream in streams]


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    found = parse_time(text)
    if found is None:
        raise BadOptionError(f"--to-time: expected a time such as 2026-01-31T12:00:00Z, got {text!r}")
    return found


def _parser(command: str) -> argparse.ArgumentParser:
    text = BACKUP if command == "backup" else RESTORE
    parser = argparse.ArgumentParser(
        prog=f"jetraft {command}",
        usage=f"jetraft {command} --servers URLS [option ...] DIR",
        description=text,
        epilog=f"example:\n  {EXAMPLES[command]}\n\n{STATUSES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", help="directory with one subdirectory per stream")
    parser.add_argument("--stream", action="append", metavar="NAME", help="only this stream; may be repeated")
    if command == "backup":
        parser.add_argument(
            "--whole", action="store_true", help="take all messages, not only those since the last backup"
        )
    else:
        parser.add_argument("--to-sequence", type=int, metavar="N", help="restore the messages up to this sequence")
        parser.add_argument("--to-time", metavar="TIME", help="restore the messages up to this time (RFC 3339)")
        parser.add_argument(
            "--as", dest="name", metavar="NAME", help="restore under another name, without subjects and consumers"
        )
    add_login(parser)
    return parser


def _say(command: str, reason: str, status: int) -> int:
    sys.stderr.write(f"jetraft {command}: {reason}\n")
    return status
