"""A run: servers in namespaces, clients that record, faults one after the other, and the judgement of all histories."""

import asyncio
import contextlib
import json
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Final

import attrs

from tests.faults.netns import both_ways
from tests.faults.nodes import Node, Nodes
from tests.faults.stage import stream_config
from tests.harness.patience import PATIENCE_S
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient
from tests.linearizability.checker import Action, Judgement, Operation, judge
from tests.linearizability.clients import BUCKET, FOLLOWER, KINDS, LEADER, LIST, Clients, Recorder
from tests.linearizability.lists import wrong_in_list

STREAMS: Final = (BUCKET, LIST)
REPLICAS: Final = 3
HOLD_S: Final = (0.5, 3.0)
BETWEEN_S: Final = 1.0
LOOK_S: Final = 0.2
STALENESS_MAX_NS: Final = 10_000_000_000  # what a plain direct get may miss is not older (raft/freshness.py)
LINEARIZABLE: Final = ("Jetraft-Consistency", "linearizable")
NOT_FOUND: Final = "404"  # and words
BOUNDED: Final = (LEADER, FOLLOWER)  # and the other kinds of reads miss nothing


@attrs.frozen(kw_only=True)
class Report:
    """What a run found."""

    seconds: float
    faults: Counter[str]
    recorder: Recorder
    keys: Counter[Judgement]
    wrong: tuple[str, ...]  # what a linearizable operation may not do
    reads: tuple[str, ...]  # what plain direct gets did, and a client does not expect


class Nemesis:
    """Makes faults, one at a time, and heals each before the next."""

    def __init__(self, nodes: Nodes, random: Random) -> None:
        self._nodes = nodes
        self._random = random
        self.counts: Counter[str] = Counter()

    def disturb(self) -> None:
        """One fault, made and taken back; returns when all servers are healthy."""
        faults: tuple[Callable[[Node], None], ...] = (
            self.kill,
            self.kill_all,
            self.pause,
            self.cut_one_way,
            self.cut_link,
            self.isolate,
            self.restart,
            self.wipe,
            self.scale,
            self.move,
            self.step_down,
        )
        fault = self._random.choice(faults)
        fault(self._random.choice(self._nodes.all))
        self.counts[fault.__name__] += 1
        self._nodes.network.heal()
        for node in self._nodes:
            node.running.wait_until(node.healthy, what=f"{node.name} was healthy after {fault.__name__}")

    def _hold(self) -> None:
        time.sleep(self._random.uniform(*HOLD_S))

    def kill(self, node: Node) -> None:
        """SIGKILL, and a start a while later."""
        node.running.kill()
        self._hold()
        node.start()

    def kill_all(self, _node: Node) -> None:
        """SIGKILL of all at once."""
        for node in self._nodes:
            node.running.signal(signal.SIGKILL)
        for node in self._nodes:
            node.running.wait()
        for node in self._nodes:
            node.start()

    def pause(self, node: Node) -> None:
        """SIGSTOP, and SIGCONT."""
        node.running.signal(signal.SIGSTOP)
        self._hold()
        node.running.signal(signal.SIGCONT)

    def cut_one_way(self, node: Node) -> None:
        """It hears the others, or they hear it."""
        others = [place for place in self._nodes.places if place != node.place]
        pairs = [(node.place, other) for other in others]
        self._nodes.network.cut(pairs if self._random.random() < 0.5 else [(other, one) for one, other in pairs])
        self._hold()

    def cut_link(self, node: Node) -> None:
        """One link, both ways."""
        other = self._random.choice([place for place in self._nodes.places if place != node.place])
        self._nodes.network.cut(both_ways([node.place], [other]))
        self._hold()

    def isolate(self, node: Node) -> None:
        """All links of one."""
        self._nodes.network.cut(both_ways([node.place], [place for place in self._nodes.places if place != node.place]))
        self._hold()

    def restart(self, node: Node) -> None:
        """SIGTERM, and a start."""
        node.running.terminate()
        node.start()

    def wipe(self, node: Node) -> None:
        """SIGKILL, and a start with an empty store."""
        node.running.kill()
        shutil.rmtree(node.directory / "store")
        node.start()

    def scale(self, node: Node) -> None:
        """One replica, and as many as before."""
        for replicas in (1, REPLICAS):
            for stream in STREAMS:
                self._ask(node, f"STREAM.UPDATE.{stream}", stream_config(stream, replicas, "file"))
            self._hold()

    def move(self, node: Node) -> None:
        """A replica is taken from this node; where there is another one, it gets it."""
        for stream in STREAMS:
            self._ask(node, f"STREAM.PEER.REMOVE.{stream}", {"peer": node.name})
        self._hold()

    def step_down(self, node: Node) -> None:
        """Another leader."""
        for stream in STREAMS:
            self._ask(node, f"STREAM.LEADER.STEPDOWN.{stream}", {})

    @staticmethod
    def _ask(node: Node, subject: str, body: object) -> None:
        """Ask once: a refusal is an answer too."""
        with contextlib.suppress(OSError, AssertionError), RawClient(node.client_address) as client:
            client.request(f"$JS.API.{subject}", json.dumps(body).encode())


def create(nodes: Nodes) -> None:
    """Create both streams; servers that have just started may refuse for a while."""
    for stream in STREAMS:
        deadline, answer = time.monotonic() + PATIENCE_S, b"no answer"
        while time.monotonic() < deadline and b"config" not in answer:
            with contextlib.suppress(OSError, AssertionError), RawClient(nodes.all[0].client_address) as client:
                config = json.dumps(stream_config(stream, REPLICAS, "file")).encode()
                found = client.request(f"$JS.API.STREAM.CREATE.{stream}", config)
                answer = found[0].payload if found else answer
        if b"config" not in answer:
            raise ServerFailed(f"create {stream}: {answer!r}")


def play(nodes: Nodes, seconds: float, seed: int) -> Report:
    """Faults and clients for so long, then the judgement."""
    random = Random(seed)
    create(nodes)
    leads = LeaderWatch(nodes)
    recorders: list[Recorder] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    async def work() -> None:
        clients = Clients([node.client_address for node in nodes], Random(f"clients {seed}"), leads.place)
        recorders.append(clients.recorder)
        running = asyncio.create_task(clients.run())
        await asyncio.to_thread(stop.wait)
        clients.stop.set()
        await running

    def thread() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001  (a thread has no caller: the run tells)
            failures.append(error)

    working = threading.Thread(target=thread, name="clients", daemon=True)
    nemesis, began = Nemesis(nodes, random), time.monotonic()
    with leads:
        working.start()
        try:
            while time.monotonic() - began < seconds:
                time.sleep(BETWEEN_S)
                nemesis.disturb()
        finally:
            stop.set()
            working.join(PATIENCE_S)
    if failures:
        raise failures[0]
    (recorder,) = recorders
    return judged(recorder, content(nodes, LIST), time.monotonic() - began, nemesis.counts)


class LeaderWatch:
    """Asks from time to time which node leads the bucket."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._found: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="leader", daemon=True)

    def place(self) -> int | None:
        """Of the leader, from 0; None when none was found."""
        return self._found

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            leader = self._nodes.leader(BUCKET)
            self._found = None if leader is None else leader.place - 1

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)


def content(nodes: Nodes, stream: str) -> dict[int, str]:
    """What a stream has, as its leader says.

    Only 404 says that a sequence is not there. A leader that has just begun, or has just stepped down after the last
    fault, refuses a linearizable read: it is asked again, of whoever leads then.
    """
    found: dict[int, str] = {}
    absent: set[int] = set()
    deadline, refused = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < deadline:
        if (leader := nodes.leader(stream)) is None:
            time.sleep(LOOK_S)
            continue
        with contextlib.suppress(OSError, AssertionError), RawClient(leader.client_address) as client:
            state = client.api(f"STREAM.INFO.{stream}")["state"]
            ask = partial(client.request, f"$JS.API.DIRECT.GET.{stream}", headers=[LINEARIZABLE])
            for seq in range(state["first_seq"], state["last_seq"] + 1):
                if seq in found or seq in absent:
                    continue
                (answer,) = ask(json.dumps({"seq": seq}).encode())
                if not answer.status:
                    found[seq] = answer.payload.decode()
                elif answer.status.startswith(NOT_FOUND):
                    absent.add(seq)
                else:
                    refused = f"{leader.name} answers {answer.status} to a read of {seq}"
                    break
            else:
                return found
        time.sleep(LOOK_S)
    raise ServerFailed(f"{stream} was not read to its end: {refused or 'it has no leader'}")


def judged(recorder: Recorder, listed: dict[int, str], seconds: float, faults: Counter[str]) -> Report:
    """The report of what was recorded."""
    keys: Counter[Judgement] = Counter()
    wrong = [f"list: {text}" for text in wrong_in_list(recorder.appends, recorder.looks, listed)]
    wrong += recorder.contradictions
    for key, history in recorder.registers.items():
        judgement = judge(history)
        keys[judgement] += 1
        if judgement is Judgement.REFUSED:
            wrong.append(f"register {key}: {why(history)}")
    reads = []
    for kind in KINDS:
        found = recorder.reads[kind]
        bound_ns = STALENESS_MAX_NS if kind in BOUNDED else 0
        late = sum(late_ns > bound_ns for late_ns in found.late_ns)
        if late:  # a 404 is an old answer too: from before the key
            reads.append(f"{kind}: {late} answers were too old; {'; '.join(found.examples)}")
    return Report(seconds=seconds, faults=faults, recorder=recorder, keys=keys, wrong=tuple(wrong), reads=tuple(reads))


def why(history: Iterable[Operation]) -> str:
    """Which operations a history is wrong by: with refused swaps left out it may be right."""
    swaps = [operation for operation in history if operation.action is not Action.REFUSED]
    if judge(swaps) is Judgement.LINEARIZABLE:
        return "swaps were refused for what was not there: before, in between or afterwards"
    return "reads and swaps have no order"
