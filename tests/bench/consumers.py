"""What a consumer costs that nobody reads: time to create, memory, idle processor time.

    python -m tests.bench.consumers [--kind jetraft|reference] SIZE [SIZE ...]

Each size on a fresh server: a stream, so many durable pull consumers, IN_FLIGHT requests at a time on one connection.
"""

import argparse
import json
import socket
import sys
import time
from typing import BinaryIO

from tests.bench.measure import cpu_s, rss_bytes, servers
from tests.harness.raw import RawClient

IN_FLIGHT = 256
IDLE_S = 3


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


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.consumers", description=__doc__)
    parser.add_argument("--kind", choices=("jetraft", "reference"), default="jetraft")
    parser.add_argument("sizes", nargs="+", type=int, help="numbers of consumers")
    arguments = parser.parse_args()
    print(f"{'consumers':>10}{'seconds':>10}{'CPU us each':>13}{'bytes each':>12}{'RSS MB':>8}{'idle CPU':>10}")
    for size in arguments.sizes:
        with servers(arguments.kind, nodes=1) as (server,):
            pid = server.running.pid
            with RawClient(server.address) as client:
                client.api("STREAM.CREATE.BENCH", {"name": "BENCH", "subjects": ["bench.>"]})
            cpu_before, rss_before = cpu_s(pid), rss_bytes(pid)
            seconds = create(server.address, size)
            spent, grown = cpu_s(pid) - cpu_before, rss_bytes(pid) - rss_before
            idle_before = cpu_s(pid)
            time.sleep(IDLE_S)
            idle = (cpu_s(pid) - idle_before) / IDLE_S
            print(
                f"{size:>10,}{seconds:>10.2f}{spent * 1e6 / size:>13,.0f}{grown / size:>12,.0f}"
                f"{rss_bytes(pid) / 1e6:>8,.0f}{idle:>10.1%}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
