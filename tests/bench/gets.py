"""STREAM.MSG.GET, one request after the other: what it costs all servers, beside nats-server.

PYTHONPATH=src:. python -m tests.bench.gets [--gets 3000] [--window 1] [--runs 1] [--only jetraft]

A stream of 100 messages of 128 B, in a file, on one node and on three. One client with one subscription for its answers
asks the stream's leader, and then another node; `--window` requests are under way at a time. Processor time is that of
all servers, without what they spend while there are no requests.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence

import attrs

from tests.bench.measure import cpu_s, servers
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

MESSAGES = 100
PAYLOAD = b"x" * 128
WARM_UP = 300
REST_S = 1.0
KINDS: tuple[Kind, ...] = ("jetraft", "reference")
NAMES = {"jetraft": "jetraft", "reference": "nats-server"}


@attrs.frozen(kw_only=True)
class Figures:
    """Of one place where it was asked. Processor time in microseconds for a request."""

    cpu_us: float  # of all servers
    asked_us: float  # of the one that was asked
    leader_us: float
    p50_us: float
    p99_us: float
    per_s: float


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gets", type=int, default=3000, help="(default: %(default)s)")
    parser.add_argument("--window", type=int, default=1, help="requests under way (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, help="of each server, in turn (default: %(default)s)")
    parser.add_argument("--only", choices=KINDS, help="one of the servers")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(KINDS)
    found: dict[tuple[int, str, Kind], list[Figures]] = {}
    for _ in range(options.runs):
        for nodes in (1, 3):
            for kind in kinds:
                for where, figures in measure(kind, nodes, options.gets, options.window):
                    found.setdefault((nodes, where, kind), []).append(figures)
    print(f"{options.gets:,} gets, {options.window} under way; load {os.getloadavg()[0]:.1f}")
    print("| nodes | asked | server | " + " | ".join(field.name for field in attrs.fields(Figures)) + " |")
    print("|---" * (3 + len(attrs.fields(Figures))) + "|")
    for (nodes, where, kind), runs in sorted(found.items()):
        values = [statistics.median(getattr(each, field.name) for each in runs) for field in attrs.fields(Figures)]
        print(f"| {nodes} | {where} | {NAMES[kind]} | " + " | ".join(f"{value:,.0f}" for value in values) + " |")


def measure(kind: Kind, nodes: int, gets: int, window: int) -> list[tuple[str, Figures]]:
    """Fresh servers; first the leader is asked, then another one."""
    with servers(kind, nodes=nodes) as started:
        config = {"name": "S", "subjects": ["s.>"], "storage": "file", "num_replicas": nodes}
        with RawClient(started[0].address) as client:
            created = client.api("STREAM.CREATE.S", config)
            for number in range(MESSAGES):
                client.request(f"s.{number}", PAYLOAD)
        leads = created.get("cluster", {}).get("leader") or started[0].name
        leader = next(each for each in started if each.name == leads)
        places = [("leader", leader), *(("another", each) for each in started if each is not leader)]
        return [(where, ask(started, leader, asked, gets, window)) for where, asked in places[:2]]


def ask(started: Sequence[Server], leader: Server, asked: Server, gets: int, window: int) -> Figures:
    """One client at one node."""
    with RawClient(asked.address) as client:
        client.subscribe("answers.*")
        client.settle()
        time.sleep(REST_S)  # until every node knows where the answers go
        get_many(client, WARM_UP, window)
        before = [cpu_s(each.running.pid) for each in started]
        begun = time.monotonic()
        waits_s = get_many(client, gets, window)
        elapsed_s = time.monotonic() - begun
        between = [cpu_s(each.running.pid) for each in started]
        time.sleep(REST_S)
        after = [cpu_s(each.running.pid) for each in started]
    spent = {
        each.name: (second - first - (third - second) * elapsed_s / REST_S) * 1e6 / gets
        for each, first, second, third in zip(started, before, between, after, strict=True)
    }
    return Figures(
        cpu_us=sum(spent.values()),
        asked_us=spent[asked.name],
        leader_us=spent[leader.name],
        p50_us=statistics.median(waits_s) * 1e6,
        p99_us=sorted(waits_s)[int(len(waits_s) * 0.99)] * 1e6,
        per_s=gets / elapsed_s,
    )


def get_many(client: RawClient, gets: int, window: int) -> list[float]:
    """Ask so often; returns the seconds that each answer took. nats-server does not answer in order."""
    sent: dict[str, float] = {}
    waits_s: list[float] = []
    asked = 0
    while len(waits_s) < gets:
        while asked < gets and len(sent) < window:
            reply = f"answers.{asked}"
            sent[reply] = time.monotonic()
            client.publish("$JS.API.STREAM.MSG.GET.S", b'{"seq":%d}' % (asked % MESSAGES + 1), reply=reply)
            asked += 1
        event = client.next_event()
        assert event is not None, f"{len(waits_s)} of {gets} answers"
        if isinstance(event, Message):
            seq = json.loads(event.payload)["message"]["seq"]
            assert seq == int(event.subject.partition(".")[2]) % MESSAGES + 1, event.payload
            waits_s.append(time.monotonic() - sent.pop(event.subject))
    return waits_s


if __name__ == "__main__":
    main()
