"""`jetraft stream copy`: a stream with its messages becomes another one, in the same account or elsewhere.

Within an account the servers copy: the new stream is a mirror until it has everything, with sequences and times, and is
an ordinary stream then. Elsewhere, and for streams that cannot be mirrored as they are, this client copies
(client/copies/copying.py). Either way a copy that was interrupted goes on where it was.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import attrs
import typer

from jetraft.api.cli.client.connection import CommandConnection, connected, subject_text, token
from jetraft.api.cli.client.copies.asking import asked
from jetraft.api.cli.client.copies.copying import ClientCopy, Comparison, compared
from jetraft.api.cli.client.errors import AnsweredError, CommandError
from jetraft.api.cli.client.login import login_of
from jetraft.api.cli.client.output import note
from jetraft.api.cli.client.progress import bars
from jetraft.api.cli.client.streams import GROUP as STREAM
from jetraft.api.cli.client.units import counted

GROUP: Final = STREAM  # with the commands of client/streams.py
main: Final = GROUP.main
COPY_OF: Final = "copied-from"  # metadata of a copy: what it was made of
NO_STREAM: Final = 10059
POLL_S: Final = 0.1
IDLE_S: Final = 30.0  # without progress of a mirror; one that fails is tried again every 10 s at most
WHEN_COMPLETE: Final = ("subject_transform", "republish", "max_bytes", "no_ack", "sealed")  # they would act on copies
NOT_MIRRORED: Final = (*WHEN_COMPLETE[:2], "subjects", "sources", "first_seq", "duplicate_window", "sealed", "no_ack")
ORIGINS: Final = ("mirror", "sources")  # the copy has no more to do with them
Name = Annotated[str, typer.Argument(metavar="SRC", help="name of the stream to copy")]
NewName = Annotated[str, typer.Argument(metavar="DST", help="name of the copy")]


@attrs.frozen(kw_only=True)
class CopyPlan:
    """A stream and the place that its copy goes to."""

    source: dict[str, Any]  # the info of the stream
    name: str  # of the copy
    prefix: str  # of its subjects
    config: dict[str, Any]  # that it has in the end
    by_servers: bool

    @property
    def mark(self) -> str:
        """Name and time of creation: they tell a copy of this stream from one of another, or of a namesake."""
        return f"{self.source['config']['name']} of {self.source['created']}"

    @property
    def until(self) -> int:
        """The last sequence that is copied."""
        return int(self.source["state"]["last_seq"])


@GROUP.command(
    "copy",
    "stream copy ORDERS ORDERS2",
    "stream copy ORDERS ORDERS --context2 new-cluster",
    "stream copy ORDERS TEST --prefix test. --server2 nats://n9:4222 --json",
)
async def copy(
    at: CommandConnection,
    source: Name,
    name: NewName,
    server2: Annotated[str | None, typer.Option("--server2", metavar="URL", help="servers of the copy")] = None,
    context2: Annotated[str | None, typer.Option("--context2", metavar="NAME", help="context of the copy")] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="before each subject; DST. where the copy is in the same account")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="compare all messages in the end")] = True,
) -> None:
    """Copy the configuration and the messages of a stream; interrupted, the same command goes on.

    Messages that are published to SRC meanwhile are not copied. Consumers are not copied.
    """
    elsewhere = bool(server2 or context2)
    info = await asked(at, f"STREAM.INFO.{token(source, 'stream')}")
    plan = planned(info, token(name, "stream"), prefix, elsewhere=elsewhere)
    async with second(at, server2, context2) as to:
        job = ClientCopy(origin=at, source=source, at=to, target=name, prefix=plan.prefix, until=plan.until)
        first = int(info["state"]["first_seq"])
        with bars(f"copying {source}", total=plan.until - first + 1, shown=not at.out.as_json) as (bar,):
            work = mirrored(to, plan) if plan.by_servers else copied(job, plan)
            async for seq in work:
                bar.at(max(seq - first + 1, 0))
        found = Comparison()
        if verify:
            with bars(f"comparing {name}", total=plan.until - first + 1, shown=not at.out.as_json) as (bar,):
                async for seq, found in compared(job, same_seqs=plan.by_servers):  # noqa: B007  the last one is used
                    bar.at(max(seq - first + 1, 0))
        if not plan.by_servers:
            await update(to, plan, plan.config)
        state = (await asked(to, f"STREAM.INFO.{name}"))["state"]
    done = f"copied {source} to {name}: {counted(state['messages'], 'message')}, sequences {state['first_seq']:,} to"
    proof = f"\nall are equal, SHA-256 {found.digest.hexdigest()}" if verify else ""
    at.out.line(
        f"{done} {state['last_seq']:,}{proof}",
        {
            "source": source,
            "stream": name,
            "subjects": plan.config["subjects"],
            "state": state,
            "same_sequences": plan.by_servers,
            "compared": found.messages if verify else None,
            "only_in_copy": found.only_in_copy if verify else None,
            "sha256": found.digest.hexdigest() if verify else None,
        },
    )


@asynccontextmanager
async def second(at: CommandConnection, server: str | None, context: str | None) -> AsyncIterator[CommandConnection]:
    """The connection to where the copy is; without a context of its own it has the user of the first."""
    if not (server or context):
        yield at
        return
    login = login_of({"context": context}, {}) if context else at.login
    if server:
        login = attrs.evolve(login, server=server)
    async with connected(login, at.out, at.timeout_s) as to:
        yield to


def planned(info: dict[str, Any], name: str, prefix: str | None, *, elsewhere: bool) -> CopyPlan:
    """How to copy a stream. Raises CommandError."""
    given = info["config"]
    if given.get("allow_msg_counter"):
        raise CommandError("a stream of counters cannot be published again: use `jetraft backup` and `jetraft restore`")
    if prefix is None:
        prefix = "" if elsewhere else f"{name}."
    subjects = [prefix + each for each in given.get("subjects") or (f"{'' if prefix else given['name'] + '.'}>",)]
    for each in subjects:
        subject_text(each)
    config = {key: value for key, value in given.items() if key not in ORIGINS} | {"name": name, "subjects": subjects}
    metadata = {key: value for key, value in (given.get("metadata") or {}).items() if not key.startswith("_nats.")}
    plan = CopyPlan(source=info, name=name, prefix=prefix, config=config, by_servers=False)
    config["metadata"] = metadata | {COPY_OF: plan.mark}
    if elsewhere:
        config.pop("placement", None)  # of servers that are not there
    if given["retention"] == "interest":
        config["retention"] = "limits"
        note(f"{name} has the retention limits: by interest, messages without a consumer would be gone at once")
    by_servers = not elsewhere and given["retention"] == "limits" and not given.get("allow_msg_schedules")
    return attrs.evolve(plan, by_servers=by_servers)


async def existing(to: CommandConnection, plan: CopyPlan) -> dict[str, Any] | None:
    """The info of a copy that was begun; None where there is none. Raises CommandError."""
    try:
        info = await asked(to, f"STREAM.INFO.{plan.name}")
    except AnsweredError as error:
        if error.err_code != NO_STREAM:
            raise
        return None
    if (info["config"].get("metadata") or {}).get(COPY_OF) != plan.mark:
        raise CommandError(f"stream {plan.name} is there and is no copy of this stream: choose another name")
    return info


async def update(to: CommandConnection, plan: CopyPlan, config: dict[str, Any]) -> None:
    """Change the copy."""
    await asked(to, f"STREAM.UPDATE.{plan.name}", config)


async def mirrored(to: CommandConnection, plan: CopyPlan) -> AsyncIterator[int]:
    """Let the servers copy; gives the sequence that the copy has. Raises CommandError."""
    info = await existing(to, plan)
    if info is not None and not info["config"].get("mirror"):
        raise CommandError(f"stream {plan.name} is a copy of this stream already: choose another name")
    if info is None:
        transforms = [{"src": ">", "dest": f"{plan.prefix}>"}] if plan.prefix else []
        mirror = {"name": plan.source["config"]["name"]} | ({"subject_transforms": transforms} if transforms else {})
        config = {key: value for key, value in plan.config.items() if key not in NOT_MIRRORED} | {"mirror": mirror}
        await asked(to, f"STREAM.CREATE.{plan.name}", config)
    seen, seen_s = -1, time.monotonic()
    while seen < plan.until:
        info = await asked(to, f"STREAM.INFO.{plan.name}")
        if int(info["state"]["last_seq"]) > seen:
            seen, seen_s = int(info["state"]["last_seq"]), time.monotonic()
        elif time.monotonic() > seen_s + IDLE_S:
            error = ((info.get("mirror") or {}).get("error") or {}).get("description", "nothing came for 30 s")
            raise CommandError(f"the copy stands at {seen:,} of {plan.until:,}: {error}: repeat this to go on")
        yield seen
        await asyncio.sleep(POLL_S)
    await update(to, plan, plan.config)


async def copied(job: ClientCopy, plan: CopyPlan) -> AsyncIterator[int]:
    """Copy by this client; gives the sequence of the source. Raises CommandError."""
    if await existing(job.at, plan) is None:
        config = {key: value for key, value in plan.config.items() if key not in WHEN_COMPLETE}
        first = int(plan.source["state"]["first_seq"])
        await asked(job.at, f"STREAM.CREATE.{plan.name}", config | ({"first_seq": first} if first > 1 else {}))
    async for seq in job.run():
        yield seq
