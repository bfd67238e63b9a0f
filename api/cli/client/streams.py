"""`jetraft stream`: lists, shows, creates, changes and empties streams, and reads their messages."""

import base64
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from jetraft.api.cli.client.connection import CommandConnection, subject_text, token
from jetraft.api.cli.client.errors import AnsweredError, CommandError, UsageError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.output import asked, confirm
from jetraft.api.cli.client.stored import message_json, print_message
from jetraft.api.cli.client.stream_fields import FIELDS, merged, shown_sections
from jetraft.api.cli.client.units import (
    integer,
    shown_count,
    shown_size,
    shown_time,
    time_text,
)

GROUP: Final = CommandGroup.of("stream", "Streams: list, show, create, change, empty, read.")
main: Final = GROUP.main
Stream = Annotated[str, typer.Argument(metavar="STREAM", help="name of the stream")]
Force = Annotated[bool, typer.Option("--force", "-f", "--yes", "-y", help="do not ask")]
File = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="JSON of a configuration to start from")]
PAGE: Final = 10  # messages of `view`
NO_MESSAGE: Final = 10037  # JSNoMessageFoundErr
BYTES_MAX: Final = 16 << 20  # of a configuration file


@GROUP.command("ls", "stream ls", "stream ls --subject 'orders.>' --json")
async def ls(
    at: CommandConnection,
    subject: Annotated[str | None, typer.Option("--subject", help="only those with this subject")] = None,
    names: Annotated[bool, typer.Option("--names", "-n", help="only names, a line each")] = False,
) -> None:
    """List the streams of the account."""
    found = await at.pages("STREAM.LIST", "streams", {"subject": subject_text(subject)} if subject else None)
    print_list(at, found, names=names)


@GROUP.command("find", "stream find --subject orders.new", "stream find --empty --json")
async def find(
    at: CommandConnection,
    subject: Annotated[str | None, typer.Option("--subject", help="only those with this subject")] = None,
    empty: Annotated[bool, typer.Option("--empty", help="only those without messages")] = False,
    idle: Annotated[str | None, typer.Option("--idle", metavar="DURATION", help="no message for so long")] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", help="with so many replicas")] = None,
    leader: Annotated[str | None, typer.Option("--leader", help="led by this server")] = None,
    names: Annotated[bool, typer.Option("--names", "-n", help="only names, a line each")] = False,
) -> None:
    """List the streams that fit all conditions."""
    found = await at.pages("STREAM.LIST", "streams", {"subject": subject_text(subject)} if subject else None)
    limit = time_text(idle) if idle else ""
    print_list(
        at,
        [
            each
            for each in found
            if (not empty or not each["state"]["messages"])
            and (not idle or each["state"]["last_ts"][:26] < limit[:26])
            and (replicas is None or each["config"]["num_replicas"] == replicas)
            and (leader is None or each.get("cluster", {}).get("leader") == leader)
        ],
        names=names,
    )


def print_list(at: CommandConnection, streams: list[dict[str, Any]], *, names: bool) -> None:
    """A table of streams, by name."""
    streams = sorted(streams, key=lambda each: str(each["config"]["name"]))
    if names and not at.out.as_json:
        for each in streams:
            at.out.line(each["config"]["name"])
        return
    at.out.table(
        ("name", "subjects", "storage", ">replicas", ">consumers", ">messages", ">size", "last message (UTC)"),
        (
            (
                each["config"]["name"],
                ", ".join(each["config"].get("subjects") or ()),
                each["config"]["storage"],
                each["config"]["num_replicas"],
                each["state"]["consumer_count"],
                shown_count(each["state"]["messages"]),
                shown_size(each["state"]["bytes"]),
                shown_time(each["state"]["last_ts"]),
            )
            for each in streams
        ),
        [each["config"]["name"] for each in streams] if names else streams,
        empty="no stream: `jetraft stream add NAME --subjects SUBJECT` creates one",
    )


@GROUP.command("report", "stream report")
async def report(at: CommandConnection) -> None:
    """Show the replicas of each stream: leader, members that are behind or away."""
    found = sorted(await at.pages("STREAM.LIST", "streams"), key=lambda each: str(each["config"]["name"]))
    at.out.table(
        ("name", ">messages", ">size", ">lost", ">deleted", "leader", "replicas"),
        (
            (
                each["config"]["name"],
                shown_count(each["state"]["messages"]),
                shown_size(each["state"]["bytes"]),
                len((each["state"].get("lost") or {}).get("msgs") or ()),
                shown_count(each["state"].get("num_deleted", 0)),
                (each.get("cluster") or {}).get("leader") or ("-" if "cluster" not in each else "none"),
                ", ".join(replica_text(peer) for peer in (each.get("cluster") or {}).get("replicas") or ()),
            )
            for each in found
        ),
        found,
        empty="no stream: `jetraft stream add NAME --subjects SUBJECT` creates one",
    )


def replica_text(peer: dict[str, Any]) -> str:
    """A replica, and what is wrong with it."""
    faults = [word for word, wrong in (("offline", peer.get("offline")), ("behind", not peer.get("current"))) if wrong]
    lag = f", {peer['lag']:,} entries" if peer.get("lag") else ""
    return f"{peer['name']} ({faults[0]}{lag})" if faults else str(peer["name"])


@GROUP.command("info", "stream info ORDERS", "stream info ORDERS --subjects --json")
async def info(
    at: CommandConnection,
    stream: Stream,
    subjects: Annotated[bool, typer.Option("--subjects", help="the number of messages of each subject too")] = False,
) -> None:
    """Show the configuration and the state of a stream."""
    body = {"subjects_filter": ">"} if subjects else None
    found = await at.api(f"STREAM.INFO.{token(stream, 'stream')}", body)
    at.out.fields(f"Stream {stream}, created {shown_time(found['created'])}", shown_sections(found), clean_info(found))


def clean_info(found: dict[str, Any]) -> dict[str, Any]:
    """An info without the type and the time of its answer."""
    return {key: value for key, value in found.items() if key not in ("type", "ts", "did_create")}


@GROUP.command(
    "add",
    "stream add ORDERS --subjects 'orders.>' --replicas 3 --max-age 7d",
    "stream add ORDERS --config orders.json",
    fields=FIELDS,
)
async def add(at: CommandConnection, stream: Stream, file: File = None, config: dict[str, Any] | None = None) -> None:
    """Create a stream. A terminal is asked for subjects that are not given; other fields get the server's default."""
    wanted = merged({"allow_direct": True} | read_config(file), config or {}) | {"name": token(stream, "stream")}
    if not any(wanted.get(key) for key in ("subjects", "mirror", "sources")):
        wanted["subjects"] = [part.strip() for part in asked("subjects", "--subjects").split(",")]
    found = await at.api(f"STREAM.CREATE.{stream}", wanted)
    at.out.fields(f"created stream {stream}", shown_sections(found), clean_info(found))


@GROUP.command(
    "edit",
    "stream edit ORDERS --max-age 14d --force",
    "stream edit ORDERS --replicas 3 --dry-run",
    fields=FIELDS,
)
async def edit(
    at: CommandConnection,
    stream: Stream,
    file: File = None,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the changes, change nothing")] = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Change the configuration of a stream; shows what changes and asks first."""
    now = (await at.api(f"STREAM.INFO.{token(stream, 'stream')}"))["config"]
    wanted = merged(now | read_config(file), config or {}) | {"name": stream}
    changes = {key: [now.get(key), wanted[key]] for key in sorted(wanted) if now.get(key) != wanted[key]}
    if not changes:
        at.out.line(f"stream {stream} is as it should be, nothing to change", {"stream": stream, "changes": {}})
        return
    if not at.out.as_json:
        for key, (before, after) in changes.items():
            at.out.line(f"{key}: {json.dumps(before)} -> {json.dumps(after)}")
    if dry_run:
        at.out.line("nothing was changed (--dry-run)", {"stream": stream, "changes": changes})
        return
    confirm(f"Change stream {stream}?", force=force)
    found = await at.api(f"STREAM.UPDATE.{stream}", wanted)
    at.out.line(f"changed stream {stream}", clean_info(found))


def read_config(path: Path | None) -> dict[str, Any]:
    """The configuration in a file, or in the output of `info --json`. Raises CommandError."""
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(BYTES_MAX))
    except OSError as error:
        raise CommandError(f"--config {path}: {error.strerror}") from None
    except ValueError:
        raise CommandError(f"--config {path}: it is not JSON") from None
    if isinstance(found, dict) and isinstance(found.get("config"), dict):
        found = found["config"]
    if not isinstance(found, dict):
        raise CommandError(f"--config {path}: it has no configuration, which is an object")
    return found


@GROUP.command("rm", "stream rm ORDERS --force")
async def rm(at: CommandConnection, stream: Stream, force: Force = False) -> None:
    """Delete a stream with all its messages and consumers."""
    state = (await at.api(f"STREAM.INFO.{token(stream, 'stream')}"))["state"]
    confirm(f"Delete stream {stream} with {state['messages']:,} messages?", force=force)
    await at.api(f"STREAM.DELETE.{stream}")
    at.out.line(f"deleted stream {stream}", {"stream": stream, "deleted": True})


@GROUP.command("purge", "stream purge ORDERS --force", "stream purge ORDERS --subject orders.eu.new --keep 10 --force")
async def purge(
    at: CommandConnection,
    stream: Stream,
    subject: Annotated[str | None, typer.Option("--subject", help="only messages of this subject")] = None,
    seq: Annotated[int | None, typer.Option("--seq", help="only messages before this sequence")] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="keep so many of the newest")] = None,
    force: Force = False,
) -> None:
    """Remove messages of a stream."""
    if seq is not None and keep is not None:
        raise UsageError("--seq and --keep exclude each other")
    wanted = {"filter": subject_text(subject) if subject else None, "seq": seq, "keep": keep}
    token(stream, "stream")
    confirm(f"Remove messages of stream {stream}?", force=force)
    body = {key: value for key, value in wanted.items() if value is not None}
    found = await at.api(f"STREAM.PURGE.{stream}", body)
    purged = found["purged"]
    at.out.line(f"purged {purged:,} messages of stream {stream}", {"stream": stream, "purged": purged})


@GROUP.command("get", "stream get ORDERS 1", "stream get ORDERS --last-for orders.eu.new --raw")
async def get(
    at: CommandConnection,
    stream: Stream,
    seq: Annotated[str | None, typer.Argument(metavar="[SEQUENCE]", help="sequence of the message")] = None,
    last_for: Annotated[str | None, typer.Option("--last-for", "-S", help="the newest message of this subject")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="the payload only, unchanged")] = False,
) -> None:
    """Show one message, by its sequence or the newest of a subject."""
    if (seq is None) is (last_for is None):
        raise UsageError("give a sequence or --last-for SUBJECT")
    body: dict[str, Any] = {"seq": integer(seq)} if seq is not None else {"last_by_subj": subject_text(last_for or "")}
    found = (await at.api(f"STREAM.MSG.GET.{token(stream, 'stream')}", body))["message"]
    if raw:
        sys.stdout.buffer.write(base64.b64decode(found.get("data") or ""))
        sys.stdout.buffer.flush()
        return
    print_message(at.out, message_json(found))


@GROUP.command("rmm", "stream rmm ORDERS 2 --force")
async def rmm(
    at: CommandConnection,
    stream: Stream,
    seq: Annotated[str, typer.Argument(metavar="SEQUENCE", help="sequence of the message")],
    secure: Annotated[bool, typer.Option("--secure/--no-secure", help="overwrite its bytes in the store too")] = True,
    force: Force = False,
) -> None:
    """Remove one message of a stream."""
    number = integer(seq)
    token(stream, "stream")
    confirm(f"Remove message {number} of stream {stream}?", force=force)
    await at.api(f"STREAM.MSG.DELETE.{stream}", {"seq": number, "no_erase": not secure})
    at.out.line(f"removed message {number} of stream {stream}", {"stream": stream, "seq": number, "removed": True})


@GROUP.command("view", "stream view ORDERS", "stream view ORDERS --subject orders.eu.new --count 3 --json")
async def view(
    at: CommandConnection,
    stream: Stream,
    subject: Annotated[str, typer.Option("--subject", help="only messages of this subject, with wildcards")] = ">",
    seq: Annotated[int, typer.Option("--seq", min=1, help="from this sequence on")] = 1,
    since_: Annotated[str | None, typer.Option("--since", metavar="TIME", help="from then on: a time, or 1h")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="stop after so many")] = PAGE,
) -> None:
    """Show messages in order, without a consumer: reading changes nothing."""
    token(stream, "stream")
    body: dict[str, Any] = {"seq": seq, "next_by_subj": subject_text(subject)}
    if since_:
        body = {"start_time": time_text(since_), "next_by_subj": subject}
    shown = 0
    while shown < count:
        try:
            found = (await at.api(f"STREAM.MSG.GET.{stream}", body))["message"]
        except AnsweredError as error:
            if error.err_code != NO_MESSAGE:
                raise
            break
        print_message(at.out, message_json(found), series=True)
        shown += 1
        body = {"seq": int(found["seq"]) + 1, "next_by_subj": subject}
    if not shown and not at.out.as_json:
        at.out.line("no message")
