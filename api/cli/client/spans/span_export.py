"""Spans on their way to a collector of OpenTelemetry: the only module that needs the extra `otel`."""

import asyncio
import sys
from collections.abc import Sequence

import attrs
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from jetraft.api.cli.client.spans.trace_spans import TraceSpan


@attrs.frozen
class CollectorExport:
    """Sends spans by OTLP over HTTP."""

    exporter: OTLPSpanExporter
    endpoint: str

    @classmethod
    def to(cls, endpoint: str) -> "CollectorExport":
        """An exporter to a URL; nothing is connected yet."""
        return cls(OTLPSpanExporter(endpoint=endpoint), endpoint)

    async def send(self, spans: Sequence[TraceSpan]) -> None:
        """Send them, again for some seconds where the collector is busy; a failure is a line, and they are dropped."""
        if not spans:
            return
        outcome = await asyncio.to_thread(self.exporter.export, [readable(span) for span in spans])
        if outcome != SpanExportResult.SUCCESS:
            sys.stderr.write(f"jetraft traces: {len(spans)} spans dropped: {self.endpoint} did not take them\n")

    async def close(self) -> None:
        """End its connections."""
        await asyncio.to_thread(self.exporter.shutdown)


def readable(span: TraceSpan) -> ReadableSpan:
    """The span as the SDK has it."""

    def context(span_id: int) -> SpanContext:
        return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=context(span.parent_id) if span.parent_id else None,
        resource=Resource({"service.name": "jetraft"}),
        attributes=dict(span.attributes),
        kind=SpanKind.SERVER if span.is_receiving else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
    )
