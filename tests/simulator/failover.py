"""`python -m tests.simulator.failover [--runs 100]`: how long a group is without a leader, in virtual time.

With `--groups 3000 [--fsyncs-per-s 250]`: how long so many are that lose their leader at once, on disks of that rate.

Measured from the fault to the first message acknowledged by the new leader. `kill`: the leader's process ends and its
connections with it. `isolate`: nothing reaches it or leaves it, silence has to be noticed. `pause`: SIGSTOP.
"""

import argparse
import sys
from statistics import median

from tests.simulator.herd import Herd
from tests.simulator.run import MODES, Simulation
from tests.simulator.world import MS

STEP_NS = 5 * MS


def one_run(seed: int, members: str, fault: str) -> int | None:
    """Nanoseconds until the new leader's first acknowledgement; None when there was none within 10 s."""
    simulation = Simulation(seed, MODES[members])
    world, hosts, client = simulation.world, simulation.hosts, simulation.client
    for host in hosts.values():
        host.start()
    simulation.network.connect_all()
    world.run_until(world.now_ns + 3000 * MS + world.between(0, 1000 * MS))
    old = next(host for host in hosts.values() if host.leads)
    others = [host for host in hosts.values() if host is not old]
    began_ns = world.now_ns
    if fault == "kill":
        old.crash(power=False)
    else:
        pairs = [(old.node_id, other.node_id) for other in others]
        simulation.network.block(pairs + [(b, a) for a, b in pairs], 60_000 * MS)
        if fault == "pause":
            old.pause()
    while world.now_ns < began_ns + 10_000 * MS:
        world.run_until(world.now_ns + STEP_NS)
        for host in others:
            if host.leads:
                client.publish_to(host)
        if client.acknowledged:
            return world.now_ns - began_ns
    return None


def fail_over_many(groups: int, syncs_per_s: int) -> None:
    """One row: the time without a leader of many groups, and what it cost."""
    found = Herd(1, groups=groups).fail_over(syncs_per_s=syncs_per_s, limit_ns=60_000 * MS)
    waits = {name: found.percentile_ns(percent) for name, percent in (("p50", 50), ("p99", 99), ("all", 100))}
    text = ", ".join(f"{name} {'never' if wait is None else f'{wait // MS} ms'}" for name, wait in waits.items())
    print(  # noqa: T201  (a command)
        f"{groups} groups, {syncs_per_s} fsyncs/s: {text}; {found.terms} terms at most, {found.syncs} fsyncs"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--fsyncs-per-s", type=int, default=250)
    options = parser.parse_args()
    if options.groups:
        fail_over_many(options.groups, options.fsyncs_per_s)
        return 0
    for members in ("base", "five"):
        for fault in ("kill", "isolate", "pause"):
            times = [one_run(seed, members, fault) for seed in range(options.runs)]
            found = sorted(time for time in times if time is not None)
            p99 = found[min(len(found) - 1, len(found) * 99 // 100)]
            print(  # noqa: T201  (a command)
                f"{members} {fault}: {len(found)}/{options.runs} runs, first acknowledgement after "
                f"median {median(found) / MS:.0f} ms, p99 {p99 / MS:.0f} ms, max {found[-1] / MS:.0f} ms"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
