"""`jetraft account` and `jetraft events`: what the account uses and may use, and what happens in it."""

import asyncio
from typing import Annotated, Any, Final

import typer
from nats.aio.msg import Msg  # noqa: TC002  beside the annotations that typer evaluates

from jetraft.api.cli.client.connection import CommandConnection, parsed
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.messages import PENDING_MESSAGES, flushed
from jetraft.api.cli.client.units import shown_count, shown_size, shown_time

ACCOUNT: Final = CommandGroup.of("account", "The account of the user.").with_subcommands()
EVENTS: Final = CommandGroup.of("events", "Print events as they happen.")
GROUPS: Final = {"account": ACCOUNT, "events": EVENTS}
ADVISORIES: Final = ("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>")
SYSTEM: Final = ("$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR")
SHOWN: Final = ("stream", "consumer", "leader", "action", "template", "stream_seq", "deliveries", "reason", "domain")


def main(name: str, words: Any) -> int:
    """Run one of them; returns the exit status."""
    return GROUPS[name].main(name, words)


@ACCOUNT.command("info", "account info")
async def info(at: CommandConnection) -> None:
    """Show what JetStream holds for the account, and its limits."""
    found = await at.api("INFO")
    limits = found.get("limits") or {}
    at.out.fields(
        "Account",
        {
            "Usage": {
                "Stored": f"{shown_size(found['storage'])} of {shown_size(limits.get('max_storage'))}",
                "In memory": f"{shown_size(found['memory'])} of {shown_size(limits.get('max_memory'))}",
                "Streams": f"{shown_count(found['streams'])} of {shown_count(limits.get('max_streams'))}",
                "Consumers": f"{shown_count(found['consumers'])} of {shown_count(limits.get('max_consumers'))}",
                "Domain": found.get("domain"),
            },
            "Requests": {
                "All": shown_count(found["api"]["total"]),
                "Refused": shown_count(found["api"]["errors"]),
            },
        },
        {key: value for key, value in found.items() if key != "type"},
    )


@EVENTS.command("events", "events", "events --system --count 10 --json")
async def events(
    at: CommandConnection,
    system: Annotated[bool, typer.Option("--system", help="connections too (system account)")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="end after so many")] = None,
) -> None:
    """Print the account's advisories, one line each, until it is interrupted."""
    arrived: asyncio.Queue[Msg] = asyncio.Queue(PENDING_MESSAGES)
    for subject in (*ADVISORIES, *(SYSTEM if system else ())):
        await at.nc.subscribe(subject, cb=arrived.put)
    await at.unless_refused(flushed(at))
    shown = 0
    while count is None or shown < count:
        event = parsed((await at.unless_refused(arrived.get())).data)
        if at.out.as_json:
            at.out.json_line(event)
        else:
            at.out.line(event_line(event))
        shown += 1


def event_line(event: dict[str, Any]) -> str:
    """An event for people."""
    kind = str(event.get("type", "event")).removeprefix("io.nats.")
    client = event.get("client") if isinstance(event.get("client"), dict) else {}
    pairs = {key: event[key] for key in SHOWN if event.get(key)} | {
        key: client[key] for key in ("user", "acc", "host", "name") if client and client.get(key)
    }
    return f"{shown_time(event.get('timestamp'))} {kind} " + " ".join(f"{key}={value}" for key, value in pairs.items())
