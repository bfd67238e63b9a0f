"""What publishers notice while everything that is stored is read again: `python -m tests.bench.scrub [--messages N]`.

Two servers in turn with the same stored messages, one with scrubbing off, one that never stops scrubbing at the default
rate; both are published to with a window of 256. Prints the acknowledgement's p99 of each round and the medians' ratio.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.bench.measure import build_generator, generate
from tests.harness.server import Server

ROUNDS: Final = 5
PUBLISHED: Final = 300_000
OFF: Final = "jetstream { scrub { period: off } }\n"
ALWAYS: Final = "jetstream { scrub { period: 1s } }\n"


def p99s_us(generator: Path, config: str, messages: int) -> tuple[list[int], dict[str, Any]]:
    """p99 of every round, and what the server says of its scrubbing afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="jetraft-bench-"))
    try:
        with Server("jetraft", directory=directory, config=config) as server:
            server.wait_healthy()
            generate(generator, "fill", server, ("window=8000", f"msgs={messages}", "size=128"))
            found = [
                int(generate(generator, "jspub", server, ("window=256", f"msgs={PUBLISHED}", "keep=1"))["p99_us"])
                for _ in range(ROUNDS)
            ]
            return found, dict(server.get("/jsz")[1]["scrub"])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000_000)
    messages = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as scratch:
        generator = build_generator(Path(scratch))
        without, _ = p99s_us(generator, OFF, messages)
        scrubbed, told = p99s_us(generator, ALWAYS, messages)
    print(f"p99 without: {sorted(without)} us; while scrubbing: {sorted(scrubbed)} us; {told}")
    ratio = statistics.median(scrubbed) / statistics.median(without)
    print(f"ratio of the medians: {ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
