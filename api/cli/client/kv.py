"""`jetraft kv`: buckets of keys, which are streams KV_*; keys and values as every NATS client stores them."""

import sys
from typing import Annotated, Any, Final

import nats.errors
import nats.js.errors
import typer

from jetraft.api.cli.client.connection import CommandConnection, parsed, token
from jetraft.api.cli.client.errors import AnsweredError, CommandError, UsageError
from jetraft.api.cli.client.frame import CommandGroup, ConfigOption
from jetraft.api.cli.client.messages import payload_of
from jetraft.api.cli.client.output import confirm, payload_text
from jetraft.api.cli.client.stored import message_json, payload_json
from jetraft.api.cli.client.stream_fields import one_of
from jetraft.api.cli.client.streams import Force
from jetraft.api.cli.client.units import duration_ns, integer, shown_count, shown_size, shown_time, size_bytes

GROUP: Final = CommandGroup.of("kv", "Key-value buckets.")
main: Final = GROUP.main
PREFIX: Final = "KV_"
NO_MESSAGE: Final = 10037  # JSNoMessageFoundErr
KEY_CHARS: Final = frozenset("-/_=.")
HISTORY_MAX: Final = 64  # of the clients
OPERATION: Final = "KV-Operation"
Bucket = Annotated[str, typer.Argument(metavar="BUCKET", help="name of the bucket")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="key")]
Value = Annotated[str | None, typer.Argument(metavar="[VALUE]", help="value; - or nothing reads the standard input")]
FIELDS: Final = (
    ConfigOption(
        key="max_msgs_per_subject", flags=("--history",), convert=integer, metavar="N", help="values kept, 1-64"
    ),
    ConfigOption(key="max_age", flags=("--ttl",), convert=duration_ns, metavar="DURATION", help="how long values stay"),
    ConfigOption(key="max_bytes", flags=("--max-bucket-size",), convert=size_bytes, metavar="SIZE", help="most bytes"),
    ConfigOption(
        key="max_msg_size", flags=("--max-value-size",), convert=size_bytes, metavar="SIZE", help="largest value"
    ),
    ConfigOption(key="storage", flags=("--storage",), convert=one_of("file", "memory"), help="file or memory"),
    ConfigOption(key="num_replicas", flags=("--replicas",), convert=integer, metavar="N", help="servers that hold it"),
    ConfigOption(key="description", flags=("--description",), convert=str, help="text for people"),
)


def checked_key(key: str) -> str:
    """A key that a subject can carry. Raises CommandError."""
    if (
        not key
        or key[0] == "."
        or key[-1] == "."
        or ".." in key
        or not all((c.isascii() and c.isalnum()) or c in KEY_CHARS for c in key)
    ):
        raise UsageError(f"{key!r} is no key: letters, digits, - / _ = and dots between them")
    return key


async def entry(at: CommandConnection, bucket: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """An entry as a stored message, None where there is none. Raises CommandError."""
    try:
        found = await at.api(f"STREAM.MSG.GET.{PREFIX}{token(bucket, 'bucket')}", body)
    except AnsweredError as error:
        if error.err_code != NO_MESSAGE:
            raise
        return None
    return entry_json(bucket, message_json(found["message"]))


def entry_json(bucket: str, message: dict[str, Any]) -> dict[str, Any]:
    """The stable form of an entry."""
    operation = (message["headers"].get(OPERATION) or ["PUT"])[0]
    key = str(message["subject"]).removeprefix(f"$KV.{bucket}.")
    value = {name: message[name] for name in ("payload", "payload_base64") if name in message}
    return {
        "bucket": bucket,
        "key": key,
        "revision": message["seq"],
        "time": message["time"],
        "operation": operation,
    } | value


@GROUP.command("add", "kv add CONFIG --history 5 --replicas 3", fields=FIELDS)
async def add(at: CommandConnection, bucket: Bucket, config: dict[str, Any] | None = None) -> None:
    """Create a bucket."""
    given = config or {}
    history = given.get("max_msgs_per_subject", 1)
    if not 1 <= history <= HISTORY_MAX:
        raise UsageError(f"--history {history}: from 1 to {HISTORY_MAX}")
    age = given.get("max_age", 0)
    window = {"duplicate_window": min(age, 120_000_000_000)} if age else {}
    name = f"{PREFIX}{token(bucket, 'bucket')}"
    fixed = {
        "name": name,
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": history,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "discard": "new",
    }
    found = await at.api(f"STREAM.CREATE.{name}", given | window | fixed)
    at.out.line(f"created bucket {bucket}", {"bucket": bucket, "config": found["config"]})


@GROUP.command("ls", "kv ls", "kv ls CONFIG")
async def ls(
    at: CommandConnection,
    bucket: Annotated[
        str | None, typer.Argument(metavar="[BUCKET]", help="list its keys instead of the buckets")
    ] = None,
) -> None:
    """List the buckets, or the keys of a bucket."""
    if bucket is not None:
        keys = await keys_of(at, bucket)
        if at.out.as_json:
            at.out.json(keys)
        for key in keys if not at.out.as_json else ():
            at.out.line(key)
        return
    found = [each for each in await at.pages("STREAM.LIST", "streams") if each["config"]["name"].startswith(PREFIX)]
    found.sort(key=lambda each: str(each["config"]["name"]))
    at.out.table(
        ("bucket", ">history", ">replicas", ">values", ">size", "last change (UTC)"),
        (
            (
                each["config"]["name"].removeprefix(PREFIX),
                each["config"]["max_msgs_per_subject"],
                each["config"]["num_replicas"],
                shown_count(each["state"]["messages"]),
                shown_size(each["state"]["bytes"]),
                shown_time(each["state"]["last_ts"]),
            )
            for each in found
        ),
        [{"bucket": each["config"]["name"].removeprefix(PREFIX)} | each for each in found],
        empty="no bucket: `jetraft kv add BUCKET` creates one",
    )


async def keys_of(at: CommandConnection, bucket: str) -> list[str]:
    """The keys that have a value, in order. Raises CommandError."""
    kv = await bucket_of(at, bucket)
    try:
        return sorted(await at.unless_refused(kv.keys()))
    except nats.js.errors.NoKeysError:
        return []


async def bucket_of(at: CommandConnection, bucket: str) -> Any:
    """The bucket by nats-py. Raises CommandError."""
    await at.api(f"STREAM.INFO.{PREFIX}{token(bucket, 'bucket')}")
    return await at.nc.jetstream(prefix=at.login.api, timeout=at.timeout_s).key_value(bucket)


@GROUP.command("put", "kv put CONFIG color blue", "kv put CONFIG color blue --revision 3")
async def put(
    at: CommandConnection,
    bucket: Bucket,
    key: Key,
    value: Value = None,
    revision: Annotated[
        int | None, typer.Option("--revision", min=0, help="only if this is its last, 0: if it is new")
    ] = None,
) -> None:
    """Set a key; durable when the command ends."""
    payload = payload_of(value)
    headers = None if revision is None else {"Nats-Expected-Last-Subject-Sequence": str(revision)}
    await written(at, bucket, key, payload, headers, "put")


async def written(
    at: CommandConnection, bucket: str, key: str, payload: bytes, headers: dict[str, str] | None, what: str
) -> None:
    """Store an entry and say its revision. Raises CommandError."""
    subject = f"$KV.{token(bucket, 'bucket')}.{checked_key(key)}"
    answer = parsed((await at.request(subject, payload, headers)).data)
    if isinstance(answer.get("error"), dict):
        raise AnsweredError(answer["error"])
    at.out.line(f"{what} {key}, revision {answer['seq']}", {"bucket": bucket, "key": key, "revision": answer["seq"]})


@GROUP.command("get", "kv get CONFIG color", "kv get CONFIG color --raw")
async def get(
    at: CommandConnection,
    bucket: Bucket,
    key: Key,
    revision: Annotated[int | None, typer.Option("--revision", min=1, help="the value of this revision")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="the value only, unchanged")] = False,
) -> None:
    """Show the value of a key, read from the bucket's leader."""
    subject = f"$KV.{bucket}.{checked_key(key)}"
    found = await entry(at, bucket, {"last_by_subj": subject} if revision is None else {"seq": revision})
    if found is None or found["key"] != key or found["operation"] != "PUT":
        raise CommandError(f"bucket {bucket} has no value of {key}: `jetraft kv ls {bucket}` lists its keys")
    if raw:
        sys.stdout.buffer.write(value_of(found))
        sys.stdout.buffer.flush()
        return
    at.out.line(payload_text(value_of(found)), found)


def value_of(found: dict[str, Any]) -> bytes:
    """The bytes of an entry."""
    import base64  # noqa: PLC0415  of values that are no text only

    return found["payload"].encode() if "payload" in found else base64.b64decode(found["payload_base64"])


@GROUP.command("del", "kv del CONFIG color --force")
async def delete(at: CommandConnection, bucket: Bucket, key: Key, force: Force = False) -> None:
    """Delete a key; its history stays."""
    checked_key(key)
    confirm(f"Delete {key} of bucket {bucket}?", force=force)
    await written(at, bucket, key, b"", {OPERATION: "DEL"}, "deleted")


@GROUP.command("purge", "kv purge CONFIG color --force")
async def purge(at: CommandConnection, bucket: Bucket, key: Key, force: Force = False) -> None:
    """Delete a key and its history."""
    checked_key(key)
    confirm(f"Delete {key} of bucket {bucket} and its history?", force=force)
    await written(at, bucket, key, b"", {OPERATION: "PURGE", "Nats-Rollup": "sub"}, "purged")


@GROUP.command("history", "kv history CONFIG color")
async def history(at: CommandConnection, bucket: Bucket, key: Key) -> None:
    """Show what a key was, as far as the bucket keeps it."""
    subject, seq = f"$KV.{bucket}.{checked_key(key)}", 1
    found = []
    while (each := await entry(at, bucket, {"seq": seq, "next_by_subj": subject})) is not None:
        found.append(each)
        seq = each["revision"] + 1
    at.out.table(
        (">revision", "operation", "time (UTC)", "value"),
        (
            (each["revision"], each["operation"], shown_time(each["time"]), payload_text(value_of(each))[:80])
            for each in found
        ),
        found,
        empty=f"bucket {bucket} has nothing of {key}",
    )


@GROUP.command("watch", "kv watch CONFIG", "kv watch CONFIG color --json")
async def watch(
    at: CommandConnection,
    bucket: Bucket,
    key: Annotated[str, typer.Argument(metavar="[KEY]", help="a key, or a subject with wildcards")] = ">",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="end after so many")] = None,
) -> None:
    """Print the values and then each change, until it is interrupted."""
    watcher = await (await bucket_of(at, bucket)).watch(key)
    shown = 0
    while count is None or shown < count:
        try:
            found = await at.unless_refused(watcher.updates(timeout=3600))
        except (nats.errors.TimeoutError, TimeoutError):
            continue
        if found is None:  # all values of now were printed
            continue
        shown += 1
        operation = found.operation or "PUT"
        line = f"{operation} {found.key} (revision {found.revision})"
        if at.out.as_json:
            value = {"bucket": bucket, "key": found.key, "revision": found.revision, "operation": operation}
            at.out.json_line(value | payload_json(found.value or b""))
        else:
            at.out.line(line + (f": {payload_text(found.value or b'')}" if operation == "PUT" else ""))


@GROUP.command("rm", "kv rm CONFIG --force")
async def rm(at: CommandConnection, bucket: Bucket, force: Force = False) -> None:
    """Delete a bucket with all its keys."""
    name = f"{PREFIX}{token(bucket, 'bucket')}"
    await at.api(f"STREAM.INFO.{name}")
    confirm(f"Delete bucket {bucket}?", force=force)
    await at.api(f"STREAM.DELETE.{name}")
    at.out.line(f"deleted bucket {bucket}", {"bucket": bucket, "deleted": True})
