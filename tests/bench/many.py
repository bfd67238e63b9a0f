"""Many quiet streams: what a stream costs before anybody uses it, beside nats-server.

PYTHONPATH=src:. python -m tests.bench.many [--streams 1000] [--seconds 10] [--runs 1] [--only jetraft] [--syncs 100]

A tenth of the streams (R1, in files) are created one after the other, the rest 16 at a time, and each takes a message.
Then: disk, descriptors and memory; processor time while nothing happens; SIGKILL, and the time until every stream
answers STREAM.INFO and takes a message again. With strace on the path, another server with a few streams is counted:
fsyncs and fdatasyncs for a stream that is created, for its first message, and for its start.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.bench.measure import cpu_s, rss_bytes
from tests.harness.process import ServerFailed
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

PAYLOAD = b"x" * 128
ONE_BY_ONE = 0.1  # of the streams
WINDOW = 16  # streams that are created at a time
PROBED = 20  # streams that are asked at a time whether they are back
PROBE_PAUSE_S = 0.02
PROBE_ANSWER_S = 2.0
BACK_S_MAX = 600.0
REST_S = 5.0  # before idling is measured: what was begun comes to its end
BLOCK_BYTES = 512  # st_blocks counts these, whatever the file system
KINDS: tuple[Kind, ...] = ("jetraft", "reference")
NAMES = {"jetraft": "jetraft", "reference": "nats-server"}
TRACED_CALLS = "fsync,fdatasync,sync_file_range,syncfs"


@attrs.frozen(kw_only=True)
class Figures:
    """Of one server. The name of each field is its row in the table."""

    created_per_s: float
    create_p50_ms: float
    create_p99_ms: float
    create_cpu_ms: float  # of a stream
    disk_mb: float
    descriptors: float
    rss_mb: float
    idle_percent: float  # of a processor
    back_s: float
    back_cpu_s: float
    disk_after_mb: float


@attrs.frozen(kw_only=True)
class Syncs:
    """Fsyncs and fdatasyncs of a stream."""

    create: float
    first_message: float
    start: float


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of idling (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, help="of each server, in turn (default: %(default)s)")
    parser.add_argument("--only", choices=KINDS, help="one of the servers")
    parser.add_argument("--syncs", type=int, default=100, help="streams to count fsyncs with, 0: none (%(default)s)")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(KINDS)
    found: dict[Kind, list[Figures]] = {kind: [] for kind in kinds}
    for _ in range(options.runs):
        for kind in kinds:
            found[kind].append(measure(kind, options.streams, options.seconds))
    counted = {kind: count_syncs(kind, options.syncs) for kind in kinds} if options.syncs and has_strace() else {}
    print(f"{options.streams:,} streams; load {os.getloadavg()[0]:.1f}")
    print("| | " + " | ".join(NAMES[kind] for kind in kinds) + " | ratio |")
    print("|---" * (2 + len(kinds)) + "|")
    for field in attrs.fields(Figures):
        row(field.name, [statistics.median(getattr(each, field.name) for each in found[kind]) for kind in kinds])
    for field in attrs.fields(Syncs) if counted else ():
        row(f"syncs_{field.name}", [getattr(counted[kind], field.name) for kind in kinds])


def row(name: str, values: Sequence[float]) -> None:
    """One line of the table, with the first value as a multiple of the second."""
    ratio = f"{values[0] / values[1]:.2f}" if len(values) > 1 and values[1] else ""
    print(f"| {name} | " + " | ".join(f"{value:,.2f}" for value in values) + f" | {ratio} |", flush=True)


def measure(kind: Kind, streams: int, idle_s: float, *, rest_s: float = REST_S) -> Figures:
    """One server, fresh, from the first stream to its restart."""
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        server = Server(kind, directory=Path(directory))
        with server:
            pid = server.running.pid
            begun_cpu_s = cpu_s(pid)
            waits_s, per_s = create(server, streams)
            create_cpu_s = cpu_s(pid) - begun_cpu_s
            publish(server, range(streams))
            time.sleep(rest_s)
            idle_cpu_s = cpu_s(pid)
            time.sleep(idle_s)
            idle_cpu_s = cpu_s(pid) - idle_cpu_s
            descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            disk, rss = disk_bytes(server.store_dir), rss_bytes(pid)
            server.kill()
            begun = time.monotonic()
            server.start(wait=False)
            wait_all_back(server, streams)
            return Figures(
                created_per_s=per_s,
                create_p50_ms=statistics.median(waits_s) * 1e3,
                create_p99_ms=sorted(waits_s)[int(len(waits_s) * 0.99)] * 1e3,
                create_cpu_ms=create_cpu_s / streams * 1e3,
                disk_mb=disk / 1e6,
                descriptors=descriptors,
                rss_mb=rss / 1e6,
                idle_percent=100 * idle_cpu_s / idle_s,
                back_s=time.monotonic() - begun,
                back_cpu_s=cpu_s(server.running.pid),
                disk_after_mb=disk_bytes(server.store_dir) / 1e6,
            )


def count_syncs(kind: Kind, streams: int) -> Syncs:
    """The same in small, under strace, which slows everything: only the counts are of use."""
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        server, counts = Server(kind, directory=Path(directory)), list[int]()
        with server:
            create(server, 1)  # what the first one needs is not what a stream costs
            with traced(server, counts):
                create(server, streams, first=1)
            with traced(server, counts):
                publish(server, range(1, streams + 1))
            server.kill()
            server.start(wait=False)
            with traced(server, counts):
                wait_all_back(server, streams + 1)
        return Syncs(create=counts[0] / streams, first_message=counts[1] / streams, start=counts[2] / streams)


def has_strace() -> bool:
    """Whether calls can be counted here."""
    return shutil.which("strace") is not None


@contextmanager
def traced(server: Server, counts: list[int]) -> Iterator[None]:
    """Append how many times the server synced something meanwhile."""
    path = server.directory / "strace"
    words = ["strace", "-f", "-qq", "-e", f"trace={TRACED_CALLS}", "-o", str(path), "-p", str(server.running.pid)]
    with subprocess.Popen(words) as tracer:
        time.sleep(1)  # until it has attached to all threads; what it misses is not counted
        yield
        time.sleep(0.5)
        tracer.send_signal(signal.SIGINT)
    calls = path.read_text(encoding="utf-8").splitlines()
    counts.append(sum("sync" in line and "resumed" not in line for line in calls))


def create(server: Server, streams: int, first: int = 0) -> tuple[list[float], float]:
    """Create that many; returns the seconds that each of the first ones took, and streams per second of the rest."""
    alone = max(1, int(streams * ONE_BY_ONE))
    waits_s = []
    with RawClient(server.address) as client:
        for number in range(first, first + alone):
            begun = time.monotonic()
            answer = client.api(f"STREAM.CREATE.S{number}", config_of(number))
            waits_s.append(time.monotonic() - begun)
            assert "config" in answer, answer
        begun, sent, answered = time.monotonic(), alone, alone
        client.send(b"SUB _CREATED create\r\n")
        while answered < streams:
            while sent < streams and sent - answered < WINDOW:
                body = json.dumps(config_of(first + sent)).encode()
                client.publish(f"$JS.API.STREAM.CREATE.S{first + sent}", body, reply="_CREATED")
                sent += 1
            event = client.next_event()
            assert event is not None, f"{answered} of {streams} streams"
            if isinstance(event, Message):
                assert b'"config"' in event.payload, event.payload
                answered += 1
        elapsed_s = time.monotonic() - begun
    return waits_s, (streams - alone) / elapsed_s if streams > alone else 0.0


def config_of(number: int) -> dict[str, object]:
    """Of one of the streams."""
    return {"name": f"S{number}", "subjects": [f"many.{number}"], "storage": "file"}


def publish(server: Server, numbers: Sequence[int]) -> None:
    """One message to each of the streams, acknowledged."""
    with RawClient(server.address) as client:
        client.send(b"SUB _ACK ack\r\n")
        for number in numbers:
            client.publish(f"many.{number}", PAYLOAD, reply="_ACK")
        acknowledged = 0
        while acknowledged < len(numbers):
            event = client.next_event()
            assert event is not None, f"{acknowledged} of {len(numbers)} acknowledgements"
            if isinstance(event, Message):
                assert event.payload.startswith(b'{"stream"'), event.payload
                acknowledged += 1


def wait_all_back(server: Server, streams: int) -> None:
    """Return when each of the streams has answered STREAM.INFO and has taken a message. Raises TimeoutError."""
    deadline = time.monotonic() + BACK_S_MAX
    with connected(server, deadline) as client:
        client.send(b"SUB _INFO.* info\r\nSUB _TAKEN.* taken\r\n")
        for first in range(0, streams, PROBED):
            waiting = set(range(first, min(first + PROBED, streams)))
            while waiting := waiting - probe(client, waiting):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"streams {sorted(waiting)} are not back")
                time.sleep(PROBE_PAUSE_S)


@contextmanager
def connected(server: Server, deadline: float) -> Iterator[RawClient]:
    """A connection, as soon as the server takes one."""
    while True:
        try:
            client = RawClient(server.address)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise ServerFailed("nobody listens") from error
            time.sleep(PROBE_PAUSE_S)
    with client:
        yield client


def probe(client: RawClient, numbers: set[int]) -> set[int]:
    """Those of the streams that are back."""
    for number in numbers:
        client.publish(f"$JS.API.STREAM.INFO.S{number}", reply=f"_INFO.{number}")
        client.publish(f"many.{number}", PAYLOAD, reply=f"_TAKEN.{number}")
    answers: dict[str, bool] = {}
    deadline = time.monotonic() + PROBE_ANSWER_S
    while len(answers) < 2 * len(numbers) and (left_s := deadline - time.monotonic()) > 0:
        event = client.next_event(left_s)
        if isinstance(event, Message):
            answers[event.subject] = b'"config"' in event.payload or event.payload.startswith(b'{"stream"')
    return {number for number in numbers if answers.get(f"_INFO.{number}") and answers.get(f"_TAKEN.{number}")}


def disk_bytes(directory: Path) -> int:
    """What the files below a directory take of the disk."""
    return sum(path.lstat().st_blocks * BLOCK_BYTES for path in directory.rglob("*"))


if __name__ == "__main__":
    main()
