"""The windows of the Spark query: the stream that it writes them to, and the table over all of them.

The query writes each window that a micro-batch has changed, so the last message of a window is its result.
"""

import json
from collections.abc import Mapping

import attrs

from demo.flights import Delays, Group
from pyspark_jetstream import read_arrow

STREAM = "DELAYS"
FENCES = "fences.spark"  # messages with which the connector writes exactly once
CONFIG: dict[str, object] = {
    "name": STREAM,
    "subjects": ["delays.>", f"{FENCES}.>"],
    "allow_atomic": True,
    "allow_rollup_hdrs": True,
}

Window = tuple[str, str, str]  # its start, carrier, origin
Counts = tuple[int, int, float]  # flights, those with a delay, their delays in minutes


def table(windows: Mapping[Window, Counts]) -> dict[Group, Delays]:
    """The delays by carrier and origin, over all windows."""
    groups: dict[Group, Counts] = {}
    for (_, carrier, origin), counts in windows.items():
        before = groups.get((carrier, origin), (0, 0, 0.0))
        groups[carrier, origin] = (before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])
    return {
        group: Delays(flights=flights, with_delay=known, mean_delay_min=minutes / known if known else None)
        for group, (flights, known, minutes) in groups.items()
    }


@attrs.frozen(kw_only=True)
class Stored:
    """What the messages of the stream say."""

    messages: int
    windows: int
    table: dict[Group, Delays]


def stored(servers: str) -> Stored:
    """Read the stream, without Spark."""
    messages = read_arrow(servers=servers, stream=STREAM, subject="delays.>", columns="data")
    last: dict[Window, Counts] = {}
    for data in messages.column("data").to_pylist():
        row = json.loads(data)
        key = (row["window"], row["carrier"], row["origin"])
        last[key] = (row["flights"], row["with_delay"], row.get("delay_min") or 0.0)
    return Stored(messages=len(messages), windows=len({start for start, _, _ in last}), table=table(last))
