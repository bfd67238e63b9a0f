"""Servers whose stores lie on disks that a test can hurt, under load, and what is asked of them."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import attrs

from tests.faults.disk.mounts import FaultyDisk, LoopDisk
from tests.faults.journal import Journal
from tests.harness.cluster import Cluster
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

STREAM: Final = "DISK"
HEALTHY_S: Final = 60.0
LOOK_S: Final = 0.02
BATCH: Final = 1_000


class PlainDisk:
    """A directory of the machine's own file system: for damage that is done while nobody looks."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to take away."""


Disk = FaultyDisk | LoopDisk | PlainDisk


@attrs.define(kw_only=True)
class Stage:
    """A run: `nodes[i]` keeps its store on `disks[i]`."""

    kind: Kind
    nodes: Sequence[Server]
    disks: Sequence[Disk]
    random: Random
    journal: Journal
    faults: int = 0
    healed_s: list[float] = attrs.field(factory=list)  # from the end of each fault until every node was healthy
    moved_s: list[float] = attrs.field(factory=list)  # from a fault of the leader until another node led
    paces: list[tuple[float, ...]] = attrs.field(factory=list)  # acks per second before, during and after a slow disk
    notes: list[str] = attrs.field(factory=list)

    # What is asked.

    def view(self, node: Server) -> dict[str, Any]:
        """What the node itself says about its replica; empty when it does not answer or has none."""
        _, body = node.get("/jsz?streams=true")
        accounts = body.get("account_details") or [] if isinstance(body, dict) else []
        streams = [detail for account in accounts for detail in account.get("stream_detail") or []]
        return next((detail for detail in streams if detail["name"] == STREAM), {})

    def leader(self) -> int:
        """The place of the stream's leader; waits for one."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [place for place, node in enumerate(self.nodes) if self.leads(node)]
            return bool(found)

        self.wait(look, "there was a leader")
        return found[0]

    def follower(self) -> int:
        """The place of some node that does not lead."""
        leader = self.leader()
        return self.random.choice([place for place in range(len(self.nodes)) if place != leader])

    def leads(self, node: Server) -> bool:
        """Whether the node takes itself for the stream's leader."""
        if not node.running.running:
            return False
        if len(self.nodes) == 1:
            return True
        return bool((self.view(node).get("cluster") or {}).get("leader") == node.name)

    def health(self, place: int) -> str:
        """Why a node is not healthy; empty when it is."""
        status, body = self.nodes[place].get("/healthz")
        if status == 200:
            return ""
        return str(body.get("error")) if isinstance(body, dict) else "no answer"

    def wait(self, ready: Callable[[], bool], what: str, timeout_s: float = HEALTHY_S) -> float:
        """Ask again and again until the answer is yes; returns the seconds that took. Raises ServerFailed."""
        began = time.monotonic()
        while not ready():
            if time.monotonic() - began > timeout_s:
                said = {node.name: self.health(place) for place, node in enumerate(self.nodes)}
                raise ServerFailed(f"took more than {timeout_s} s before {what}: {said}")
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def wait_acks(self, count: int = 50) -> None:
        """Wait until so many more messages are acknowledged."""
        wanted = len(self.journal.ack_times_ns) + count
        self.wait(lambda: len(self.journal.ack_times_ns) >= wanted, f"{count} more messages were acknowledged")

    def healed(self, since_s: float | None = None) -> None:
        """The fault is over (`since_s`, monotonic): note how long until every node is healthy; acks must come then."""
        began_s = time.monotonic() if since_s is None else since_s
        self.wait(lambda: not any(self.health(place) for place in range(len(self.nodes))), "all were healthy")
        self.healed_s.append(time.monotonic() - began_s)
        self.wait_acks()

    # What is done.

    def kill(self, places: Sequence[int]) -> None:
        """SIGKILL."""
        for place in places:
            self.nodes[place].kill()

    def start(self, places: Sequence[int]) -> None:
        """Start again on what is left."""
        for place in places:
            self.nodes[place].start(wait=False)
        for place in places:
            self.nodes[place].wait_listening()

    def groups(self, place: int) -> list[Path]:
        """The directories of the node's groups (jetraft), the meta group's left out."""
        found = sorted((self.nodes[place].store_dir / "jetstream" / "groups").iterdir())
        return [path for path in found if not path.name.startswith("meta")]

    def logs(self) -> list[str]:
        """What the paths of files with the stream's entries have in common (the reference has each message twice)."""
        return ["S-R3F"] if self.kind == "jetraft" else ["S-R3F", f"streams/{STREAM}/msgs"]

    def log_files(self, place: int) -> list[Path]:
        """The files that hold the stream's messages on a node that is stopped."""
        if self.kind == "reference":
            return sorted(self.nodes[place].store_dir.rglob(f"streams/{STREAM}/msgs/*.blk"))
        return sorted(path for group in self.groups(place) for path in group.rglob("*.blk"))

    def wipe(self, place: int) -> None:
        """The disk is new."""
        shutil.rmtree(self.nodes[place].store_dir)


@contextmanager
def running(  # noqa: PLR0913  (the coordinates of a run)
    kind: Kind, make_disk: Callable[[int], Disk], size: int, *, directory: Path, config: str | None, seed: int
) -> Iterator[Stage]:
    """Servers on new disks, with an empty stream of `size` replicas. Everything is taken away at the end."""
    with ExitStack() as stack:
        disks = [make_disk(place) for place in range(size)]
        for made in disks:
            stack.enter_context(made)
        runner: Server | Cluster
        if size == 1:
            runner = Server(kind, directory=directory / "n1", config=config)
            nodes = [runner]
        else:
            runner = Cluster(kind, size, directory=directory, config=config)
            nodes = runner.nodes
        for node, disk in zip(nodes, disks, strict=True):
            node.directory.mkdir(parents=True, exist_ok=True)
            node.store_dir = disk.directory / "store"
        stack.enter_context(runner)
        log = stack.enter_context((directory / "journal").open("w", encoding="utf-8"))
        create(nodes[0], size)
        random = Random(f"{kind} {seed}")
        yield Stage(kind=kind, nodes=nodes, disks=disks, random=random, journal=Journal(log))


def create(node: Server, replicas: int) -> None:
    """An empty stream in files."""
    config = {
        "name": STREAM,
        "subjects": [f"{STREAM}.>"],
        "num_replicas": replicas,
        "allow_direct": True,
        "duplicate_window": 120 * 10**9,
    }
    with RawClient(node.address) as client:
        answer = client.api(f"STREAM.CREATE.{STREAM}", config)
    if "error" in answer:
        raise ServerFailed(f"create: {answer}")


def holds(node: Server) -> dict[int, bytes]:
    """What a node gives out by direct gets: its own replica's messages with jetraft, anybody's with nats-server."""
    held: dict[int, bytes] = {}
    at, silent, status = 1, 0, ""
    with RawClient(node.address) as client:
        while silent < 20:
            body = json.dumps({"seq": at, "batch": BATCH}).encode()
            found = client.request(f"$JS.API.DIRECT.GET.{STREAM}", body, replies=BATCH + 1, until_status=True)
            status = found[-1].status if found else ""
            for message in found:
                fields = dict(message.headers)
                if "Nats-Sequence" in fields:
                    held[int(fields["Nats-Sequence"])] = message.payload
                    at = int(fields["Nats-Sequence"]) + 1
            if status.startswith("404"):
                return held
            if status.startswith("500"):  # this message is damaged: on with the next
                at += 1
            silent += not status.startswith("204")
    raise ServerFailed(f"{node.name} does not serve reads: {status or 'no answer'}\n{node.running.tail()}")


def read_all(stage: Stage) -> dict[str, dict[int, bytes]]:
    """What each replica holds, when all say that they hold the same."""

    def settled() -> bool:
        states = [stage.view(node).get("state", {}) for node in stage.nodes]
        return all(states) and len({(state["messages"], state["last_seq"]) for state in states}) == 1

    stage.wait(settled, "replicas were equal")
    with ThreadPoolExecutor(len(stage.nodes)) as pool:
        return dict(zip((node.name for node in stage.nodes), pool.map(holds, stage.nodes), strict=True))


def read_what_is_left(stage: Stage) -> dict[str, dict[int, bytes]]:
    """The same after a run that did not come to its end, of those that answer: nothing where the stream is gone."""
    found: dict[str, dict[int, bytes]] = {}
    for node in stage.nodes:
        try:
            with RawClient(node.address) as client:
                info = client.api(f"STREAM.INFO.{STREAM}")
            found[node.name] = {} if "error" in info else holds(node)
        except (ServerFailed, OSError):
            continue
    return found


def reported_lost(stage: Stage) -> set[int]:
    """The sequences that stream info lists as lost on any node."""
    return {
        seq for node in stage.nodes for seq in (stage.view(node).get("state", {}).get("lost") or {}).get("msgs") or []
    }
