"""`jetraft server`: shows the servers of a cluster and their health, moves leadership, drains and removes members.

All are requests of a user of the system account; those that only show something also read pages of monitoring ports.
"""

import asyncio
import json
import time
from typing import Annotated, Any, Final

import attrs
import typer

from jetraft.api.cli.client.connection import CommandConnection, NoResponderError, parsed
from jetraft.api.cli.client.errors import CommandError, UsageError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.output import confirm
from jetraft.api.cli.client.progress import bars
from jetraft.api.cli.client.streams import Force, replica_text
from jetraft.api.cli.client.system_pages import Monitor, ServerPage, system_pages
from jetraft.api.cli.client.units import counted, duration_ns, shown_count, shown_size, since

GROUP: Final = CommandGroup.of(
    "server", "Servers: list, show, check, move leadership; for the system account, or by --monitor."
)
main: Final = GROUP.main
REMOVE_S: Final = 30.0  # a server that is away is given 4.4 s, and replicas move meanwhile
NOT_REMOVED: Final = "`jetraft server report` shows whether it is still a member; then repeat this"
DRAIN_POLL_S: Final = 0.05  # each question hands 32 groups over, which takes some 20 ms
ACCOUNTS_MAX: Final = 100_000  # of a page
Server = Annotated[str, typer.Argument(metavar="SERVER", help="name of the server")]


def as_json(found: list[ServerPage]) -> list[dict[str, Any]]:
    """The stable form of pages of several servers."""
    return [{"server": each.server, "data": each.data} for each in found]


@GROUP.command("ls", "server ls", "server ls --monitor http://n1:8222,http://n2:8222 --json")
async def ls(at: CommandConnection, monitor: Monitor = None) -> None:
    """List the servers of the cluster."""
    found = await system_pages(at, "", monitor=monitor)
    at.out.table(
        ("name", "cluster", "host", "version", ">connections", ">memory", ">cpu %", ">slow", "up"),
        (
            (
                each.name,
                each.server.get("cluster", ""),
                each.server.get("host", ""),
                each.server.get("ver", ""),
                shown_count(each.data.get("connections")),
                shown_size(each.data.get("mem")),
                each.data.get("cpu"),
                shown_count(each.data.get("slow_consumers")),
                since(each.data.get("start")),
            )
            for each in found
        ),
        as_json(found),
        empty="no server",
    )


@GROUP.command("info", "server info n1")
async def info(at: CommandConnection, member: Server, monitor: Monitor = None) -> None:
    """Show a server."""
    (found,) = await named(at, member, monitor)
    data = found.data
    stream = data.get("jetstream") or {}
    config, stats = stream.get("config") or {}, stream.get("stats") or {}
    at.out.fields(
        f"Server {member}",
        {
            "Server": {
                "Version": data.get("jetraft_version") or data.get("version"),
                "Address": f"{data.get('host')}:{data.get('port')}",
                "Cluster": (data.get("cluster") or {}).get("name"),
                "Up": data.get("uptime"),
                "Connections": f"{shown_count(data.get('connections'))} of {shown_count(data.get('max_connections'))}",
                "Memory": shown_size(data.get("mem")),
                "Processors": data.get("cores"),
                "Slow consumers": shown_count(data.get("slow_consumers")),
            },
            "JetStream": {
                "Directory": config.get("store_dir"),
                "Stored": f"{shown_size(stats.get('storage'))} of {shown_size(config.get('max_storage'))}",
                "In memory": f"{shown_size(stats.get('memory'))} of {shown_size(config.get('max_memory'))}",
            }
            if config
            else {},
        },
        data,
    )


async def named(at: CommandConnection, server: str, monitor: str | None, page: str = "VARZ") -> list[ServerPage]:
    """The page of the server with that name, alone. Raises CommandError."""
    found = [each for each in await system_pages(at, page, monitor=monitor) if each.name == server]
    if not found:
        raise CommandError(f"no server {server} answers: `jetraft server ls` lists those that do")
    return found[:1]


@GROUP.command("health", "server health")
async def health(at: CommandConnection, monitor: Monitor = None) -> int:
    """Ask each server whether it is healthy; exit status 1 when one is not."""
    found = await system_pages(at, "HEALTHZ", monitor=monitor)
    at.out.table(
        ("name", "status", "why"),
        ((each.name, each.data.get("status"), each.data.get("error", "")) for each in found),
        as_json(found),
        empty="no server",
    )
    return int(any(each.data.get("status") != "ok" for each in found))


@GROUP.command("report", "server report")
async def report(at: CommandConnection, monitor: Monitor = None) -> None:
    """Show what JetStream holds on each server, and the members of the metadata group."""
    found = [each for each in await system_pages(at, "JSZ", monitor=monitor) if not each.data.get("disabled")]
    if at.out.as_json:
        at.out.json(as_json(found))
        return
    at.out.table(
        ("name", ">streams", ">consumers", ">messages", ">stored", ">in memory", ">requests", ">errors", "leads"),
        (
            (
                each.name,
                shown_count(each.data.get("streams")),
                shown_count(each.data.get("consumers")),
                shown_count(each.data.get("messages")),
                shown_size(each.data.get("storage")),
                shown_size(each.data.get("memory")),
                shown_count((each.data.get("api") or {}).get("total")),
                shown_count((each.data.get("api") or {}).get("errors")),
                "meta" if (each.data.get("meta_cluster") or {}).get("leader") == each.name else "",
            )
            for each in found
        ),
        None,
        empty="no server has JetStream: start one with -js",
    )
    for each in found:
        meta = each.data.get("meta_cluster") or {}
        if meta.get("leader") == each.name:
            peers = ", ".join(replica_text(peer) for peer in meta.get("replicas") or ()) or "none"
            at.out.line(f"\nmetadata group: led by {each.name}, with {peers}")


@GROUP.command("step-down", "server step-down --force")
async def step_down(at: CommandConnection, force: Force = False) -> None:
    """Let another server lead the metadata group."""
    confirm("Let another server lead the metadata group?", force=force)
    await at.api("META.LEADER.STEPDOWN")
    at.out.line("the leader of the metadata group stepped down", {"success": True})


@GROUP.command("remove", "server remove n4", "server remove n4 --yes --json")
async def remove(at: CommandConnection, member: Server, force: Force = False) -> None:
    """Remove a server from the cluster, whether it runs or not; its replicas are placed on the other servers.

    Says which streams keep a replica there, because no other server can take it.
    """
    before = await replicas_on(at, member)
    confirm(f"Remove server {member} from the cluster? {before.question}", force=force)
    wait_s = max(at.timeout_s, REMOVE_S)
    await at.api("SERVER.REMOVE", {"peer": member}, timeout_s=wait_s, advice=NOT_REMOVED)
    left = await replicas_on(at, member)
    places = [{"account": account, "stream": stream} for account, stream in left.streams]
    at.out.line(f"removed server {member}", {"server": member, "removed": True, "streams_left": places})
    if places and not at.out.as_json:
        names = ", ".join(f"{account} > {stream}" for account, stream in left.streams)
        at.out.line(
            f"no other server can take a replica of {names}: add a server, or lower --replicas with"
            " `jetraft stream edit`"
        )


@attrs.frozen(kw_only=True)
class Holdings:
    """The state of a server before it goes."""

    runs: bool
    streams: list[tuple[str, str]]  # accounts and names of the streams with a replica there

    @property
    def question(self) -> str:
        """The facts, for a person who decides."""
        state = "It runs" if self.runs else "It does not answer"
        return f"{state}, and has replicas of {counted(len(self.streams), 'stream')}."


async def replicas_on(at: CommandConnection, member: str) -> Holdings:
    """Which streams have a replica on a server, by their leaders. Raises CommandError."""
    pages = await system_pages(at, "JSZ", {"streams": True, "stream_leader_only": True, "limit": ACCOUNTS_MAX})
    if not any(page.data.get("meta_cluster") for page in pages):
        raise CommandError("this server is in no cluster with JetStream: there is nothing to remove")
    found = set()
    for page in pages:
        for account in page.data.get("account_details") or ():
            for stream in account.get("stream_detail") or ():
                cluster = stream.get("cluster") or {}
                peers = [cluster.get("leader"), *(each.get("name") for each in cluster.get("replicas") or ())]
                if member in peers:
                    found.add((str(account.get("name")), str(stream.get("name"))))
    return Holdings(runs=any(each.name == member for each in pages), streams=sorted(found))


@GROUP.command(
    "drain",
    "server drain n1",
    "server drain n1 --wait 5m --json",
    "server drain n1 --lame-duck --yes",
    "server drain n1 --end",
)
async def drain(
    at: CommandConnection,
    member: Server,
    wait: Annotated[str, typer.Option("--wait", metavar="DURATION", help="how long it may take")] = "1m",
    lame_duck: Annotated[
        bool, typer.Option("--lame-duck", help="then send its clients to other servers, and end it")
    ] = False,
    end: Annotated[bool, typer.Option("--end", help="end a drain: the server may lead again")] = False,
    force: Force = False,
) -> None:
    """Hand all that a server leads to other servers, before its maintenance; ends when it leads nothing.

    It stands back in elections from then on, and other servers hand nothing to it, until --end or a restart. Streams
    whose only replica it has stay there.
    """
    if end and lame_duck:
        raise UsageError("--end and --lame-duck exclude each other")
    wait_s = duration_ns(wait) / 1e9
    (found,) = await named(at, member, None, page="")
    subject = f"$SYS.REQ.SERVER.{found.server['id']}.DRAIN"
    if end:
        left = await drained(at, subject, member, {"end": True})
        at.out.line(f"server {member} may lead again", {"server": member} | left)
        return
    if lame_duck:
        confirm(f"End server {member} after its leaderships and clients have moved?", force=force)
    left = await drained(at, subject, member, {"begin": True})
    total, until_s = left["led"], time.monotonic() + wait_s
    with bars(f"draining {member}", total=total, shown=not at.out.as_json) as (bar,):
        while rest := left["led"] + left["leaderless"]:
            if left["led"] == left.get("stay") and not left["leaderless"]:
                raise CommandError(stays(member, left))
            if time.monotonic() > until_s:
                raise CommandError(
                    f"server {member} leads {left['led']:,} groups that other servers have, and"
                    f" {left['leaderless']:,} have no leader:"
                    " `jetraft server health` shows which servers are away; --wait waits longer"
                )
            await asyncio.sleep(DRAIN_POLL_S)
            left = await drained(at, subject, member, {})
            total = max(total, rest)
            bar.at(total - rest, total)
    if lame_duck:
        left = await drained(at, subject, member, {"lame_duck": True})
    alone = f"; groups that have no other member stay: {left['alone']:,}" if left["alone"] else ""
    ends = ", and ends when its clients have moved" if lame_duck else ""
    at.out.line(
        f"server {member} leads nothing that others can lead{alone}{ends}",
        {"server": member, "handed_over": total} | left | {"lame_duck": lame_duck},
    )


def stays(member: str, left: dict[str, Any]) -> str:
    """Why a server goes on to lead what other servers have, and what to do."""
    others = ", ".join(left["drained"])
    if others:
        return (
            f"server {member} still leads {left['led']:,} groups: the other servers that have them are drained too"
            f" ({others}): end that with `jetraft server drain NAME --end`, or restart them"
        )
    return (
        f"server {member} still leads {left['led']:,} groups: no other server that has them should lead, as its disk is"
        " full or its hub is away: `jetraft server health` shows more"
    )


async def drained(at: CommandConnection, subject: str, member: str, body: dict[str, bool]) -> dict[str, Any]:
    """Ask a server to drain; return its answer, which counts the replicas and leaders left. Raises CommandError."""
    try:
        answer = parsed((await at.request(subject, json.dumps(body).encode())).data)
    except NoResponderError:
        raise CommandError(f"server {member} knows no drain: send it SIGUSR2, or upgrade it") from None
    data = answer.get("data")
    if not isinstance(data, dict):
        error = answer.get("error") or {}
        raise CommandError(f"server {member}: {error.get('description', 'the drain was refused')}")
    return data
