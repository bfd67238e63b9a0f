"""One run of one case against one server: fresh processes, a fresh store, the load generator, the server's own cost."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.bench.cases import ALWAYS_CONFIG, ALWAYS_PEER_MSGS_MIN, ALWAYS_PEER_SHARE, Case
from tests.harness.certificates import Authority
from tests.harness.cluster import Cluster
from tests.harness.server import Kind, Server

SOURCE = Path(__file__).with_name("loadgen.c")
RUN_TIMEOUT_S = 300
CPUCLOCK_SCHED = 2  # of a whole process, its ended threads included (linux/posix-timers.h)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """The generator found something wrong; the text says what."""


@attrs.frozen(kw_only=True)
class Result:
    """What one run gave. Rates in messages per second, CPU of all server processes in nanoseconds per message."""

    rate: float
    cpu_ns: float
    p50_us: int | None
    p99_us: int | None
    rss_mb: float


def build_generator(directory: Path) -> Path:
    """Compile the load generator."""
    binary = directory / "loadgen"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-o", str(binary), str(SOURCE), "-lssl", "-lcrypto"], check=True)
    return binary


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, user and system, to the nanosecond (/proc/PID/stat counts ticks of 10 ms)."""
    cpu_clock = (~pid << 3) | CPUCLOCK_SCHED  # as clock_getcpuclockid makes it
    return time.clock_gettime_ns(cpu_clock) / 1e9


def rss_bytes(pid: int) -> int:
    """Resident memory of a process now."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


@contextmanager
def servers(kind: Kind, *, nodes: int, config: str | None = None) -> Iterator[list[Server]]:
    """Fresh servers with fresh stores, stopped and removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="jetraft-bench-"))
    try:
        if nodes == 1:
            with Server(kind, directory=directory, config=config) as server:
                server.wait_healthy()
                yield [server]
        else:
            with Cluster(kind, nodes, directory=directory, config=config) as cluster:
                yield cluster.nodes
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def generate(generator: Path, mode: str, server: Server, options: tuple[str, ...]) -> dict[str, Any]:
    """Run the load generator. Raises BenchError with its message."""
    words = [str(generator), mode, f"port={server.client_port}", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(words[1:])}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def generate_paced(
    generator: Path, mode: str, nodes: Sequence[Server], options: tuple[str, ...]
) -> tuple[dict[str, Any], float, float]:
    """The same through the first of the nodes; also returns what all of them cost.

    That is the CPU in nanoseconds per message, without what was prepared before, and the largest RSS in MB.
    """
    pids = [server.running.pid for server in nodes]
    words = [str(generator), mode, f"port={nodes[0].client_port}", "paced=1", *options]
    running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdin is not None
    assert running.stdout is not None
    said = running.stdout.readline()
    before = sum(map(cpu_s, pids))
    if said == "ready\n":
        running.stdin.write("go\n")
        running.stdin.flush()
        said = running.stdout.readline()
    spent, rss = sum(map(cpu_s, pids)) - before, max(map(rss_bytes, pids))
    _, complaint = running.communicate("end\n" if said else None, timeout=RUN_TIMEOUT_S)
    if running.returncode != 0 or not said:
        raise BenchError(f"{' '.join(words[1:])}: {complaint.strip()}")
    answer: dict[str, Any] = json.loads(said)
    return answer, spent * 1e9 / answer["msgs"], rss / 1e6


def tls_config(directory: Path) -> str:
    """A `tls` block with a fresh ECDSA certificate; both servers take AES-128-GCM of TLS 1.3."""
    return f"tls {{\n{Authority.make(directory).server().block}}}\n"


def run_case(generator: Path, case: Case, kind: Kind, *, share: float) -> Result:
    """One run: `share` of the case's messages against fresh servers of one kind."""
    slow = case.peer_always and kind == "reference"
    msgs = int(case.msgs * share)
    if slow and "window=1" not in case.options:
        msgs = max(ALWAYS_PEER_MSGS_MIN, int(msgs * ALWAYS_PEER_SHARE))
    config = tls_config(generator.parent) if case.tls else ALWAYS_CONFIG if slow else case.config or None
    with servers(kind, nodes=case.nodes, config=config) as running:
        front = running[0]
        if case.fill:
            sizes = tuple(option for option in case.options if option.startswith(("size=", "tls=", "replicas=")))
            fill = ("window=4000", f"msgs={int(case.fill * share)}", *sizes)
            generate(generator, "fill", front, fill)
        options = (*case.options, f"msgs={msgs}")
        if case.paced:
            answer, cpu_ns, rss_mb = generate_paced(generator, case.mode, running, options)
        else:
            pids = [server.running.pid for server in running]
            before = sum(map(cpu_s, pids))
            answer = generate(generator, case.mode, front, options)
            cpu_ns = (sum(map(cpu_s, pids)) - before) * 1e9 / answer["msgs"]
            rss_mb = max(map(rss_bytes, pids)) / 1e6
        return Result(
            rate=answer["rate"],
            cpu_ns=cpu_ns,
            p50_us=answer.get("p50_us"),
            p99_us=answer.get("p99_us"),
            rss_mb=rss_mb,
        )
