"""`jetraft object`: buckets of objects (files in pieces), which are streams OBJ_*; as every NATS client stores them."""

import contextlib
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import nats.errors
import nats.js.errors
import typer

from jetraft.api.cli.client.connection import CommandConnection, token
from jetraft.api.cli.client.errors import CommandError, UsageError
from jetraft.api.cli.client.frame import CommandGroup, ConfigOption
from jetraft.api.cli.client.output import clean, confirm
from jetraft.api.cli.client.stream_fields import one_of
from jetraft.api.cli.client.streams import Force
from jetraft.api.cli.client.units import duration_ns, integer, shown_count, shown_size, shown_time, size_bytes

T = TypeVar("T")
GROUP: Final = CommandGroup.of("object", "Object buckets: files of any size.")
main: Final = GROUP.main
PREFIX: Final = "OBJ_"
Bucket = Annotated[str, typer.Argument(metavar="BUCKET", help="name of the bucket")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the object")]
FIELDS: Final = (
    ConfigOption(
        key="max_age", flags=("--ttl",), convert=duration_ns, metavar="DURATION", help="how long objects stay"
    ),
    ConfigOption(key="max_bytes", flags=("--max-bucket-size",), convert=size_bytes, metavar="SIZE", help="most bytes"),
    ConfigOption(key="storage", flags=("--storage",), convert=one_of("file", "memory"), help="file or memory"),
    ConfigOption(key="num_replicas", flags=("--replicas",), convert=integer, metavar="N", help="servers that hold it"),
    ConfigOption(key="description", flags=("--description",), convert=str, help="text for people"),
)


async def bucket_of(at: CommandConnection, bucket: str) -> Any:
    """The bucket by nats-py. Raises CommandError."""
    await at.api(f"STREAM.INFO.{PREFIX}{token(bucket, 'bucket')}")
    return await at.nc.jetstream(prefix=at.login.api, timeout=at.timeout_s).object_store(bucket)


async def done(at: CommandConnection, name: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of nats-py's work. Raises CommandError."""
    try:
        return await at.unless_refused(work)
    except nats.js.errors.NotFoundError:
        raise CommandError(f"there is no object {clean(name)}: `jetraft object ls BUCKET` lists them") from None
    except (nats.errors.Error, TimeoutError, ValueError) as error:
        raise CommandError(f"{clean(name)}: {clean(str(error)).removeprefix('nats: ') or 'no answer'}") from None


@GROUP.command("add", "object add FILES --replicas 3", fields=FIELDS)
async def add(at: CommandConnection, bucket: Bucket, config: dict[str, Any] | None = None) -> None:
    """Create a bucket."""
    name = f"{PREFIX}{token(bucket, 'bucket')}"
    fixed = {
        "name": name,
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "discard": "new",
    }
    found = await at.api(f"STREAM.CREATE.{name}", (config or {}) | fixed)
    at.out.line(f"created bucket {bucket}", {"bucket": bucket, "config": found["config"]})


@GROUP.command("ls", "object ls", "object ls FILES")
async def ls(
    at: CommandConnection,
    bucket: Annotated[str | None, typer.Argument(metavar="[BUCKET]", help="list its objects")] = None,
) -> None:
    """List the buckets, or the objects of a bucket."""
    if bucket is None:
        found = [each for each in await at.pages("STREAM.LIST", "streams") if each["config"]["name"].startswith(PREFIX)]
        found.sort(key=lambda each: str(each["config"]["name"]))
        at.out.table(
            ("bucket", ">replicas", ">size", "last change (UTC)"),
            (
                (
                    each["config"]["name"].removeprefix(PREFIX),
                    each["config"]["num_replicas"],
                    shown_size(each["state"]["bytes"]),
                    shown_time(each["state"]["last_ts"]),
                )
                for each in found
            ),
            [{"bucket": each["config"]["name"].removeprefix(PREFIX)} | each for each in found],
            empty="no bucket: `jetraft object add BUCKET` creates one",
        )
        return
    store = await bucket_of(at, bucket)
    try:
        objects = sorted(await at.unless_refused(store.list()), key=lambda each: str(each.name))
    except nats.js.errors.NotFoundError:
        objects = []
    at.out.table(
        ("name", ">size", ">pieces", "digest"),
        ((each.name, shown_size(each.size or 0), shown_count(each.chunks or 0), each.digest or "") for each in objects),
        [object_json(bucket, each) for each in objects],
        empty=f"bucket {bucket} has no object",
    )


def object_json(bucket: str, info: Any) -> dict[str, Any]:
    """The stable form of an object's description."""
    return {
        "bucket": bucket,
        "name": info.name,
        "size": info.size or 0,
        "chunks": info.chunks or 0,
        "digest": info.digest,
    }


@GROUP.command("put", "object put FILES report.pdf", "object put FILES /tmp/x.pdf --name report.pdf")
async def put(
    at: CommandConnection,
    bucket: Bucket,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to store")],
    name: Annotated[str | None, typer.Option("--name", help="name of the object (that of the file)")] = None,
) -> None:
    """Store a file; one of the same name is replaced when the whole file is there."""
    store = await bucket_of(at, bucket)
    called = name or file.name
    try:
        with file.open("rb") as content:
            found = await done(at, called, store.put(called, content))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    at.out.line(f"stored {called}, {shown_size(found.size or 0)}", object_json(bucket, found))


@GROUP.command("get", "object get FILES report.pdf", "object get FILES report.pdf --output /tmp/x.pdf --force")
async def get(
    at: CommandConnection,
    bucket: Bucket,
    name: Name,
    output: Annotated[Path | None, typer.Option("--output", "-O", help="file to write (the object's name)")] = None,
    force: Force = False,
) -> None:
    """Write an object to a file, which appears when its digest is verified."""
    path = output or Path(Path(name).name)  # never outside of the directory because of a name
    if path.name in ("", ".."):
        raise UsageError(f"{clean(name)!r} is no name of a file: add --output FILE")
    if path.exists():
        confirm(f"Replace {path}?", force=force)
    store = await bucket_of(at, bucket)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as content:
            found = (await done(at, name, store.get(name, content))).info
        beside.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    at.out.line(f"wrote {path}, {shown_size(found.size or 0)}", object_json(bucket, found) | {"file": str(path)})


@GROUP.command("rm", "object rm FILES report.pdf --force", "object rm FILES --force")
async def rm(
    at: CommandConnection,
    bucket: Bucket,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="an object; without it the whole bucket")] = None,
    force: Force = False,
) -> None:
    """Delete an object, or a bucket with all its objects."""
    store = await bucket_of(at, bucket)
    confirm(f"Delete {name or 'all'} of bucket {bucket}?", force=force)
    if name is None:
        await at.api(f"STREAM.DELETE.{PREFIX}{bucket}")
        at.out.line(f"deleted bucket {bucket}", {"bucket": bucket, "deleted": True})
        return
    await done(at, name, store.delete(name))
    at.out.line(f"deleted {name} of bucket {bucket}", {"bucket": bucket, "name": name, "deleted": True})
