"""One run: load, faults, healing, convergence within a budget, then every replica read and judged."""

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from random import Random

import attrs

from tests.faults.journal import Journal, Verdict, judge
from tests.faults.nodes import Node, Nodes
from tests.faults.scenarios import Scenario
from tests.faults.stage import RECOVERY_S, Episode, Stage, stream_config
from tests.faults.writers import Load
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient

WARM_UP_ACKS = 50
DRAIN_S = 30.0
CONVERGENCE_S = 30.0
BETWEEN_S = 1.0  # under load and without a fault, before the next one


@attrs.frozen(kw_only=True)
class Measured:
    """What one fault cost, in nanoseconds. `leader_ns` is None when it took no leader away or no other one came."""

    gap_ns: int
    leader_ns: int | None


@attrs.frozen(kw_only=True)
class Result:
    """How a run ended. `problem` is set when it could not be finished."""

    scenario: str
    seed: int
    verdict: Verdict | None
    faults: tuple[Measured, ...] = ()
    problem: str | None = None

    @property
    def clean(self) -> bool:
        """Whether every promise was kept and the run came to its end."""
        return self.problem is None and self.verdict is not None and self.verdict.clean


def run(nodes: Nodes, scenario: Scenario, seed: int, *, rate: float, hold_s: float) -> Result:
    """Play one seed on a running cluster. What goes wrong is in the result, with the journal kept beside the logs."""
    stream = f"{scenario.name}-{seed}"
    nodes.directory.mkdir(parents=True, exist_ok=True)
    path = nodes.directory / f"{stream}.journal"
    stage = Stage(
        nodes=nodes,
        stream=stream,
        storage=scenario.storage,
        replicas=scenario.replicas or len(nodes.all),
        random=Random(f"{scenario.name} {seed}"),
        hold_s=hold_s,
    )
    verdict = None
    problem = None
    with path.open("w", encoding="utf-8") as log:
        journal = Journal(log)
        try:
            create(nodes, stream_config(stream, stage.replicas, scenario.storage))
            write(stage, scenario, journal, rate)
            verdict = judge(journal, read_all(stage))
        except (ServerFailed, OSError, AssertionError) as error:
            nodes.network.heal()
            problem = f"{type(error).__name__}: {error}"
    faults = measure(journal, stage.episodes)
    return Result(scenario=scenario.name, seed=seed, verdict=verdict, faults=faults, problem=problem)


def create(nodes: Nodes, config: Mapping[str, object]) -> None:
    """Create the stream; a cluster that has just been healed may refuse for a while."""
    deadline = time.monotonic() + RECOVERY_S
    stream = config["name"]
    answer: object = None
    while time.monotonic() < deadline:
        with RawClient(nodes.all[0].client_address) as client:
            found = client.request(f"$JS.API.STREAM.INFO.{stream}")
            if found and b'"error"' not in found[0].payload:
                return
            found = client.request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(config).encode())
            answer = found[0].payload if found else "no answer"
        time.sleep(0.1)
    raise ServerFailed(f"create {stream}: {answer}")


def write(stage: Stage, scenario: Scenario, journal: Journal, rate: float) -> None:
    """Faults under load, then healing; returns when everything that was sent is acknowledged."""
    addresses = [node.client_address for node in stage.nodes]
    with Load(journal, stream=stage.stream, addresses=addresses, rate=rate) as load:
        _wait_for_acks(journal, WARM_UP_ACKS)
        for _ in range(scenario.repeats):
            scenario.act(stage)
            stage.recover()
            _wait_for_acks(journal, len(journal.ack_times_ns) + WARM_UP_ACKS)
            time.sleep(BETWEEN_S)
        unknown = load.finish(DRAIN_S)
    if unknown:
        raise ServerFailed(f"{unknown} messages are not acknowledged {DRAIN_S:.0f} s after healing")


def _wait_for_acks(journal: Journal, count: int) -> None:
    deadline = time.monotonic() + RECOVERY_S
    while len(journal.ack_times_ns) < count:
        if time.monotonic() > deadline:
            raise ServerFailed(f"no acknowledgements {RECOVERY_S:.0f} s after healing")
        time.sleep(0.01)


def read_all(stage: Stage) -> dict[str, dict[int, bytes]]:
    """What each member holds, read while no node can reach another one, some seconds at a time."""
    return stage.nodes.read_apart(stage.stream, lambda: converged(stage))


def converged(stage: Stage) -> list[Node]:
    """The members, when all hold the same."""
    deadline = time.monotonic() + CONVERGENCE_S
    while not stage.nodes.settled(stage.stream, members := stage.members()):
        if time.monotonic() > deadline:
            states = {node.name: node.view(stage.stream).get("state") for node in members}
            raise ServerFailed(f"replicas have not converged {CONVERGENCE_S:.0f} s after healing: {states}")
        time.sleep(0.05)
    return members


def delete(nodes: Nodes, stream: str) -> None:
    """Make room for the next run; a refusal is not worth a word."""
    with RawClient(nodes.all[0].client_address) as client:
        client.request(f"$JS.API.STREAM.DELETE.{stream}")


def measure(journal: Journal, episodes: list[Episode]) -> tuple[Measured, ...]:
    """For each fault the longest silence until the next one began, and how long it took until another node led."""
    if not episodes or not journal.ack_times_ns:
        return ()
    bounds = [episode.began_ns for episode in episodes] + [max(journal.ack_times_ns[-1], episodes[-1].began_ns)]
    return tuple(
        Measured(
            gap_ns=journal.longest_gap_ns(began_ns, next_ns),
            leader_ns=found_ns - began_ns if (found_ns := episode.found_ns) is not None else None,
        )
        for episode, (began_ns, next_ns) in zip(episodes, pairwise(bounds), strict=True)
    )


def keep(result: Result, directory: Path) -> str:
    """One line that says what went wrong and where to look."""
    what = result.problem or (result.verdict and "; ".join(result.verdict.examples)) or "unknown messages"
    return f"{result.scenario} seed {result.seed} FAILED, logs in {directory}: {what}"
