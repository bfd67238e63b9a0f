"""Three servers of an earlier version are upgraded one after the other, taken back, and upgraded again, under load.

Publishers write to a stream in files and one in memory, a durable consumer reads and acknowledges, a key-value bucket
is written by compare-and-set, and at each step a stream is created. Afterwards every replica is read on its own: what
was acknowledged is there once, at its sequence, and the replicas are equal. Taken back means back before the feature
level of the newer version is in use: nothing here asks for it.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs
import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig
from nats.js.errors import Error as JetStreamError

from jetraft.store.model.feature_level import BASE
from tests.faults.journal import Journal, Verdict, judge
from tests.faults.nodes import Node, Nodes
from tests.faults.stage import stream_config
from tests.faults.writers import Load
from tests.harness.patience import PATIENCE_S
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient

STORAGES: Final = {"FILE": "file", "MEMORY": "memory"}
RATE: Final = 200.0  # messages a second into each
SILENCE_MAX_S: Final = 2.0
ACK_WAIT_S: Final = 2.0
SETTLED_ACKS: Final = 50  # before and behind a step
BUCKET: Final = "BUCKET"
REPLICAS: Final = 3
UNKNOWN: Final = (NatsError, JetStreamError, TimeoutError, OSError)  # the request may have been carried out


@attrs.frozen(kw_only=True)
class Step:
    """One server was stopped and started with a version."""

    node: str
    version: str
    away_s: float  # until /healthz said ok again
    silence_s: dict[str, float]  # the longest, by stream


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of it. `problems` is empty when every promise was kept."""

    steps: tuple[Step, ...]
    verdicts: dict[str, Verdict]
    read: int  # messages that the consumer acknowledged
    redelivered: int
    revisions: int  # of the bucket, acknowledged
    problems: tuple[str, ...]


Move = tuple[Node, str, Path | None]  # a server, the version that it gets, and its folder; None for this tree


class Clients:
    """A consumer and a writer of a bucket, on nats-py, in a thread of their own until the end."""

    def __init__(self, addresses: list[tuple[str, int]]) -> None:
        self._urls = [f"nats://{host}:{port}" for host, port in addresses]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="clients", daemon=True)
        self.stopping = threading.Event()
        self.deliveries: Counter[int] = Counter()
        self.acked: set[int] = set()
        self.revisions: list[int] = []
        self.value = 0  # the last that was acknowledged
        self.possible = {0}  # and what may be there after it
        self.problems: list[str] = []

    async def _work(self) -> None:
        async def lost(_error: Exception) -> None:
            """Each restart ends connections."""

        try:
            client = await nats.connect(
                self._urls,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,
                error_cb=lost,
                connect_timeout=PATIENCE_S,
            )
            try:
                await asyncio.gather(self._read(client), self._write(client))
            finally:
                await client.close()
        except Exception as error:  # noqa: BLE001  (a thread has no caller: the run tells)
            self.problems.append(f"a client ended: {error!r}")

    async def _read(self, client: Client) -> None:
        reader = await client.jetstream(timeout=1).pull_subscribe(
            "FILE.>", "reader", stream="FILE", config=ConsumerConfig(ack_wait=ACK_WAIT_S)
        )
        while not self.stopping.is_set():
            with contextlib.suppress(*UNKNOWN):
                found = await reader.fetch(100, timeout=1)
                self.deliveries.update(message.metadata.sequence.stream for message in found)
                acks = await asyncio.gather(*(one.ack_sync(timeout=1) for one in found), return_exceptions=True)
                for message, answer in zip(found, acks, strict=True):
                    if not isinstance(answer, BaseException):
                        self.acked.add(message.metadata.sequence.stream)

    async def _write(self, client: Client) -> None:
        bucket = await client.jetstream(timeout=1).key_value(BUCKET)
        revision, value = await bucket.put("key", b"0"), 0
        while not self.stopping.is_set():
            value += 1
            self.possible.add(value)
            try:
                revision = await bucket.update("key", str(value).encode(), last=revision)
            except UNKNOWN:
                with contextlib.suppress(*UNKNOWN):
                    found = await bucket.get("key")
                    assert found.revision is not None
                    if found.revision > revision:  # a direct get may be behind: the next update is refused then
                        revision, self.value = found.revision, int(found.value or b"")
            else:
                self.value = value
                self.revisions.append(revision)
            await asyncio.sleep(0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stopping.set()
        self._thread.join(PATIENCE_S)


def create(node: Node, config: dict[str, object]) -> None:
    """Create a stream; a cluster that changes its leaders may refuse for a while."""
    name, deadline, answer = config["name"], time.monotonic() + PATIENCE_S, "no answer"
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, AssertionError), RawClient(node.client_address) as client:
            found = client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
            answer = found[0].payload.decode() if found else "no answer"
            if found and ("error" not in json.loads(answer) or "in use" in answer):
                return
        time.sleep(0.1)
    raise ServerFailed(f"create {name}: {answer}")


class Upgrade:
    """A run over running nodes."""

    def __init__(self, nodes: Nodes, logs: Path) -> None:
        self._nodes = nodes
        self._logs = logs
        self._journals: dict[str, Journal] = {}
        self._steps: list[Step] = []
        self._created: list[str] = []

    def play(self, plan: list[Move]) -> Outcome:
        """Carry out the steps under load, then read every replica."""
        nodes = self._nodes.all
        addresses = [node.client_address for node in nodes]
        for name, storage in STORAGES.items():
            create(nodes[0], stream_config(name, REPLICAS, storage))
        bucket = {**stream_config(f"KV_{BUCKET}", REPLICAS, "file"), "subjects": [f"$KV.{BUCKET}.>"]}
        create(nodes[0], {**bucket, "max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True})
        with ExitStack() as stack, Clients(addresses) as clients:
            loads = {}
            for name in STORAGES:
                log = stack.enter_context((self._logs / f"{name}.journal").open("w", encoding="utf-8"))
                journal = self._journals[name] = Journal(log)
                loads[name] = stack.enter_context(Load(journal, stream=name, addresses=addresses, rate=RATE))
            for node, version, source in plan:
                self._step(node, version, source)
            unknown = {name: load.finish(PATIENCE_S) for name, load in loads.items()}
            self._until_read(clients)
        problems = [f"{count} messages of {name} are not acknowledged" for name, count in unknown.items() if count]
        return self._judge(clients, problems)

    def _step(self, node: Node, version: str, source: Path | None) -> None:
        self._settle()
        began_ns = time.monotonic_ns()
        node.running.terminate()
        other = next(one for one in self._nodes if one is not node)
        self._created.append(name := f"NEW-{len(self._created)}")
        making = threading.Thread(target=partial(create, other, stream_config(name, REPLICAS, "file")))
        making.start()
        node.source = source
        node.start()
        node.running.wait_for_line("Server is ready")
        node.running.wait_until(node.healthy, what=f"{node.name} was healthy")
        away_s = (time.monotonic_ns() - began_ns) / 1e9
        making.join()
        self._settle()
        ended_ns = time.monotonic_ns()
        silence = {name: journal.longest_gap_ns(began_ns, ended_ns) / 1e9 for name, journal in self._journals.items()}
        self._steps.append(Step(node=node.name, version=version, away_s=away_s, silence_s=silence))

    def _settle(self) -> None:
        """Every stream acknowledges."""
        wanted = {name: len(journal.ack_times_ns) + SETTLED_ACKS for name, journal in self._journals.items()}
        for name, journal in self._journals.items():
            self._await(partial(_has_acks, journal, wanted[name]), f"{name} acknowledges")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise ServerFailed(f"{what}: not within {PATIENCE_S} s")
            time.sleep(0.02)

    def _until_read(self, clients: Clients) -> None:
        """Everything was delivered, and the consumer has its acknowledgement.

        Whether the client heard so is another thing: the answer to an acknowledgement may be lost with a connection,
        and what was acknowledged is not delivered again.
        """
        last_seq = self._last_seq("FILE")
        seen: dict[str, object] = {}

        def is_read() -> bool:
            nonlocal seen
            seen = self._consumer("FILE", "reader") or seen
            floor = seen.get("ack_floor")
            return isinstance(floor, dict) and floor["stream_seq"] >= last_seq and len(clients.deliveries) >= last_seq

        try:
            self._await(is_read, "the consumer had read everything")
        except ServerFailed as error:
            missing = sorted(set(range(1, last_seq + 1)) - clients.deliveries.keys())
            text = f"{error}: {len(missing)} of {last_seq} not delivered: {missing[:5]}, {clients.problems}, {seen}"
            raise ServerFailed(text) from error

    def _consumer(self, stream: str, name: str) -> dict[str, object] | None:
        """The consumer's info; None when nobody answers now."""
        for node in self._nodes.all:
            with contextlib.suppress(OSError, AssertionError), RawClient(node.client_address) as client:
                found = client.request(f"$JS.API.CONSUMER.INFO.{stream}.{name}", b"")
                answer: dict[str, object] = json.loads(found[0].payload) if found else {"error": "no answer"}
                if "error" not in answer:
                    return answer
        return None

    def _last_seq(self, stream: str) -> int:
        return max((sent.seq for sent in self._journals[stream].messages.values()), default=0)

    def _judge(self, clients: Clients, problems: list[str]) -> Outcome:
        nodes = self._nodes.all
        levels = {node.name: feature_level(node) for node in nodes}
        held: dict[str, dict[str, dict[int, bytes]]] = {}
        for names in (["FILE"], ["MEMORY"], [f"KV_{BUCKET}", *self._created]):
            held |= self._held(names)
        verdicts = {name: judge(journal, held[name]) for name, journal in self._journals.items()}
        problems += [f"{name}: {verdict}" for name, verdict in verdicts.items() if not verdict.clean]
        problems += list(self._differences(held, clients))
        problems += clients.problems
        for step in self._steps:
            slow = {name: gap for name, gap in step.silence_s.items() if gap > SILENCE_MAX_S}
            problems += [
                f"{step.node} to {step.version}: silence of {gap:.1f} s in {name}" for name, gap in slow.items()
            ]
        if set(levels.values()) != {BASE}:
            problems.append(f"feature levels in use: {levels}, expected {BASE} everywhere")
        return Outcome(
            steps=tuple(self._steps),
            verdicts=verdicts,
            read=len(clients.acked),
            redelivered=sum(count - 1 for count in clients.deliveries.values()),
            revisions=len(clients.revisions),
            problems=tuple(problems),
        )

    def _held(self, names: list[str]) -> dict[str, dict[str, dict[int, bytes]]]:
        """What each replica has. A server that is cut off answers gets for some seconds only: all are read at once."""
        nodes = self._nodes.all
        for name in names:
            self._await(partial(self._nodes.settled, name, nodes), f"the replicas of {name} agree")
        self._nodes.isolate()
        try:
            with ThreadPoolExecutor(len(nodes)) as pool:
                found = list(pool.map(lambda node: [node.holds(name) for name in names], nodes))
        finally:
            self._nodes.network.heal()
        by_node = zip(nodes, found, strict=True)
        replicas = {node.name: dict(zip(names, streams, strict=True)) for node, streams in by_node}
        return {name: {node: streams[name] for node, streams in replicas.items()} for name in names}

    def _differences(self, held: dict[str, dict[str, dict[int, bytes]]], clients: Clients) -> Iterator[str]:
        for name, replicas in held.items():
            if any(replica != replicas[self._nodes.all[0].name] for replica in replicas.values()):
                yield f"the replicas of {name} differ"
        values = {int(value) for replica in held[f"KV_{BUCKET}"].values() for value in replica.values()}
        if not values or min(values) < clients.value or not values <= clients.possible:
            yield f"the bucket has {values}, {clients.value} was acknowledged"
        if len(set(clients.revisions)) != len(clients.revisions) or clients.revisions != sorted(clients.revisions):
            yield "revisions of the bucket go back or come twice"


def _has_acks(journal: Journal, count: int) -> bool:
    return len(journal.ack_times_ns) >= count


def feature_level(node: Node) -> int:
    """The level that a node has in its table."""
    lines = node.get_bytes("/metrics")[1].decode().splitlines()
    return next((int(float(line.split()[-1])) for line in lines if line.startswith("jetraft_feature_level")), 0)
