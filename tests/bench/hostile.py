"""What clients that mean harm cost one server: resident memory while they are there, and whether it lives on.

PYTHONPATH=src:. python -m tests.bench.hostile [--connections 10000] [--megabytes 512]

Three of them: a crowd of connections that send half a line each; a subscriber that never reads what a publisher sends;
a publisher to a stream that never waits for the disk and never reads an acknowledgement.
"""

import argparse
import json
import resource
import select
import socket
import time

from tests.bench.measure import servers
from tests.harness.raw import RawClient
from tests.harness.server import Server

MB = 1_000_000
HALF_LINE = b"PUB " + b"x" * 2_000  # shorter than max_control_line, so that nothing is wrong with it yet
PAYLOAD = b"x" * 1_024
BATCH = 512  # messages of one send
WAIT_S = 60.0
CROWD_MB_MAX = 120.0  # of 10,000 connections: 12 kB each
FLOOD_MB_MAX = 400.0  # max_pending is 64 MiB; the block cache 48 MiB


class Peak:
    """The most resident memory of a server, in MB above where it began."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._first = self._most = server.rss_bytes()

    def look(self) -> None:
        """Note how much it is now."""
        self._most = max(self._most, self._server.rss_bytes())

    @property
    def mb(self) -> float:
        """What it was at most."""
        return (self._most - self._first) / MB


def figures(server: Server) -> dict[str, int]:
    """`/varz`."""
    found: dict[str, int] = server.get("/varz")[1]
    return found


def answers(server: Server) -> bool:
    """Whether a new client is served."""
    with RawClient(server.address) as client:
        client.send(b"PING\r\n")
        while True:
            event = client.next_event(WAIT_S)
            if event is None or getattr(event, "text", "") == "PONG":
                return event is not None


def crowd(server: Server, connections: int) -> tuple[float, bool]:
    """Connections that send half a line and no more: megabytes for all of them, and whether others are served."""
    peak = Peak(server)
    held = []
    for _ in range(connections):
        held.append(socket.create_connection(server.address, WAIT_S))
        held[-1].sendall(HALF_LINE)
    deadline = time.monotonic() + WAIT_S
    while figures(server)["connections"] < connections and time.monotonic() < deadline:
        select.select([], [], [], 0.1)
    peak.look()
    served = answers(server)
    for connection in held:
        connection.close()
    return peak.mb, served


def flood(peak: Peak, publisher: RawClient, batch: bytes, batches: int) -> float:
    """Send the batch that often, as fast as it is taken, and look at the memory; returns MB per second."""
    began = time.monotonic()
    for number in range(batches):
        publisher.send(batch)
        if number % 32 == 0:
            peak.look()
    return batches * BATCH * len(PAYLOAD) / MB / (time.monotonic() - began)


def deaf_subscriber(server: Server, megabytes: int) -> tuple[float, float, bool]:
    """A subscriber that never reads: megabytes at most, MB/s of the publisher, whether the server has cut it."""
    cut_before = figures(server)["slow_consumers"]
    with RawClient(server.address) as deaf, RawClient(server.address) as publisher:
        deaf.subscribe("flood")
        deaf.send(b"PING\r\n")
        deaf.next_event(WAIT_S)
        peak = Peak(server)
        message = b"PUB flood %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
        rate = flood(peak, publisher, message * BATCH, megabytes * MB // (BATCH * len(PAYLOAD)))
        publisher.send(b"PING\r\n")
        publisher.next_event(WAIT_S)
    return peak.mb, rate, figures(server)["slow_consumers"] > cut_before


def hasty_publisher(server: Server, megabytes: int) -> tuple[float, float, float, bool]:
    """Publishes to a stream without waiting: megabytes at most, MB/s sent, share stored, whether the next one is.

    What the disk does not take in time is refused (10167) when 100,000 messages or 128 MiB are on their way, as in
    nats-server; this publisher does not ask what became of its messages.
    """
    batches = megabytes * MB // (BATCH * len(PAYLOAD))
    with RawClient(server.address) as manager, RawClient(server.address) as publisher:
        assert "error" not in manager.api("STREAM.CREATE.HASTE", {"name": "HASTE", "subjects": ["haste"]})
        peak = Peak(server)
        message = b"PUB haste %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
        rate = flood(peak, publisher, message * BATCH, batches)
        publisher.send(b"PING\r\n")
        publisher.next_event(WAIT_S)
        peak.look()
        answer: dict[str, object] = {"error": "not asked yet"}
        deadline = time.monotonic() + WAIT_S
        while "error" in answer and time.monotonic() < deadline:
            answer = json.loads(manager.request("haste", b"the next one")[0].payload)
        stored = manager.api("STREAM.INFO.HASTE")["state"]["messages"]
        peak.look()
    return peak.mb, rate, (stored - 1) / (batches * BATCH), answer.get("seq") == stored


def main() -> int:
    """Measure and print; the exit status says whether memory was bounded and everybody else served."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=512)
    asked = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * asked.connections + 1_000)), hard))
    with servers("jetraft", nodes=1) as (server,):
        crowd_mb, served = crowd(server, asked.connections)
        print(f"{asked.connections} half lines: {crowd_mb:.0f} MB, others served: {served}")
        deaf_mb, deaf_rate, was_cut = deaf_subscriber(server, asked.megabytes)
        print(f"deaf subscriber: {deaf_mb:.0f} MB at most, {deaf_rate:.0f} MB/s published, cut: {was_cut}")
        hasty_mb, hasty_rate, share, goes_on = hasty_publisher(server, asked.megabytes)
        print(
            f"hasty publisher: {hasty_mb:.0f} MB at most, {hasty_rate:.0f} MB/s sent, {share:.0%} stored, "
            f"the next one acknowledged: {goes_on}"
        )
    bounded = crowd_mb <= CROWD_MB_MAX * asked.connections / 10_000 and max(deaf_mb, hasty_mb) <= FLOOD_MB_MAX
    return 0 if bounded and served and was_cut and goes_on else 1


if __name__ == "__main__":
    raise SystemExit(main())
