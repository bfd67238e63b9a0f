"""Message traces as spans: what a server did with a message that carries the W3C header `traceparent`.

A server publishes one document for a message (ADR-41): how it came in, and what became of it. The document becomes a
span below the sender's, from the arrival to the last event, and each event a span below that. A message that goes on to
another server carries the number of its hop; the span of that server is below the event with this number. Ids are
digests of what is in both documents, so the two find each other whichever comes first, and nothing is remembered.

Pure.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import attrs

TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
NS_PER_S: Final = 1_000_000_000
HOP: Final = "Nats-Trace-Hop"
NAMES: Final = {"js": "store", "eg": "deliver", "si": "import", "se": "export", "sm": "map"}  # by the type of an event
KINDS: Final = {0: "client", 1: "route", 2: "gateway", 3: "system", 4: "leaf node", 5: "JetStream", 6: "account"}
EVENTS_MAX: Final = 2000  # of a trace that become spans; a server bounds them too


@attrs.frozen(kw_only=True)
class TraceSpan:
    """A span; times are Unix times in nanoseconds, ids are of 16 and 8 bytes. `parent_id` 0: none."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    is_receiving: bool  # the server's own; else something that it did
    attributes: Mapping[str, str | int]
    error: str = ""


def spans_of(trace: Mapping[str, Any]) -> Iterator[TraceSpan]:
    """The spans of one trace document. ValueError: it is none, or its message has no `traceparent`."""
    events = [one for one in _list(trace.get("events")) if isinstance(one, dict)][:EVENTS_MAX]
    ingress = next((one for one in events if one.get("type") == "in"), None)
    if ingress is None:
        raise ValueError("it is no message trace: there is no event of type `in`")
    headers = _dict(_dict(trace.get("request")).get("header"))
    sender = TRACEPARENT.fullmatch(_first(headers, "traceparent"))
    if sender is None:
        raise ValueError("its message has no `traceparent` of the form version-trace-parent-flags")
    trace_id, sender_id = int(sender[1], 16), int(sender[2], 16)
    server, hop = _dict(trace.get("server")), _first(headers, HOP)
    arrival = (ingress.get(name) for name in ("cid", "subj", "ts"))
    own_id = _digest(sender[0], "server", server.get("id"), hop, *arrival)
    start_ns = unix_ns(ingress.get("ts"))
    done = [one for one in events if one is not ingress]
    inner = [_event_span(one, sender, own_id, start_ns, place) for place, one in enumerate(done)]
    refused = str(ingress.get("error", ""))
    yield TraceSpan(
        name=f"publish {ingress.get('subj', '')}",
        trace_id=trace_id,
        span_id=own_id,
        parent_id=_digest(sender[0], "hop", hop) if hop else sender_id,
        start_ns=start_ns,
        end_ns=max([start_ns, *(span.end_ns for span in inner)]),
        is_receiving=True,
        attributes={
            "messaging.system": "nats",
            "messaging.operation.type": "receive",
            "messaging.destination.name": str(ingress.get("subj", "")),
            "messaging.message.body.size": _int(_dict(trace.get("request")).get("msgsize")),
            "server.name": str(server.get("name", "")),
            "nats.account": str(ingress.get("acc", "")),
            "nats.from": KINDS.get(_int(ingress.get("kind")), "unknown"),
            "nats.client.id": _int(ingress.get("cid")),
            **({"nats.client.name": str(ingress["name"])} if ingress.get("name") else {}),
        },
        error=refused,
    )
    yield from inner


def _event_span(event: dict[str, Any], sender: re.Match[str], parent_id: int, start_ns: int, place: int) -> TraceSpan:
    """The span of one step of a server: from the message's arrival until the step was done.

    If the message went on to another server, the id is that by which its document names the event.
    """
    hop = event.get("hop")
    kind = str(event.get("type", "event"))
    target = event.get("stream") or event.get("name") or event.get("to") or event.get("sub") or event.get("subj") or ""
    named = {"nats.stream": "stream", "nats.account": "acc", "nats.subscription": "sub", "nats.queue": "queue"}
    attributes: dict[str, str | int] = {key: str(event[name]) for key, name in named.items() if event.get(name)}
    if kind == "eg":
        attributes |= {
            "nats.to": KINDS.get(_int(event.get("kind")), "unknown"),
            "nats.client.id": _int(event.get("cid")),
        }
    if event.get("nointerest"):
        attributes["nats.no_interest"] = "true"
    return TraceSpan(
        name=f"{NAMES.get(kind, kind)} {target}".strip(),
        trace_id=int(sender[1], 16),
        span_id=_digest(sender[0], "hop", hop) if hop else _digest("event", parent_id, place),
        parent_id=parent_id,
        start_ns=start_ns,
        end_ns=max(start_ns, unix_ns(event.get("ts"))),
        is_receiving=False,
        attributes=attributes,
        error=str(event.get("error", "")),
    )


def unix_ns(text: object) -> int:
    """A time of RFC 3339 in UTC, with up to nine digits of a second. Raises ValueError."""
    found = TIME.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{str(text)[:64]!r} is no time in UTC")
    seconds = int(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
    return seconds * NS_PER_S + int((found[2] or "0").ljust(9, "0"))


def _digest(*parts: object) -> int:
    """An id of 8 bytes that is not 0."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") or 1


def _first(headers: Mapping[str, Any], name: str) -> str:
    """The first value of a header whose name is in any case."""
    for key, values in headers.items():
        if str(key).lower() == name.lower():
            listed = _list(values)
            return str(listed[0]) if listed else ""
    return ""


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
