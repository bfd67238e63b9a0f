"""`jetraft top`: servers, streams, consumers and connections of a cluster, live on the whole terminal.

It reads the pages of every server as the system account, or of their monitoring ports, and changes nothing.
"""

import asyncio
import os
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jetraft.api.cli.client.connection import CommandConnection, together
from jetraft.api.cli.client.errors import UsageError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.output import clean
from jetraft.api.cli.client.system_pages import Monitor, system_pages
from jetraft.api.cli.client.top_frame import Frames, Sample, Section, sample_of
from jetraft.api.cli.client.units import duration_ns

GROUP: Final = CommandGroup.of("top", "Watch servers, streams, consumers and connections.")
main: Final = GROUP.main
INTERVAL_NS_MIN: Final = 100_000_000
ACCOUNTS_MAX: Final = 1_024  # of each server, which shows 1,000 streams and as many consumers
CONNECTIONS_MAX: Final = 64  # of each server: those to which most bytes wait
ROWS: Final = 10
ROWS_MIN: Final = 2
LINES_OF_SECTION: Final = 4  # title, names of columns, line, empty line
SHARED: Final = 3  # sections that share what the servers leave
QUIT: Final = b"qQ\x03\x04"


@GROUP.command(
    "top",
    "top --context system",
    "top --monitor http://n1:8222,http://n2:8222 --interval 5s",
    "top --context system --once",
)
async def top(
    at: CommandConnection,
    monitor: Monitor = None,
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="between two frames")] = "2s",
    once: Annotated[bool, typer.Option("--once", help="one frame, for pipes; rates are those of one interval")] = False,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="of a table; as many as fit, or 10")] = None,
) -> None:
    """Show servers, the busiest streams, consumers that lag and slow connections, until q is pressed.

    With --json each frame is one line.
    """
    pause_ns = duration_ns(interval)
    if pause_ns < INTERVAL_NS_MIN:
        raise UsageError("--interval: 100ms or more")
    if not (once or at.out.as_json or (sys.stdout.isatty() and sys.stdin.isatty())):
        raise UsageError("there is no terminal to draw on: add --once or --json")
    before = await sampled(at, monitor)
    if once or at.out.as_json:
        while True:
            before = await shown(at, monitor, before, pause_ns / 1e9, rows or ROWS, once=once)
            if once:
                return
    await live(at, monitor, before, pause_ns / 1e9, rows)


async def sampled(at: CommandConnection, monitor: str | None) -> Sample:
    """All servers now. Raises CommandError."""
    wanted = ("streams", "consumer", "stream_leader_only")  # of the request; then the same for a monitor
    streams = dict.fromkeys((*wanted, "consumers", "stream-leader-only"), True) | {"limit": ACCOUNTS_MAX}
    connections = {"sort": "pending", "limit": CONNECTIONS_MAX, "auth": True}
    at_s = time.monotonic()
    varz, jsz, connz = await together(
        system_pages(at, "VARZ", monitor=monitor),
        system_pages(at, "JSZ", streams, monitor=monitor),
        system_pages(at, "CONNZ", connections, monitor=monitor),
    )
    return sample_of(at_s, varz, jsz, connz)


async def shown(
    at: CommandConnection, monitor: str | None, before: Sample, pause_s: float, rows: int, *, once: bool
) -> Sample:
    """Print a frame after the pause; returns its sample."""
    await asyncio.sleep(max(0.0, before.at_s + pause_s - time.monotonic()))
    now = await sampled(at, monitor)
    frames = Frames(before=before, now=now)
    if at.out.as_json:
        (at.out.json if once else at.out.json_line)(frames.as_json(rows))
    else:
        for section in frames.sections(rows):
            at.out.line(section.title)
            at.out.table(section.columns, section.rows, None, empty=section.empty)
            at.out.line("")
    return now


async def live(at: CommandConnection, monitor: str | None, before: Sample, pause_s: float, rows: int | None) -> None:
    """Draw frames until a key ends it."""
    console = Console(markup=False, highlight=False, emoji=False)
    quitted = asyncio.Event()
    with keys(quitted), Live(Text("reading ..."), console=console, screen=True, auto_refresh=False) as screen:
        while not quitted.is_set():
            wait_s = max(0.0, before.at_s + pause_s - time.monotonic())
            if await one_of(quitted, asyncio.sleep(wait_s)):
                return
            work = asyncio.ensure_future(sampled(at, monitor))
            if await one_of(quitted, work):
                return
            now = work.result()
            screen.update(drawn(Frames(before=before, now=now), console.height, rows), refresh=True)
            before = now


async def one_of(quitted: asyncio.Event, work: Any) -> bool:
    """Wait for the work or the key; True for the key. Raises what the work raises."""
    key, task = asyncio.ensure_future(quitted.wait()), asyncio.ensure_future(work)
    try:
        await asyncio.wait({key, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return quitted.is_set()
    finally:
        key.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextmanager
def keys(quitted: asyncio.Event) -> Iterator[None]:
    """Keys come one by one, without a line end and unseen; one of QUIT sets the event."""
    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(fd)

    def read() -> None:
        typed = os.read(fd, 64)  # unbuffered: what is read ahead makes no descriptor ready
        if not typed or set(typed) & set(QUIT):
            quitted.set()

    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def drawn(frames: Frames, height: int, rows: int | None) -> Group:
    """A frame that fits on the terminal."""
    free = height - len(frames.now.servers) - (SHARED + 1) * LINES_OF_SECTION - 1
    parts: list[Text | Table] = []
    for section in frames.sections(rows or max(ROWS_MIN, free // SHARED)):
        parts += [Text(section.title, style="bold"), table_of(section), Text("")]
    return Group(*parts, Text("q quits", style="dim"))


def table_of(section: Section) -> Table | Text:
    """The rows of a section."""
    if not section.rows:
        return Text(section.empty, style="dim")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in section.columns:
        table.add_column(
            column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True, overflow="ellipsis"
        )
    for row in section.rows:
        table.add_row(*(Text(clean(str(cell))) for cell in row))
    return table
