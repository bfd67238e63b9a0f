"""What a consumer costs that nobody reads: time to create, memory, idle processor time, publishing, starting again.

    python -m tests.bench.consumers [--kind jetraft|reference] SIZE [SIZE ...]

Each size on a fresh server: a stream, so many durable pull consumers, IN_FLIGHT requests at a time on one connection.
Then messages are published beside them, and the server is killed and started again: it is back when the stream's info
tells of all consumers. A size of 0 says what publishing and starting cost without any.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import attrs

from tests.bench.measure import build_generator, cpu_s, generate_paced, rss_bytes, servers
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

IN_FLIGHT = 256
IDLE_S = 3
MESSAGES = 300_000
WINDOW = 4_000
BACK_TIMEOUT_S = 120
HEAD = (
    f"{'consumers':>10}{'created s':>11}{'CPU us each':>13}{'bytes each':>12}{'RSS MB':>8}{'idle CPU':>10}"
    f"{'msgs/s':>12}{'CPU ns':>8}{'back s':>8}{'RSS MB':>8}"
)


@attrs.frozen(kw_only=True)
class Row:
    """One size. Bytes each are what the resident memory has grown by, with what a server grows by once."""

    size: int
    created_s: float
    cpu_us_each: float
    bytes_each: float
    rss_mb: float
    idle_share: float
    rate: float  # messages a second beside the consumers
    publish_cpu_ns: float
    back_s: float  # from the start of the process to the right answer
    back_rss_mb: float

    def line(self) -> str:
        """The row of the table."""
        return (
            f"{self.size:>10,}{self.created_s:>11.2f}{self.cpu_us_each:>13,.0f}{self.bytes_each:>12,.0f}{self.rss_mb:>8,.0f}"
            f"{self.idle_share:>10.1%}{self.rate:>12,.0f}{self.publish_cpu_ns:>8,.0f}{self.back_s:>8.2f}{self.back_rss_mb:>8,.0f}"
        )


def create(address: tuple[str, int], count: int) -> float:
    """Create the consumers idle0, idle1, ...; returns seconds. Raises ValueError at the first error."""
    with socket.create_connection(address) as connection, connection.makefile("rb") as answers:
        connection.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB _INBOX.c.* 1\r\nPING\r\n')
        while answers.readline() != b"PONG\r\n":
            pass
        began, sent = time.monotonic(), 0
        for answered in range(count):
            if sent - answered <= IN_FLIGHT // 2:
                more = range(sent, min(count, answered + IN_FLIGHT))
                connection.sendall(b"".join(request(number) for number in more))
                sent = max(sent, more.stop)
            read_answer(answers)
        return time.monotonic() - began


def request(number: int) -> bytes:
    """The request for one consumer."""
    config = {"durable_name": f"idle{number}", "ack_policy": "explicit"}
    body = json.dumps({"stream_name": "BENCH", "config": config}).encode()
    head = f"PUB $JS.API.CONSUMER.CREATE.BENCH.idle{number} _INBOX.c.{number} {len(body)}\r\n"
    return head.encode() + body + b"\r\n"


def read_answer(answers: BinaryIO) -> None:
    """One answer; raises ValueError when it is an error."""
    while not (line := answers.readline()).startswith(b"MSG "):
        if not line:
            raise ValueError("the server has closed the connection")
    body = answers.read(int(line.split()[-1]) + 2)
    if b'"error"' in body:
        raise ValueError(body.decode())


def publish(generator: Path, server: Server) -> tuple[float, float]:
    """Messages a second, and the server's CPU in nanoseconds for each."""
    options = ("keep=1", f"window={WINDOW}", f"msgs={MESSAGES}")
    answer, cpu_ns, _ = generate_paced(generator, "jspub", [server], options)
    return answer["rate"], cpu_ns


def consumer_count(server: Server) -> int:
    """How many consumers the stream has; -1 while nobody can say."""
    with RawClient(server.address) as client:
        return int(client.api("STREAM.INFO.BENCH", {}).get("state", {}).get("consumer_count", -1))


def start_again(server: Server, size: int) -> float:
    """Kill the server, start it; returns the seconds until it tells of all consumers."""
    server.kill()
    began = time.monotonic()
    server.start()
    server.wait_healthy(BACK_TIMEOUT_S)
    server.running.wait_until(
        lambda: consumer_count(server) == size, what="all consumers are back", timeout_s=BACK_TIMEOUT_S
    )
    return time.monotonic() - began


def measure(kind: Kind, generator: Path, size: int) -> Row:
    """One size on a fresh server."""
    with servers(kind, nodes=1) as (server,):
        with RawClient(server.address) as client:
            client.api("STREAM.CREATE.BENCH", {"name": "BENCH", "subjects": ["bench.>"]})
        publish(generator, server)
        pid = server.running.pid
        cpu_before, rss_before = cpu_s(pid), rss_bytes(pid)
        created_s = create(server.address, size)
        spent, grown = cpu_s(pid) - cpu_before, rss_bytes(pid) - rss_before
        idle_before = cpu_s(pid)
        time.sleep(IDLE_S)
        idle_share = (cpu_s(pid) - idle_before) / IDLE_S
        rss_mb = rss_bytes(pid) / 1e6
        rate, publish_cpu_ns = publish(generator, server)
        back_s = start_again(server, size)
        return Row(
            size=size,
            created_s=created_s,
            cpu_us_each=spent * 1e6 / max(size, 1),
            bytes_each=grown / max(size, 1),
            rss_mb=rss_mb,
            idle_share=idle_share,
            rate=rate,
            publish_cpu_ns=publish_cpu_ns,
            back_s=back_s,
            back_rss_mb=rss_bytes(server.running.pid) / 1e6,
        )


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.consumers", description=__doc__)
    parser.add_argument("--kind", choices=("jetraft", "reference"), default="jetraft")
    parser.add_argument("sizes", nargs="+", type=int, help="numbers of consumers; 0 is a stream without any")
    arguments = parser.parse_args()
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        generator = build_generator(Path(directory))
        for size in arguments.sizes:
            print(measure(arguments.kind, generator, size).line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
