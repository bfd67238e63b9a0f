"""Server processes in namespaces of their own, and what a test asks of them."""

import http.client
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.faults.netns import Network, address, both_ways
from tests.harness.process import Process, ServerFailed
from tests.harness.raw import RawClient
from tests.harness.server import Kind, command, environment

CLIENT_PORT, ROUTE_PORT, HTTP_PORT = 4222, 6222, 8222  # the usual ones: each node has an address of its own
HTTP_TIMEOUT_S = 1.0
BATCH = 1_000
ISOLATIONS_MAX = 20  # each brings some seconds of reading


class Node:
    """One server in its namespace. `place` is its number in the network, counted from 1."""

    def __init__(  # noqa: PLR0913  (what distinguishes nodes, by name)
        self, kind: Kind, network: Network, place: int, *, directory: Path, config: str, size: int
    ) -> None:
        self.kind = kind
        self.place = place
        self.name = f"n{place}"
        self.host = address(place)
        self.directory = directory / self.name
        self._namespace = network.namespace(place)
        self._config = config
        self._routes = ",".join(f"nats://{address(other)}:{ROUTE_PORT}" for other in range(1, size + 1))
        self.process: Process | None = None
        self.source: Path | None = None  # the folder of another version of jetraft that it runs

    def start(self) -> None:
        """Start on the same store; returns at once."""
        assert self.process is None or not self.process.running
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.conf"
        config.write_text(self._config, encoding="utf-8")
        words = [*command(self.kind), "-n", self.name, "-c", str(config), "-js", "-sd", str(self.directory / "store")]
        words += ["-a", self.host, "-p", str(CLIENT_PORT), "-m", str(HTTP_PORT)]
        words += ["--cluster", f"nats://{self.host}:{ROUTE_PORT}", "--cluster_name", "F", "--routes", self._routes]
        self.process = Process(
            ["ip", "netns", "exec", self._namespace, *words],
            log_path=self.directory / "server.log",
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        if self.source is None:
            return environment(self.kind)
        return {"PYTHONPATH": str(self.source / "src"), "PYTHONDONTWRITEBYTECODE": ""}

    @property
    def running(self) -> Process:
        """The process, which must have been started."""
        assert self.process is not None
        return self.process

    @property
    def alive(self) -> bool:
        """Whether the process runs (a stopped one does)."""
        return self.process is not None and self.process.running

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.running.pid}/status").read_text(encoding="ascii")
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])

    @property
    def client_address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self.host, CLIENT_PORT

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a monitoring page; status 0 when nobody answers in time."""
        status, body = self.get_bytes(path)
        try:
            return status, json.loads(body)
        except ValueError:
            return 0, None

    def get_bytes(self, path: str) -> tuple[int, bytes]:
        """Status and content of a monitoring page; status 0 when nobody answers in time."""
        connection = http.client.HTTPConnection(self.host, HTTP_PORT, timeout=HTTP_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def healthy(self) -> bool:
        """Whether /healthz says ok."""
        status, body = self.get("/healthz")
        return status == 200 and body.get("status") == "ok"

    def view(self, stream: str) -> dict[str, Any]:
        """What this node itself says about its replica of the stream; empty when it does not answer or has none."""
        _, body = self.get("/jsz?streams=true")
        accounts = body.get("account_details") or [] if isinstance(body, dict) else []
        streams = [detail for account in accounts for detail in account.get("stream_detail") or []]
        return next((detail for detail in streams if detail["name"] == stream), {})

    def leads(self, stream: str) -> bool:
        """Whether this node takes itself for the leader of the stream."""
        described = self.view(stream).get("cluster") or {}
        return bool(described.get("leader") == self.name)

    def holds(self, stream: str) -> dict[int, bytes]:
        """All of them, read in one go. Raises ServerFailed when that takes longer than the node answers."""
        held: dict[int, bytes] = {}
        if not self.read_on(stream, held):
            raise ServerFailed(f"{self.name} answers no more, after {len(held)} messages")
        return held

    def read_on(self, stream: str, held: dict[int, bytes]) -> bool:
        """Read the messages of the replica on this node behind `held` into that, by direct gets; whether that is all.

        The answers are its own only while it cannot reach the others, and it gives them for some seconds then. Raises
        ServerFailed when it does not answer.
        """
        silent = 0
        with RawClient(self.client_address) as client:
            while silent < 20:
                body = json.dumps({"seq": max(held, default=0) + 1, "batch": BATCH}).encode()
                found = client.request(f"$JS.API.DIRECT.GET.{stream}", body, replies=BATCH + 1, until_status=True)
                status = found[-1].status if found else ""
                for message in found:
                    fields = dict(message.headers)
                    if "Nats-Sequence" in fields:
                        held[int(fields["Nats-Sequence"])] = message.payload
                if status.startswith(("404", "503")):
                    return status.startswith("404")
                silent += not status.startswith("204")
        raise ServerFailed(f"{self.name} does not serve reads: {status or 'no answer'}\n{self.running.tail()}")

    def close(self) -> None:
        """End the process, politely if it obeys; never raises."""
        if not self.alive:
            return
        try:
            self.running.terminate()
        except ServerFailed:
            self.running.kill()


class Nodes:
    """The cluster of a run: nodes 1 to `size` on one network."""

    def __init__(self, kind: Kind, network: Network, size: int, *, directory: Path, config: str = "") -> None:
        self.kind: Kind = kind
        self.network = network
        self.directory = directory
        self.keep = False  # whether logs and stores stay when all went well
        self.all = [
            Node(kind, network, place, directory=directory, config=config, size=size) for place in range(1, size + 1)
        ]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.all)

    @property
    def places(self) -> list[int]:
        """The nodes' numbers."""
        return [node.place for node in self.all]

    def __enter__(self) -> Self:
        try:
            for node in self.all:
                node.start()
            for node in self.all:
                node.running.wait_for_line("Server is ready")
            for node in self.all:
                node.running.wait_until(node.healthy, what=f"{node.name} was healthy")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        if error is None and not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """End every process and take back every cut."""
        self.network.heal()
        with ThreadPoolExecutor(len(self.all)) as pool:
            list(pool.map(Node.close, self.all))

    def isolate(self) -> None:
        """Cut every node from every other; clients still reach each of them."""
        self.network.cut(both_ways(self.places, self.places))

    def read_apart(self, stream: str, members: Callable[[], Sequence[Node]]) -> dict[str, dict[int, bytes]]:
        """What each member holds of a stream, read while no node can reach another one, some seconds at a time.

        `members` waits until they hold the same. Raises ServerFailed.
        """
        held: dict[str, dict[int, bytes]] = {}
        for _ in range(ISOLATIONS_MAX):
            nodes = members()
            self.isolate()
            try:
                read = [node.read_on(stream, held.setdefault(node.name, {})) for node in nodes]
            finally:
                self.network.heal()
            if all(read):
                return held
        raise ServerFailed(f"the members of {stream} could not be read in {ISOLATIONS_MAX} isolations")

    def leader(self, stream: str, *, among: Sequence[Node] | None = None) -> Node | None:
        """The node that takes itself for the stream's leader, None when there is none now."""
        asked = [node for node in (self.all if among is None else among) if node.alive]
        with ThreadPoolExecutor(len(self.all)) as pool:
            claims = list(pool.map(lambda node: node.leads(stream), asked))
        return next((node for node, claim in zip(asked, claims, strict=True) if claim), None)

    def settled(self, stream: str, members: Sequence[Node]) -> bool:
        """Whether all members say that they hold the same messages, and one of them leads."""
        if not all(node.alive for node in members):
            return False
        with ThreadPoolExecutor(len(members)) as pool:
            views = list(pool.map(lambda node: node.view(stream), members))
        states = {json.dumps(view.get("state", {}).get("last_seq")) for view in views}
        led = any(
            (view.get("cluster") or {}).get("leader") == node.name for node, view in zip(members, views, strict=True)
        )
        return led and len(states) == 1 and "null" not in states
