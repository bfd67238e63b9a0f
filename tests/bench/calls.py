"""How many Python calls a node makes for one publish that nothing else runs beside, and in how many files.

PYTHONPATH=src:. python -m tests.bench.calls [--publishes 300] [--way]

The server runs with a profiler that notes each call of its own code, between two signals; trio's are left out. The
store is in memory (TMPDIR=/dev/shm), so that the disk is fast and the thread of the turn writes. `--way` prints the
calls of one publish in their order.
"""

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.bench.lone import PAYLOAD, operate
from tests.bench.measure import servers
from tests.harness.raw import RawClient

WARM_UP = 200
ANSWER = "AckSending.send"  # one for each publish
SERVER = """
import os, runpy, signal, sys
calls = []
def note(frame, event, _argument):
    if event == "call":
        code = frame.f_code
        calls.append((code.co_filename, code.co_firstlineno, code.co_qualname))
def begin(*_):
    calls.clear()
    sys.setprofile(note)
def end(*_):
    sys.setprofile(None)
    with open(os.environ["JETRAFT_CALLS"] + ".tmp", "w") as file:
        file.writelines(f"{name}:{line} {qualname}\\n" for name, line, qualname in calls)
    os.rename(os.environ["JETRAFT_CALLS"] + ".tmp", os.environ["JETRAFT_CALLS"])
signal.signal(signal.SIGWINCH, begin)
signal.signal(signal.SIGURG, end)
runpy.run_module("jetraft", run_name="__main__")
"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--publishes", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument("--way", action="store_true", help="the calls of one publish in their order")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        calls = calls_of(Path(directory), given.publishes)
    answers = [place for place, call in enumerate(calls) if call.endswith(ANSWER)]
    rounds = [calls[begin:end] for begin, end in itertools.pairwise(answers)]
    typical = sorted(rounds, key=len)[len(rounds) // 2]
    if given.way:
        print("\n".join(typical))
    files = Counter(call.partition(":")[0] for call in typical)
    print(f"{len(typical)} calls in {len(files)} files for one publish (the median of {len(rounds)})")


def calls_of(directory: Path, publishes: int) -> list[str]:
    """`file:line name` of each call of the server's own code while it takes these publishes, one after the other."""
    launcher, out = directory / "server.py", directory / "calls"
    launcher.write_text(SERVER, encoding="utf-8")
    os.environ["JETRAFT_SERVER_CMD"] = f"{sys.executable} {launcher}"
    os.environ["JETRAFT_CALLS"] = str(out)
    with servers("jetraft", nodes=1) as (server,), RawClient(server.address) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "file"})
        client.subscribe("answers.*")
        operate(client, "s.1", PAYLOAD, WARM_UP)
        os.kill(server.running.pid, signal.SIGWINCH)
        operate(client, "s.1", PAYLOAD, publishes)
        os.kill(server.running.pid, signal.SIGURG)
        patience_s = time.monotonic() + 10
        while not out.exists() and time.monotonic() < patience_s:
            time.sleep(0.01)
    found = out.read_text(encoding="utf-8").splitlines()
    own = [line.rpartition("/jetraft/")[2] for line in found if "/jetraft/" in line or line.startswith("<attrs")]
    return [line for line in own if "trio" not in line]


if __name__ == "__main__":
    main()
