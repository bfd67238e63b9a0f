"""How `jetraft bench` measures: clients that work at once, what each has done, and what comes of it.

One process runs all clients, so it can be the slower side: several processes show whether the server has more to give.
"""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import attrs

from jetraft.api.cli.client.connection import CommandConnection, connected
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.output import Printer
from jetraft.api.cli.client.progress import bars
from jetraft.api.cli.client.units import shown_count, shown_duration, shown_size

LOOK_S: Final = 0.1
COLUMNS: Final = ("", ">clients", ">messages", ">size", ">time", ">messages/s", ">bytes/s", ">p50", ">p99", ">longest")


@attrs.define(eq=False)
class Meter:
    """The messages of one client so far, and their latencies."""

    messages: int = 0
    latencies_ns: "array[int]" = attrs.field(factory=lambda: array("q"))

    def one(self, started_ns: int) -> None:
        """A message is done."""
        self.messages += 1
        self.latencies_ns.append(time.perf_counter_ns() - started_ns)


@attrs.frozen(kw_only=True)
class Measured:
    """The result of one kind of work."""

    name: str
    clients: int
    messages: int
    size: int  # of a payload, in bytes
    elapsed_ns: int
    latencies_ns: Sequence[int]  # sorted

    def quantile_ns(self, part: float) -> int | None:
        """The latency that this part of them does not exceed; None where none was measured."""
        if not self.latencies_ns:
            return None
        return self.latencies_ns[min(int(part * len(self.latencies_ns)), len(self.latencies_ns) - 1)]

    @property
    def per_s(self) -> float:
        """Messages in a second."""
        return self.messages * 1e9 / max(self.elapsed_ns, 1)

    def as_json(self) -> dict[str, Any]:
        """The stable form."""
        return {
            "name": self.name,
            "clients": self.clients,
            "messages": self.messages,
            "size": self.size,
            "elapsed_ns": self.elapsed_ns,
            "messages_per_s": round(self.per_s, 1),
            "bytes_per_s": round(self.per_s * self.size, 1),
            "latency_p50_ns": self.quantile_ns(0.5),
            "latency_p99_ns": self.quantile_ns(0.99),
            "latency_max_ns": self.quantile_ns(1.0),
        }

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        latencies = [self.quantile_ns(part) for part in (0.5, 0.99, 1.0)]
        return (
            self.name,
            shown_count(self.clients),
            shown_count(self.messages),
            shown_size(self.size),
            shown_duration(self.elapsed_ns),
            shown_count(round(self.per_s)),
            f"{shown_size(round(self.per_s * self.size))}/s",
            *("-" if each is None else shown_duration(each) for each in latencies),
        )


def print_measured(out: Printer, found: Sequence[Measured]) -> None:
    """A table with a row for each, or a list."""
    out.table(COLUMNS, (each.row() for each in found), [each.as_json() for each in found], empty="nothing was done")


@asynccontextmanager
async def several(at: CommandConnection, count: int) -> AsyncIterator[list[CommandConnection]]:
    """So many connections, each its own. Raises CommandError."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(at.login, at.out, at.timeout_s)) for _ in range(count)]


def shares(total: int, clients: int) -> list[int]:
    """How many of a total each client does."""
    return [total // clients + (place < total % clients) for place in range(clients)]


async def measured(
    at: CommandConnection,
    name: str,
    work: Sequence[Callable[[Meter], Awaitable[None]]],
    *,
    total: int,
    size: int,
    waits_for_first: bool = False,
) -> Measured:
    """Run the clients' work at once. Raises CommandError when nothing is done for as long as an answer may take.

    With `waits_for_first` the time begins with the first message, for which there is no limit.
    """
    meters = [Meter() for _ in work]
    started_ns = time.perf_counter_ns()
    tasks = [asyncio.ensure_future(one(meter)) for one, meter in zip(work, meters, strict=True)]
    done, moved_s = 0, time.monotonic()
    try:
        with bars(name, total=total, shown=not at.out.as_json) as (bar,):
            pending: set[asyncio.Future[None]] = set(tasks)
            while pending:
                finished, pending = await asyncio.wait(pending, timeout=LOOK_S, return_when=asyncio.FIRST_EXCEPTION)
                for each in finished:
                    each.result()
                now = sum(meter.messages for meter in meters)
                if now != done:
                    if not done and waits_for_first:
                        started_ns = time.perf_counter_ns() - int(LOOK_S * 1e9)
                    done, moved_s = now, time.monotonic()
                    bar.at(done)
                elif pending and time.monotonic() > moved_s + at.timeout_s and (done or not waits_for_first):
                    raise CommandError(
                        f"{name}: {done:,} of {total:,} messages, then none for {at.timeout_s:g}s: see `jetraft server"
                        " health`; --timeout waits longer"
                    )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    latencies = sorted(each for meter in meters for each in meter.latencies_ns)
    return Measured(
        name=name,
        clients=len(work),
        messages=sum(meter.messages for meter in meters),
        size=size,
        elapsed_ns=time.perf_counter_ns() - started_ns,
        latencies_ns=latencies,
    )
