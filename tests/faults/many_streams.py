"""A thousand streams of three replicas, and how long each takes no publish when a server is restarted or killed.

`python -m tests.faults.many_streams [--streams 1000] [--kind reference]` starts three servers on loopback and makes the
streams, each with one message. Then every server is ended with SIGTERM and started again, each as soon as `/healthz` of
the one before says ok; last, the server that leads most streams is killed with SIGKILL and started again. A row is
printed for each: when the first half, 99 of 100 and all of the streams had acknowledged a publish again (counted from
the signal), when `/healthz` of the server said ok (from its start), and when all had acknowledged one after that ok.

While the server is gone, streams that it has handed over in time take publishes at once, so the first figures are those
of a failover. Exit status 1: a stream was not back in time, or has fewer messages than were acknowledged.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs

from tests.harness.cluster import Cluster
from tests.harness.raw import Line, Message, RawClient
from tests.harness.server import Server

WINDOW = 16  # streams that are created at a time
BACK_S_MAX = 120.0
PAUSE_S = 0.05  # before a stream that has refused is asked again
ANSWER_S = 1.0  # after that long without an answer a publish is sent again
OK_S_MAX = 300.0
PAYLOAD = b"x" * 128
ACKS = "_ACK"


class NotBackError(Exception):
    """Streams that took no publish in time."""


@attrs.frozen(kw_only=True)
class Row:
    """Of one restart, in seconds."""

    what: str
    back_s: Sequence[float]  # sorted, of each stream, from the signal on
    ok_s: float  # from the start of the process
    after_ok_s: Sequence[float]

    def cells(self) -> str:
        """One line of the table."""
        figures = [*quantiles(self.back_s), self.ok_s, *quantiles(self.after_ok_s)]
        return f"| {self.what} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |"


def quantiles(waits_s: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99 % and the last of sorted waits."""
    return waits_s[len(waits_s) // 2], waits_s[len(waits_s) * 99 // 100], waits_s[-1]


class Streams:
    """The streams, and what they have acknowledged."""

    def __init__(self, count: int) -> None:
        self.acknowledged = [0] * count

    def create(self, node: Server) -> None:
        """Make them all; they have a leader when this returns, and one message each."""
        count = len(self.acknowledged)
        with RawClient(node.address) as client:
            client.send(b"SUB _CREATED created\r\n")
            sent = answered = 0
            while answered < count:
                while sent < count and sent - answered < WINDOW:
                    config = {"name": f"S{sent}", "subjects": [f"many.{sent}"], "storage": "file", "num_replicas": 3}
                    body = json.dumps(config).encode()
                    client.publish(f"$JS.API.STREAM.CREATE.S{sent}", body, reply="_CREATED")
                    sent += 1
                event = client.next_event(BACK_S_MAX)
                assert event is not None, f"{answered} of {count} streams"
                if isinstance(event, Message):
                    assert b'"config"' in event.payload, event.payload
                    answered += 1
        self.back(node, time.monotonic())

    def back(self, node: Server, since_s: float) -> list[float]:
        """Publish to each through `node` until it has acknowledged; sorted seconds since `since_s`.

        Raises NotBackError.
        """
        waits_s: dict[int, float] = {}
        due_s = dict.fromkeys(range(len(self.acknowledged)), 0.0)  # when to ask (again), of those that are not back
        with RawClient(node.address) as client:
            client.send(f"SUB {ACKS}.* acks\r\n".encode())
            while due_s:
                now_s = time.monotonic()
                if now_s - since_s > BACK_S_MAX:
                    raise NotBackError(
                        f"{len(due_s)} streams are not back after {BACK_S_MAX:.0f} s: {sorted(due_s)[:9]}"
                    )
                for number in [number for number, at_s in due_s.items() if at_s <= now_s]:
                    client.publish(f"many.{number}", PAYLOAD, reply=f"{ACKS}.{number}")
                    due_s[number] = now_s + ANSWER_S
                event = client.next_event(max(0.001, min(due_s.values()) - time.monotonic()))
                if isinstance(event, Line) and event.text == "PING":
                    client.send(b"PONG\r\n")
                if isinstance(event, Message):
                    self._note(event, due_s, waits_s, since_s)
        return sorted(waits_s.values())

    def _note(self, answer: Message, due_s: dict[int, float], waits_s: dict[int, float], since_s: float) -> None:
        number, now_s = int(answer.subject.rpartition(".")[2]), time.monotonic()
        if answer.payload.startswith(b'{"stream"'):
            self.acknowledged[number] += 1
            due_s.pop(number, None)
            waits_s.setdefault(number, now_s - since_s)
        elif number in due_s:
            due_s[number] = now_s + PAUSE_S

    def short(self, node: Server) -> list[int]:
        """The streams that have fewer messages than they have acknowledged."""
        with RawClient(node.address) as client:
            return [
                number
                for number, count in enumerate(self.acknowledged)
                if client.api(f"STREAM.INFO.S{number}")["state"]["messages"] < count
            ]


def restarted(cluster: Cluster, streams: Streams, node: Server, number: signal.Signals) -> Row:
    """End the server, see the streams come back through another one, and start it again."""
    other = next(each for each in cluster if each is not node)
    led = len(led_by(node))
    began_s = time.monotonic()
    node.running.signal(number)
    node.running.wait()
    back_s = streams.back(other, began_s)
    began_s = time.monotonic()
    node.start(wait=False)
    node.wait_listening()
    node.wait_healthy(OK_S_MAX)
    ok_s = time.monotonic()
    after_ok_s = streams.back(other, ok_s)
    return Row(
        what=f"{number.name} of {node.name}, leader of {led}", back_s=back_s, ok_s=ok_s - began_s, after_ok_s=after_ok_s
    )


def led_by(node: Server) -> list[str]:
    """The streams that a server leads, as it says itself."""
    _, body = node.get("/jsz?streams=true&limit=100000")
    accounts = body.get("account_details") or [] if isinstance(body, dict) else []
    details = [stream for account in accounts for stream in account.get("stream_detail") or []]
    return [stream["name"] for stream in details if (stream.get("cluster") or {}).get("leader") == node.name]


def play(cluster: Cluster, streams: Streams) -> None:
    """Print the rows. Raises NotBackError."""
    say = partial(print, flush=True)  # (a command)
    say("| | p50 s | p99 s | last s | ok after s | p50 s | p99 s | last s after ok |")
    say("|---|---:|---:|---:|---:|---:|---:|---:|")
    streams.create(cluster[0])
    for node in cluster:
        say(restarted(cluster, streams, node, signal.SIGTERM).cells())
    leader = max(cluster, key=lambda node: len(led_by(node)))
    say(restarted(cluster, streams, leader, signal.SIGKILL).cells())


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--kind", choices=["jetraft", "reference"], default="jetraft")
    options = parser.parse_args()
    sys.stdout.write(f"{options.streams:,} streams of three replicas; load {os.getloadavg()[0]:.1f}\n\n")
    streams = Streams(options.streams)
    with (
        tempfile.TemporaryDirectory(prefix="jetraft-many-") as directory,
        Cluster(options.kind, 3, directory=Path(directory)) as cluster,
    ):
        try:
            play(cluster, streams)
        except NotBackError as error:
            sys.stdout.write(f"FAILED: {error}\n")
            return 1
        short = streams.short(cluster[0])
    if short:
        sys.stdout.write(f"FAILED: acknowledged messages are missing in streams {short[:9]}\n")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
