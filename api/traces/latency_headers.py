"""Whether the headers of a request ask for a sample of its latency, and which of them the metric shows. Pure.

Jaeger's `Uber-Trace-Id`, the headers of B3 and `traceparent`, as nats-server reads them, with names in any case.
"""

from typing import Final

from jetraft.api.traces.trace_headers import LINE

UBER: Final = "Uber-Trace-Id"
UBER_CONTEXT: Final = "Uberctx-"
B3: Final = "B3"
B3_SAMPLED: Final = "X-B3-Sampled"
B3_TRACE: Final = "X-B3-Traceid"
B3_ALL: Final = (B3_SAMPLED, B3_TRACE, "X-B3-Parentspanid", "X-B3-Spanid")
PARENT: Final = "Traceparent"
STATE: Final = "Tracestate"
PARTS: Final = 4  # of a trace's id, flags last
FLAGS_MAX: Final = 2  # hexadecimal digits

Shown = dict[str, list[str]]


def asked_by(hdr: bytes) -> Shown | None:
    """The headers that ask for a sample, None when there are none."""
    return asked(named(hdr)) if hdr.startswith(LINE) else None


def asked(found: Shown) -> Shown | None:
    """The same of headers that were read; of those of several tracers the first here counts."""
    if trace := found.get(UBER):
        flags = trace[0].split(":")
        context = {name: values for name, values in found.items() if name.startswith(UBER_CONTEXT)}
        return {UBER: trace, **context} if len(flags) == PARTS and is_set(flags[3]) else None
    sampled = found.get(B3_SAMPLED, [""])[0]
    if sampled == "0":
        return None
    if sampled == "1" or B3_TRACE in found:
        return {name: found[name] for name in B3_ALL if name in found}
    if single := found.get(B3):
        parts = single[0].split("-")
        refused = parts == ["0"] or (len(parts) > FLAGS_MAX and parts[2] == "0")
        return None if refused else {B3: single}
    if parent := found.get(PARENT):
        parts = parent[0].split("-")
        asks = len(parts) == PARTS and len(parts[3]) == FLAGS_MAX and is_set(parts[3])
        return {name: found[name] for name in (PARENT, STATE) if name in found} if asks else None
    return None


def is_set(flags: str) -> bool:
    """Whether the lowest of some flags, one or two hexadecimal digits, is set."""
    digits = "0123456789abcdefABCDEF"
    return 0 < len(flags) <= FLAGS_MAX and all(one in digits for one in flags) and int(flags, 16) & 1 == 1


def named(hdr: bytes) -> Shown:
    """The headers of a block, each under the name that Go gives it: parts begin with a capital."""
    found: Shown = {}
    for line in hdr[len(LINE) :].split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name:
            key = "-".join(part.capitalize() for part in name.decode(errors="replace").split("-"))
            found.setdefault(key, []).append(value.strip(b" \t").decode(errors="replace"))
    return found
