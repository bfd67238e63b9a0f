"""What a scenario acts on: the cluster under load, a seeded source of choices, and the clock of the run."""

import json
import threading
import time
from collections.abc import Iterable
from random import Random
from types import TracebackType
from typing import Self

import attrs

from tests.faults.nodes import Node, Nodes
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient

POLL_S = 0.02
RECOVERY_S = 30.0


class LeaderWatch:
    """When another node than the faulty ones first says that it leads the stream, seen from outside by polling."""

    def __init__(self, nodes: Nodes, stream: str, without: Iterable[Node]) -> None:
        self.found_ns: int | None = None
        self._asked = [node for node in nodes if node not in list(without)]
        self._nodes, self._stream = nodes, stream
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="leader-watch", daemon=True)

    def _poll(self) -> None:
        while not self._over.is_set():
            if self._nodes.leader(self._stream, among=self._asked) is not None:
                self.found_ns = time.monotonic_ns()
                return
            self._over.wait(POLL_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


@attrs.define(kw_only=True)
class Episode:
    """One fault: when it began, when it was taken back and, if it hit the leader, when the next one was there."""

    began_ns: int
    ended_ns: int = 0
    watch: LeaderWatch | None = None

    @property
    def found_ns(self) -> int | None:
        """When the next leader was there."""
        return self.watch.found_ns if self.watch else None


@attrs.define(kw_only=True)
class Stage:
    """What a scenario acts on."""

    nodes: Nodes
    stream: str
    storage: str
    replicas: int
    random: Random
    hold_s: float
    episodes: list[Episode] = attrs.field(factory=list)

    def leader(self) -> Node:
        """The node that leads now; waits for one."""
        deadline = time.monotonic() + RECOVERY_S
        while (found := self.nodes.leader(self.stream)) is None:
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.stream} has no leader for {RECOVERY_S:.0f} s")
            time.sleep(POLL_S)
        return found

    def other(self, *than: Node) -> Node:
        """Any node but these."""
        return self.random.choice([node for node in self.nodes if node not in than])

    def begin(self, *lost: Node, leader: Node | None = None) -> None:
        """The fault happens now to these nodes; when the leader is among them, another node as leader is waited for.

        What a hit node says of itself does not count: a stopped, cut off or just restarted one may be out of date.
        """
        self.end()
        episode = Episode(began_ns=time.monotonic_ns())
        if leader is not None and leader in lost:
            episode.watch = LeaderWatch(self.nodes, self.stream, lost)
        self.episodes.append(episode)

    def watch(self) -> None:
        """Start to look for the next leader, once the fault is made."""
        if (watch := self.episodes[-1].watch) is not None:
            watch.__enter__()

    def hold(self, seconds: float | None = None) -> None:
        """Let the fault last."""
        self.watch()
        time.sleep(self.random.uniform(0.7, 1.3) * self.hold_s if seconds is None else seconds)

    def end(self) -> None:
        """The fault was taken back; stop looking for a leader."""
        if self.episodes and not self.episodes[-1].ended_ns:
            episode = self.episodes[-1]
            episode.ended_ns = time.monotonic_ns()

    def recover(self) -> None:
        """Wait until every node is healthy again and somebody leads; in memory, until every replica is refilled."""
        self.end()
        deadline = time.monotonic() + RECOVERY_S
        while not self._recovered():
            if time.monotonic() > deadline:
                sick = [node.name for node in self.nodes if not (node.alive and node.healthy())]
                raise ServerFailed(f"not recovered after {RECOVERY_S:.0f} s: {sick or 'no leader'}")
            time.sleep(0.05)
        for episode in self.episodes:
            if episode.watch is not None and episode.watch.found_ns is None:
                episode.watch.__exit__(None, None, None)

    def _recovered(self) -> bool:
        if not all(node.alive and node.healthy() for node in self.nodes):
            return False
        if self.storage == "file" and self.replicas == len(self.nodes.all):
            return self.nodes.leader(self.stream) is not None
        return self._members_are_current()

    # --- membership -----------------------------------------------------------------------------------------------
    def members(self) -> list[Node]:
        """The nodes with a replica, as the leader names them."""
        cluster = self.leader().view(self.stream).get("cluster") or {}
        names = {cluster.get("leader"), *(replica["name"] for replica in cluster.get("replicas") or [])}
        return [node for node in self.nodes if node.name in names]

    def _members_are_current(self, without: Node | None = None) -> bool:
        leader = self.nodes.leader(self.stream)
        if leader is None or leader is without:
            return False
        described = leader.view(self.stream).get("cluster") or {}
        others = described.get("replicas") or []
        named = without is not None and any(replica["name"] == without.name for replica in others)
        return len(others) == self.replicas - 1 and not named and all(replica["current"] for replica in others)

    def await_members(self, without: Node) -> None:
        """Wait until as many members as wanted hold everything, this node not among them."""
        deadline = time.monotonic() + RECOVERY_S
        while not self._members_are_current(without):
            if time.monotonic() > deadline:
                raise ServerFailed(f"{without.name} was not replaced in {RECOVERY_S:.0f} s")
            time.sleep(POLL_S)

    def remove_member(self, node: Node) -> None:
        """Ask that another node gets this one's replica; a cluster between two leaders may refuse for a while."""
        self._ask(f"STREAM.PEER.REMOVE.{self.stream}", {"peer": node.name}, through=self.other(node))

    def update(self, replicas: int) -> None:
        """Give the stream another number of replicas."""
        config = stream_config(self.stream, replicas, self.storage)
        self._ask(f"STREAM.UPDATE.{self.stream}", config, through=self.other())
        self.replicas = replicas

    def _ask(self, subject: str, body: object, *, through: Node) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while True:
            with RawClient(through.client_address) as client:
                found = client.request(f"$JS.API.{subject}", json.dumps(body).encode())
            answer = json.loads(found[0].payload) if found and found[0].payload else {"error": "no answer"}
            if "error" not in answer:
                return
            if time.monotonic() > deadline:
                raise ServerFailed(f"{subject}: {answer['error']}")
            time.sleep(0.2)


def stream_config(name: str, replicas: int, storage: str) -> dict[str, object]:
    """The stream of a run."""
    config = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True, "storage": storage}
    return {**config, "num_replicas": replicas}
