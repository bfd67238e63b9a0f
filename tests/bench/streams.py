"""Many streams at once, each with one message in flight: what a stream costs when its batches hold one message.

PYTHONPATH=src:. python -m tests.bench.streams [--streams 1,10,100,1000] [--seconds 3] [--runs 2]

One connection publishes a message to each of the streams (R1, in files), waits for all acknowledgements, and begins
again. jetraft, nats-server with `sync_interval: always` and nats-server with its default in turn.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import attrs

from tests.bench.cases import ALWAYS_CONFIG
from tests.bench.measure import cpu_s
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

PAYLOAD = b"x" * 128
WARM_ROUNDS = 3


@attrs.frozen(kw_only=True)
class Contender:
    """A server as it is started here."""

    name: str
    kind: Kind
    config: str | None = None


CONTENDERS = (
    Contender(name="jetraft", kind="jetraft"),
    Contender(name="nats-server, always", kind="reference", config=ALWAYS_CONFIG),
    Contender(name="nats-server, default", kind="reference"),
)


@attrs.frozen(kw_only=True)
class Figures:
    """Of one run: messages per second, and the server's processor time per message in nanoseconds."""

    rate: float
    cpu_ns: float


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", default="1,10,100,1000", help="how many, one row each (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=2, help="of each server, in turn (default: %(default)s)")
    options = parser.parse_args()
    print("| streams | " + " | ".join(f"{each.name}: messages/s, CPU us" for each in CONTENDERS) + " |")
    print("|---" * (1 + len(CONTENDERS)) + "|")
    for streams in map(int, options.streams.split(",")):
        found: dict[str, list[Figures]] = {each.name: [] for each in CONTENDERS}
        for _ in range(options.runs):
            for each in CONTENDERS:
                found[each.name].append(run(each, streams, options.seconds))
        cells = [
            f"{statistics.median(figures.rate for figures in of_one):,.0f}, "
            f"{statistics.median(figures.cpu_ns for figures in of_one) / 1000:,.1f}"
            for of_one in found.values()
        ]
        print(f"| {streams:,} | " + " | ".join(cells) + " |", flush=True)


def run(contender: Contender, streams: int, seconds: float) -> Figures:
    """One server, fresh, for so long."""
    with (
        tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory,
        Server(contender.kind, directory=Path(directory), config=contender.config) as server,
        RawClient(server.address) as client,
    ):
        for number in range(streams):
            body = {"name": f"S{number}", "subjects": [f"many.{number}"], "storage": "file"}
            answer = client.api(f"STREAM.CREATE.S{number}", body)
            assert "config" in answer, answer
        client.send(b"SUB _ACK ack\r\n")
        messages = b"".join(
            b"PUB many.%d _ACK %d\r\n%s\r\n" % (number, len(PAYLOAD), PAYLOAD) for number in range(streams)
        )
        client.settle()
        for _ in range(WARM_ROUNDS):
            one_round(client, messages, streams)
        begun_cpu_s, begun = cpu_s(server.running.pid), time.monotonic()
        rounds = 0
        while time.monotonic() < begun + seconds:
            one_round(client, messages, streams)
            rounds += 1
        elapsed_s = time.monotonic() - begun
        used_s = cpu_s(server.running.pid) - begun_cpu_s
        return Figures(rate=rounds * streams / elapsed_s, cpu_ns=used_s * 1e9 / (rounds * streams))


def one_round(client: RawClient, messages: bytes, streams: int) -> None:
    """Send one message to each stream and wait until all are acknowledged."""
    client.send(messages)
    acknowledged = 0
    while acknowledged < streams:
        event = client.next_event()
        assert event is not None, f"{acknowledged} of {streams} acknowledgements"
        if isinstance(event, Message):
            assert event.payload.startswith(b'{"stream"'), event.payload
            acknowledged += 1


if __name__ == "__main__":
    main()
