"""One client that asks more than a server can answer, and what it costs the others.

`python -m tests.faults.floods [--kind reference] [--rate 500] [--seconds 10] [--streams 30] [--what WHAT]` starts
three servers on loopback and floods one of them, while a publisher sends one message after the other to another one,
and a third connection pings the flooded server. It prints what the flood was answered, the publisher's longest silence,
the longest ping, and memory and log lines of the servers. WHAT is `list` (the same request each time), `varied` (no two
are the same) or `unread`: 2,400 batch direct gets of a megabyte each, of which nothing is read until the time is over.
"""

import argparse
import contextlib
import re
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from tests.harness.cluster import Cluster
from tests.harness.raw import Line, Message, RawClient

BATCH_GETS = 2_400
MESSAGES, MESSAGE_BYTES = 1_000, 1_000  # of the stream that they read
Ask = Callable[[int], tuple[str, bytes]]
BURST_S = 0.02  # the flood is sent in bursts of so many seconds' requests
ANSWERS_WAIT_S = 20.0  # for what is still to be answered when the flood is over
CODE = re.compile(rb'"code":\s*(\d+)')
MESSAGE = re.compile(rb"H?MSG (\S+) \S+ (?:(\d+) )?(\d+)\r\n")


def stream_list(_number: int) -> tuple[str, bytes]:
    """The same list again and again."""
    return "$JS.API.STREAM.LIST", b""


def varied(number: int) -> tuple[str, bytes]:
    """Requests of which no two are the same, and which all ask other nodes."""
    return (
        ("$JS.API.STREAM.LIST", b'{"offset":%d}' % -number),
        ("$JS.API.STREAM.NAMES", b'{"offset":%d}' % -number),
        ("$JS.API.INFO", b"%d" % number),
        (f"$JS.API.STREAM.INFO.f{number % 30}", b'{"offset":%d}' % number),
        (f"$JS.API.CONSUMER.LIST.f{number % 30}", b'{"offset":%d}' % -number),
    )[number % 5]


def batch_get(_number: int) -> tuple[str, bytes]:
    """A megabyte of messages."""
    return "$JS.API.DIRECT.GET.f1", b'{"seq":1,"batch":%d}' % MESSAGES


FLOODS: dict[str, Ask] = {"list": stream_list, "varied": varied, "unread": batch_get}


@attrs.frozen(kw_only=True)
class Answered:
    """What became of a flood: requests sent, and the answers by `ok`, error code or status."""

    sent: int
    answers: Counter[str]

    @property
    def missing(self) -> int:
        """Requests without an answer."""
        return self.sent - sum(self.answers.values())


class Flood:
    """`with Flood(address, ask, rate=500):` sends `rate` requests a second until it ends, and reads every answer."""

    def __init__(self, address: tuple[str, int], ask: Ask, *, rate: float, most: int = sys.maxsize) -> None:
        self._client = RawClient(address)
        self._socket = self._client._socket
        self._ask, self._rate, self._most = ask, rate, most
        self._inbox = self._client.inbox
        self._client.subscribe(self._inbox + ".>")
        self._sent = 0
        self._answers: Counter[str] = Counter()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._read)]

    def _write(self) -> None:
        began = time.monotonic()
        while not self._over.is_set():
            due = min(int((time.monotonic() - began) * self._rate), self._most) - self._sent
            words = []
            for _ in range(due):
                subject, body = self._ask(self._sent)
                words.append(f"PUB {subject} {self._inbox}.{self._sent} {len(body)}\r\n".encode() + body + b"\r\n")
                self._sent += 1
            try:
                self._socket.sendall(b"".join(words))
            except OSError:
                return
            self._over.wait(BURST_S)

    def _read(self) -> None:
        """Count answers; their bodies are skipped but for their heads."""
        self._socket.settimeout(None)
        buffer = bytearray()
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                return
            if not data:
                return
            buffer += data
            while (end := buffer.find(b"\r\n")) >= 0:
                found = MESSAGE.match(buffer)
                if found is None:
                    del buffer[: end + 2]
                    continue
                size = int(found[3])
                if len(buffer) < found.end() + size + 2:
                    break
                verdict = _verdict(bytes(buffer[found.end() : found.end() + min(size, 200)]))
                if verdict:
                    self._answers[verdict] += 1
                del buffer[: found.end() + size + 2]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def read(self) -> None:
        """Begin to read the answers."""
        self._threads[1].start()

    def finish(self) -> Answered:
        """Send no more, and wait for the answers."""
        self._over.set()
        self._threads[0].join()
        deadline = time.monotonic() + ANSWERS_WAIT_S
        while sum(self._answers.values()) < self._sent and time.monotonic() < deadline and self._threads[1].is_alive():
            time.sleep(0.01)
        return Answered(sent=self._sent, answers=Counter(self._answers))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._threads[0].join()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._threads[1].is_alive():
            self._threads[1].join()
        self._client.close()


def _verdict(head: bytes) -> str:
    """What an answer says, empty when more follows: a message of a batch."""
    if b"\r\nNats-Sequence: " in head:
        return ""
    if head.startswith(b"NATS/1.0 "):
        return head[9:12].decode()
    found = CODE.search(head) if b'"error"' in head else None
    return found[1].decode() if found else "ok"


class Repeated:
    """Something that is done again and again in a thread, and the longest time that it took, in nanoseconds."""

    def __init__(self, act: Callable[[], bool], *, pause_s: float = 0.0) -> None:
        self._act, self._pause_s = act, pause_s
        self.longest_ns = self.done = self.failed = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        began = time.monotonic_ns()
        while not self._over.wait(self._pause_s):
            began = time.monotonic_ns() if self._pause_s or self.done == 0 else began
            good = self._act()
            now = time.monotonic_ns()
            if good:
                self.longest_ns = max(self.longest_ns, now - began)
                self.done += 1
                began = now
            else:
                self.failed += 1
        self.longest_ns = max(self.longest_ns, 0 if self._pause_s else time.monotonic_ns() - began)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


def publisher(client: RawClient, subject: str) -> Callable[[], bool]:
    """Publishes one message and waits for its acknowledgement; False when there was none."""
    inbox = client.new_inbox()
    client.subscribe(inbox)
    return lambda: _acknowledged(client, subject, inbox)


def _acknowledged(client: RawClient, subject: str, inbox: str) -> bool:
    client.publish(subject, b"x" * 100, reply=inbox)
    event = client.next_event(10.0)
    while isinstance(event, Line):
        event = client.next_event(10.0)
    return isinstance(event, Message) and b'"seq"' in event.payload


def pinger(client: RawClient) -> Callable[[], bool]:
    """Sends PING and waits for PONG."""

    def ping() -> bool:
        client.settle(10.0)
        return True

    return ping


def create_streams(client: RawClient, count: int, *, replicas: int = 3) -> None:
    """Streams f0, f1, ...; `f0` is the publisher's, too."""
    for number in range(count):
        config = {"name": f"f{number}", "subjects": [f"f{number}.>"], "num_replicas": replicas, "allow_direct": True}
        answer = client.api(f"STREAM.CREATE.f{number}", config)
        assert "error" not in answer, answer


@attrs.frozen(kw_only=True)
class Cost:
    """What others had from a flood. Nanoseconds, bytes."""

    answered: Answered
    acknowledged: int
    gap_ns: int
    ping_ns: int
    rss_before: dict[str, int]
    rss_peak: dict[str, int]
    log_lines: int
    elections: int

    @property
    def grown_bytes(self) -> int:
        """By how much the node that grew most has grown."""
        return max(peak - self.rss_before[name] for name, peak in self.rss_peak.items())

    def __str__(self) -> str:
        rss = " ".join(
            f"{name} {self.rss_before[name] >> 20}->{peak >> 20}" for name, peak in sorted(self.rss_peak.items())
        )
        answers = f"sent {self.answered.sent}, answers {dict(self.answered.answers)}, without {self.answered.missing}"
        times = f"gap {self.gap_ns / 1e6:.0f} ms, ping {self.ping_ns / 1e6:.0f} ms"
        rest = f"log lines {self.log_lines}, leaders moved {self.elections}"
        return f"{answers}; acks {self.acknowledged}, {times}; RSS MiB {rss}; {rest}"


def fill(client: RawClient) -> None:
    """Messages for `batch_get`."""
    for _ in range(MESSAGES):
        client.publish("f1.x", b"x" * MESSAGE_BYTES)
    client.acknowledged("f1.x", b"the last one")


def measure(cluster: Cluster, ask: Ask, *, rate: float, seconds: float, streams: int) -> Cost:
    """Flood node 1 for so long. The streams exist already. What is unread is read when the time is over."""
    unread = ask is batch_get
    lines = sum(len(node.running.lines) for node in cluster)
    before = cluster.statistics()
    peak = Counter(before)
    led = leaders(cluster, streams)
    with RawClient(cluster[1].address) as writing, RawClient(cluster[0].address) as pinging:
        publish = Repeated(publisher(writing, "f0.x"))
        ping = Repeated(pinger(pinging), pause_s=0.02)
        most = BATCH_GETS if unread else sys.maxsize
        with publish, ping, Flood(cluster[0].address, ask, rate=rate, most=most) as flood:
            if not unread:
                flood.read()
            over = time.monotonic() + seconds
            while time.monotonic() < over:
                time.sleep(0.1)
                peak |= Counter(cluster.statistics())
            if unread:
                flood.read()
            answered = flood.finish()
            peak |= Counter(cluster.statistics())
    now = leaders(cluster, streams)
    return Cost(
        answered=answered,
        acknowledged=publish.done,
        gap_ns=publish.longest_ns,
        ping_ns=ping.longest_ns,
        rss_before=before,
        rss_peak=dict(peak),
        log_lines=sum(len(node.running.lines) for node in cluster) - lines,
        elections=sum(now[name] != led[name] for name in led),
    )


def leaders(cluster: Cluster, streams: int) -> dict[str, str]:
    """The leader of each stream of the flood."""
    found = {}
    with RawClient(cluster[1].address) as client:
        for number in range(streams):
            described = client.api(f"STREAM.INFO.f{number}").get("cluster") or {}
            found[f"f{number}"] = str(described.get("leader"))
    return found


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="tests.faults.floods", description=__doc__)
    parser.add_argument("--kind", choices=["jetraft", "reference"], default="jetraft")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=30)
    parser.add_argument("--what", choices=list(FLOODS), default="list")
    wish = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="floods-") as directory,
        Cluster(wish.kind, directory=Path(directory)) as cluster,
    ):
        with RawClient(cluster[0].address) as client:
            create_streams(client, wish.streams)
            fill(client)
        cost = measure(cluster, FLOODS[wish.what], rate=wish.rate, seconds=wish.seconds, streams=wish.streams)
        sys.stdout.write(f"{wish.kind} {wish.what} {wish.rate:.0f}/s: {cost}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
