"""What encryption and `compression: s2` cost: publishing, the disk, reading. A part of `make bench-store`.

    python -m tests.bench.codecs [--messages N] [--runs N]

Each way gets a fresh server with a stream of one replica. CPU is the server's, of all its threads. The payload of the
load generator is eight bytes of number and a pattern that repeats after 23 bytes: it compresses better than most.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import attrs

from jetraft.store.disk.io import STAT_BLOCK_BYTES
from tests.bench.measure import build_generator, cpu_s, generate
from tests.harness.raw import RawClient
from tests.harness.server import Server

Figures = dict[str, float]
KEY_CONFIG: Final = 'jetstream {{ cipher: {cipher}, key: "0123456789abcdef0123456789abcdef" }}\n'
SIZE_BYTES: Final = 256
LONE_SHARE: Final = 0.02  # of the messages are published one at a time
RESTED_S: Final = 5.0  # the compactor looks every two seconds
REST_S_MAX: Final = 60.0  # the checkpoints that it waits for are taken when the stream has rested for ten
COMPRESSED_SHARE: Final = 0.7  # of the disk space before: then the large blocks are done


@attrs.frozen(kw_only=True)
class Way:
    """A way to keep a stream on disk."""

    cipher: str | None = None
    compression: str = "none"


WAYS: Final = {
    "as it is": Way(),
    "aes": Way(cipher="aes"),
    "chachapoly": Way(cipher="chachapoly"),
    "s2": Way(compression="s2"),
    "s2, aes": Way(compression="s2", cipher="aes"),
}


def measure(generator: Path, way: Way, messages: int) -> Figures:
    """Publish, rest, restart, read everything."""
    directory = Path(tempfile.mkdtemp(prefix="jetraft-bench-"))
    config = None if way.cipher is None else KEY_CONFIG.format(cipher=way.cipher)
    size, lone = f"size={SIZE_BYTES}", int(messages * LONE_SHARE)
    server = Server("jetraft", directory=directory, config=config)
    try:
        server.start().wait_healthy()
        with RawClient(server.address) as client:
            body = {"name": "BENCH", "subjects": ["bench.js.>"], "compression": way.compression, "allow_direct": True}
            assert "error" not in client.api("STREAM.CREATE.BENCH", body)
            figures = {"publish ns": _cost_ns(generator, server, "jspub", lone, "window=1", "keep=1", size)}
            assert client.api("STREAM.PURGE.BENCH")["purged"] == lone
        figures["publish, window 1,000 ns"] = _cost_ns(
            generator, server, "jspub", messages, "window=1000", "keep=1", size
        )
        before = cpu_s(server.running.pid)
        if way.compression != "none":
            _rest(server.store_dir)
        figures["afterwards ns"] = (cpu_s(server.running.pid) - before) * 1e9 / messages
        figures["bytes on disk"] = _stored_bytes(server.store_dir) / messages
        server.restart().wait_healthy()
        figures["read ns"] = _cost_ns(generator, server, "fetch", messages, "batch=500", "ack=none", size)
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def _cost_ns(generator: Path, server: Server, mode: str, messages: int, *options: str) -> float:
    """Processor time of the server for each message."""
    before = cpu_s(server.running.pid)
    generate(generator, mode, server, (f"msgs={messages}", *options))
    return (cpu_s(server.running.pid) - before) * 1e9 / messages


def _rest(directory: Path) -> None:
    """Wait until blocks have been compressed, and nothing more has changed for a while."""
    begun = since = time.monotonic()
    first = found = _stored_bytes(directory)
    while time.monotonic() - begun < REST_S_MAX and (
        found > first * COMPRESSED_SHARE or time.monotonic() - since < RESTED_S
    ):
        time.sleep(0.5)
        now = _stored_bytes(directory)
        if now != found:
            found, since = now, time.monotonic()


def _stored_bytes(directory: Path) -> int:
    """What `du` says."""
    return sum(path.stat().st_blocks * STAT_BLOCK_BYTES for path in directory.rglob("*") if path.is_file())


def run(generator: Path, messages: int, runs: int) -> dict[str, Figures]:
    """The median of some rounds through all ways."""
    rounds = [{name: measure(generator, way, messages) for name, way in WAYS.items()} for _ in range(runs)]
    return {
        name: {figure: statistics.median(found[name][figure] for found in rounds) for figure in rounds[0][name]}
        for name in WAYS
    }


def show(found: dict[str, Figures]) -> None:
    """Print the table."""
    figures = list(next(iter(found.values())))
    print(f"{'per message of ' + str(SIZE_BYTES) + ' B':24}" + "".join(f"{name:>26}" for name in figures))
    for name, row in found.items():
        print(f"{name:24}" + "".join(f"{row[figure]:26,.0f}" for figure in figures), flush=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="tests.bench.codecs")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as name:
        found: dict[str, Any] = run(build_generator(Path(name)), chosen.messages, chosen.runs)
    show(found)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
