"""`jetraft server`: shows the servers of a cluster and their health, moves leadership, removes members.

All but `step-down` and `remove` are requests of a user of the system account, or pages of monitoring ports.
"""

from typing import Annotated, Any, Final

import typer

from jetraft.api.cli.client.connection import CommandConnection
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.output import confirm
from jetraft.api.cli.client.streams import Force, replica_text
from jetraft.api.cli.client.system_pages import Monitor, ServerPage, system_pages
from jetraft.api.cli.client.units import shown_count, shown_size, since

GROUP: Final = CommandGroup.of(
    "server", "Servers: list, show, check, move leadership; for the system account, or by --monitor."
)
main: Final = GROUP.main
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


async def named(at: CommandConnection, server: str, monitor: str | None) -> list[ServerPage]:
    """The page of the server with that name, alone. Raises CommandError."""
    found = [each for each in await system_pages(at, "VARZ", monitor=monitor) if each.name == server]
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


@GROUP.command("remove", "server remove n4 --force")
async def remove(at: CommandConnection, member: Server, force: Force = False) -> None:
    """Remove a server that will not come back; its replicas are placed elsewhere."""
    confirm(f"Remove server {member} from the cluster? It must not come back.", force=force)
    await at.api("SERVER.REMOVE", {"peer": member})
    at.out.line(f"removed server {member}", {"server": member, "removed": True})
