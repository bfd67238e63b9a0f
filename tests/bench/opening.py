"""`make bench-store`, its second part: a long stream is opened after SIGKILL, beside a short one that is in use.

    python -m tests.bench.opening [--messages N] [--subjects N] [--kind jetraft|reference|both] [--json FILE]

Seconds are counted from the start of the process: until the short stream answers a get, until the long one does, and
until it tells of all its messages. The longest wait is that of gets from the short one, one after the other, from
the moment on in which a client is taken. The same is measured with the files gone that say what is in the blocks.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import attrs

from tests.bench.measure import build_generator, generate
from tests.bench.store import PAYLOAD_BYTES, STREAM
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

SIDE: Final = "SIDE"
ASK_S: Final = 0.005  # between two gets of the short stream
ANSWER_S: Final = 60.0
AGAIN_S: Final = 0.1  # a stream that is not open yet gives no answer


@attrs.define
class Watch:
    """Gets of the short stream, one after the other, in a thread."""

    server: Server
    begun: float
    accepts_s: float = 0.0
    first_s: float = 0.0
    longest_ms: float = 0.0
    stopped: threading.Event = attrs.Factory(threading.Event)

    def run(self) -> None:
        """Ask until `stopped`."""
        client = connected(self.server)
        last = time.monotonic()
        self.accepts_s = last - self.begun
        with client:
            while not self.stopped.is_set():
                if _message(client, SIDE, ANSWER_S):
                    now = time.monotonic()
                    self.first_s = self.first_s or now - self.begun
                    self.longest_ms = max(self.longest_ms, (now - last) * 1000)
                    last = now
                time.sleep(ASK_S)


def connected(server: Server) -> RawClient:
    """A client, as soon as the port accepts."""
    while True:
        try:
            return RawClient(server.address)
        except OSError:
            assert server.running.running, "the server has ended"
            time.sleep(ASK_S)


def _message(client: RawClient, stream: str, timeout_s: float) -> bool:
    """Whether the first message of a stream is given out in that time."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    client.publish(f"$JS.API.STREAM.MSG.GET.{stream}", b'{"seq":1}', reply=inbox)
    return any(b'"message"' in answer.payload for answer in client.messages(sid, 1, timeout_s))


def opened(server: Server, messages: int) -> dict[str, float]:
    """Start the server, and the figures of the opening."""
    begun = time.monotonic()
    server.start(wait=False)
    watch = Watch(server, begun)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        with connected(server) as client:
            while not _message(client, STREAM, AGAIN_S):
                time.sleep(ASK_S)
            first_get_s = time.monotonic() - begun
            while client.api(f"STREAM.INFO.{STREAM}").get("state", {}).get("messages") != messages:
                time.sleep(ASK_S)
            complete_s = time.monotonic() - begun
            while not watch.first_s:
                time.sleep(ASK_S)
    finally:
        watch.stopped.set()
        thread.join()
    return {
        "accepts s": watch.accepts_s,
        "side get s": watch.first_s,
        "first get s": first_get_s,
        "complete s": complete_s,
        "longest wait of the side ms": watch.longest_ms,
    }


def measure(kind: Kind, generator: Path, *, messages: int, subjects: int) -> dict[str, float]:
    """Fill a stream, kill the server, open it; kill it, remove what is derived from the blocks, open it again."""
    directory = Path(tempfile.mkdtemp(prefix="jetraft-bench-"))
    server = Server(kind, directory=directory)
    try:
        server.start().wait_healthy()
        with RawClient(server.address) as client:
            client.api(f"STREAM.CREATE.{SIDE}", {"name": SIDE, "subjects": ["side"]})
            assert client.acknowledged("side", b"x")["seq"] == 1
        options = (f"msgs={messages}", f"size={PAYLOAD_BYTES}", f"subjects={subjects}", "window=8000")
        generate(generator, "fill", server, options)
        server.kill()
        figures = opened(server, messages)
        server.kill()
        for derived in [*directory.rglob("*.ckpt"), *directory.rglob("index.db")]:
            derived.unlink()
        scanned = opened(server, messages)
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
    return figures | {f"scan: {name}": value for name, value in scanned.items()}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="tests.bench.opening")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--kind", choices=("jetraft", "reference", "both"), default="both")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    kinds: tuple[Kind, ...] = ("jetraft", "reference") if chosen.kind == "both" else (chosen.kind,)
    with tempfile.TemporaryDirectory(prefix="jetraft-bench-") as directory:
        generator = build_generator(Path(directory))
        found = {kind: measure(kind, generator, messages=chosen.messages, subjects=chosen.subjects) for kind in kinds}
    for kind, figures in found.items():
        for name, value in figures.items():
            sys.stdout.write(f"{kind:10} {name:36} {value:10.3f}\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
