"""`jetraft chain verify STREAM`: reads a chained stream and recomputes its head, and those that were kept earlier.

It is a client: it reads with a consumer, and recomputes with code of its own (cli/chain_tree.py). A head that was kept
apart from the servers shows whether anything in front of it was altered or removed since.

Exit status: 0 when all heads are right and no message is missing, 1 when not, 2 when the command line is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import attrs

from jetraft.api.cli.backup_session import BackupError, BackupSession, check_name
from jetraft.api.cli.chain_tree import AuditTree
from jetraft.api.cli.logging_in import access_of, add_login
from jetraft.api.cli.progress_line import progress_line
from jetraft.api.startup.created_files import made_with
from jetraft.store.model.files.file_modes import SHOWN_FILE
from pyspark_jetstream.errors import BadOptionError, JetStreamSourceError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyspark_jetstream import wire

USAGE_ERROR: Final = 2
MARK_LEAVES: Final = 1024  # between two heads that are remembered, to say where a stream differs
HEAD_DIGITS: Final = 64
PULL_MESSAGES: Final = 500
CONSUMER: Final = {
    "deliver_policy": "all",
    "ack_policy": "none",
    "replay_policy": "instant",
    "mem_storage": True,
    "inactive_threshold": 60_000_000_000,  # longer than any silence that is waited for
}
NUMBER_END: Final = 1 << 64  # of sequences and times, which a leaf has in 8 bytes
DIGITS_MAX: Final = 20  # that such a number has
TOKENS_OF_ACK: Final = 9  # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's>.<time>.<pending>
VERIFY: Final = """\
Read all messages of a chained stream with a consumer and recompute its head. Prints OK, or what differs."""
EPILOG: Final = """\
example:
  jetraft chain verify --servers nats://127.0.0.1:4222 --file heads.jsonl LEDGER

exit status: 0 all heads are right and no message is missing, 1 they are not, 2 the command line is wrong"""


@attrs.frozen
class KnownHead:
    """A head that the server, or an auditor's file, states."""

    size: int
    head: str
    origin: str  # for people


class DiffersError(Exception):
    """The stream is not what its heads say; the text is one line."""


def main(_command: str, words: Sequence[str]) -> int:
    """Run `chain verify`; returns the exit status."""
    given = _parser().parse_args(words)
    try:
        known = _known(given)
        check_name(given.stream)
        access = access_of(given)
    except (BadOptionError, BackupError, OSError, ValueError) as error:
        return _say(str(error), USAGE_ERROR)
    try:
        session = BackupSession(access)
    except (BackupError, JetStreamSourceError, OSError) as error:
        return _say(str(error), 1)
    try:
        present, text = verify(session, given.stream, known)
        if given.file is not None and all(head.size != present["size"] for head in known):
            with open(given.file, "a", encoding="utf-8", opener=made_with(SHOWN_FILE)) as kept:
                kept.write(json.dumps(present) + "\n")
    except DiffersError as error:
        sys.stdout.write(f"DIFFERS {given.stream}: {error}\n")
        return 1
    except (BackupError, JetStreamSourceError, BadOptionError, OSError) as error:
        return _say(str(error), 1)
    finally:
        session.close()
    sys.stdout.write(f"OK {given.stream}: {text}\n")
    return 0


def verify(session: BackupSession, stream: str, known: Sequence[KnownHead]) -> tuple[dict[str, Any], str]:
    """Recompute the present head, and on the way those that are known; the head's answer, and a text for people.

    Raises DiffersError, BackupError, JetStreamSourceError.
    """
    answer = session.api(f"JETRAFT.CHAIN.HEAD.{stream}")
    present = _head(answer, "the server")
    for head in known:
        if head.size > present.size:
            raise DiffersError(f"{head.origin} has a head of size {head.size}, and the stream has {present.size}")
    wanted = sorted([*known, present], key=lambda head: head.size)
    tree, marks = AuditTree(), dict[int, str]()
    while wanted and wanted[0].size == 0:
        _compare(tree, wanted.pop(0), session, stream, marks)
    read = _messages(session, stream, answer if present.size else {})
    with progress_line(f"verifying {stream}, leaves", present.size) as done, contextlib.closing(read):
        for seq, time_ns, frame in read:
            before = tree.size
            if not wanted:
                leaves = f"in none of the {present.size} leaves of its head"
                raise DiffersError(f"sequence {seq} is in the stream, and {leaves}")
            if seq < tree.next_seq:
                raise DiffersError(f"sequence {seq} came again, or too late: {tree.next_seq} was next")
            if seq > tree.next_seq:
                tree.add_gap(tree.next_seq, seq - 1)
                _passed(tree, wanted, session, stream, marks)
            tree.add(seq, time_ns, frame.subject, frame.header, frame.payload)
            _passed(tree, wanted, session, stream, marks)
            done(tree.size - before)
    _check_missing(tree)
    if wanted:
        raise DiffersError(
            f"the stream ends after {tree.size} of {wanted[0].size} leaves, at sequence {tree.next_seq - 1}"
        )
    first_seq = tree.gaps[0][1] + 1 if tree.gaps else 1
    text = f"sequences {first_seq} to {tree.next_seq - 1}, size {tree.size}, head {present.head}"
    kept = {"stream": stream, "size": present.size, "head": present.head}
    return kept, f"{text}, earlier heads that are right: {len(known)}"


def _messages(
    session: BackupSession, stream: str, head: dict[str, Any]
) -> Generator[tuple[int, int, wire.Frame], None, None]:
    """(sequence, time, frame) of the messages that a head speaks for, in order."""
    if not head:
        return
    first_seq, last_seq = head.get("first_seq"), head.get("last_seq")
    if not (_is_seq(first_seq) and _is_seq(last_seq)):
        raise JetStreamSourceError(
            f"the head has first_seq {first_seq!r} and last_seq {last_seq!r}: expected sequences"
        )
    made = session.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": CONSUMER})
    name = str(made.get("name"))
    check_name(name)  # it becomes a part of subjects
    try:
        seq = first_seq - 1
        while seq < last_seq and (found := session.pull(stream, name, min(PULL_MESSAGES, last_seq - seq))):
            for frame in found:
                seq, time_ns = _place(frame)
                if seq <= last_seq:
                    yield seq, time_ns, frame
    finally:
        # Else it goes by itself, when its `inactive_threshold` is over: no reason to call a sound stream unsound.
        with contextlib.suppress(BackupError, JetStreamSourceError, OSError):
            session.api(f"CONSUMER.DELETE.{stream}.{name}")


def _place(frame: wire.Frame) -> tuple[int, int]:
    """The sequence and the time of a delivery, from the subject of its ack."""
    tokens = frame.reply.split(b".")
    if len(tokens) > TOKENS_OF_ACK:  # with a domain and an account in front
        tokens = [*tokens[:2], *tokens[4:]]
    if len(tokens) < TOKENS_OF_ACK:
        raise JetStreamSourceError(f"{frame.reply!r} is no subject of an ack")
    seq, time_ns = (
        int(token) if token.isdigit() and len(token) <= DIGITS_MAX else -1 for token in (tokens[5], tokens[7])
    )
    if not (_is_seq(seq) and seq and _is_seq(time_ns)):
        raise JetStreamSourceError(f"{frame.reply!r} has no sequence and no time")
    return seq, time_ns


def _is_seq(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < NUMBER_END


def _passed(
    tree: AuditTree, wanted: list[KnownHead], session: BackupSession, stream: str, marks: dict[int, str]
) -> None:
    if tree.size % MARK_LEAVES == 0:
        marks[tree.size] = tree.head().hex()
    while wanted and wanted[0].size == tree.size:
        _compare(tree, wanted.pop(0), session, stream, marks)


def _compare(tree: AuditTree, head: KnownHead, session: BackupSession, stream: str, marks: dict[int, str]) -> None:
    found = tree.head().hex()
    if found == head.head:
        return
    _check_missing(tree)
    low, high = 0, tree.size
    sizes = sorted(marks)
    while sizes:  # halve: the server's older heads say up to where what was read is right
        middle = sizes[len(sizes) // 2]
        if _is_right(session, stream, middle, marks[middle]):
            low, sizes = middle, [size for size in sizes if size > middle]
        else:
            high, sizes = middle, [size for size in sizes if size < middle]
    where = f"; leaves {low + 1} to {high} are not what they were" if head.origin == "the server" else ""
    raise DiffersError(
        f"the head of size {head.size} is {head.head} in {head.origin}, and {found} as it is read{where}"
    )


def _is_right(session: BackupSession, stream: str, size: int, mark: str) -> bool:
    try:
        return bool(session.api(f"JETRAFT.CHAIN.HEAD.{stream}", {"size": size}).get("head") == mark)
    except BackupError:  # the server's own messages do not give its head
        return False


def _check_missing(tree: AuditTree) -> None:
    """Sequences in front of the first message may be those of before the stream; others are missing."""
    for first, last in tree.gaps:
        if first > 1:
            raise DiffersError(f"sequences {first} to {last} are missing")


def _known(given: argparse.Namespace) -> list[KnownHead]:
    found = []
    if (given.head is None) is not (given.size is None):
        raise BadOptionError("--head and --size belong together")
    if given.head is not None:
        found.append(_head({"size": given.size, "head": given.head}, "--head"))
    if given.file is not None and Path(given.file).exists():
        for number, line in enumerate(Path(given.file).read_text(encoding="utf-8").splitlines(), 1):
            found.append(_head(json.loads(line), f"{given.file} line {number}"))
    return found


def _head(said: object, origin: str) -> KnownHead:
    size, head = (said.get("size"), said.get("head")) if isinstance(said, dict) else (None, None)
    if not _is_seq(size) or not isinstance(head, str) or len(head) != HEAD_DIGITS:
        raise BadOptionError(f"{origin}: a head is a size and {HEAD_DIGITS} hexadecimal digits")
    return KnownHead(size, head.lower(), origin)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jetraft chain", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="verify")
    one = commands.add_parser(
        "verify",
        usage="jetraft chain verify --servers URLS [option ...] STREAM",
        description=VERIFY,
        epilog=EPILOG,
        help="recompute the head of a chained stream from its messages",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    one.add_argument("stream", metavar="STREAM", help="name of the stream")
    one.add_argument("--head", metavar="HEX", help="head that was kept earlier, with --size")
    one.add_argument("--size", type=int, metavar="N", help="size that belongs to --head")
    one.add_argument(
        "--file",
        metavar="FILE",
        help="file of heads, a line of JSON each; when all are right, the present one is added",
    )
    add_login(one)
    return parser


def _say(reason: str, status: int) -> int:
    sys.stderr.write(f"jetraft chain: {reason}\n")
    return status
