"""Very many durable pull consumers of one replicated stream, and what those that are read cost its publishers.

    python -m tests.bench.active_consumers [--kind jetraft|reference] [--size 100000] [--nodes 3]

Creates so many consumers that nobody reads, 256 requests at a time on one connection, and says how fast, and what each
costs every replica in memory. Then messages of ACTIVE subjects are published while one consumer reads all of them, and
while ACTIVE consumers read one subject each. Both get every message once, and ask for as many at a time, so that they
keep up; a third figure is beside one that asks for BATCH at a time and falls behind, which spares the server most of
the deliveries. nats-server refuses more consumers than its limit, and is measured with as many as it has taken. Of
jetraft the floors are checked; a busy machine misses them too.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import attrs

from tests.bench.consumers import create
from tests.bench.measure import build_generator, cpu_s, generate, rss_bytes, servers
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

SIZE = 100_000
ACTIVE = 100
MESSAGES = 200_000
WINDOW = 4_000
BATCH = 500
CREATIONS_PER_S_MIN = 2_000
BYTES_EACH_MAX = 2_048  # on every replica
SHARE_MIN = 0.5  # of the rate beside one consumer, beside ACTIVE
STEPS = (1_000, 10_000, 100_000)  # tried in turn with a server that has a limit


class Readers:
    """Consumers that are read on one connection until it is closed; every message is acknowledged with its batch."""

    def __init__(self, server: Server, names: list[str], batch: int) -> None:
        self.received = 0
        self._names, self._batch = names, batch
        self._socket = socket.create_connection(server.address)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Ask for the first messages of all."""
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB _INBOX.r.* 1\r\n')
        self._socket.sendall(b"".join(map(self._request, range(len(self._names)))))
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _request(self, number: int) -> bytes:
        body = json.dumps({"batch": self._batch, "expires": 60 * 10**9}).encode()
        head = f"PUB $JS.API.CONSUMER.MSG.NEXT.BENCH.{self._names[number]} _INBOX.r.{number} {len(body)}\r\n"
        return head.encode() + body + b"\r\n"

    def _run(self) -> None:
        left = dict.fromkeys(range(len(self._names)), self._batch)
        numbers = {name.encode(): number for number, name in enumerate(self._names)}
        with (
            suppress(ConnectionResetError),
            self._socket.makefile("rb", 1 << 20) as stream,
        ):  # `stop`
            while (line := stream.readline()).endswith(b"\n"):  # `stop` may cut one off
                words = line.split()
                if words[0] == b"PING":
                    with suppress(OSError):
                        self._socket.sendall(b"PONG\r\n")
                elif words[0] in (b"MSG", b"HMSG"):
                    stream.read(int(words[-1]) + 2)
                    ack = words[3]
                    if not ack.startswith(b"$JS.ACK."):
                        continue  # a status: the end of a request that has expired
                    self.received += 1
                    number = numbers[ack.split(b".")[3]]
                    left[number] -= 1
                    if not left[number]:
                        left[number] = self._batch
                        with suppress(OSError):  # `stop` has shut it
                            self._socket.sendall(b"PUB %s 0\r\n\r\n" % ack + self._request(number))


def create_many(kind: Kind, server: Server, size: int) -> tuple[int, float]:
    """Create up to so many consumers; returns how many there are and the seconds of the last step that went through."""
    made, seconds = 0, 0.0
    for step in (*(step for step in STEPS if step < size and kind == "reference"), size):
        try:
            seconds, made = create(server.address, step), step
        except ValueError as refused:
            print(f"refused beyond {made:,}: {str(refused)[:160]}", flush=True)
            break
    return made, seconds


@attrs.frozen
class Beside:
    """What one run of the publisher gave."""

    rate: float  # messages a second
    read: float  # the share of them that the readers had when the last was stored
    cpu_us: float  # of all servers, a message

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s ({self.read:.0%} read meanwhile, {self.cpu_us:.1f} us of processor a message)"


def publish_beside(generator: Path, running: list[Server], names: list[str], batch: int, messages: int) -> Beside:
    """Publish while these consumers are read, and ask for `batch` messages at a time."""
    readers = Readers(running[0], names, batch)
    before = sum(cpu_s(node.running.pid) for node in running)
    readers.start()
    try:
        options = ("keep=1", f"window={WINDOW}", f"msgs={messages}", f"subjects={ACTIVE}")
        rate = float(generate(generator, "jspub", running[0], options)["rate"])
        spent = sum(cpu_s(node.running.pid) for node in running) - before
        return Beside(rate, readers.received / messages, spent * 1e6 / messages)
    finally:
        readers.stop()


def add_readers(client: RawClient, names: list[str], filters: list[str]) -> None:
    """Consumers that start with what is published next; `filters` is empty for all subjects."""
    for number, name in enumerate(names):
        config: dict[str, object] = {"durable_name": name, "ack_policy": "all", "deliver_policy": "new"}
        config["max_ack_pending"] = 2 * BATCH * (1 if filters else ACTIVE)
        config |= {"filter_subject": filters[number]} if filters else {}
        subject = f"CONSUMER.DURABLE.CREATE.BENCH.{name}"
        answer = client.api(subject, {"stream_name": "BENCH", "config": config})
        assert "error" not in answer, answer


def read_by_one(generator: Path, running: list[Server], client: RawClient, messages: int) -> Beside:
    """The same with a fresh consumer of all subjects that asks for as many at a time as ACTIVE together."""
    client.api("CONSUMER.DELETE.BENCH.one")
    add_readers(client, ["all"], [])
    found = publish_beside(generator, running, ["all"], BATCH * ACTIVE, messages)
    client.api("CONSUMER.DELETE.BENCH.all")
    return found


def measure(kind: Kind, generator: Path, nodes: int, size: int, messages: int = MESSAGES) -> list[str]:
    """Print the figures; returns the floors that were missed."""
    with servers(kind, nodes=nodes) as running:
        server, missed = running[0], []
        with RawClient(server.address) as client:
            client.api("STREAM.CREATE.BENCH", {"name": "BENCH", "subjects": ["bench.>"], "num_replicas": nodes})
        before = [(rss_bytes(node.running.pid), cpu_s(node.running.pid)) for node in running]
        made, seconds = create_many(kind, server, size)
        after = [(rss_bytes(node.running.pid), cpu_s(node.running.pid)) for node in running]
        rate = made / seconds if seconds else 0.0
        each = [(now[0] - was[0]) / max(made, 1) for now, was in zip(after, before, strict=True)]
        cpu_us = sum(now[1] - was[1] for now, was in zip(after, before, strict=True)) * 1e6 / max(made, 1)
        print(f"{kind}: {made:,} consumers on R{nodes}: {rate:,.0f} created/s, {cpu_us:,.0f} us of processor each")
        print("bytes of memory each, by node: " + ", ".join(f"{one:,.0f}" for one in each), flush=True)
        with RawClient(server.address) as client:  # one that has answered no ping for minutes is gone
            for number in range(made - ACTIVE - 1, made) if made < size else ():  # at its limit: room for the readers
                client.api(f"CONSUMER.DELETE.BENCH.idle{number}")
            subjects = [f"bench.js.{number}" for number in range(ACTIVE)]
            add_readers(client, ["one"], [])
            behind = publish_beside(generator, running, ["one"], BATCH, messages)
            one = read_by_one(generator, running, client, messages)
            names = [f"active{number}" for number in range(ACTIVE)]
            add_readers(client, names, subjects)
            many = publish_beside(generator, running, names, BATCH, messages)
        share = many.rate / one.rate
        print(f"published beside one reader that falls behind: {behind}\nbeside one that keeps up: {one}")
        print(f"beside {ACTIVE}: {many}: {share:.0%}, and {many.rate / behind.rate:.0%} of the first")
    if rate < CREATIONS_PER_S_MIN:
        missed.append(f"{rate:,.0f} creations/s, floor {CREATIONS_PER_S_MIN:,}")
    if max(each) > BYTES_EACH_MAX:
        missed.append(f"{max(each):,.0f} bytes each, at most {BYTES_EACH_MAX:,}")
    if share < SHARE_MIN:
        missed.append(f"{share:.0%} of the rate beside one, floor {SHARE_MIN:.0%}")
    return missed if kind == "jetraft" else []


def main() -> int:
    """Run and print; 1 when a floor was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.active_consumers", description=__doc__)
    parser.add_argument("--kind", choices=("jetraft", "reference"), default="jetraft")
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--nodes", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        load = os.getloadavg()[0]
        missed = measure(arguments.kind, build_generator(Path(directory)), arguments.nodes, arguments.size)
    print(f"load of the machine before: {load:.1f}, after: {os.getloadavg()[0]:.1f}")
    for floor in missed:
        print(f"MISSED: {floor}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
