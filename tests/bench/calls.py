"""How many Python calls a node makes for one publish that nothing else runs beside, and in how many files.

PYTHONPATH=src:. python -m tests.bench.calls [--publishes 300] [--replicas 3] [--way]

Servers run with a profiler that notes each call of their own code, between two signals; trio's are left out. The
store is in memory (TMPDIR=/dev/shm), so that the disk is fast and the thread of the turn writes. With three replicas
the leader and a follower are counted. `--way` prints the calls of one publish in their order.
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
ENDS = {"leader": "AckSending.send", "follower": "FileLog.append"}  # one for each publish
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
    name = os.environ["JETRAFT_CALLS"] + f"{os.getpid()}"
    with open(name + ".tmp", "w") as file:
        file.writelines(f"{name}:{line} {qualname}\\n" for name, line, qualname in calls)
    os.rename(name + ".tmp", name)
signal.signal(signal.SIGWINCH, begin)
signal.signal(signal.SIGURG, end)
runpy.run_module("jetraft", run_name="__main__")
"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--publishes", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1, help="(default: %(default)s)")
    parser.add_argument("--way", action="store_true", help="the calls of one publish in their order")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        calls_by_role = calls_of(Path(directory), given.publishes, given.replicas)
    for role, calls in calls_by_role.items():
        ends = [place for place, call in enumerate(calls) if call.endswith(ENDS[role])]
        rounds = [calls[begin:end] for begin, end in itertools.pairwise(ends)]
        typical = sorted(rounds, key=len)[len(rounds) // 2]
        if given.way:
            print("\n".join(typical))
        files = Counter(call.partition(":")[0] for call in typical)
        print(f"{role}: {len(typical)} calls in {len(files)} files for one publish (the median of {len(rounds)})")


def calls_of(directory: Path, publishes: int, replicas: int) -> dict[str, list[str]]:
    """`file:line name` of each call of a node's own code during these publishes, one after the other, by its role."""
    launcher = directory / "server.py"
    launcher.write_text(SERVER, encoding="utf-8")
    os.environ["JETRAFT_SERVER_CMD"] = f"{sys.executable} {launcher}"
    os.environ["JETRAFT_CALLS"] = str(directory / "calls")
    with servers("jetraft", nodes=replicas) as nodes:
        config = {"name": "S", "subjects": ["s.>"], "storage": "file", "num_replicas": replicas}
        with RawClient(nodes[0].address) as client:
            told = client.api("STREAM.CREATE.S", config)
        named = {node.name: node for node in nodes}
        leader = named.pop(told["cluster"]["leader"]) if replicas > 1 else nodes[0]
        roles = {"leader": leader, **({"follower": next(iter(named.values()))} if named else {})}
        with RawClient(leader.address) as client:
            client.subscribe("answers.*")
            operate(client, "s.1", PAYLOAD, WARM_UP)
            for node in roles.values():
                os.kill(node.running.pid, signal.SIGWINCH)
            operate(client, "s.1", PAYLOAD, publishes)
            for node in roles.values():
                os.kill(node.running.pid, signal.SIGURG)
        return {role: found(directory / f"calls{node.running.pid}") for role, node in roles.items()}


def found(out: Path) -> list[str]:
    """The calls that a node has written down."""
    patience_s = time.monotonic() + 10
    while not out.exists() and time.monotonic() < patience_s:
        time.sleep(0.01)
    lines = out.read_text(encoding="utf-8").splitlines()
    own = [line.rpartition("/jetraft/")[2] for line in lines if "/jetraft/" in line or line.startswith("<attrs")]
    return [line for line in own if "trio" not in line]


if __name__ == "__main__":
    main()
