"""`jetraft traces`: message traces of an account become spans for any collector that takes OTLP over HTTP."""

import asyncio
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import typer
from nats.aio.msg import Msg

from jetraft.api.cli.client.connection import CommandConnection, subject_text
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.messages import flushed
from jetraft.api.cli.client.output import clean
from jetraft.api.cli.client.spans.trace_spans import TraceSpan, spans_of
from jetraft.store.model.extras import OTEL, missing_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.api.cli.client.spans.span_export import CollectorExport

GROUP: Final = CommandGroup.of("traces", "Send message traces to an OpenTelemetry collector.")
BATCH_SPANS: Final = 512  # as the batch processor of OpenTelemetry's SDK
BATCH_WAIT_S: Final = 1.0
WAITING_TRACES: Final = 4096  # beyond that traces are dropped, and counted: a collector that is down stops no one
QUEUE: Final = "jetraft-traces"


def main(name: str, words: Any) -> int:
    """Run it; returns the exit status."""
    return GROUP.main(name, words)


@GROUP.command(
    "traces",
    "traces traces.orders --endpoint http://collector:4318/v1/traces",
    "traces traces.orders --json --count 10",
)
async def traces(
    at: CommandConnection,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="`dest` of the account's `msg_trace`")],
    endpoint: Annotated[
        str, typer.Option("--endpoint", metavar="URL", help="where a collector takes OTLP over HTTP")
    ] = "http://127.0.0.1:4318/v1/traces",
    queue: Annotated[str, typer.Option("--queue", help="processes of one group share the traces")] = QUEUE,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="end after so many traces")] = None,
) -> None:
    """Send the traces that servers publish to a collector, until it is interrupted; with --json print the spans.

    An account with `msg_trace { dest: "traces.orders", sampling: 1% }` has messages with `traceparent` traced.
    """
    sink = Printed(at) if at.out.as_json else exporting(endpoint)
    waiting: asyncio.Queue[Msg] = asyncio.Queue(WAITING_TRACES)
    dropped = 0

    async def take(message: Msg) -> None:
        nonlocal dropped
        try:
            waiting.put_nowait(message)
        except asyncio.QueueFull:
            dropped += 1

    await at.nc.subscribe(subject_text(subject), queue, cb=take)
    await at.unless_refused(flushed(at))
    taken, told = 0, 0
    try:
        while count is None or taken < count:
            batch = await at.unless_refused(_batch(waiting, None if count is None else count - taken))
            taken += len(batch)
            await sink.send([span for message in batch for span in _spans(message)])
            if dropped > told:
                told = dropped
                sys.stderr.write(f"jetraft traces: {dropped} traces dropped: the collector takes fewer than arrive\n")
    finally:
        await sink.close()


async def _batch(waiting: asyncio.Queue[Msg], most: int | None) -> list[Msg]:
    """Traces that have arrived: the first is waited for, the others for BATCH_WAIT_S."""
    batch = [await waiting.get()]
    with suppress(TimeoutError):
        async with asyncio.timeout(BATCH_WAIT_S):
            while len(batch) < BATCH_SPANS and (most is None or len(batch) < most):
                batch.append(await waiting.get())
    return batch


def _spans(message: Msg) -> list[TraceSpan]:
    """The spans of a trace; none, with a line, where it is none: anyone may publish there who has the right."""
    try:
        found = json.loads(message.data)
        return [*spans_of(found if isinstance(found, dict) else {})]
    except (ValueError, RecursionError) as error:
        sys.stderr.write(f"jetraft traces: a message on {clean(message.subject)} was left out: {clean(str(error))}\n")
        return []


@attrs.frozen
class Printed:
    """Spans as lines of JSON."""

    at: CommandConnection

    async def send(self, spans: "Sequence[TraceSpan]") -> None:
        """Print them."""
        for span in spans:
            ids = {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
            parent = {"parent_id": f"{span.parent_id:016x}"} if span.parent_id else {}
            error = {"error": span.error} if span.error else {}
            times = {"start_ns": span.start_ns, "end_ns": span.end_ns}
            self.at.out.json_line({"name": span.name, **ids, **parent, **times, **error, **span.attributes})

    async def close(self) -> None:
        """Nothing waits."""


def exporting(endpoint: str) -> "CollectorExport":
    """The exporter of spans to a collector. Raises CommandError: the extra is missing, or the address is none."""
    try:
        from jetraft.api.cli.client.spans.span_export import CollectorExport  # noqa: PLC0415  of another extra
    except ImportError as error:
        if missing_extra(error) is not OTEL:
            raise
        raise CommandError(OTEL.advice) from None
    if not endpoint.startswith(("http://", "https://")):
        raise CommandError(f"--endpoint: {clean(endpoint)!r} is no URL with http:// or https://")
    return CollectorExport.to(endpoint)
