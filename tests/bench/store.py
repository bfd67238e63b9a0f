"""`make bench-store`: large streams. Recovery after SIGKILL, reads, purge, compaction, encryption.

    python -m tests.bench.store [--messages N] [--subjects N] [--kind jetraft|reference|both] [--json FILE]

What a client can see is measured on real servers, jetraft's and nats-server's in the same run; what only the store does
(one read, sealing, rewriting a block) is measured in this process over real files.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.frames import _frame
from jetraft.store.frames.cipher import CipherKind, GroupCipher
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.compaction import compact
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from jetraft.store.stream.stream_store import StoreLimits, StreamStore
from tests.bench import codecs
from tests.bench.measure import build_generator, generate, rss_bytes
from tests.harness.server import Kind as ServerKind
from tests.harness.server import Server

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog

STREAM: Final = "BENCH"  # as the load generator names it
PAYLOAD_BYTES: Final = 128
FRAME_MESSAGES: Final = 1000
READS: Final = 20_000
CODEC_MESSAGES: Final = 300_000
IDENTITY: Final = Identity(node_id=NodeId("BENCHBEN"), group_id=GroupId("S-R1F-benchben"), incarnation=7)
Figures = dict[str, float]


# On real servers.


def measure_server(kind: ServerKind, generator: Path, *, messages: int, subjects: int) -> Figures:
    """Fill a stream, kill the server twice (the second time without checkpoints), purge, all seen from outside."""
    directory = Path(tempfile.mkdtemp(prefix="jetraft-bench-"))
    figures: Figures = {}
    server = Server(kind, directory=directory)
    try:
        server.start().wait_healthy()
        options = (f"msgs={messages}", f"size={PAYLOAD_BYTES}", f"subjects={subjects}", "window=8000")
        answer = generate(generator, "fill", server, options)
        figures["fill msgs/s"] = answer["rate"]
        figures["fill RSS MB"] = rss_bytes(server.running.pid) / 1e6
        server.kill()
        figures["ready s"], figures["ready RSS MB"] = restarted(server, messages)
        server.kill()
        for derived in [*directory.rglob("*.ckpt"), *directory.rglob("index.db")]:
            derived.unlink()
        figures["full scan s"], figures["full scan RSS MB"] = restarted(server, messages)
        figures["purge s"] = asyncio.run(purge_all(server.url))
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def restarted(server: Server, messages: int) -> tuple[float, float]:
    """(seconds from the start of the process until the stream tells of all messages, RSS in MB then)."""
    begun = time.monotonic()
    server.start()
    asyncio.run(until_complete(server.url, messages))
    return time.monotonic() - begun, rss_bytes(server.running.pid) / 1e6


async def until_complete(url: str, messages: int) -> None:
    """Ask for the stream until it answers with all of them. Raises RuntimeError when it has others."""
    client = await nats.connect(url)
    jetstream = client.jetstream(timeout=120)
    found = -1
    while found != messages:
        try:
            found = (await jetstream.stream_info(STREAM)).state.messages
        except (nats.errors.Error, nats.js.errors.Error):
            await asyncio.sleep(0.02)
            continue
        if found != messages:
            raise RuntimeError(f"{found} messages of {messages} are back")
    await client.close()


async def purge_all(url: str) -> float:
    """Seconds until the answer to a purge of the whole stream."""
    client = await nats.connect(url)
    jetstream = client.jetstream(timeout=120)
    begun = time.monotonic()
    await jetstream.purge_stream(STREAM)
    took = time.monotonic() - begun
    assert (await jetstream.stream_info(STREAM)).state.messages == 0
    await client.close()
    return took


# In this process.


class Bench:
    """A log in files and the store over it, written frame by frame without waiting for anybody."""

    def __init__(self, directory: Path, *, limits: StoreLimits | None = None) -> None:
        self.writer = Writer(1)
        self.log: FileLog = open_log(
            Ledger.open(LocalDisk(self.writer), directory),
            directory / "groups" / "g",
            IDENTITY,
            BlockCache(1 << 20),
            LogOptions(),
        )
        self.log.set_hard_state(HardState(term=1, vote=None))
        self.store = StreamStore(self.log, limits or StoreLimits())

    def fill(self, messages: int, subject: Callable[[int], bytes]) -> None:
        """Append and apply so many messages; on disk when it returns."""
        payload = bytes(PAYLOAD_BYTES)
        for first in range(self.store.last_seq + 1, self.store.last_seq + messages + 1, FRAME_MESSAGES):
            records = [
                _frame.make_record(subject(seq), b"", payload, ts_ns=seq)
                for seq in range(first, first + FRAME_MESSAGES)
            ]
            index = self.log.last_index + 1
            frame = _frame.seal(
                Kind.MESSAGES, index=index, term=1, incarnation=7, body=records, first_seq=first, count=len(records)
            )
            entry = Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)
            self.log.append([entry])
            self.store.apply_messages(entry)
            if index % 8 == 0:
                self.settle()
        self.settle()

    def settle(self) -> None:
        """Write and fsync what waits."""
        self.log.submit()
        while self.log.durable_token < self.log.token():
            self.writer.drain()
            time.sleep(0)

    def close(self) -> None:
        """Give everything back."""
        self.log.close()
        self.writer.stop()


def measure_reads(directory: Path, messages: int) -> Figures:
    """Random reads of single messages, past the block cache, from the page cache."""
    bench = Bench(directory)
    bench.fill(messages, lambda seq: b"s.%d" % (seq % 1000))
    rng = random.Random(1)
    took = []
    for _ in range(READS):
        seq = rng.randint(1, bench.store.last_seq)
        begun = time.perf_counter_ns()
        message = bench.store.load(seq)
        took.append((time.perf_counter_ns() - begun) / 1e3)
        assert message is not None
    bench.close()
    took.sort()
    return {"read p50 us": statistics.median(took), "read p99 us": took[len(took) * 99 // 100]}


def measure_compaction(directory: Path, updates: int, keys: int) -> Figures:
    """Updates of few keys, and one message that stays: what the blocks take before and after."""
    bench = Bench(directory, limits=StoreLimits(max_msgs_per_subject=1))
    bench.fill(FRAME_MESSAGES, lambda seq: b"old.%d" % seq)
    bench.fill(updates, lambda seq: b"k.%d" % (seq % keys))
    before, index = bench.log.statistics().bytes_used, bench.log.last_index
    for _ in range(2):
        bench.fill(FRAME_MESSAGES, lambda seq: b"k.%d" % (seq % keys))
        bench.log.save_checkpoint(bench.log.last_index, 1, b"", bench.store.snapshot())
        bench.settle()
    begun, read_bytes = time.monotonic(), 0
    dead = []
    for block, _, living in bench.store.block_fill():
        source = bench.log.upkeep.compaction_source(block, index)
        if source is not None and not living:
            dead.append(block)
        elif source is not None:
            read_bytes += source.used
            assert bench.log.upkeep.exchange(compact(bench.log.place, source, bench.store.live_in(block)))
    bench.log.upkeep.drop_dead(dead, index)
    took = time.monotonic() - begun
    bench.settle()
    after, live = bench.log.statistics().bytes_used, bench.store.message_bytes_total
    assert bench.store.load(1) is not None
    bench.close()
    return {
        "before MB": before / 1e6,
        "after MB": after / 1e6,
        "live MB": live / 1e6,
        "seconds": took,
    }


def measure_sealing() -> Figures:
    """What sealing and opening a frame takes."""
    figures: Figures = {}
    for kind in CipherKind:
        cipher = GroupCipher(kind, bytes(32), IDENTITY)
        for size in (200, 100_000):
            frame = _frame.seal(Kind.NOOP, index=1, term=1, incarnation=7, body=bytes(size))
            count = 20_000_000 // (size + 5000)
            begun = time.perf_counter_ns()
            for _ in range(count):
                sealed = cipher.seal_frame(1, 128, frame)
            middle = time.perf_counter_ns()
            for _ in range(count):
                cipher.open_frame(1, 128, sealed, what="")
            figures[f"{kind} seal {size} B us"] = (middle - begun) / count / 1e3
            figures[f"{kind} open {size} B us"] = (time.perf_counter_ns() - middle) / count / 1e3
    return figures


def show(title: str, figures: Figures) -> None:
    """Print one block of the table."""
    print(title)
    for name, value in figures.items():
        print(f"    {name:24} {value:14,.2f}")
    sys.stdout.flush()


def run(*, messages: int, subjects: int, kinds: tuple[ServerKind, ...]) -> dict[str, Figures]:
    """Everything; prints as it goes."""
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as name:
        directory = Path(name)
        found["sealing"] = measure_sealing()
        show("encryption", found["sealing"])
        in_process = min(messages, 1_000_000)
        found["reads"] = measure_reads(directory / "reads", in_process)
        show(f"random reads of {in_process:,} messages", found["reads"])
        found["compaction"] = measure_compaction(directory / "kv", in_process, 1000)
        show(f"compaction of {in_process:,} updates of 1,000 keys", found["compaction"])
        if kinds:
            generator = build_generator(directory)
            ways = codecs.run(generator, min(messages, CODEC_MESSAGES), 1)
            codecs.show(ways)
            found |= {f"codec: {way}": figures for way, figures in ways.items()}
            for kind in kinds:
                found[kind] = measure_server(kind, generator, messages=messages, subjects=subjects)
                show(f"{kind}: {messages:,} messages of {PAYLOAD_BYTES} B, {subjects:,} subjects", found[kind])
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="tests.bench.store")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--kind", choices=("jetraft", "reference", "both", "none"), default="both")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    kinds: dict[str, tuple[ServerKind, ...]] = {"both": ("jetraft", "reference"), "none": ()}
    found: dict[str, Any] = run(
        messages=chosen.messages, subjects=chosen.subjects, kinds=kinds.get(chosen.kind, (chosen.kind,))
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
