"""A cluster of real server processes on loopback, and the questions tests ask of it."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness.ports import HOST, free_port
from tests.harness.process import READY_TIMEOUT_S, ServerFailed
from tests.harness.server import Kind, Server

CLUSTER_NAME = "C"


class Cluster:
    """`with Cluster("jetraft", 3, directory=tmp_path) as cluster:` starts the nodes and waits until all are healthy."""

    def __init__(  # noqa: PLR0913  (each is a property of the cluster, by name)
        self,
        kind: Kind,
        size: int = 3,
        *,
        directory: Path,
        config: str | None = None,
        flags: tuple[str, ...] = (),
        without: int = 0,
    ) -> None:
        """`without` of the nodes, the last ones, have no JetStream."""
        self.kind: Kind = kind
        self.without = without
        ports = [free_port() for _ in range(size)]
        routes = tuple(f"nats://{HOST}:{port}" for port in ports)
        self.nodes = [
            Server(
                kind,
                directory=directory / f"n{number}",
                name=f"n{number}",
                cluster=CLUSTER_NAME,
                cluster_port=port,
                routes=routes,
                config=config,
                flags=flags,
                jetstream=number <= size - without,
            )
            for number, port in enumerate(ports, start=1)
        ]

    def start(self) -> Self:
        """Start every node, then wait until every node is healthy and the metadata leader sees all of them."""
        try:
            for node in self.nodes:
                node.start(wait=False)
            for node in self.nodes:
                node.wait_listening()
            self.wait_healthy()
        except ServerFailed:
            self.close()
            raise
        return self

    def wait_healthy(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when all running nodes are healthy and the metadata leader sees every node."""
        running = [node for node in self.nodes if node.running.running]
        for node in running:
            node.wait_healthy(timeout_s)
        running[0].running.wait_until(
            lambda: self.known_nodes() >= len(running) - self.without,
            what="the metadata leader saw every node",
            timeout_s=timeout_s,
        )

    def known_nodes(self) -> int:
        """How many nodes the metadata leader sees online, itself included; all of them when no node tells."""
        told = False
        for node in self.nodes:
            _, body = node.get("/jsz") if node.running.running else (0, None)
            meta = body.get("meta_cluster") if isinstance(body, dict) else None
            if not isinstance(meta, dict):
                continue
            told = True
            if meta.get("leader") == node.name:
                return 1 + sum(not peer.get("offline", False) for peer in meta.get("replicas") or [])
        return 0 if told else len(self.nodes)

    def named(self, name: str) -> Server:
        """The node of this server name."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def urls(self) -> list[str]:
        """Client URLs of all nodes."""
        return [node.url for node in self.nodes]

    def statistics(self) -> dict[str, Any]:
        """Name to resident bytes of the running nodes."""
        return {node.name: node.rss_bytes() for node in self.nodes if node.running.running}

    def __iter__(self) -> Iterator[Server]:
        return iter(self.nodes)

    def __getitem__(self, position: int) -> Server:
        return self.nodes[position]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        if error is not None:
            for node in self.nodes:
                if node.process is not None:
                    error.add_note(f"--- log of {node.name} ({node.kind}) ---\n{node.process.tail()}")

    def close(self) -> None:
        """End every node; the others do not wait for the first."""
        for node in self.nodes:
            if node.process is not None and node.process.running:
                node.thaw()
                node.process.signal(15)
        for node in self.nodes:
            node.close()
