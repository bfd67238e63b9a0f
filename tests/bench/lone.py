"""What one operation in flight costs a server on one node, in instructions, which no other work on the machine changes.

PYTHONPATH=src:. python -m tests.bench.lone [--operations 300]

The server runs under valgrind's callgrind and is fifty times slower, so it lingers for longer and takes the disk for
fast; what it spends while it rests is measured too and taken away. The kernel's part is not counted. Two runs differ by
up to a tenth: trio's passes and timers go by the clock. TMPDIR=/dev/shm keeps the disk out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.measure import servers
from tests.harness.raw import Message, RawClient

WARM_UP = 80
REST_S = 4.0
PAYLOAD = b"x" * 128
REPLY = "answers.1"
SERVER = """
import jetraft.api.turns.reactor, jetraft.store.disk.latency, runpy
jetraft.api.turns.reactor.LINGER_TOTAL_NS = 5_000_000_000
jetraft.store.disk.latency.FAST_NS = 1 << 60
runpy.run_module("jetraft", run_name="__main__")
"""
OPERATIONS = {"publish": ("s.1", PAYLOAD), "get": ("$JS.API.STREAM.MSG.GET.S", b'{"seq":5}')}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--operations", type=int, default=300, help="(default: %(default)s)")
    count = parser.parse_args().operations
    for name, (subject, payload) in OPERATIONS.items():
        with tempfile.TemporaryDirectory() as directory:
            cost = measure(Path(directory), subject, payload, count)
        print(f"{name}: {cost:,.0f} instructions each; load {os.getloadavg()[0]:.1f}")


def measure(directory: Path, subject: str, payload: bytes, count: int) -> float:
    """Instructions of the server for one operation."""
    launcher = directory / "server.py"
    launcher.write_text(SERVER, encoding="utf-8")
    out = directory / "out"
    valgrind = f"valgrind -q --tool=callgrind --instr-atstart=no --callgrind-out-file={out}"
    os.environ["JETRAFT_SERVER_CMD"] = f"{valgrind} {sys.executable} {launcher}"
    with servers("jetraft", nodes=1) as (server,), RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "file"})
        client.subscribe("answers.*")
        operate(client, "s.1", PAYLOAD, WARM_UP)
        pid = server.running.pid
        control(pid, "--instr=on")
        operate(client, subject, payload, WARM_UP)
        control(pid, "--zero")
        begun = time.monotonic()
        operate(client, subject, payload, count)
        elapsed_s = time.monotonic() - begun
        control(pid, "--dump")
        control(pid, "--zero")
        begun = time.monotonic()
        time.sleep(REST_S)
        control(pid, "--dump")
        rested_s = time.monotonic() - begun
    return (total(out.with_suffix(".1")) - total(out.with_suffix(".2")) / rested_s * elapsed_s) / count


def operate(client: RawClient, subject: str, payload: bytes, count: int) -> None:
    """Ask so often, each time when the answer has come."""
    for _ in range(count):
        client.publish(subject, payload, reply=REPLY)
        while not isinstance(client.next_event(), Message):
            pass


def control(pid: int, order: str) -> None:
    """Tell callgrind."""
    subprocess.run(
        ["callgrind_control", order, str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )


def total(dump: Path) -> int:
    """The instructions of a dump."""
    lines = dump.read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(("summary:", "totals:"))).split()[1])


if __name__ == "__main__":
    main()
